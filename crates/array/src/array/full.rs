//! Members whose file systems have no room. Writes of data are refused, where that loses nothing;
//! what has to land is tried again for a while: metadata, without which the array cannot go on, and
//! what is written to stripes that lack a strip, which comes from what the others hold.

use super::Array;
use super::io::Owner;
use crate::action::{IoError, IoErrorKind};
use crate::events::Fault;
use crate::{Instant, IoOp, MemberId};

const AGAIN_MS: u64 = 1_000;

/// A write that waits for room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PutOff {
    at: Instant,
    member: MemberId,
    op: IoOp,
    pub(super) owner: Owner,
}

impl Array {
    /// Must this be written, or a member be called faulty?
    pub(crate) fn must_land(&self, owner: Owner) -> bool {
        match owner {
            Owner::Meta { .. } => true,
            Owner::Job(_) => self.has_parity() && self.keeper.members().degraded() > 0,
            Owner::PlainRead(_) | Owner::Plain { .. } | Owner::Nobody => false,
        }
    }

    /// Puts a write off that must land and has no room. False when it is none, or has waited for
    /// too long.
    pub(crate) fn put_off(
        &mut self,
        member: MemberId,
        op: IoOp,
        owner: Owner,
        error: IoError,
    ) -> bool {
        if error.kind != IoErrorKind::Full || !self.must_land(owner) {
            return false;
        }
        let fault = Fault { sector: op.sector(), errno: error.errno };
        if !self.keeper.is_full(member, fault) {
            return false;
        }
        self.carry_out();
        let at = self.keeper.now().plus_millis(AGAIN_MS);
        self.waiting_for_room.push(PutOff { at, member, op, owner });
        true
    }

    /// Tries again what is due; what is for a member that has failed meanwhile is over.
    pub(crate) fn drive_put_off(&mut self) {
        for put_off in std::mem::take(&mut self.waiting_for_room) {
            let PutOff { at, member, op, owner } = put_off;
            if !self.keeper.members().live(member) {
                self.tell_owner(owner, Some((member, op, IoError::ABANDONED)), None);
            } else if at <= self.keeper.now() {
                self.issue(member, op, owner);
            } else {
                self.waiting_for_room.push(put_off);
            }
        }
    }

    /// When something is to be tried again.
    pub(crate) fn put_off_until(&self) -> Option<Instant> {
        self.waiting_for_room.iter().map(|put_off| put_off.at).min()
    }
}
