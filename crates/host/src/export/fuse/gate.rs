//! Order of writes. A write that does not begin and end with blocks of the array is read, changed
//! and written back. Such a write runs alone: another write acknowledged between its read and its
//! write would be undone.
//!
//! Writes of whole blocks run beside each other.

use std::collections::VecDeque;

/// Way in which a write runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Beside others.
    Together,
    /// While nothing else is written.
    Alone,
}

/// Writes that run, and those that wait in the order in which they came. Each
/// [enters](Self::enter), and [leaves](Self::leave) when it is over.
#[derive(Debug, Default)]
pub(super) struct Gate {
    running: usize,
    alone: bool,
    waiting: VecDeque<(Turn, usize)>,
}

impl Gate {
    /// Returns whether the write may begin now. Otherwise it waits until [`next`](Self::next) names
    /// it.
    pub(super) fn enter(&mut self, turn: Turn, who: usize) -> bool {
        let begins = self.waiting.is_empty() && self.admits(turn);
        if begins {
            self.begin(turn);
        } else {
            self.waiting.push_back((turn, who));
        }
        begins
    }

    /// One that ran is over.
    pub(super) fn leave(&mut self) {
        self.running -= 1;
        if self.running == 0 {
            self.alone = false;
        }
    }

    /// Returns the next waiting write that may begin now.
    pub(super) fn next(&mut self) -> Option<usize> {
        let (turn, who) = *self.waiting.front()?;
        if !self.admits(turn) {
            return None;
        }
        self.waiting.pop_front();
        self.begin(turn);
        Some(who)
    }

    const fn admits(&self, turn: Turn) -> bool {
        match turn {
            Turn::Together => !self.alone,
            Turn::Alone => self.running == 0,
        }
    }

    fn begin(&mut self, turn: Turn) {
        self.running += 1;
        self.alone = turn == Turn::Alone;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_alone_has_nobody_beside_and_nobody_overtakes() {
        let mut gate = Gate::default();
        assert!(gate.enter(Turn::Together, 1) && gate.enter(Turn::Together, 2));
        assert!(!gate.enter(Turn::Alone, 3));
        assert!(!gate.enter(Turn::Together, 4), "it would overtake");
        assert!(!gate.enter(Turn::Together, 5));
        assert!(!gate.enter(Turn::Alone, 6));
        gate.leave();
        assert_eq!(gate.next(), None, "one is left that runs");
        gate.leave();
        assert_eq!([gate.next(), gate.next()], [Some(3), None]);
        gate.leave();
        assert_eq!([gate.next(), gate.next(), gate.next()], [Some(4), Some(5), None]);
        gate.leave();
        gate.leave();
        assert_eq!([gate.next(), gate.next()], [Some(6), None]);
        gate.leave();
        assert!(gate.enter(Turn::Alone, 7));
        assert!(!gate.enter(Turn::Alone, 8));
    }
}
