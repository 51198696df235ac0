//! The sync space of local arrays.

use crate::Role;
use crate::code::Losses;
use crate::geometry::{Geometry, GeometryError, Strip};
use crate::keeper::{MOVED, Redundancy, Strips, SyncSpace, UNIT_SECTORS};
use crate::level::Level;

/// Where the members' bytes lie, and who may be lost.
#[derive(Debug)]
pub(super) struct Space {
    geometry: Geometry,
    losses: Losses,
    old: Option<OldSpace>,
}

/// The shape that data move from.
#[derive(Debug)]
struct OldSpace {
    geometry: Geometry,
    losses: Losses,
    /// What is before this place lies by the new shape; backwards, what is from it on.
    front: u64,
    backwards: bool,
}

impl Space {
    pub(super) fn new(geometry: Geometry) -> Result<Self, GeometryError> {
        let losses = losses_of(&geometry)?;
        Ok(Self { geometry, losses, old: None })
    }

    /// Data are to move from one shape to another.
    pub(super) fn between(
        old: Geometry,
        new: Geometry,
        backwards: bool,
    ) -> Result<Self, GeometryError> {
        let old = OldSpace { losses: losses_of(&old)?, geometry: old, front: 0, backwards };
        Ok(Self { old: Some(old), ..Self::new(new)? })
    }

    /// Returns whether sync space is the array's.
    const fn is_of_array(&self) -> bool {
        match self.geometry.level() {
            Level::Raid10 => true,
            Level::Raid0 => self.old.is_some(),
            _ => false,
        }
    }

    fn geometries(&self) -> impl Iterator<Item = &Geometry> {
        self.old.iter().map(|old| &old.geometry).chain([&self.geometry])
    }

    fn at(&self, place: u64) -> &Geometry {
        match &self.old {
            Some(old) if (place < old.front) == old.backwards => &old.geometry,
            _ => &self.geometry,
        }
    }

    /// The copies of an array sector.
    fn copies(&self, sector: u64) -> impl Iterator<Item = Strip> + '_ {
        let old = self.old.as_ref();
        let moved = old.is_some_and(|old| (sector < old.front) != old.backwards);
        let flag = if moved { MOVED } else { 0 };
        let copies =
            (0..self.geometry.copies()).map(move |copy| self.at(sector).copy(sector, copy));
        copies.map(move |strip| Strip { sector: strip.sector | flag, ..strip })
    }
}

fn losses_of(geometry: &Geometry) -> Result<Losses, GeometryError> {
    Losses::of(geometry.level(), geometry.layout(), geometry.raid_disks())
}

impl SyncSpace for Space {
    fn level_name(&self) -> String {
        self.geometry.level().name().to_owned()
    }

    fn roles(&self) -> u16 {
        self.geometries().map(Geometry::raid_disks).max().unwrap_or(0) as u16
    }

    fn redundancy(&self) -> Redundancy {
        match self.geometry.level() {
            Level::Raid0 if self.old.is_some() => Redundancy::Copies,
            Level::Linear | Level::Raid0 => Redundancy::None,
            Level::Raid1 | Level::Raid10 => Redundancy::Copies,
            Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                Redundancy::Parity(self.geometry.parity_disks())
            }
        }
    }

    fn array_sectors(&self) -> u64 {
        self.geometries().map(Geometry::array_sectors).min().unwrap_or(0)
    }

    fn member_sectors(&self) -> u64 {
        self.geometry.member_sectors()
    }

    fn sync_sectors(&self) -> u64 {
        self.geometries().map(Geometry::sync_sectors).min().unwrap_or(0)
    }

    fn marked_sectors(&self) -> u64 {
        self.geometries().map(Geometry::sync_sectors).max().unwrap_or(0)
    }

    fn unit_sectors(&self) -> u64 {
        self.geometries().map(unit_sectors).min().unwrap_or(0)
    }

    fn survives(&self, lost: &dyn Fn(Role) -> bool) -> bool {
        self.losses.survives(lost) && self.old.as_ref().is_none_or(|old| old.losses.survives(lost))
    }

    fn set_front(&mut self, place: u64) {
        if let Some(old) = &mut self.old {
            old.front = place;
        }
    }

    fn settle(&mut self) {
        self.old = None;
        self.geometry = self.geometry.clone().at_rest();
    }

    fn is_by_role(&self) -> bool {
        self.is_of_array()
    }

    fn of_row(&self, role: Role, row: u64) -> Option<(u64, u64)> {
        let first = self.geometry.array_sector_at(Strip { role, sector: row })?;
        Some((first, self.geometry.array_sectors().saturating_sub(first)))
    }

    fn row_of(&self, role: Role, sector: u64) -> Option<u64> {
        if !self.is_of_array() {
            return Some(sector);
        }
        self.copies(sector).find(|strip| strip.role == role).map(|strip| strip.sector)
    }

    fn strips_at(&self, row: u64, end: u64) -> Strips {
        let geometry = self.at(row);
        let chunk = u64::from(geometry.chunk_sectors());
        let (p, q) = geometry.parity_roles(row / chunk);
        let is_sum = |role: Role| role == p || Some(role) == q;
        let sectors = (chunk - row % chunk).min(end - row);
        let strips = Role::all(geometry.raid_disks() as u16).map(|role| (role, row));
        let (sums, data) = strips.partition(|&(role, _)| is_sum(role));
        Strips { places: sectors, sectors, data, sums, involved: Vec::new() }
    }

    fn first_row(&self, sector: u64) -> u64 {
        if !self.is_of_array() {
            return sector;
        }
        self.copies(sector).map(|strip| strip.sector).min().unwrap_or(0)
    }
}

/// Returns the height of a unit of background work, or of a write with parity.
pub(super) fn unit_sectors(geometry: &Geometry) -> u64 {
    match geometry.level() {
        Level::Raid1 => u64::from(UNIT_SECTORS),
        _ => u64::from(geometry.chunk_sectors().clamp(8, UNIT_SECTORS)),
    }
}
