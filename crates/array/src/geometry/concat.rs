//! linear: one member after the other.

use super::{GeometryError, MAX_SECTORS, Shape, Strip, role};

/// The ends of the members in the array.
#[derive(Clone, Debug)]
pub(super) struct Concat {
    ends: Vec<u64>,
}

impl Concat {
    /// md rounds each member down to the chunk, where there is one.
    pub(super) fn new(shape: &Shape<'_>) -> Result<Self, GeometryError> {
        let chunk_sectors = u64::from(shape.chunk_sectors.max(1));
        let mut end = 0;
        let mut ends = Vec::with_capacity(shape.member_data_sectors.len());
        for &sectors in shape.member_data_sectors {
            if sectors < chunk_sectors {
                return Err(GeometryError::TooSmall { sectors, least_sectors: chunk_sectors });
            }
            if sectors > MAX_SECTORS {
                return Err(GeometryError::TooLarge);
            }
            end += sectors - sectors % chunk_sectors;
            if end > MAX_SECTORS {
                return Err(GeometryError::TooLarge);
            }
            ends.push(end);
        }
        Ok(Self { ends })
    }

    pub(super) fn array_sectors(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Sectors to the end of the member.
    pub(super) fn run(&self, sector: u64) -> u64 {
        self.ends[self.index(sector)].saturating_sub(sector)
    }

    pub(super) fn find(&self, sector: u64) -> Strip {
        let index = self.index(sector);
        Strip { role: role(index as u32), sector: sector - self.start(index) }
    }

    pub(super) fn sector_at(&self, strip: Strip) -> Option<u64> {
        let index = strip.role.index();
        let start = self.start(index);
        start.checked_add(strip.sector).filter(|&sector| sector < self.ends[index])
    }

    /// The member that holds a sector; the last for sectors beyond the end.
    fn index(&self, sector: u64) -> usize {
        self.ends.partition_point(|&end| end <= sector).min(self.ends.len() - 1)
    }

    fn start(&self, index: usize) -> u64 {
        if index == 0 { 0 } else { self.ends[index - 1] }
    }
}
