//! A reshape: data move row by row to the shape that the array is to have, from the first one on,
//! a window of rows at a time.
//!
//! ```text
//! Closed ─► Opening: writes there wait, what was under way ends ─► Open: units are moved
//!    ▲                                                               │ all of the window
//!    └────── more, or held ◄── Placing: flush, then the front in all superblocks ◄──┘
//! ```
//! Nothing is written over what a superblock on any member still needs. The members' front is at a
//! row of the new shape: what lies before it is there, and all else where it was. New rows begin a
//! few rows before the old ones (`shift`), and hold more of the array each; so the window may reach
//! as far as that takes it into old rows that lie before the front as a whole. `raid5.c` of the
//! kernel goes by the same distance in `reshape_request`.

use crate::format::Superblock;
use crate::format::superblock::feature;
use crate::keeper::members::Moved;
use crate::level::Level;

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
    pub(super) chunk_sectors: u64,
    /// Rows of the new shape lie so many sectors before those of the old one.
    shift: u64,
    /// The first row behind all.
    pub(super) end: u64,
    /// Rows before it are moved, as all members say.
    pub(super) front: u64,
    /// The first row behind the window.
    pub(super) window: u64,
    pub(super) stage: MovingStage,
    /// The reason why it does not go on before something changes.
    pub(super) waits: Option<String>,
}

impl Moving {
    /// The move that a superblock tells of; `None` where it tells of none.
    pub(in crate::keeper) fn of(superblock: &Superblock) -> Option<Self> {
        if !superblock.has(feature::RESHAPE_ACTIVE) {
            return None;
        }
        let parity = Level::from_md(superblock.level)?.parity_disks();
        let new_data_disks = u64::from(superblock.raid_disks - parity);
        let chunk_sectors = u64::from(superblock.chunk_sectors);
        let added = u64::from(superblock.reshape.delta_disks.unsigned_abs());
        let front = superblock.reshape.position / new_data_disks;
        Some(Self {
            old_data_disks: new_data_disks - added,
            new_data_disks,
            chunk_sectors,
            shift: u64::from(superblock.reshape.new_offset.unsigned_abs()),
            end: superblock.size_sectors / chunk_sectors * chunk_sectors,
            front,
            window: front,
            stage: MovingStage::Closed,
            waits: None,
        })
    }

    /// The rows that have moved.
    pub(in crate::keeper) const fn moved(&self) -> Moved {
        Moved { rows: self.front, by: self.shift }
    }

    /// Returns whether all is where it is to be.
    pub(in crate::keeper) fn is_over(&self) -> bool {
        self.front >= self.end && self.stage == MovingStage::Closed
    }

    /// The array sector at a row of the new shape.
    pub(super) const fn position(&self, row: u64) -> u64 {
        row * self.new_data_disks
    }

    /// Returns the first row that must not be written yet.
    pub(super) fn safe_end(&self) -> u64 {
        let stripe = self.old_data_disks * self.chunk_sectors;
        let old_rows = self.position(self.front) / stripe * self.chunk_sectors;
        if crate::broken("reshape-distance") {
            return self.end;
        }
        (old_rows + self.shift).min(self.end)
    }

    /// All that began before the window is over.
    pub(in crate::keeper) fn opened(&mut self) {
        if self.stage == MovingStage::Opening {
            self.stage = MovingStage::Open;
        }
    }
}
