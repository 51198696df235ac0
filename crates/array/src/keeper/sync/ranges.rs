//! A set of sectors.

use std::collections::BTreeMap;

/// More ranges than this grow together: what lies between them then counts as well.
const MAX_RANGES: usize = 4096;

/// More than these are not split further: what is taken out of one stays in.
const MAX_PARTS: usize = 1 << 16;

/// Ranges of sync space: disjoint, not adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// The end by the start.
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds `[start, end)`.
    pub(crate) fn insert(&mut self, mut start: u64, mut end: u64) {
        while let Some((&first, &last)) = self.ends.range(..=end).next_back()
            && last >= start
        {
            self.ends.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        if self.ends.len() >= MAX_RANGES
            && let Some((&first, &last)) =
                self.ends.range(..start).next_back().or_else(|| self.ends.iter().next())
        {
            self.ends.remove(&first);
            return self.insert(start.min(first), end.max(last));
        }
        self.ends.insert(start, end);
    }

    /// Adds `[start, end)` and nothing else, unless the set would grow too large by that.
    pub(super) fn insert_exactly(&mut self, start: u64, end: u64) {
        if self.ends.len() < MAX_RANGES || self.covers(start, end) {
            self.insert(start, end);
        }
    }

    /// Takes `[start, end)` out, unless the set would grow too large by that.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        if self.ends.len() >= MAX_PARTS {
            return;
        }
        while let Some((&first, &last)) = self.ends.range(..end).next_back()
            && last > start
        {
            self.ends.remove(&first);
            if last > end {
                self.ends.insert(end, last);
            }
            if first < start {
                self.ends.insert(first, start);
            }
        }
    }

    /// Returns whether any sector of `[start, end)` is in the set.
    pub(crate) fn overlaps(&self, start: u64, end: u64) -> bool {
        self.ends.range(..end).next_back().is_some_and(|(_, last)| *last > start)
    }

    /// Returns whether all sectors of `[start, end)` are in the set.
    pub(super) fn covers(&self, start: u64, end: u64) -> bool {
        self.ends.range(..=start).next_back().is_some_and(|(_, last)| *last >= end)
    }

    /// Returns the ranges, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ends.iter().map(|(first, last)| (*first, *last))
    }

    pub(super) fn first(&self) -> Option<u64> {
        self.ends.keys().next().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn sectors(&self) -> u64 {
        self.ends.iter().map(|(first, last)| last - first).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ranges: &[(u64, u64)]) -> Ranges {
        let mut set = Ranges::default();
        for (start, end) in ranges {
            set.insert(*start, *end);
        }
        set
    }

    #[test]
    fn ranges_grow_together_and_fall_apart() {
        let mut set = of(&[(8, 16), (32, 40), (16, 24), (30, 33)]);
        assert_eq!(set, of(&[(8, 24), (30, 40)]));
        assert_eq!((set.first(), set.sectors()), (Some(8), 26));
        assert!(set.overlaps(23, 24) && !set.overlaps(24, 30) && set.overlaps(0, 9));
        assert!(set.covers(8, 24) && set.covers(9, 10));
        assert!(!set.covers(7, 24) && !set.covers(8, 25) && !set.covers(24, 30));
        set.remove(10, 12);
        assert_eq!(set, of(&[(8, 10), (12, 24), (30, 40)]));
        set.remove(0, 35);
        assert_eq!(set, of(&[(35, 40)]));
        set.remove(30, 50);
        assert!(set.is_empty());
    }

    #[test]
    fn a_set_stays_small_and_loses_nothing() {
        let mut set = Ranges::default();
        let starts = || (0..20_000_u64).map(|n| n * 7919 % 20_000 * 16);
        for start in starts() {
            set.insert(start, start + 8);
        }
        assert!(set.ends.len() <= MAX_RANGES);
        assert!(starts().all(|start| set.overlaps(start, start + 1)));
        let mut exact = Ranges::default();
        starts().for_each(|start| exact.insert_exactly(start, start + 8));
        assert_eq!(exact.ends.len(), MAX_RANGES);
        assert_eq!(exact.sectors(), MAX_RANGES as u64 * 8);
    }
}
