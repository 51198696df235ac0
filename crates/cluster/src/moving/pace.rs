//! The pace of a move: how long windows are, and when the next one may begin, [`MovePace`].

use braid_array::events::SyncAction;
use braid_array::status::SyncStatus;
use braid_array::{Instant, SECTOR_BYTES};

/// Windows are as long as takes some tenths of a second: writes wait for that.
const SHORT_MS: u64 = 60;
const LONG_MS: u64 = 250;
const FIRST_PIECES: u64 = 8;
const MOST_PIECES: u64 = 32;
/// A window has no more than the maximum lets through in such a part of a second, but for its first
/// piece.
const PARTS_OF_SECOND: u64 = 4;
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

impl MoveSize {
    /// Returns the bytes of each member of the old array that so many of the array are.
    fn of_member(self, bytes: u64) -> u64 {
        let of_member =
            u128::from(bytes) * u128::from(self.member_sectors) / u128::from(self.total.max(1));
        u64::try_from(of_member).unwrap_or(u64::MAX)
    }
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
    /// The last window that was moved, which the limits in force hold the next one back for.
    charged: Charge,
    /// What could not be moved is not tried again before.
    again: Instant,
    /// The speed is measured since then, from that front.
    since: (Instant, u64),
}

/// A window that was moved.
#[derive(Clone, Copy, Debug, Default)]
struct Charge {
    opened: Instant,
    /// Bytes of each member.
    of_member: u64,
    /// Requests came meanwhile.
    busy: bool,
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
            charged: Charge::default(),
            again: Instant::default(),
            since: (Instant::default(), 0),
        }
    }

    /// Sets the limits that are named. They hold for the last window as well: setting one lets
    /// nothing go at once.
    pub(super) fn limit(&mut self, min_bytes_s: Option<u64>, max_bytes_s: Option<u64>) {
        self.limits.min_bytes_per_s = min_bytes_s.unwrap_or(self.limits.min_bytes_per_s);
        let max = max_bytes_s.or(self.limits.max_bytes_per_s);
        self.limits.max_bytes_per_s = max.filter(|max| *max != u64::MAX);
    }

    /// Holds the move, or lets it go on: what could not be moved is tried again at once then.
    pub(super) const fn pause(&mut self, now: Instant, paused: bool) {
        self.limits.paused = paused;
        self.again = now;
    }

    /// Returns whether an administrator holds the move.
    pub(super) fn is_held(&self) -> bool {
        self.limits.held()
    }

    /// Returns how many pieces of so many sectors the next window is to have.
    pub(super) fn window_pieces(&self, piece_sectors: u64, size: MoveSize) -> u64 {
        let Some(max) = self.limits.max_bytes_per_s else { return self.window_pieces };
        let piece = size.of_member(piece_sectors * SECTOR_BYTES).max(1);
        (max / PARTS_OF_SECOND / piece).clamp(1, self.window_pieces)
    }

    /// The time at which the next window may begin.
    pub(super) fn not_before(&self) -> Instant {
        let Charge { opened, of_member, busy } = self.charged;
        let takes = |bytes_per_s: u64| {
            let nanos = u128::from(of_member) * 1_000_000_000 / u128::from(bytes_per_s.max(1));
            u64::try_from(nanos).unwrap_or(u64::MAX)
        };
        let max = self.limits.max_bytes_per_s.map_or(0, takes);
        let min = if busy { takes(self.limits.min_bytes_per_s).min(LONGEST_NANOS) } else { 0 };
        self.again.max(Instant(opened.0.saturating_add(max.max(min))))
    }

    /// Tries what could not be moved again after so long.
    pub(super) const fn wait(&mut self, now: Instant, millis: u64) {
        self.again = now.plus_millis(millis);
    }

    /// Measures the speed anew.
    pub(super) const fn restart(&mut self, now: Instant, front: u64) {
        self.since = (now, front);
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
        let of_member = size.of_member(sectors * SECTOR_BYTES);
        self.charged = Charge { opened: self.opened, of_member, busy: self.busy };
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
        pace.pause(Instant(5), true);
        assert!(pace.is_held());
        assert_eq!(pace.status(Instant(5), 2048, false, 4096).bytes_per_s, 0);
    }

    #[test]
    fn a_limit_that_is_set_lets_nothing_go_at_once() {
        let mut pace = MovePace::new();
        pace.limit(None, Some(1 << 20));
        pace.open(Instant(5));
        pace.charge(Instant(5), 2048, SIZE);
        // As often as it is set, and told that it goes on.
        for _ in 0..3 {
            pace.restart(Instant(6), 2048);
            pace.limit(None, Some(1 << 20));
            pace.pause(Instant(6), false);
            assert_eq!(pace.not_before(), Instant(5 + 500_000_000));
        }
        pace.limit(None, Some(1 << 19));
        assert_eq!(pace.not_before(), Instant(5 + 1_000_000_000));
        pace.limit(None, Some(u64::MAX));
        assert_eq!(pace.not_before(), Instant(6));
        assert_eq!(pace.status(Instant(6), 2048, false, 4096).max_bytes_per_s, None);
        // What failed is tried again later, whatever the limit, or as soon as somebody asks.
        pace.wait(Instant(6), 1000);
        pace.limit(None, Some(1 << 20));
        assert_eq!(pace.not_before(), Instant(6 + 1_000_000_000));
        pace.pause(Instant(7), false);
        assert_eq!(pace.not_before(), Instant(5 + 500_000_000));
    }

    #[test]
    fn windows_are_no_longer_than_a_limit_lets_through_in_a_moment() {
        let mut pace = MovePace::new();
        // Pieces of a MiB, half of it of each member.
        let pieces = |max: u64| {
            pace.limit(None, Some(max));
            pace.window_pieces(2048, SIZE)
        };
        let limits = [0, 1 << 20, 4 << 20, 9 << 20, 1 << 30, u64::MAX];
        assert_eq!(limits.map(pieces), [1, 1, 2, 4, 8, 8]);
    }

    #[test]
    fn windows_are_as_long_as_takes_some_tenths_of_a_second() {
        let mut pace = MovePace::new();
        for (took_ms, pieces) in [(10, 16), (10, 32), (10, 32), (100, 32), (300, 16), (300, 8)] {
            pace.open(Instant(0));
            pace.charge(Instant(took_ms * 1_000_000), 8, SIZE);
            assert_eq!(pace.window_pieces(2048, SIZE), pieces);
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
