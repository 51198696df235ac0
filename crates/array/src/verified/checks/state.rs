//! Operations under way, and what is in memory for them.

use std::ops::Range;

use super::Checks;
use crate::MemberId;
use crate::action::{IoError, Outcome};
use crate::verified::area_io::{Errand, Flight};
use crate::verified::guard::CourseKind;
use crate::verified::op::{GuardedOp, GuardedRead, OpKind};

impl Checks {
    pub(super) fn insert_op(&mut self, op: GuardedOp) -> usize {
        let io = op.io;
        let member = op.member;
        let index = self.ops.insert(op);
        self.named.insert(io, index);
        if let Some(guard) = self.guards.get_mut(&member) {
            guard.ops.push(index);
        }
        self.woken.push_back(index);
        index
    }

    /// Ends an operation, and answers it.
    pub(super) fn end_op(&mut self, index: usize, result: Result<Outcome, IoError>) {
        let op = self.ops.remove(index);
        self.named.remove(&op.io);
        if let Some(guard) = self.guards.get_mut(&op.member) {
            guard.ops.retain(|other| *other != index);
            let waits = |other: &usize| {
                let touched = self.ops[*other].touched();
                touched.is_some_and(|blocks| op.writes_to(blocks))
            };
            // Nobody waits for a read, but for all to be over.
            let is_superblock = matches!(op.kind, OpKind::Superblock { .. });
            if self.closing || is_superblock || guard.ops.iter().any(waits) {
                self.due.insert(op.member);
            }
        }
        self.answers.push_back((op.io, result));
    }

    /// Hands an operation to the member.
    pub(super) fn issue(&mut self, index: usize) {
        let GuardedOp { member, op, .. } = self.ops[index];
        self.io.ask(member, op, Flight::Op(index));
    }

    /// Something of a course is answered.
    pub(super) fn course_answered(
        &mut self,
        member: MemberId,
        kind: CourseKind,
        result: Result<(), IoError>,
    ) {
        self.due.insert(member);
        let guard = self.guards.get_mut(&member);
        if let Some(course) = guard.and_then(|guard| guard.course(kind)) {
            course.answered(result);
        }
    }

    /// Returns whether any write to blocks of this operation is under way, or waits.
    pub(super) fn meets_writes(&self, index: usize) -> bool {
        let op = &self.ops[index];
        let (Some(touched), Some(guard)) = (op.touched(), self.guards.get(&op.member)) else {
            return false;
        };
        let mut others = guard.ops.iter().filter(|other| **other != index);
        others.any(|other| self.ops[*other].writes_to(touched))
    }

    /// Returns whether a write to blocks of this operation was asked for before it.
    pub(super) fn comes_first(&self, index: usize) -> bool {
        let op = &self.ops[index];
        let (Some(touched), Some(guard)) = (op.touched(), self.guards.get(&op.member)) else {
            return false;
        };
        let before = guard.ops.iter().take_while(|other| **other != index);
        before.into_iter().any(|other| self.ops[*other].writes_to(touched))
    }

    /// Reads the pages of the table that an operation needs, side by side with its data.
    pub(super) fn want_pages(&mut self, index: usize) {
        let Some(pages) = self.pages_of(index) else { return };
        let member = self.ops[index].member;
        let Some(guard) = self.guards.get_mut(&member) else { return };
        let absent = guard.want(pages);
        self.io.errands.extend(absent.into_iter().map(|page| Errand::Load { member, page }));
    }

    /// The pages of the table that have the checksums of an operation's blocks.
    pub(super) fn pages_of(&self, index: usize) -> Option<Range<u64>> {
        let op = &self.ops[index];
        let area = self.guards.get(&op.member)?.place.area;
        let (start, end) = match &op.kind {
            OpKind::Read(GuardedRead { range, .. }) => (range.start, range.end),
            OpKind::Write(write) => (write.range.start, write.range.end),
            OpKind::Superblock { .. } => return None,
        };
        Some(area.pages_of(start..end))
    }
}
