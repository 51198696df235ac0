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

use super::core::Core;
use super::{LaneCommand, SAFE_MODE_MS};
use crate::Instant;

/// The longest time for which an array is written to before the next checkpoint.
const PERIOD_MS: u64 = 30_000;

/// The stage of a checkpoint, with the ticket of the update that it waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CheckpointStage {
    #[default]
    Rest,
    First(u64),
    Second(u64),
    Clearing(u64),
}

/// The checkpoint that is under way, the number of complete ones, and the time of the next one. A
/// checkpoint begins by [`begin`](Self::begin) or [`request`](Self::request), and
/// [`advance`](Self::advance) takes it further after each update that is done.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    stage: CheckpointStage,
    /// Number of complete checkpoints.
    complete: u64,
    /// The number of the one that the lane waits for.
    wanted: Option<u64>,
    /// The next one is to follow the one that is under way.
    again: bool,
    /// Earliest time of the next one.
    earliest: Instant,
    /// Due time of the next one if something was written since the last one began.
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

    /// The lane wants one whose flush is still to come, and hears when it is complete.
    pub(super) fn request(&mut self, core: &mut Core) {
        let next = self.complete + 1;
        self.wanted = Some(match self.stage {
            CheckpointStage::Rest => {
                self.begin(core);
                next
            }
            CheckpointStage::Clearing(_) => {
                self.again = true;
                next
            }
            CheckpointStage::First(_) | CheckpointStage::Second(_) => {
                self.again = true;
                next + 1
            }
        });
    }

    /// Begins one while none is under way; the ticket of its first move.
    pub(super) fn begin(&mut self, core: &mut Core) -> u64 {
        let first = core.metadata.queue_first_move();
        self.earliest = core.now.plus_millis(daemon_sleep_ms(core));
        self.latest = core.now.plus_millis(PERIOD_MS);
        self.written = core.metadata.clean.writing > 0;
        self.stage = CheckpointStage::First(first);
        first
    }

    /// Returns whether none is under way.
    pub(super) fn rests(&self) -> bool {
        self.stage == CheckpointStage::Rest
    }

    /// An update is complete: goes on.
    pub(super) fn advance(&mut self, core: &mut Core) {
        if core.service.metadata_frozen() {
            // Nothing moves on any more, and nothing is forgotten.
            self.stage = CheckpointStage::Rest;
            return;
        }
        match self.stage {
            CheckpointStage::First(ticket) if core.metadata.is_done(ticket) => {
                let second = core.metadata.queue_second_move();
                self.stage = CheckpointStage::Second(second);
                if self.may_go_clean(core) {
                    core.metadata.go_clean(second);
                }
            }
            CheckpointStage::Second(ticket) if core.metadata.is_done(ticket) => {
                self.complete += 1;
                if self.wanted.take_if(|number| *number <= self.complete).is_some() {
                    core.out.push(LaneCommand::CheckpointDone);
                }
                self.stage = CheckpointStage::Clearing(core.metadata.queue_clear_bits());
            }
            CheckpointStage::Clearing(ticket) if core.metadata.is_done(ticket) => {
                self.stage = CheckpointStage::Rest;
                if std::mem::take(&mut self.again) {
                    self.begin(core);
                }
            }
            _ => {}
        }
    }

    /// Returns whether the array may be marked clean: all that was ever written is durable, and no
    /// write is expected to follow at once.
    fn may_go_clean(&self, core: &Core) -> bool {
        let idle_since = core.metadata.clean.last_write.plus_millis(SAFE_MODE_MS);
        let idle = idle_since <= core.now || core.service.stopping || core.service.growing;
        core.metadata.clean.active && idle && !self.written
    }

    /// Returns when the next one is due: soon where the array may be marked clean, or bits be
    /// cleared.
    pub(super) fn due_at(&self, core: &Core) -> Option<Instant> {
        if self.stage != CheckpointStage::Rest || !core.metadata.is_idle() {
            return None;
        }
        safe_mode_at(core).into_iter().chain(self.pass_at(core)).min()
    }

    /// Returns when a checkpoint is due although the array is in use.
    fn pass_at(&self, core: &Core) -> Option<Instant> {
        let whole = core.members.degraded() == 0 || crate::broken("clear-when-whole");
        let clearable =
            core.metadata.intent.as_ref().is_some_and(|intent| whole && intent.clearable());
        if clearable {
            return Some(self.earliest);
        }
        self.written.then_some(self.latest)
    }
}

/// Returns when the array, if it stays idle, is to be marked clean.
fn safe_mode_at(core: &Core) -> Option<Instant> {
    let quiet = core.metadata.clean.writers == 0 && core.metadata.clean.writing == 0;
    let due = core.metadata.clean.active && quiet && !core.service.stopping;
    due.then(|| core.metadata.clean.last_write.plus_millis(SAFE_MODE_MS))
}

/// Returns the shortest time for which bits stay set, as md has it.
fn daemon_sleep_ms(core: &Core) -> u64 {
    let seconds = core.metadata.intent.as_ref().map_or(5, |i| i.bitmap.superblock.daemon_sleep_s);
    u64::from(seconds.clamp(1, 3600)) * 1000
}
