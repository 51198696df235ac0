//! Members that fail, and arrays that have lost too many.
//!
//! A write error, a vanished device or one that has become smaller makes a member faulty; the
//! superblocks of the others say so before any write is acknowledged. A read error of the medium
//! does not: it is repaired by rewriting. A file system without room is no fault of the member: the
//! write is refused, and what it may have left different among the members stays marked. When the
//! array cannot do without the member, nothing is written any more, the superblocks included: they
//! still tell the last state in which the array could run.

use std::borrow::Cow;

use super::members::State;
use super::{Keeper, LaneCommand};
use crate::MemberId;
use crate::action::{IoError, IoErrorKind};
use crate::events::{ArrayEvent, Fault};
use crate::refusal::{Next, Refusal};

/// An I/O on a member that failed.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    /// Where on it; a flush has no place.
    pub sector: Option<u64>,
    /// It was to change something there, or make it durable. What is only a hint does not count.
    pub changes: bool,
    /// If there is no room for it, the member is of no use.
    pub must_land: bool,
}

impl Keeper {
    /// Counts an error and makes the member faulty when the error says so.
    pub fn failed_io(&mut self, id: MemberId, tried: Tried, error: IoError) {
        if error.kind == IoErrorKind::Abandoned {
            return;
        }
        if let Some(member) = self.members.get_mut(id) {
            member.errors += 1;
        }
        let fault = Fault { sector: tried.sector, errno: error.errno };
        let refused = tried.sector.is_some() && !tried.must_land;
        if error.kind == IoErrorKind::Full && refused {
            return self.notify(ArrayEvent::MemberFull { member: id, fault });
        }
        let shrunk = error.kind == IoErrorKind::Shrunk;
        let reason = match (tried.changes, error.kind) {
            // The array goes on with what it has left.
            (false, IoErrorKind::Shrunk) if self.needs(id) => return,
            (_, IoErrorKind::Shrunk) => "has become smaller",
            (true, _) => "write error",
            (false, IoErrorKind::Gone) => "device gone",
            (false, _) => return,
        };
        let medium = error.kind == IoErrorKind::Medium || shrunk;
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
    #[must_use]
    pub fn needs(&self, id: MemberId) -> bool {
        let Some(member) = self.members.get(id) else { return false };
        let State::InSync { role } = member.state else { return false };
        self.leaving(role).is_none() && !self.enough_without(&[role])
    }

    /// Can the array run on the roles that are in sync, leaving out these?
    pub(crate) fn enough_without(&self, without: &[u16]) -> bool {
        let lost = |role: u16| without.contains(&role) || !self.members.in_sync(role);
        self.space.survives(&lost)
    }

    /// Makes a member faulty; `fault`: what it answered.
    pub(crate) fn fail_member(&mut self, id: MemberId, reason: &'static str, fault: Fault) {
        self.lose(id, reason.into(), fault, Next::default());
    }

    /// A member is gone.
    pub fn lose_member(&mut self, id: MemberId, why: Refusal) {
        if let Some(member) = self.members.get_mut(id) {
            member.errors += 1;
        }
        self.lose(id, why.reason.into(), Fault::default(), why.next);
    }

    fn lose(&mut self, id: MemberId, reason: Cow<'static, str>, fault: Fault, next: Next) {
        let Some(member) = self.members.get(id) else { return };
        if !member.state.is_live() {
            return;
        }
        let fatal = self.needs(id);
        let role = member.state.role();
        self.know_what_waits();
        self.members.set_state(id, State::Faulty { role });
        self.pass_role_on(role);
        self.out.push_back(LaneCommand::GiveUp(id));
        self.notify(ArrayEvent::MemberFailed { member: id, reason, fault, next });
        self.sync_member_lost(id, role);
        if fatal && !self.failed {
            self.failed = true;
            self.notify(ArrayEvent::ArrayFailed);
            return;
        }
        if !self.failed && !self.writes_over {
            self.failure_ticket = self.wish_failure_update();
        }
    }

    /// The array cannot be served at all, or not any more.
    pub fn give_up(&mut self) {
        let live: Vec<MemberId> = self.members.iter_live().map(|(id, _)| id).collect();
        for id in live {
            let role = self.members.get(id).and_then(|member| member.state.role());
            self.members.set_state(id, State::Faulty { role });
            self.out.push_back(LaneCommand::GiveUp(id));
        }
        self.writes_over = true;
        if !self.failed {
            self.failed = true;
            self.notify(ArrayEvent::ArrayFailed);
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
            State::Rebuilding { role, offset, marked_below, .. } => {
                let state = State::Rebuilding { role, offset, replacement: false, marked_below };
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
