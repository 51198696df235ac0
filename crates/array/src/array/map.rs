//! Where an array's bytes lie: its geometry, and the codes of its stripes.

use super::space;
use crate::code::Codes;
use crate::geometry::Geometry;
use crate::keeper::Unit;
use crate::level::Level;

/// The map of an array, constant while the array runs.
#[derive(Debug)]
pub(super) struct ArrayMap {
    pub(super) geometry: Geometry,
    pub(super) codes: Codes,
}

impl ArrayMap {
    pub(super) const fn has_parity(&self) -> bool {
        matches!(self.geometry.level(), Level::Raid4 | Level::Raid5 | Level::Raid6)
    }

    pub(super) const fn is_mirror(&self) -> bool {
        matches!(self.geometry.level(), Level::Raid1 | Level::Raid10)
    }

    /// Height of a unit: it divides the chunk.
    pub(super) fn unit_sectors(&self) -> u64 {
        space::unit_sectors(&self.geometry)
    }

    /// Where an array sector lies in sync space.
    pub(super) fn sync_sector(&self, sector: u64) -> u64 {
        if self.has_parity() { self.parity_place(sector).1 } else { sector }
    }

    /// Data index and member sector of an array sector, for parity levels.
    pub(super) fn parity_place(&self, sector: u64) -> (u32, u64) {
        let chunk = u64::from(self.geometry.chunk_sectors());
        let data_disks = u64::from(self.geometry.data_disks());
        let number = sector / chunk;
        ((number % data_disks) as u32, number / data_disks * chunk + sector % chunk)
    }

    /// The unit of an array sector, by its first row, then the strip, and the row within the unit.
    pub(super) fn unit_place(&self, sector: u64) -> (u64, u32, u32) {
        let (strip, at) = self.parity_place(sector);
        let row = at % self.unit_sectors();
        (at - row, strip, row as u32)
    }

    /// Array sector of a row of a data strip, for parity levels.
    pub(super) fn data_sector(&self, row: u64, index: u32) -> u64 {
        let chunk = u64::from(self.geometry.chunk_sectors());
        let stripe = row / chunk * u64::from(self.geometry.data_disks());
        (stripe + u64::from(index)) * chunk + row % chunk
    }

    /// First array sector of a unit.
    pub(super) fn array_sector(&self, unit: Unit) -> u64 {
        if !self.has_parity() {
            return unit.start;
        }
        let chunk = u64::from(self.geometry.chunk_sectors());
        let data_disks = u64::from(self.geometry.data_disks());
        unit.start / chunk * chunk * data_disks + unit.start % chunk
    }

    /// First array sector of a data strip of a unit.
    pub(super) fn strip_sector(&self, unit: Unit, index: u64) -> u64 {
        self.array_sector(unit) + index * u64::from(self.geometry.chunk_sectors())
    }
}
