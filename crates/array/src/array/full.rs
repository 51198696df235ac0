//! Members whose file systems have no room. Writes of data are refused, where that loses nothing;
//! what has to land is tried again for a while: metadata, without which the array cannot go on, and
//! what is written to stripes that lack a strip, which comes from what the others hold.

use super::io::Owner;
use super::lane::Lane;
use super::recording::LogKind;
use crate::{Instant, IoOp, MemberId};

const AGAIN_MS: u64 = 1_000;

/// A write that waits for room.
#[derive(Clone, Copy, Debug)]
pub(super) struct PutOff {
    pub(super) at: Instant,
    pub(super) member: MemberId,
    pub(super) op: IoOp,
    pub(super) owner: Owner,
}

/// Writes that must land and for which members have no room.
#[derive(Debug, Default)]
pub(super) struct PutOffs(pub(super) Vec<PutOff>);

impl PutOffs {
    /// Puts a write off.
    pub(super) fn add(&mut self, now: Instant, member: MemberId, op: IoOp, owner: Owner) {
        self.0.push(PutOff { at: now.plus_millis(AGAIN_MS), member, op, owner });
    }

    /// When something is to be tried again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.iter().map(|put_off| put_off.at).min()
    }
}

/// Returns whether this must be written, or its member be called faulty.
pub(super) fn must_land(lane: &Lane, owner: Owner) -> bool {
    match owner {
        Owner::Meta { .. } => true,
        _ if owner.is_log() => true,
        // A log tells that it is in place, or will be.
        Owner::Job(_) if lane.log != LogKind::None => true,
        Owner::Job(_) => lane.map.has_parity() && lane.keeper().members().degraded() > 0,
        _ => false,
    }
}
