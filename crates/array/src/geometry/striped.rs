//! raid0: rows of chunks over the members that are long enough.
//!
//! Members of unequal size make zones. The first lasts as long as the smallest member and runs over
//! all of them; the next runs over those that are longer, to the end of the smallest of these; and
//! so on.

use super::{GeometryError, MAX_SECTORS, Shape, Strip, role};
use crate::Role;
use crate::level::{Layout, Raid0Layout};

#[derive(Clone, Debug)]
pub(super) struct Zones {
    zones: Vec<Zone>,
    /// Longest part of each member that holds whole chunks, by role.
    member_sectors: Vec<u64>,
    chunk_sectors: u64,
    array_sectors: u64,
}

#[derive(Clone, Debug)]
struct Zone {
    /// First sector of the array.
    start: u64,
    end: u64,
    /// First sector on the members, the same on all.
    member_start: u64,
    /// Added to a chunk's number in the zone before it chooses the member.
    shift: u64,
    /// The members of the zone.
    roles: Vec<Role>,
}

impl Zones {
    pub(super) fn new(shape: &Shape<'_>) -> Result<Self, GeometryError> {
        let chunk_sectors = u64::from(shape.chunk_sectors);
        let mut member_sectors = Vec::with_capacity(shape.member_data_sectors.len());
        let mut total_sectors = 0;
        for &sectors in shape.member_data_sectors {
            if sectors < chunk_sectors {
                return Err(GeometryError::TooSmall { sectors, least_sectors: chunk_sectors });
            }
            if sectors > MAX_SECTORS || total_sectors > MAX_SECTORS {
                return Err(GeometryError::TooLarge);
            }
            total_sectors += sectors;
            member_sectors.push(sectors - sectors % chunk_sectors);
        }
        let zones = zones(&member_sectors, shape)?;
        // md clears these bits of every size. It does nothing to a chunk that is a power of two,
        // and makes the array smaller than its zones otherwise.
        let array_sectors = member_sectors.iter().map(|size| size & !(chunk_sectors - 1)).sum();
        Ok(Self { zones, member_sectors, chunk_sectors, array_sectors })
    }

    pub(super) const fn array_sectors(&self) -> u64 {
        self.array_sectors
    }

    pub(super) fn find(&self, sector: u64) -> Strip {
        let index = self.zones.partition_point(|zone| zone.end <= sector);
        let zone = &self.zones[index.min(self.zones.len() - 1)];
        let width = zone.roles.len() as u64;
        let in_zone = sector - zone.start;
        let chunk = in_zone / self.chunk_sectors;
        let column = (chunk + zone.shift) % width;
        let row_start = chunk / width * self.chunk_sectors;
        Strip {
            role: zone.roles[column as usize],
            sector: zone.member_start + row_start + in_zone % self.chunk_sectors,
        }
    }

    pub(super) fn sector_at(&self, strip: Strip) -> Option<u64> {
        if strip.sector >= self.member_sectors[strip.role.index()] {
            return None;
        }
        let after = self.zones.partition_point(|zone| zone.member_start <= strip.sector);
        let zone = &self.zones[after - 1];
        let width = zone.roles.len() as u64;
        let column = zone.roles.binary_search(&strip.role).ok()? as u64;
        let below = strip.sector - zone.member_start;
        let in_row = (column + width - zone.shift) % width;
        let chunk = below / self.chunk_sectors * width + in_row;
        Some(zone.start + chunk * self.chunk_sectors + below % self.chunk_sectors)
    }
}

/// Cuts the members into zones. The layout matters when a zone after the first has more than one
/// member, and md asks for it when that is so of the second.
fn zones(member_sectors: &[u64], shape: &Shape<'_>) -> Result<Vec<Zone>, GeometryError> {
    let chunk_sectors = u64::from(shape.chunk_sectors);
    let mut zones = Vec::new();
    let mut start = 0;
    let mut member_start = 0;
    loop {
        let longer = (0..).zip(member_sectors).filter(|&(_, &size)| size > member_start);
        let roles: Vec<Role> = longer.clone().map(|(number, _)| role(number)).collect();
        let Some(member_end) = longer.map(|(_, &size)| size).min() else {
            return Ok(zones);
        };
        let width = roles.len() as u64;
        let shift = match shape.layout {
            Layout::Raid0(Raid0Layout::Alternate) => 0,
            Layout::None if zones.len() == 1 && width > 1 => {
                return Err(GeometryError::Raid0Layout);
            }
            _ => start / chunk_sectors % width,
        };
        let end = start + (member_end - member_start) * width;
        zones.push(Zone { start, end, member_start, shift, roles });
        (start, member_start) = (end, member_end);
    }
}
