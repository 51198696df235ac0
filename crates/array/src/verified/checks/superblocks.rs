//! Superblocks: the header accepts one before it is written.

use super::Checks;
use crate::action::{Action, IoError, IoOp, Outcome};
use crate::events::{ArrayEvent, Fault};
use crate::format::integrity::SuperblockDigest;
use crate::verified::course::Course;
use crate::verified::guard::CourseKind;
use crate::verified::op::{GuardedOp, OpKind};
use crate::{IoId, MemberId};

impl Checks {
    /// Takes a superblock that is to be written.
    pub(super) fn take_superblock(&mut self, io: IoId, member: MemberId, op: IoOp) {
        let kind = OpKind::Superblock { issued: false, digest: None };
        let index =
            self.insert_op(GuardedOp { io, member, op, kind, pending: 0, abandoned: false });
        if let Some(guard) = self.guards.get_mut(&member) {
            guard.superblocks.push_back(index);
        }
        self.due.insert(member);
    }

    /// Announces the next superblock, once the one before is on the member. Without a header that
    /// is known to be right, it is written as it is.
    pub(super) fn advance_superblocks(&mut self, member: MemberId) {
        let Some(guard) = self.guards.get_mut(&member) else { return };
        if !guard.takes_superblock() {
            return;
        }
        let Some(&index) = guard.superblocks.front() else { return };
        if matches!(self.ops[index].kind, OpKind::Superblock { issued: true, .. }) {
            return;
        }
        let stored = match self.ops[index].op {
            IoOp::Write { buf, .. } => self.stored.remove(&buf.offset),
            _ => None,
        };
        let version = guard.place.version;
        let digest = stored.and_then(|bytes| SuperblockDigest::of(version, &bytes));
        if self.ops[index].abandoned {
            guard.superblocks.pop_front();
            return self.end_op(index, Err(IoError::ABANDONED));
        }
        self.ops[index].kind = OpKind::Superblock { issued: false, digest };
        match (&mut guard.accepted, digest) {
            (Some(accepted), Some(digest)) => {
                let steps = accepted.before_superblock(digest);
                guard.begin_superblock(Course::of_durable(steps));
            }
            _ => {
                guard.doubt();
                self.write_superblock(member);
            }
        }
        self.due.insert(member);
    }

    /// Writes the superblock that comes next.
    pub(super) fn write_superblock(&mut self, member: MemberId) {
        let Some(guard) = self.guards.get_mut(&member) else { return };
        let Some(&index) = guard.superblocks.front() else { return };
        if self.ops[index].abandoned {
            guard.superblocks.pop_front();
            guard.doubt();
            self.end_op(index, Err(IoError::ABANDONED));
            return self.course_answered(member, CourseKind::Superblock, Ok(()));
        }
        if let OpKind::Superblock { issued, .. } = &mut self.ops[index].kind {
            *issued = true;
        }
        self.issue(index);
    }

    /// The superblock is on the member, or it is unknown whether it is.
    pub(super) fn superblock_answered(&mut self, index: usize, result: Result<Outcome, IoError>) {
        let GuardedOp { member, kind, .. } = &self.ops[index];
        let OpKind::Superblock { digest, .. } = *kind else { return };
        let member = *member;
        if let Some(guard) = self.guards.get_mut(&member) {
            guard.superblocks.retain(|other| *other != index);
            match (&mut guard.accepted, result) {
                (Some(accepted), Ok(_)) => accepted.superblock_written(),
                _ => guard.doubt(),
            }
            if guard.is_disowning() && result.is_ok() {
                if guard.is_disowned_by(digest) {
                    guard.retire();
                } else {
                    self.renewals.push(member);
                }
            }
        }
        self.course_answered(member, CourseKind::Superblock, Ok(()));
        self.end_op(index, result);
    }

    /// The store of a member fails, or does not answer: its checksums are given up. What is not
    /// marked waits until the area cannot be taken for one that counts.
    pub(super) fn give_up_store(&mut self, member: MemberId, error: Option<IoError>) {
        self.io.abandon_store(member);
        let Some(guard) = self.guards.get_mut(&member) else { return };
        if guard.is_retired() {
            return;
        }
        if guard.disown(self.closing || self.read_only) {
            self.renewals.push(member);
        }
        let fault = error.map(|IoError { errno, .. }| Fault { sector: None, errno });
        self.io.actions.push_back(Action::Notify(ArrayEvent::ChecksumsGivenUp { member, fault }));
        self.due.insert(member);
    }

    /// Asks for superblocks once more that have not come: who writes none any more says so.
    pub(in crate::verified) fn ask_again(&mut self) {
        let waiting = self.guards.iter().filter(|(_, guard)| guard.is_disowning());
        self.renewals.extend(waiting.map(|(member, _)| *member));
    }

    /// No superblock comes to this member any more.
    pub(in crate::verified) fn superblocks_over(&mut self, member: MemberId) {
        if let Some(guard) = self.guards.get_mut(&member) {
            guard.writes_no_superblocks();
            self.due.insert(member);
        }
    }

    /// The header could not be written: the superblock is written as it is, and not accepted.
    pub(super) fn superblock_over(&mut self, member: MemberId) {
        let Some(guard) = self.guards.get_mut(&member) else { return };
        let failed =
            guard.course(CourseKind::Superblock).is_some_and(|course| course.failure().is_some());
        if failed {
            guard.doubt();
            self.write_superblock(member);
        }
    }
}
