//! Outline of an array in a few words, for events and plans.

use std::fmt;

use crate::SECTOR_BYTES;
use crate::format::Superblock;
use crate::level::Level;

/// Level, number of members and size of an array. As text: `raid5 of 3 members, 40 MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    /// md's number.
    pub level: i32,
    /// Number of roles.
    pub raid_disks: u32,
    /// Size of the array.
    pub array_sectors: u64,
}

impl Outline {
    /// Returns the outline of an array of this size with this superblock.
    #[must_use]
    pub const fn of(superblock: &Superblock, array_sectors: u64) -> Self {
        Self { level: superblock.level, raid_disks: superblock.raid_disks, array_sectors }
    }
}

impl fmt::Display for Outline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Level::from_md(self.level) {
            Some(level) => write!(f, "{level}")?,
            None => write!(f, "level {}", self.level)?,
        }
        let members = if self.raid_disks == 1 { "member" } else { "members" };
        write!(f, " of {} {members}, {}", self.raid_disks, bytes(self.array_sectors))
    }
}

/// `40 MiB`: a size in round numbers.
pub(crate) fn bytes(sectors: u64) -> String {
    let kib = sectors * SECTOR_BYTES / 1024;
    match kib {
        0..10_240 => format!("{kib} KiB"),
        10_240..10_485_760 => format!("{} MiB", kib / 1024),
        _ => format!("{} GiB", kib / 1024 / 1024),
    }
}
