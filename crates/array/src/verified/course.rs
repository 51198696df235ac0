//! Steps that are carried out one after the other.

use std::collections::VecDeque;

use crate::IoError;
use crate::integrity::{IntegrityStep, IntegrityWrite};

/// The next thing to do of a course.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CourseNext {
    /// This write.
    Write(IntegrityWrite),
    /// A flush of the member.
    Flush,
    /// Nothing before something is answered.
    Wait,
    /// All is done.
    Over,
}

/// Steps under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    steps: VecDeque<IntegrityStep>,
    pending: usize,
    /// A flush is under way, for which all else waits.
    flushes: bool,
    /// Each write is durable when it is answered: what is to be flushed is flushed already.
    fua: bool,
    /// A write or flush has failed: nothing that follows is begun.
    failure: Option<IoError>,
}

impl Course {
    /// Begins with steps, of which each write is durable when it is answered.
    pub(super) fn of_durable(steps: Vec<IntegrityStep>) -> Self {
        Self { steps: steps.into(), fua: true, ..Self::default() }
    }

    /// Begins with steps whose writes are durable after a flush.
    pub(super) fn flushing(steps: Vec<IntegrityStep>) -> Self {
        Self { steps: steps.into(), ..Self::default() }
    }

    pub(super) const fn is_fua(&self) -> bool {
        self.fua
    }

    pub(super) const fn failure(&self) -> Option<IoError> {
        self.failure
    }

    /// Returns what is to be done next, which counts as begun.
    pub(super) fn next(&mut self) -> CourseNext {
        if self.failure.is_some() {
            self.steps.clear();
        }
        if self.flushes && self.pending > 0 {
            return CourseNext::Wait;
        }
        self.flushes = false;
        while self.steps.front() == Some(&IntegrityStep::Flush) {
            if self.pending > 0 {
                return CourseNext::Wait;
            }
            self.steps.pop_front();
            if !self.fua {
                self.pending = 1;
                self.flushes = true;
                return CourseNext::Flush;
            }
        }
        match self.steps.pop_front() {
            Some(IntegrityStep::Write(write)) => {
                self.pending += 1;
                CourseNext::Write(write)
            }
            _ if self.pending > 0 => CourseNext::Wait,
            _ => CourseNext::Over,
        }
    }

    /// A flush that was begun is one of two devices.
    pub(super) const fn flushes_both(&mut self) {
        self.pending += 1;
    }

    /// Something that was begun is answered.
    pub(super) fn answered(&mut self, result: Result<(), IoError>) {
        self.pending -= 1;
        self.failure = self.failure.or(result.err());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> Vec<IntegrityStep> {
        let write = |page| IntegrityStep::Write(IntegrityWrite::Page(page));
        vec![write(0), write(1), IntegrityStep::Flush, write(2)]
    }

    fn page(number: usize) -> CourseNext {
        CourseNext::Write(IntegrityWrite::Page(number))
    }

    #[test]
    fn a_flush_waits_and_is_waited_for() {
        let mut course = Course::flushing(steps());
        assert_eq!(
            [course.next(), course.next(), course.next()],
            [page(0), page(1), CourseNext::Wait]
        );
        course.answered(Ok(()));
        assert_eq!(course.next(), CourseNext::Wait);
        course.answered(Ok(()));
        assert_eq!([course.next(), course.next()], [CourseNext::Flush, CourseNext::Wait]);
        course.answered(Ok(()));
        assert_eq!([course.next(), course.next()], [page(2), CourseNext::Wait]);
        course.answered(Ok(()));
        assert_eq!(course.next(), CourseNext::Over);
    }

    #[test]
    fn nothing_is_flushed_that_is_durable() {
        let mut course = Course::of_durable(steps());
        assert_eq!(
            [course.next(), course.next(), course.next()],
            [page(0), page(1), CourseNext::Wait]
        );
        course.answered(Ok(()));
        course.answered(Ok(()));
        assert_eq!(course.next(), page(2));
    }

    #[test]
    fn nothing_begins_after_a_failure() {
        let mut course = Course::flushing(steps());
        assert_eq!([course.next(), course.next()], [page(0), page(1)]);
        course.answered(Err(IoError::MEDIUM));
        assert_eq!(course.next(), CourseNext::Wait);
        course.answered(Ok(()));
        assert_eq!(course.next(), CourseNext::Over);
        assert_eq!(course.failure(), Some(IoError::MEDIUM));
    }
}
