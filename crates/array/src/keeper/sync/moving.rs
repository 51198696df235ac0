//! A reshape: data move row by row to the shape that the array is to have, a window of rows at a
//! time: from the first row on, or backwards from the last one.
//!
//! ```text
//! Closed ─► Opening: writes there wait, what was under way ends ─► Open: units are moved
//!    ▲                                                               │ all of the window
//!    └────── more, or held ◄── Placing: flush, then the front in all superblocks ◄──┘
//! ```
//! Nothing is written over what a superblock on any member still needs. The members' front is at a
//! row of the new shape: what lies before it is there (backwards: what lies behind it), and all
//! else where it was. New rows begin a few rows before the old ones, and hold as much of the array
//! each or more (backwards: behind them, as much or less); so the window may reach as far as that
//! takes it into old rows that lie on the moved side of the front as a whole. `raid5.c` of the
//! kernel goes by the same distance in `reshape_request`.

use crate::format::Superblock;
use crate::format::reshaped::{Side, is_backwards, shape_of_side};
use crate::format::superblock::feature;
use crate::keeper::members::Moved;
use crate::level::Level;
use crate::units::gcd;

/// The stage of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MovingStage {
    Closed,
    Opening,
    Open,
    /// Waits for the update that puts the front here.
    Placing {
        front: u64,
        ticket: u64,
    },
}

/// The move of an array's data. Rows are sectors of the members' data areas.
#[derive(Debug)]
pub(in crate::keeper) struct Moving {
    old_data_disks: u64,
    new_data_disks: u64,
    /// The larger one of both shapes: the front is at the begin of a stripe in both.
    pub(super) chunk_sectors: u64,
    /// Rows of the new shape lie so many sectors behind those of the old one. Where that is less
    /// than none, data move from the first row on.
    by: i64,
    /// The first row behind all.
    pub(super) end: u64,
    /// The row up to which all has moved, or from which on, as all members say.
    pub(super) front: u64,
    /// The other end of the window.
    pub(super) window: u64,
    pub(super) stage: MovingStage,
    /// The reason why it does not go on before something changes.
    pub(in crate::keeper) waits: Option<String>,
    /// It stops at the next row where it can be turned round.
    pub(in crate::keeper) turns: bool,
}

impl Moving {
    /// The move that a superblock tells of; `None` where it tells of none.
    pub(in crate::keeper) fn of(superblock: &Superblock) -> Option<Self> {
        if !superblock.has(feature::RESHAPE_ACTIVE) {
            return None;
        }
        let parity = Level::from_md(superblock.level)?.parity_disks();
        let old = shape_of_side(superblock, Side::Old)?;
        let new = shape_of_side(superblock, Side::New)?;
        let new_data_disks = u64::from(new.raid_disks - parity);
        let chunk_sectors = u64::from(old.chunk_sectors.max(new.chunk_sectors));
        let end = superblock.size_sectors / chunk_sectors * chunk_sectors;
        let front = (superblock.reshape.position / new_data_disks).min(end);
        let by = i64::from(superblock.reshape.new_offset);
        debug_assert_eq!(by > 0, is_backwards(superblock), "no room where it is needed");
        Some(Self {
            old_data_disks: u64::from(old.raid_disks - parity),
            new_data_disks,
            chunk_sectors,
            by,
            end,
            front,
            window: front,
            stage: MovingStage::Closed,
            waits: None,
            turns: false,
        })
    }

    pub(super) const fn is_backwards(&self) -> bool {
        self.by > 0
    }

    /// The rows that have moved.
    pub(in crate::keeper) const fn moved(&self) -> Moved {
        Moved { front: self.front, by: self.by }
    }

    pub(super) const fn is_at_end(&self) -> bool {
        if self.is_backwards() { self.front == 0 } else { self.front >= self.end }
    }

    /// Returns whether all is where it is to be.
    pub(in crate::keeper) fn is_over(&self) -> bool {
        self.is_at_end() && self.stage == MovingStage::Closed
    }

    /// The array sector at a row of the new shape.
    pub(super) const fn position(&self, row: u64) -> u64 {
        row * self.new_data_disks
    }

    /// The first row of the window, and the first one behind it.
    pub(super) fn span(&self) -> (u64, u64) {
        (self.front.min(self.window), self.front.max(self.window))
    }

    /// Returns the row up to which the window may reach: what is written up to there lies upon
    /// nothing that is still needed.
    pub(super) fn safe_end(&self) -> u64 {
        let stripe = self.old_data_disks * self.chunk_sectors;
        let position = self.position(self.front);
        let shift = self.by.unsigned_abs();
        if crate::broken("reshape-distance") {
            return if self.is_backwards() { 0 } else { self.end };
        }
        if self.is_backwards() {
            (position.div_ceil(stripe) * self.chunk_sectors).saturating_sub(shift)
        } else {
            (position / stripe * self.chunk_sectors + shift).min(self.end)
        }
    }

    /// Returns where the next window is to end, of so many rows at most.
    pub(super) fn next_end(&self, most: u64) -> u64 {
        let chunk = self.chunk_sectors;
        let safe = self.safe_end();
        let turn = if self.turns { self.next_turn() } else { None };
        if self.is_backwards() {
            let end = safe.max(self.front.saturating_sub(most)).next_multiple_of(chunk);
            end.max(turn.unwrap_or(0))
        } else {
            let end = safe.min(self.front + most) / chunk * chunk;
            end.min(turn.unwrap_or(end))
        }
    }

    /// The next row that begins a stripe of both shapes, the way that the move goes.
    fn next_turn(&self) -> Option<u64> {
        let rows = self.turn_rows();
        let on = if self.is_backwards() {
            (self.front / rows).checked_sub(u64::from(self.front.is_multiple_of(rows)))?
        } else {
            self.front / rows + 1
        };
        Some(on * rows)
    }

    fn turn_rows(&self) -> u64 {
        let common = gcd(self.old_data_disks, self.new_data_disks);
        self.old_data_disks / common * self.chunk_sectors
    }

    /// Returns whether it could be turned round here: the front is at the begin of a stripe of both
    /// shapes, and something is left of the old one.
    pub(in crate::keeper) fn can_turn(&self) -> bool {
        let size = self.end * self.old_data_disks.min(self.new_data_disks);
        let is_left = self.is_backwards() || self.position(self.front) < size;
        let is_whole = self.front.is_multiple_of(self.turn_rows());
        self.stage == MovingStage::Closed && is_whole && is_left && !self.is_over()
    }

    /// Returns how much is done, where all units before this row are.
    pub(super) fn done(&self, low: u64) -> u64 {
        if self.is_backwards() {
            (self.end - self.front.min(self.end)) + low.saturating_sub(self.window)
        } else {
            low.max(self.front)
        }
    }

    /// All that began before the window is over.
    pub(in crate::keeper) fn opened(&mut self) {
        if self.stage == MovingStage::Opening {
            self.stage = MovingStage::Open;
        }
    }
}
