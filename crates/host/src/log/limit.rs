//! Limit on lines of one kind: a disk that dies slowly must not fill the log of the others.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Lines of one kind in a window; the others are counted.
const MAX_LINES: u64 = 10;
/// Time for which lines of a kind are counted, from the first of them on.
const WINDOW: Duration = Duration::from_secs(60);

/// Decision about a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Yes.
    Write,
    /// Yes, and it is the last one for a while.
    WriteLast,
    /// No; it is counted.
    Leave,
}

/// Counts lines by kind.
#[derive(Debug)]
pub(crate) struct LineLimit<K> {
    kinds: BTreeMap<K, CountWindow>,
}

#[derive(Debug)]
struct CountWindow {
    began: Instant,
    lines: u64,
}

impl<K: Ord> LineLimit<K> {
    pub(crate) const fn new() -> Self {
        Self { kinds: BTreeMap::new() }
    }

    /// Counts a line of a kind.
    pub(crate) fn count(&mut self, now: Instant, kind: K) -> Verdict {
        let window = self.kinds.entry(kind).or_insert(CountWindow { began: now, lines: 0 });
        window.lines += 1;
        match window.lines.cmp(&MAX_LINES) {
            std::cmp::Ordering::Less => Verdict::Write,
            std::cmp::Ordering::Equal => Verdict::WriteLast,
            std::cmp::Ordering::Greater => Verdict::Leave,
        }
    }

    /// Returns the time at which the next window ends.
    pub(crate) fn ends(&self) -> Option<Instant> {
        self.kinds.values().map(|window| window.began + WINDOW).min()
    }

    /// The kinds whose windows are over, each with the number of its lines that were left out.
    pub(crate) fn over(&mut self, now: Instant) -> Vec<(K, u64)> {
        let kinds = std::mem::take(&mut self.kinds);
        let is_over = |(_, window): &(K, CountWindow)| now >= window.began + WINDOW;
        let (over, open): (Vec<_>, Vec<_>) = kinds.into_iter().partition(is_over);
        self.kinds.extend(open);
        let left = over.into_iter().map(|(kind, w)| (kind, w.lines.saturating_sub(MAX_LINES)));
        left.filter(|(_, left)| *left > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_lines_of_a_kind_the_first_are_written_and_the_others_counted() {
        let begun = Instant::now();
        let mut limit = LineLimit::new();
        let written = (0..1000).filter(|_| limit.count(begun, "a") != Verdict::Leave).count();
        assert_eq!(written, 10);
        assert_eq!(limit.count(begun, "b"), Verdict::Write, "another kind has its own");
        assert_eq!(limit.ends(), Some(begun + WINDOW));
        assert_eq!(limit.over(begun + WINDOW / 2), []);
        assert_eq!(limit.over(begun + WINDOW), [("a", 990)]);
        assert_eq!((limit.ends(), limit.count(begun + WINDOW, "a")), (None, Verdict::Write));
    }
}
