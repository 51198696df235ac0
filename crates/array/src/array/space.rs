//! The sync space of local arrays.

use crate::geometry::{Geometry, Strip};
use crate::keeper::{Redundancy, SyncSpace, UNIT_SECTORS};
use crate::level::Level;

impl SyncSpace for Geometry {
    fn level_name(&self) -> String {
        self.level().name().to_owned()
    }

    fn roles(&self) -> u16 {
        self.raid_disks() as u16
    }

    fn redundancy(&self) -> Redundancy {
        match self.level() {
            Level::Linear | Level::Raid0 => Redundancy::None,
            Level::Raid1 | Level::Raid10 => Redundancy::Copies,
            Level::Raid4 | Level::Raid5 | Level::Raid6 => Redundancy::Parity(self.parity_disks()),
        }
    }

    fn array_sectors(&self) -> u64 {
        self.array_sectors()
    }

    fn member_sectors(&self) -> u64 {
        self.member_sectors()
    }

    fn sync_sectors(&self) -> u64 {
        self.sync_sectors()
    }

    fn unit_sectors(&self) -> u64 {
        match self.level() {
            Level::Raid1 => u64::from(UNIT_SECTORS),
            _ => u64::from(self.chunk_sectors().clamp(8, UNIT_SECTORS)),
        }
    }

    fn survives(&self, lost: &dyn Fn(u16) -> bool) -> bool {
        let have = |role: u16| !lost(role);
        let disks = self.raid_disks() as u16;
        match self.level() {
            Level::Linear | Level::Raid0 => (0..disks).all(have),
            Level::Raid1 => (0..disks).any(have),
            Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                let lost = (0..disks).filter(|role| !have(*role)).count() as u32;
                lost <= self.parity_disks()
            }
            // The pattern of copies repeats after as many chunks as there are members.
            Level::Raid10 => {
                let chunk = u64::from(self.chunk_sectors());
                (0..u64::from(disks))
                    .map(|number| number * chunk)
                    .take_while(|sector| *sector < self.array_sectors())
                    .all(|sector| (0..self.copies()).any(|copy| have(self.copy(sector, copy).role)))
            }
        }
    }

    fn is_by_role(&self) -> bool {
        self.level() == Level::Raid10
    }

    fn of_row(&self, role: u16, row: u64) -> Option<(u64, u64)> {
        let first = self.array_sector_at(Strip { role, sector: row })?;
        Some((first, self.array_sectors().saturating_sub(first)))
    }

    fn row_of(&self, role: u16, sector: u64) -> Option<u64> {
        if self.level() != Level::Raid10 {
            return Some(sector);
        }
        let mut copies = (0..self.copies()).map(|copy| self.copy(sector, copy));
        copies.find(|strip| strip.role == role).map(|strip| strip.sector)
    }

    fn first_row(&self, sector: u64) -> u64 {
        if self.level() != Level::Raid10 {
            return sector;
        }
        let copies = 0..self.copies();
        copies.map(|copy| self.copy(sector, copy).sector).min().unwrap_or(0)
    }
}
