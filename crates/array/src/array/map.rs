//! Where an array's bytes lie: its geometry, and the codes of its stripes. While data move from one
//! map to another, both, and where they meet:
//!
//! ```text
//! forwards   0 ── new map ──► front ── old map; writes wait ──► window ── old map ──► end
//! backwards  0 ── old map ──► window ── old map; writes wait ──► front ── new map ──► end
//! ```
//! With parity, rows of members that lie before the front's are of the new map, all others of the
//! old one: a stripe of the old map that is still needed lies behind them, for it has no more data.
//! Backwards it is the other way round. Of copies, rows of both maps may be the same: which they
//! are of is in the row itself ([`MOVED`]).

use std::cmp::Ordering;
use std::sync::Arc;

use super::space;
use crate::MemberId;
use crate::code::{Codes, KnownCode};
use crate::geometry::{Geometry, Strip};
use crate::keeper::{MOVED, Unit};
use crate::level::Level;

/// The map of an array.
#[derive(Debug)]
pub(super) struct ArrayMap {
    /// The map; while data move, the one that they move to.
    pub(super) geometry: Geometry,
    codes: Codes,
    old: Option<Box<OldMap>>,
}

/// The map that data move from.
#[derive(Debug)]
struct OldMap {
    geometry: Geometry,
    codes: Codes,
    backwards: bool,
    /// Array sector up to which everything lies by the new map; backwards, from which on.
    front: u64,
    /// The same as a row of members.
    front_row: u64,
    /// Data between the front and this array sector are being moved.
    window_end: u64,
    /// The first array sector that is being moved.
    window_start: u64,
    /// They are saved to this device, and moved from there: neither map holds.
    saved_to: Option<MemberId>,
}

impl OldMap {
    const fn has_row(&self, row: u64) -> bool {
        (row < self.front_row) == self.backwards
    }
}

impl ArrayMap {
    pub(super) fn new(geometry: Geometry) -> Self {
        Self { codes: Codes::new(&geometry), geometry, old: None }
    }

    /// Data are to move from one map to another, of the same level.
    pub(super) fn between(old: Geometry, new: Geometry, backwards: bool) -> Self {
        let mut map = Self::new(new);
        let codes = map.codes.beside(&old);
        let geometry = old;
        let old = OldMap {
            geometry,
            codes,
            backwards,
            front: 0,
            front_row: 0,
            window_end: 0,
            window_start: 0,
            saved_to: None,
        };
        map.old = Some(Box::new(old));
        map
    }

    /// Data up to this array sector have moved, or from it on.
    pub(super) fn set_front(&mut self, sector: u64) {
        let data_disks = u64::from(self.geometry.data_disks());
        let place = if self.has_parity() { sector / data_disks } else { sector };
        self.set_window(place, place);
    }

    /// The front has come to this place of sync space, and what lies up to another one is being
    /// moved.
    pub(super) fn set_window(&mut self, front: u64, end: u64) {
        if self.has_parity() {
            return self.set_window_of_rows(front, end);
        }
        if let Some(old) = &mut self.old {
            (old.front, old.window_end) = (front, end);
        }
    }

    /// Sets the device that what is being moved is saved to first.
    pub(super) fn set_saved_to(&mut self, device: Option<MemberId>) {
        self.old.iter_mut().for_each(|old| old.saved_to = device);
    }

    /// Returns it.
    pub(super) fn saved_to(&self) -> Option<MemberId> {
        self.old.as_ref().and_then(|old| old.saved_to)
    }

    /// Returns the first array sector that is saved, while that is.
    pub(super) fn saved_from(&self) -> u64 {
        self.old.as_ref().map_or(0, |old| old.window_start)
    }

    fn set_window_of_rows(&mut self, front_row: u64, end_row: u64) {
        let data_disks = u64::from(self.geometry.data_disks());
        if let Some(old) = &mut self.old {
            old.front = front_row * data_disks;
            old.front_row = front_row;
            old.window_start = front_row.min(end_row) * data_disks;
            // A strip that is lost is computed from its whole stripe, which must not change.
            let stripe = u64::from(old.geometry.data_disks() * old.geometry.chunk_sectors());
            let end = end_row * data_disks;
            old.window_end = match end_row.cmp(&front_row) {
                Ordering::Less => end / stripe * stripe,
                Ordering::Equal => end,
                Ordering::Greater => end.next_multiple_of(stripe),
            };
        }
    }

    /// The map that data move from, while they do.
    pub(super) fn old(&self) -> Option<&Geometry> {
        self.old.as_ref().map(|old| &old.geometry)
    }

    /// Size of the array: while data move, what both maps have.
    pub(super) fn array_sectors(&self) -> u64 {
        let new = self.geometry.array_sectors();
        self.old().map_or(new, |old| old.array_sectors().min(new))
    }

    /// Roles of the larger map.
    pub(super) fn roles(&self) -> usize {
        let new = self.geometry.raid_disks();
        self.old().map_or(new, |old| old.raid_disks().max(new)) as usize
    }

    /// The map by which an array sector lies.
    pub(super) fn at(&self, sector: u64) -> &Geometry {
        match &self.old {
            Some(old) if (sector < old.front) == old.backwards => &old.geometry,
            _ => &self.geometry,
        }
    }

