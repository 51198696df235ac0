//! Checkpoints: after one, a copy of a member from before it is stale.
//!
//! A member may be put back as it was at an earlier time: a snapshot of a machine, a restored
//! image. While the array is written to on and on nothing in its superblock would tell. So before
//! anything is forgotten that such a copy may lack (bits of the bitmap, records of a journal, that
//! writes were under way), and from time to time anyway, the event count moves on by two after a
//! flush:
//!
//! ```text
//! Rest ── due ──► First: flush, events + 1 ──► Second: events + 1 ──► Clearing: bits ──► Rest
//!                                        clean, if nothing was written since
//! ```
//! Each move is on all members before the next step begins. A member one event behind counts as
//! current, as with md, for a crash may leave it so; a copy from before the flush is two behind. A
//! move before the flush would let a copy pass that was made between the two; one that goes with
//! the clearing would condemn, after a crash, those that have only one of them.

use super::{Keeper, SAFE_MODE_MS};
use crate::Instant;

/// How long an array is written to at most before the next checkpoint.
const PERIOD_MS: u64 = 30_000;

/// How far a checkpoint is, with the update that is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Rest,
    First(u64),
    Second(u64),
    Clearing(u64),
}

/// The checkpoint that is under way, how many are complete, and when the next one is due.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    stage: Stage,
    /// How many are complete.
    complete: u64,
    /// The next one is to follow the one that is under way.
    again: bool,
    /// When the next one may begin at the earliest.
    earliest: Instant,
    /// When it is due if something was written since the last one began.
    latest: Instant,
    /// Something may have been.
    written: bool,
}

impl Checkpoints {
    pub(super) fn new(now: Instant) -> Self {
        let latest = now.plus_millis(PERIOD_MS);
        Self { earliest: now, latest, ..Self::default() }
    }

    /// Something is, or was, being written.
    pub(super) const fn note_write(&mut self) {
        self.written = true;
    }
}

impl Keeper {
    /// Asks for a checkpoint whose flush is still to come. Returned is the number by which
    /// [`checkpoint_is_complete`](Self::checkpoint_is_complete) knows it.
    pub fn request_checkpoint(&mut self) -> u64 {
        let complete = self.checkpoints.complete;
        match self.checkpoints.stage {
            Stage::Rest => {
                self.begin_checkpoint();
                return complete + 1;
            }
            Stage::Clearing(_) => self.checkpoints.again = true,
            Stage::First(_) | Stage::Second(_) => {
                self.checkpoints.again = true;
                return complete + 2;
            }
        }
        complete + 1
    }

    /// Have all members that live moved on by this checkpoint?
    #[must_use]
    pub const fn checkpoint_is_complete(&self, number: u64) -> bool {
        number <= self.checkpoints.complete
    }

    /// Begins one while none is under way; the ticket of its first move.
    pub(super) fn begin_checkpoint(&mut self) -> u64 {
        let sleep_ms = self.daemon_sleep_ms();
        let first = self.wish_first_move();
        let checkpoints = &mut self.checkpoints;
        checkpoints.earliest = self.now.plus_millis(sleep_ms);
        checkpoints.latest = self.now.plus_millis(PERIOD_MS);
        checkpoints.written = self.clean.writing > 0;
        checkpoints.stage = Stage::First(first);
        first
    }

    /// An update is complete: goes on.
    pub(super) fn drive_checkpoint(&mut self) {
        if self.metadata_frozen() {
            // Nothing moves on any more, and nothing is forgotten.
            self.checkpoints.stage = Stage::Rest;
            return;
        }
        match self.checkpoints.stage {
            Stage::First(ticket) if self.meta.is_done(ticket) => {
                let second = self.wish_second_move();
                self.checkpoints.stage = Stage::Second(second);
                if self.may_go_clean() {
                    self.go_clean(second);
                }
            }
            Stage::Second(ticket) if self.meta.is_done(ticket) => {
                self.checkpoints.complete += 1;
                self.checkpoints.stage = Stage::Clearing(self.wish_clear_bits());
            }
            Stage::Clearing(ticket) if self.meta.is_done(ticket) => {
                self.checkpoints.stage = Stage::Rest;
                if std::mem::take(&mut self.checkpoints.again) {
                    self.begin_checkpoint();
                }
            }
            _ => {}
        }
    }

    /// Is all durable that was ever written, and nothing expected to follow at once?
    fn may_go_clean(&self) -> bool {
        let idle_since = self.clean.last_write.plus_millis(SAFE_MODE_MS);
        let idle = idle_since <= self.now || self.is_stopping();
        self.clean.active && idle && !self.checkpoints.written
    }

    /// When the next one is due: soon where the array may be marked clean, or bits be cleared.
    pub(super) fn checkpoint_at(&self) -> Option<Instant> {
        let checkpoints = &self.checkpoints;
        if checkpoints.stage != Stage::Rest || !self.meta.is_idle() {
            return None;
        }
        self.safe_mode_at().into_iter().chain(self.pass_at()).min()
    }

    /// When the array, if it stays idle, is to be marked clean.
    fn safe_mode_at(&self) -> Option<Instant> {
        let quiet = self.clean.writers == 0 && self.clean.writing == 0;
        let due = self.clean.active && quiet && !self.is_stopping();
        due.then(|| self.clean.last_write.plus_millis(SAFE_MODE_MS))
    }

    /// When it is due although the array is in use.
    fn pass_at(&self) -> Option<Instant> {
        let checkpoints = &self.checkpoints;
        let whole = self.members.degraded() == 0 || crate::broken("clear-when-whole");
        let clearable = self.intent.as_ref().is_some_and(|intent| whole && intent.clearable());
        if clearable {
            return Some(checkpoints.earliest);
        }
        checkpoints.written.then_some(checkpoints.latest)
    }

    fn daemon_sleep_ms(&self) -> u64 {
        let seconds = self.intent.as_ref().map_or(5, |i| i.bitmap.superblock.daemon_sleep_s);
        u64::from(seconds.clamp(1, 3600)) * 1000
    }
}
