//! Writes that wait until the members know of them.

use std::collections::VecDeque;

/// The writes that the lane has asked for, by the numbers it gives them, which grow: up to which
/// one they are known, and which of them wait for an update. A write [begins](Self::begin), waits
/// if its update is still to come, and goes on when that is [told](Self::told).
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// One more than the latest number.
    known: u64,
    /// Number and update of those that wait, the oldest first.
    waiting: VecDeque<(u64, u64)>,
}

impl Writes {
    /// The lane asks for a write, which has to wait for this update if there is one.
    pub(super) fn begin(&mut self, number: u64, update: Option<u64>) {
        debug_assert!(number >= self.known, "numbers of writes grow");
        self.known = number + 1;
        self.waiting.extend(update.map(|update| (number, update)));
    }

    /// All updates up to this one are done.
    pub(super) fn told(&mut self, done: u64) {
        self.waiting.retain(|(_, update)| *update > done);
    }

    /// Returns whether this write may start.
    pub(super) fn may_start(&self, number: u64) -> bool {
        let waits = || self.waiting.binary_search_by_key(&number, |(number, _)| *number).is_ok();
        number < self.known && !waits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_starts_when_it_is_known_and_its_update_is_done() {
        let mut writes = Writes::default();
        assert!(!writes.may_start(0), "nobody has heard of it");
        writes.begin(0, Some(2));
        writes.begin(1, None);
        writes.begin(4, Some(3));
        assert_eq!(
            [0, 1, 4, 5].map(|number| writes.may_start(number)),
            [false, true, false, false]
        );
        writes.told(2);
        assert_eq!([0, 1, 4].map(|number| writes.may_start(number)), [true, true, false]);
        writes.told(3);
        assert!(writes.may_start(4));
    }
}