    /// Returns where a copy of an array sector lies.
    pub(super) fn copy(&self, sector: u64, copy: u32) -> Strip {
        match &self.old {
            Some(old) if (sector < old.front) != old.backwards => self.moved_copy(sector, copy),
            _ => self.at(sector).copy(sector, copy),
        }
    }

    /// Returns where a copy of an array sector is to lie once that has moved.
    pub(super) fn moved_copy(&self, sector: u64, copy: u32) -> Strip {
        let strip = self.geometry.copy(sector, copy);
        Strip { sector: strip.sector | MOVED, ..strip }
    }

    /// The map of a row of the members.
    pub(super) fn at_row(&self, row: u64) -> &Geometry {
        match &self.old {
            Some(old) if old.has_row(row) => &old.geometry,
            _ => &self.geometry,
        }
    }

    /// The code of the stripe that a row is in.
    pub(super) fn code_at(&self, row: u64) -> Arc<KnownCode> {
        let (geometry, codes) = match &self.old {
            Some(old) if old.has_row(row) => (&old.geometry, &old.codes),
            _ => (&self.geometry, &self.codes),
        };
        codes.of_stripe(geometry, row / u64::from(geometry.chunk_sectors()))
    }

    /// The code of a stripe of the map that data move to.
    pub(super) fn new_code_at(&self, row: u64) -> Arc<KnownCode> {
        self.codes.of_stripe(&self.geometry, row / u64::from(self.geometry.chunk_sectors()))
    }

    /// Returns whether what lies there is being moved: writes wait.
    pub(super) fn is_moving(&self, sector: u64) -> bool {
        self.old.as_ref().is_some_and(|old| {
            let start = old.front.min(old.window_end);
            let end = old.front.max(old.window_end);
            (start..end).contains(&sector)
        })
    }

    /// Returns how many sectors from here on are on the same side of front and window.
    pub(super) fn alike(&self, sector: u64) -> u64 {
        let Some(old) = &self.old else { return u64::MAX };
        let ends = [old.front, old.window_end].into_iter().filter(|end| *end > sector);
        ends.min().map_or(u64::MAX, |end| end - sector)
    }

    /// Returns how many sectors from here on lie side by side on their members.
    pub(super) fn run(&self, sector: u64) -> u64 {
        self.at(sector).run(sector)
    }

    pub(super) const fn has_parity(&self) -> bool {
        matches!(self.geometry.level(), Level::Raid4 | Level::Raid5 | Level::Raid6)
    }

    /// Returns whether data have copies. While stripes without redundancy move, each has one.
    pub(super) const fn is_mirror(&self) -> bool {
        let level = self.geometry.level();
        matches!(level, Level::Raid1 | Level::Raid10) || self.old.is_some() && !self.has_parity()
    }

    /// Height of a unit: it divides the chunk, in both maps.
    pub(super) fn unit_sectors(&self) -> u64 {
        let new = space::unit_sectors(&self.geometry);
        self.old().map_or(new, |old| space::unit_sectors(old).min(new))
    }

    /// Sectors of data in the unit that begins with a row.
    pub(super) fn unit_data(&self, row: u64) -> u64 {
        u64::from(self.at_row(row).data_disks()) * self.unit_sectors()
    }

    /// Where an array sector lies in sync space.
    pub(super) fn sync_sector(&self, sector: u64) -> u64 {
        if self.has_parity() { self.parity_place(sector).1 } else { sector }
    }

    /// Data index and member sector of an array sector, for parity levels.
    pub(super) fn parity_place(&self, sector: u64) -> (u32, u64) {
        parity_place(self.at(sector), sector)
    }

    /// The unit of an array sector, by its first row, then the strip, and the row within the unit.
    pub(super) fn unit_place(&self, sector: u64) -> (u64, u32, u32) {
        let (strip, at) = self.parity_place(sector);
        let row = at % self.unit_sectors();
        (at - row, strip, row as u32)
    }

    /// Array sector of a row of a data strip, for parity levels.
    pub(super) fn data_sector(&self, row: u64, index: u32) -> u64 {
        data_sector(self.at_row(row), row, index)
    }

    /// First array sector of a unit.
    pub(super) fn array_sector(&self, unit: Unit) -> u64 {
        if self.has_parity() { self.data_sector(unit.start, 0) } else { unit.start }
    }

    /// First array sector of a data strip of a unit.
    pub(super) fn strip_sector(&self, unit: Unit, index: u64) -> u64 {
        self.array_sector(unit) + index * u64::from(self.at_row(unit.start).chunk_sectors())
    }
}

/// Data index and member sector of an array sector.
pub(super) fn parity_place(geometry: &Geometry, sector: u64) -> (u32, u64) {
    let chunk = u64::from(geometry.chunk_sectors());
    let data_disks = u64::from(geometry.data_disks());
    let number = sector / chunk;
    ((number % data_disks) as u32, number / data_disks * chunk + sector % chunk)
}

/// Array sector of a row of a data strip.
pub(super) fn data_sector(geometry: &Geometry, row: u64, index: u32) -> u64 {
    let chunk = u64::from(geometry.chunk_sectors());
    let stripe = row / chunk * u64::from(geometry.data_disks());
    (stripe + u64::from(index)) * chunk + row % chunk
}
