//! Courses of members: taken as far as they go.

use super::Checks;
use crate::MemberId;
use crate::action::IoOp;
use crate::integrity::IntegrityWrite;
use crate::verified::area_io::{Errand, Flight};
use crate::verified::course::CourseNext;
use crate::verified::guard::CourseKind;

impl Checks {
    pub(super) fn advance_courses(&mut self, member: MemberId) {
        let now = self.now;
        let closing = self.closing;
        loop {
            let Some(guard) = self.guards.get_mut(&member) else { return };
            guard.begin_courses(now, closing);
            let mut went_on = false;
            for kind in CourseKind::ALL {
                went_on |= self.advance_course(member, kind);
            }
            if !went_on {
                return;
            }
        }
    }

    /// Takes a course as far as it goes. Returns whether it has ended.
    pub(super) fn advance_course(&mut self, member: MemberId, kind: CourseKind) -> bool {
        let closing = self.closing;
        loop {
            let Some(guard) = self.guards.get_mut(&member) else { return false };
            let Some(course) = guard.course(kind) else { return false };
            match course.next() {
                CourseNext::Write(IntegrityWrite::Superblock) => self.write_superblock(member),
                CourseNext::Write(write) => {
                    self.io.errands.push_back(Errand::Write { member, kind, write });
                }
                CourseNext::Flush => {
                    let flush = |stored| Flight::Flush { member, kind, stored };
                    if guard.place.stored {
                        if let Some(course) = guard.course(kind) {
                            course.flushes_both();
                        }
                        self.io.ask_area(true, member, IoOp::Flush, flush(true));
                    }
                    self.io.ask(member, IoOp::Flush, flush(false));
                }
                CourseNext::Wait => return false,
                CourseNext::Over => {
                    if kind == CourseKind::Superblock {
                        self.superblock_over(member);
                    }
                    if let Some(guard) = self.guards.get_mut(&member) {
                        guard.end_course(kind, self.now, closing);
                    }
                    self.due.insert(member);
                    return true;
                }
            }
        }
    }
}
