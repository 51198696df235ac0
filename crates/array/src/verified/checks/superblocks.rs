//! Superblocks: the header accepts one before it is written.

use super::Checks;
use crate::action::{IoError, IoOp, Outcome};
use crate::format::integrity::SuperblockDigest;
use crate::verified::course::Course;
use crate::verified::guard::CourseKind;
use crate::verified::op::{GuardedOp, OpKind};
use crate::{IoId, MemberId};

impl Checks {
    /// Takes a superblock that is to be written.
    pub(super) fn take_superblock(&mut self, io: IoId, member: MemberId, op: IoOp) {
        let kind = OpKind::Superblock { issued: false };
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
        if matches!(self.ops[index].kind, OpKind::Superblock { issued: true }) {
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
        match (&mut guard.accepted, digest) {
            (Some(accepted), Some(digest)) => {
                let steps = accepted.before_superblock(digest);
                guard.begin_superblock(Course::of_durable(steps));
            }
            _ => {
                guard.accepted = None;
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
            guard.accepted = None;
            self.end_op(index, Err(IoError::ABANDONED));
            return self.course_answered(member, CourseKind::Superblock, Ok(()));
        }
        self.ops[index].kind = OpKind::Superblock { issued: true };
        self.issue(index);
    }

    /// The superblock is on the member, or it is unknown whether it is.
    pub(super) fn superblock_answered(&mut self, index: usize, result: Result<Outcome, IoError>) {
        let member = self.ops[index].member;
        if let Some(guard) = self.guards.get_mut(&member) {
            guard.superblocks.retain(|other| *other != index);
            match (&mut guard.accepted, result) {
                (Some(accepted), Ok(_)) => accepted.superblock_written(),
                (accepted, _) => *accepted = None,
            }
        }
        self.course_answered(member, CourseKind::Superblock, Ok(()));
        self.end_op(index, result);
    }

    /// The header could not be written: the superblock is written as it is, and not accepted.
    pub(super) fn superblock_over(&mut self, member: MemberId) {
        let Some(guard) = self.guards.get_mut(&member) else { return };
        let failed =
            guard.course(CourseKind::Superblock).is_some_and(|course| course.failure().is_some());
        if failed {
            guard.accepted = None;
            self.write_superblock(member);
        }
    }
}
