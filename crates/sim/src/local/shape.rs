//! Where an array's bytes lie on its devices: by its geometry, and while data move to another one,
//! by both.

use std::ops::Range;

use braid_array::Role;
use braid_array::geometry::{Geometry, Strip};

use crate::local::create;
use crate::local::scenario::Scenario;

/// Places of an array's data.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The mapping; while data move, the one that they move to.
    pub geometry: Geometry,
    /// Device sector at which data begin by it.
    pub data_offset: u64,
    /// The shape that data move from.
    pub old: Option<OldShape>,
}

/// The shape that data move from.
#[derive(Clone, Debug)]
pub struct OldShape {
    /// The mapping.
    pub geometry: Geometry,
    /// Device sector at which data begin by it.
    pub data_offset: u64,
    /// Data before this array sector have moved; where they move towards the end, those from it on.
    pub position: u64,
    /// Data move from the end of the array on.
    pub backwards: bool,
}

impl Shape {
    /// The shape of an array that was just created.
    pub fn of(scenario: &Scenario) -> Result<Self, String> {
        let data_offset = scenario.data_offset;
        Ok(Self { geometry: create::geometry(scenario)?, data_offset, old: None })
    }

    /// Returns whether data are being moved.
    pub const fn moves(&self) -> bool {
        self.old.is_some()
    }

    /// Device sector at which data begin by superblocks; while data move, by the old mapping.
    pub fn begins(&self) -> u64 {
        self.old.as_ref().map_or(self.data_offset, |old| old.data_offset)
    }

    /// Device sectors between which data lie, by both mappings, where members use so many.
    pub fn data(&self, size_sectors: u64) -> Range<u64> {
        let old = self.begins();
        self.data_offset.min(old)..self.data_offset.max(old) + size_sectors
    }

    /// The mappings, with the device sectors at which data begin.
    fn maps(&self) -> impl Iterator<Item = (&Geometry, u64)> {
        let old = self.old.iter().map(|old| (&old.geometry, old.data_offset));
        std::iter::once((&self.geometry, self.data_offset)).chain(old)
    }

    /// The columns that an array sector is in, or may be in.
    pub fn columns(&self, sector: u64) -> impl Iterator<Item = u64> {
        self.maps().map(move |(map, offset)| offset + map.copy(sector, 0).sector)
    }

    /// The array sectors that a role has, or may have, in a column.
    pub fn array_sectors_at(&self, role: Role, column: u64) -> impl Iterator<Item = u64> {
        self.maps().filter_map(move |(map, offset)| {
            map.array_sector_at(Strip { role, sector: column.checked_sub(offset)? })
        })
    }

    /// Size of the array; while data move, what both mappings have.
    pub fn array_sectors(&self) -> u64 {
        self.maps().map(|(map, _)| map.array_sectors()).min().unwrap_or(0)
    }

    /// The mapping of an array sector, and where data begin by it.
    pub fn at(&self, sector: u64) -> (&Geometry, u64) {
        match &self.old {
            Some(old) if (sector < old.position) == old.backwards => {
                (&old.geometry, old.data_offset)
            }
            _ => (&self.geometry, self.data_offset),
        }
    }

    /// The mapping of a row of the members, and where data begin by it; `None` where nothing lies
    /// that is still needed.
    pub fn at_row(&self, row: u64) -> Option<(&Geometry, u64)> {
        let new = (&self.geometry, self.data_offset);
        let Some(old) = &self.old else { return Some(new) };
        let front = old.position / u64::from(self.geometry.data_disks());
        if (row < front) != old.backwards {
            return Some(new);
        }
        let chunk = u64::from(old.geometry.chunk_sectors());
        let stripe = u64::from(old.geometry.data_disks()) * chunk;
        let is_needed = if old.backwards {
            row < old.position.div_ceil(stripe) * chunk
        } else {
            row >= old.position / stripe * chunk
        };
        is_needed.then_some((&old.geometry, old.data_offset))
    }
}
