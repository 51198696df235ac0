//! Virtual time: a heap of things due, ordered by time and then by the order of scheduling.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use braid_array::Instant;

/// The time, and the scheduled events.
#[derive(Debug)]
pub struct Clock<T> {
    now: Instant,
    sequence: u64,
    due: BinaryHeap<Reverse<(Instant, u64, T)>>,
}

impl<T: Ord> Default for Clock<T> {
    fn default() -> Self {
        Self { now: Instant(0), sequence: 0, due: BinaryHeap::new() }
    }
}

impl<T: Ord> Clock<T> {
    /// The time.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Schedules `what` after this number of nanoseconds.
    pub fn schedule(&mut self, nanos: u64, what: T) {
        self.sequence += 1;
        self.due.push(Reverse((Instant(self.now.0 + nanos), self.sequence, what)));
    }

    /// When the next thing is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, ..))| *at)
    }

    /// Advances to the next thing due and takes it.
    pub fn pop(&mut self) -> Option<T> {
        let Reverse((at, _, what)) = self.due.pop()?;
        self.now = at.max(self.now);
        Some(what)
    }

    /// Advances to a time; nothing goes back.
    pub fn advance(&mut self, to: Instant) {
        self.now = self.now.max(to);
    }

    /// Forgets everything due: the power is gone.
    pub fn clear(&mut self) {
        self.due.clear();
    }
}
