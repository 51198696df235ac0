//! The speed of background work: its limits, and how fast it goes.

use std::collections::VecDeque;

use crate::status::SyncStatus;
use crate::{Instant, SECTOR_BYTES};

/// The current speed is that of the last ten marks, three seconds apart, as in md.
const MARKS: usize = 10;
const MARK_MS: u64 = 3_000;
/// Time not used for want of work may be caught up with at most.
const SLACK_NANOS: u64 = 50_000_000;

/// Limits and measured speed of background work, in bytes per second and member.
#[derive(Debug)]
pub(super) struct Speed {
    pub(super) min_bytes_s: u64,
    pub(super) max_bytes_s: u64,
    /// Work may go on at this time: the limits.
    not_before: Instant,
    /// Progress at earlier moments: oldest first.
    marks: VecDeque<(Instant, u64)>,
}

impl Default for Speed {
    fn default() -> Self {
        Self {
            min_bytes_s: SyncStatus::DEFAULT_MIN_BYTES_PER_S,
            max_bytes_s: u64::MAX,
            not_before: Instant::default(),
            marks: VecDeque::with_capacity(MARKS),
        }
    }
}

impl Speed {
    /// Measures from here: work begins, or another speed is asked of it.
    pub(super) fn restart(&mut self, now: Instant, done_sectors: u64) {
        self.not_before = now;
        self.marks.clear();
        self.marks.push_back((now, done_sectors));
    }

    /// Returns when the next unit of work may begin; `None`: not at all.
    pub(super) fn next_at(&self) -> Option<Instant> {
        (self.max_bytes_s > 0).then_some(self.not_before)
    }

    pub(super) fn mark(&mut self, now: Instant, done_sectors: u64) {
        if self.marks.back().is_none_or(|(at, _)| at.plus_millis(MARK_MS) <= now) {
            if self.marks.len() == MARKS {
                self.marks.pop_front();
            }
            self.marks.push_back((now, done_sectors));
        }
    }

    /// Returns how many bytes a second may be worked on; `busy`: others use the members.
    pub(super) fn limit(&self, busy: bool) -> u64 {
        if busy { self.min_bytes_s.min(self.max_bytes_s) } else { self.max_bytes_s }
    }

    /// Holds the next unit of work back as the limits ask; `busy`: others use the members.
    pub(super) fn charge(&mut self, now: Instant, sectors: u64, busy: bool) {
        let limit = self.limit(busy);
        if limit == u64::MAX {
            return;
        }
        let nanos = (sectors * SECTOR_BYTES).saturating_mul(1_000_000_000) / limit.max(1);
        let base = self.not_before.max(Instant(now.0.saturating_sub(SLACK_NANOS)));
        self.not_before = Instant(base.0 + nanos);
    }

    pub(super) fn bytes_per_s(&self, now: Instant, done_sectors: u64) -> u64 {
        let Some((since, from)) = self.marks.front() else { return 0 };
        // Of less than a second nothing can be told.
        let elapsed_ms = ((now.0 - since.0) / 1_000_000).max(1000);
        let bytes = done_sectors.saturating_sub(*from) * SECTOR_BYTES;
        bytes.saturating_mul(1000) / elapsed_ms
    }
}
