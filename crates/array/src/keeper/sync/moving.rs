//! A reshape: data move row by row to the shape that the array is to have, a window of rows at a
//! time: from the first row on, or backwards from the last one.
//!
//! ```text
//! Closed ─► Opening: writes there wait, what was under way ends ─► Open: units are moved
//!    ▲                                                               │ all of the window
//!    └────── more, or held ◄── Placing: flush, then the front in all superblocks ◄──┘
//! ```
//! Where data move in place and what is moved lies upon what is yet to be moved, the window is
//! saved first, to a device beside the members, and moved from there. Nothing reads or writes there
//! meanwhile: in it no map holds.
//!
//! ```text
//! Opening ─► Saving ─► Sealing: a header tells of what is saved ─► Open ─► Placing ─► Dropping:
//! the header tells of nothing again ─► Closed
//! ```
//! Nothing is written over what a superblock on any member still needs. What lies before the
//! members' front is where the new shape has it (backwards: what lies behind it), and all else
//! where it was. New rows begin a few rows before the old ones, and hold as much of the array each
//! or more (backwards: behind them, as much or less); so the window may reach as far as that takes
//! it into old rows that lie on the moved side of the front as a whole. `raid5.c` and `raid10.c` of
//! the kernel go by the same distance in `reshape_request`.

use crate::Instant;
use crate::format::Superblock;
use crate::format::reshaped::{Side, is_backwards, shape_of_side};
use crate::format::superblock::feature;
use crate::geometry::RowOrder;
use crate::grow::NewShape;
use crate::keeper::members::Moved;
use crate::level::Level;
use crate::units::gcd;

/// The stage of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MovingStage {
    Closed,
    Opening,
    /// Units of the window are saved.
    Saving,
    /// Waits for the header that tells of the window.
    Sealing,
    Open,
    /// Waits for the update that puts the front here.
    Placing {
        front: u64,
        ticket: u64,
    },
    /// Waits for the header that tells of nothing.
    Dropping,
    /// The header could not be written: it is tried again then.
    Undropped(Instant),
}

/// The move of an array's data. Places are those of sync space: with parity, rows of the members.
#[derive(Debug)]
pub(in crate::keeper) struct Moving {
    old: RowOrder,
    new: RowOrder,
    /// Array sectors at each place.
    per_place: u64,
    /// Fronts are at multiples of so many places: with parity at the begin of a stripe in both
    /// shapes. Where md had one elsewhere, the next one is.
    align: u64,
    /// The same for those where the move can be turned round.
    turn_align: u64,
    /// Stripes without redundancy.
    stripes: bool,
    /// Copies: which rows they are in says by itself whether they have moved.
    copies: bool,
    /// Rows of the new shape lie so many sectors behind those of the old one. Where that is less
    /// than none, data move from the first place on.
    by: i64,
    /// From the end of the array on.
    backwards: bool,
    /// Size of the array in the smaller shape.
    size: u64,
    /// The first place behind all.
    pub(super) end: u64,
    /// The place up to which all has moved, or from which on, as all members say.
    pub(super) front: u64,
    /// The other end of the window.
    pub(super) window: u64,
    pub(super) stage: MovingStage,
    /// The window is saved before it is moved.
    pub(super) is_saved: bool,
    /// The reason why it does not go on before something changes.
    pub(in crate::keeper) waits: Option<String>,
    /// It stops at the next place where it can be turned round.
    pub(in crate::keeper) turns: bool,
}

impl Moving {
    /// The move that a superblock tells of; `None` where it tells of none.
    pub(in crate::keeper) fn of(superblock: &Superblock) -> Option<Self> {
        if !superblock.has(feature::RESHAPE_ACTIVE) {
            return None;
        }
        let geometry = |side| {
            let shape = NewShape::of_superblock(&shape_of_side(superblock, side)?)?;
            shape.geometry().ok()
        };
        let old = geometry(Side::Old)?;
        let new = geometry(Side::New)?;
        let copies = new.parity_disks() == 0;
        let chunk = u64::from(old.chunk_sectors().max(new.chunk_sectors()));
        let size = old.array_sectors().min(new.array_sectors());
        let rows = superblock.size_sectors / chunk * chunk;
        let disks = u64::from(new.data_disks());
        let (per_place, end) = if copies { (1, size) } else { (disks, rows) };
        // Of stripes without redundancy superblocks tell as of those with parity.
        let stripes = superblock.level == Level::Raid0.to_md();
        let align = if stripes { disks * chunk } else { chunk };
        let before = u64::from(old.data_disks());
        let turns = before / gcd(before, disks) * align;
        let turn_align = if copies && !stripes { 1 } else { turns };
        let front = (superblock.reshape.position / per_place).min(end);
        let by = i64::from(superblock.reshape.new_offset);
        let backwards = is_backwards(superblock);
        debug_assert!(by == 0 || (by > 0) == backwards, "no room where it is needed");
        let (old, new) = RowOrder::of_both(&old, &new);
        Some(Self {
            old,
            new,
            per_place,
            align,
            turn_align,
            stripes,
            copies,
            by,
            backwards,
            size,
            end,
            front,
            window: front,
            stage: MovingStage::Closed,
            is_saved: false,
            waits: None,
            turns: false,
        })
    }

    pub(super) const fn is_backwards(&self) -> bool {
        self.backwards
    }

