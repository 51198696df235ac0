//! Members that fail, and arrays that have lost too many.
//!
//! A write error or a vanished device makes a member faulty; the superblocks of the others say so
//! before any write is acknowledged. A read error of the medium does not: it is repaired by
//! rewriting. A file system without room is no fault of the member: the write is refused, and what
//! it may have left different among the members stays marked. When the array cannot do without the
//! member, nothing is written any more, the superblocks included: they still tell the last state in
//! which the array could run.

use super::Array;
use super::io::Owner;
use super::members::State;
use crate::action::{IoError, IoErrorKind};
use crate::events::{ArrayEvent, Fault};
use crate::level::Level;
use crate::refusal::Next;
use crate::{IoOp, MemberId};

impl Array {
    /// Counts an error and makes the member faulty when the error says so.
    pub(crate) fn note_error(&mut self, id: MemberId, op: IoOp, owner: Owner, error: IoError) {
        if matches!(op, IoOp::Discard { .. }) || error.kind == IoErrorKind::Abandoned {
            return;
        }
        if let Some(member) = self.members.get_mut(id) {
            member.errors += 1;
        }
        let fault = Fault { sector: op.sector(), errno: error.errno };
        let refused = op.sector().is_some() && !self.must_land(owner);
        if error.kind == IoErrorKind::Full && refused {
            return self.notify(ArrayEvent::MemberFull { member: id, fault });
        }
        let reason = match (Self::changes_member(op), error.kind) {
            (true, _) => "write error",
            (false, IoErrorKind::Gone) => "device gone",
            (false, _) => return,
        };
        let medium = error.kind == IoErrorKind::Medium;
        if !self.is_redundant() || self.read_only && medium {
            return;
        }
        let last_copy = self.is_mirror() && self.needs(id);
        if last_copy && medium {
            return;
        }
        self.fail_member(id, reason, fault);
    }

    /// Would the array fail without this member?
    pub(crate) fn needs(&self, id: MemberId) -> bool {
        let Some(member) = self.members.get(id) else { return false };
        let State::InSync { role } = member.state else { return false };
        self.leaving(role).is_none() && !self.enough_without(&[role])
    }

    /// Can the array run on the roles that are in sync, leaving out these?
    pub(crate) fn enough_without(&self, without: &[u16]) -> bool {
        let have = |role: u16| !without.contains(&role) && self.members.in_sync(role);
        let disks = self.geometry.raid_disks() as u16;
        match self.geometry.level() {
            Level::Linear | Level::Raid0 => (0..disks).all(have),
            Level::Raid1 => (0..disks).any(have),
            Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                let lost = (0..disks).filter(|role| !have(*role)).count() as u32;
                lost <= self.geometry.parity_disks()
            }
            // The pattern of copies repeats after as many chunks as there are members.
            Level::Raid10 => {
                let chunk = u64::from(self.geometry.chunk_sectors());
                (0..u64::from(disks))
                    .map(|number| number * chunk)
                    .take_while(|sector| *sector < self.geometry.array_sectors())
                    .all(|sector| {
                        (0..self.geometry.copies())
                            .any(|copy| have(self.geometry.copy(sector, copy).role))
                    })
            }
        }
    }

    /// Makes a member faulty; `fault`: what it answered.
    pub(crate) fn fail_member(&mut self, id: MemberId, reason: &'static str, fault: Fault) {
        let Some(member) = self.members.get(id) else { return };
        if !member.state.is_live() {
            return;
        }
        let fatal = self.needs(id);
        let role = member.state.role();
        self.members.set_state(id, State::Faulty { role });
        self.pass_role_on(role);
        self.abandon_member(id);
        let (reason, next) = (reason.into(), Next::default());
        self.notify(ArrayEvent::MemberFailed { member: id, reason, fault, next });
        self.sync_member_lost(id, role);
        if fatal && !self.failed {
            self.failed = true;
            self.notify(ArrayEvent::ArrayFailed);
            return;
        }
        if !self.failed {
            self.failure_ticket = self.wish_failure_update();
        }
    }

    /// Who held this role before its holder, and still has all of it.
    fn leaving(&self, role: u16) -> Option<MemberId> {
        let id = self.members.role(role).beside?;
        matches!(self.members.get(id)?.state, State::Leaving { .. }).then_some(id)
    }

    /// A role's holder is gone: whom it took the role from has it again, or the member that was to
    /// replace it is rebuilt as the holder.
    fn pass_role_on(&mut self, role: Option<u16>) {
        let entry = role.map(|role| self.members.role(role)).unwrap_or_default();
        let (None, Some(heir)) = (entry.holder, entry.beside) else { return };
        let Some(member) = self.members.get_mut(heir) else { return };
        match member.state {
            State::Rebuilding { role, offset, by_bitmap, .. } => {
                let state = State::Rebuilding { role, offset, replacement: false, by_bitmap };
                self.members.set_state(heir, state);
            }
            State::Leaving { role } => {
                // Members may have been told that it left: it says first that it has not.
                member.arriving = true;
                self.members.set_state(heir, State::InSync { role });
            }
            State::InSync { .. } | State::Spare | State::Faulty { .. } => {}
        }
    }

    /// Files two updates, one after the other: a member one event behind counts as current, and
    /// a forced start would take the failed one back with what it held before. The second one's
    /// ticket.
    fn wish_failure_update(&mut self) -> u64 {
        let first = self.wish_superblock(false);
        self.failure_repeat = Some(first);
        first + 1
    }

    /// The first of the two updates that tell of a failure may be done: files the second.
    pub(crate) fn repeat_failure_update(&mut self) {
        if self.failure_repeat.is_some_and(|first| self.meta.is_done(first)) {
            self.failure_repeat = None;
            self.wish_superblock(false);
        }
    }
}
