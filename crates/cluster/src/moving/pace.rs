//! The pace of a move: how long windows are, and when the next one may begin, [`MovePace`].

use braid_array::events::SyncAction;
use braid_array::status::SyncStatus;
use braid_array::{Instant, SECTOR_BYTES};

/// Windows are as long as takes some tenths of a second: writes wait for that.
const SHORT_MS: u64 = 60;
const LONG_MS: u64 = 250;
const FIRST_PIECES: u64 = 8;
const MOST_PIECES: u64 = 32;
/// The longest pause between two windows where requests come and no maximum is set.
const LONGEST_NANOS: u64 = 5_000_000_000;

/// The size of a move.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MoveSize {
    /// Sectors that there are to be moved.
    pub(super) total: u64,
    /// Sectors that the old array uses of each member.
    pub(super) member_sectors: u64,
}

/// The limits that administrators have set, and the time that the last windows took.
#[derive(Debug)]
pub(super) struct MovePace {
    limits: SyncStatus,
    window_pieces: u64,
    /// The time at which the window was opened.
    opened: Instant,
    /// Requests came since.
    busy: bool,
    not_before: Instant,
    /// The speed is measured since then, from that front.
    since: (Instant, u64),
}

impl MovePace {
    pub(super) fn new() -> Self {
        Self {
            limits: SyncStatus {
                min_bytes_per_s: SyncStatus::DEFAULT_MIN_BYTES_PER_S,
                ..SyncStatus::default()
            },
            window_pieces: FIRST_PIECES,
            opened: Instant::default(),
            busy: false,
            not_before: Instant::default(),
            since: (Instant::default(), 0),
        }
    }

    /// Sets the limits that are named.
    pub(super) fn limit(&mut self, min_bytes_s: Option<u64>, max_bytes_s: Option<u64>) {
        self.limits.min_bytes_per_s = min_bytes_s.unwrap_or(self.limits.min_bytes_per_s);
        self.limits.max_bytes_per_s = max_bytes_s.or(self.limits.max_bytes_per_s);
    }

    pub(super) const fn pause(&mut self, paused: bool) {
        self.limits.paused = paused;
    }

    /// Returns whether an administrator holds the move.
    pub(super) fn is_held(&self) -> bool {
        self.limits.held()
    }

    /// The pieces that the next window is to have.
    pub(super) const fn window_pieces(&self) -> u64 {
        self.window_pieces
    }

    /// The time at which the next window may begin.
    pub(super) const fn not_before(&self) -> Instant {
        self.not_before
    }

    /// Waits for so long.
    pub(super) const fn wait(&mut self, now: Instant, millis: u64) {
        self.not_before = now.plus_millis(millis);
    }

    /// Measures the speed anew.
    pub(super) const fn restart(&mut self, now: Instant, front: u64) {
        self.since = (now, front);
        self.not_before = now;
    }

    /// A request has come.
    pub(super) const fn hear_request(&mut self) {
        self.busy = true;
    }

    /// A window is opened.
    pub(super) const fn open(&mut self, now: Instant) {
        self.opened = now;
        self.busy = false;
    }

    /// Holds the next window back as the limits ask, and makes it as long as suits.
    pub(super) fn charge(&mut self, now: Instant, sectors: u64, size: MoveSize) {
        let took_ms = (now.0 - self.opened.0) / 1_000_000;
        if took_ms < SHORT_MS {
            self.window_pieces = (self.window_pieces * 2).min(MOST_PIECES);
        } else if took_ms > LONG_MS {
            self.window_pieces = (self.window_pieces / 2).max(1);
        }
        let bytes = u128::from(sectors * SECTOR_BYTES);
        let of_member = bytes * u128::from(size.member_sectors) / u128::from(size.total.max(1));
        let takes = |bytes_per_s: u64| {
            let nanos = of_member * 1_000_000_000 / u128::from(bytes_per_s.max(1));
            u64::try_from(nanos).unwrap_or(u64::MAX)
        };
        let max = self.limits.max_bytes_per_s.map_or(0, takes);
        let min = if self.busy { takes(self.limits.min_bytes_per_s).min(LONGEST_NANOS) } else { 0 };
        self.not_before = Instant(self.opened.0.saturating_add(max.max(min)));
    }

    /// Returns the status of a move that has come to this front.
    pub(super) fn status(&self, now: Instant, front: u64, back: bool, total: u64) -> SyncStatus {
        let front = front.min(total);
        let done = if back { total - front } else { front };
        let (since, from) = self.since;
        let elapsed_ms = ((now.0 - since.0) / 1_000_000).max(1000);
        let moved = front.abs_diff(from) * SECTOR_BYTES;
        let bytes_per_s = if self.is_held() { 0 } else { moved * 1000 / elapsed_ms };
        let left = total.saturating_sub(done) * SECTOR_BYTES;
        SyncStatus {
            action: SyncAction::Reshape,
            done_sectors: done,
            total_sectors: total,
            bytes_per_s,
            finish_s: left.checked_div(bytes_per_s),
            ..self.limits
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: MoveSize = MoveSize { total: 4096, member_sectors: 2048 };

    #[test]
    fn a_maximum_holds_the_next_window_back() {
        let mut pace = MovePace::new();
        pace.limit(None, Some(1 << 20));
        pace.open(Instant(5));
        // A MiB of the array, half of it of each member.
        pace.charge(Instant(5), 2048, SIZE);
        assert_eq!(pace.not_before(), Instant(5 + 500_000_000));
        pace.pause(true);
        assert!(pace.is_held());
        assert_eq!(pace.status(Instant(5), 2048, false, 4096).bytes_per_s, 0);
    }

    #[test]
    fn windows_are_as_long_as_takes_some_tenths_of_a_second() {
        let mut pace = MovePace::new();
        for (took_ms, pieces) in [(10, 16), (10, 32), (10, 32), (100, 32), (300, 16), (300, 8)] {
            pace.open(Instant(0));
            pace.charge(Instant(took_ms * 1_000_000), 8, SIZE);
            assert_eq!(pace.window_pieces(), pieces);
        }
    }

    #[test]
    fn what_is_left_is_counted_in_the_direction_of_the_move() {
        let mut pace = MovePace::new();
        pace.restart(Instant(0), 4096);
        let status = pace.status(Instant(2_000_000_000), 1024, true, 4096);
        assert_eq!((status.done_sectors, status.total_sectors), (3072, 4096));
        assert_eq!((status.bytes_per_s, status.finish_s), (3072 * 256, Some(0)));
    }
}