    /// The rows that have moved.
    pub(in crate::keeper) const fn moved(&self) -> Moved {
        let front = match (self.copies, self.by > 0) {
            (false, _) => self.front,
            (true, false) => 0,
            (true, true) => u64::MAX,
        };
        Moved { front, by: self.by }
    }

    pub(super) const fn is_at_end(&self) -> bool {
        if self.is_backwards() { self.front == 0 } else { self.front >= self.end }
    }

    /// Returns whether all is where it is to be.
    pub(in crate::keeper) fn is_over(&self) -> bool {
        self.is_at_end() && self.stage == MovingStage::Closed
    }

    /// The array sector at a place of the new shape; behind all, of the next whole stripe.
    pub(super) fn position(&self, place: u64) -> u64 {
        if self.stripes { place.next_multiple_of(self.align) } else { place * self.per_place }
    }

    /// The first place of the window, and the first one behind it.
    pub(in crate::keeper) fn span(&self) -> (u64, u64) {
        (self.front.min(self.window), self.front.max(self.window))
    }

    /// Returns the place up to which the window may reach: what is written up to there lies upon
    /// nothing that is still needed.
    pub(super) fn safe_end(&self) -> u64 {
        let position = self.position(self.front);
        let shift = self.by.unsigned_abs();
        if crate::broken("reshape-distance") {
            return if self.is_backwards() { 0 } else { self.end };
        }
        if self.is_backwards() {
            let row = self.old.end_row(position).saturating_sub(shift);
            self.new.sector_from(row) / self.per_place
        } else {
            let row = self.old.first_row(position) + shift;
            (self.new.sector_before(row) / self.per_place).min(self.end)
        }
    }

    /// Returns where the next window is to end, of so many rows at most.
    pub(super) fn next_end(&self, most: u64) -> u64 {
        let Self { align, front, end, .. } = *self;
        let most = most.max(self.old.height).max(self.new.height);
        let most = self.new.sector_before(most) / self.per_place;
        let safe = self.safe_end();
        let turn = if self.turns { self.next_turn() } else { None };
        if self.is_backwards() {
            let end = safe.max(front.saturating_sub(most)).next_multiple_of(align);
            end.max(turn.unwrap_or(0))
        } else {
            let safe = safe.min(front + most);
            let end = if safe < end { safe / align * align } else { end };
            end.min(turn.unwrap_or(end))
        }
    }

    /// Returns where the next window is to end that is saved first, of so many rows at most, where
    /// there is room for so many sectors of the array.
    pub(super) fn next_saved_end(&self, most: u64, room: u64) -> u64 {
        let Self { align, front, .. } = *self;
        let whole = |places: u64| places / align * align;
        let rows = whole(most).max(align).min(whole(room / self.per_place));
        let turn = if self.turns { self.next_turn() } else { None };
        if self.is_backwards() {
            return front.saturating_sub(rows).max(turn.unwrap_or(0));
        }
        let end = whole(self.size / self.per_place).min(turn.unwrap_or(u64::MAX));
        (front + rows).min(end).max(front)
    }

    /// Returns whether a window that ends there has nothing that could be moved as it is.
    pub(super) const fn is_empty(&self, end: u64) -> bool {
        if self.is_backwards() { end >= self.front } else { end <= self.front }
    }

    /// Returns whether what is moved lies upon what is yet to be moved, and nothing is in between.
    pub(super) const fn is_in_place(&self) -> bool {
        self.by == 0
    }

    /// The first sector of the array in the window, and the number of sectors.
    pub(super) fn saved(&self) -> (u64, u64) {
        let (first, end) = self.span();
        (self.position(first), self.position(end) - self.position(first))
    }

    /// Returns whether units are being saved.
    pub(super) fn is_saving(&self) -> bool {
        self.stage == MovingStage::Saving
    }

    /// Returns whether units are moved from where they were saved.
    pub(super) fn moves_saved(&self) -> bool {
        self.is_saved && self.stage == MovingStage::Open
    }

    /// Returns whether a window that is being moved must be moved as a whole: neither map holds
    /// there.
    pub(super) fn must_go_on(&self) -> bool {
        self.moves_saved() && self.waits.is_none()
    }

    /// Returns how far the front has come once all of the window before this place has moved.
    /// Backwards a window is moved as a whole, or once more.
    pub(super) fn front_after(&self, place: u64) -> u64 {
        let (first, end) = self.span();
        let is_whole = place >= end;
        if self.is_backwards() {
            if is_whole { first } else { end }
        } else if is_whole {
            end
        } else {
            (place / self.align * self.align).max(first)
        }
    }

    /// The next place where it can be turned round, the way that the move goes.
    fn next_turn(&self) -> Option<u64> {
        let places = self.turn_align;
        let on = if self.is_backwards() {
            (self.front / places).checked_sub(u64::from(self.front.is_multiple_of(places)))?
        } else {
            self.front / places + 1
        };
        Some(on * places)
    }

    /// Returns whether it could be turned round here: the front is at the begin of a stripe of both
    /// shapes, and something is left of the old one.
    pub(in crate::keeper) fn can_turn(&self) -> bool {
        let is_left = self.is_backwards() || self.position(self.front) < self.size;
        let is_whole = self.front.is_multiple_of(self.turn_align);
        self.stage == MovingStage::Closed && is_whole && is_left && !self.is_over()
    }

    /// Returns how much is done, where all units before this place are.
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
            self.stage = if self.is_saved { MovingStage::Saving } else { MovingStage::Open };
        }
    }
}
