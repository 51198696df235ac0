//! Places of metadata and data on a device that becomes a member: as on the others, if that leaves
//! room for the data. md gives each member an offset of its own, so none of the others' need fit.

use crate::format::ppl::PplArea;
use crate::format::{Superblock, Version};

/// Sectors reserved for a superblock.
const SUPERBLOCK_SECTORS: u64 = 8;

const MIB_SECTORS: u64 = 2048;

/// Room that a new member needs, besides its superblock and bad-block log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Used part of each member.
    pub(super) used_sectors: u64,
    /// The bitmap, or 0.
    pub(super) bitmap_sectors: u64,
}

/// The superblock of a new member, laid out as one of the others, the first if possible.
///
/// # Errors
/// The size that a device needs at least.
pub(super) fn place(
    others: &[&Superblock],
    device_sectors: u64,
    room: Room,
) -> Result<Superblock, u64> {
    let others = || others.iter().copied();
    let like = others().find_map(|other| room.like(other, device_sectors));
    let closer = || others().find_map(|other| room.closer(other, device_sectors));
    like.or_else(closer).ok_or_else(|| {
        others().map(|other| room.least_device_sectors(other)).min().unwrap_or(u64::MAX)
    })
}

/// Returns where another member has its partial parity log, counted from the superblock, and its
/// size.
fn ppl_area(other: &Superblock) -> (Option<i32>, u64) {
    match PplArea::kept(other) {
        Ok(Some(area)) => {
            let offset = area.sector.cast_signed() - other.super_offset.cast_signed();
            (i32::try_from(offset).ok(), area.sectors)
        }
        _ => (None, 0),
    }
}

const fn at_end(superblock: &Superblock) -> bool {
    superblock.version.is_behind_data()
}

impl Room {
    /// The same places as on another member, counted from the superblock.
    fn like(self, other: &Superblock, device_sectors: u64) -> Option<Superblock> {
        let mut superblock = other.clone();
        superblock.super_offset = other.version.location(device_sectors)?;
        let data_end = if at_end(other) {
            let between = other.super_offset.checked_sub(other.data_offset + other.data_size)?;
            superblock.super_offset.checked_sub(between)?
        } else {
            device_sectors
        };
        self.with_data(superblock, other.data_offset, data_end)
    }

    /// The data closer to the metadata than on another member: as far from it as there is room.
    fn closer(self, other: &Superblock, device_sectors: u64) -> Option<Superblock> {
        let mut superblock = other.clone();
        superblock.super_offset = other.version.location(device_sectors)?;
        let metadata = self.metadata_sectors(other);
        if at_end(other) {
            let data_end = superblock.super_offset.checked_sub(metadata)?;
            return self.with_data(superblock, other.data_offset, data_end);
        }
        let latest = device_sectors.checked_sub(self.used_sectors)?;
        let offset = [latest / MIB_SECTORS * MIB_SECTORS, latest & !7]
            .into_iter()
            .find(|offset| *offset >= superblock.super_offset + metadata)?;
        self.with_data(superblock, offset, device_sectors)
    }

    fn with_data(self, mut superblock: Superblock, from: u64, end: u64) -> Option<Superblock> {
        superblock.data_offset = from;
        superblock.data_size = end.checked_sub(from)?;
        (superblock.data_size >= self.used_sectors).then_some(superblock)
    }

    /// Returns the length from the superblock to the end of all metadata behind it; or before it,
    /// where data does.
    fn metadata_sectors(self, other: &Superblock) -> u64 {
        let areas = [
            (other.bitmap_sector().map(|_| other.bitmap_offset_sectors), self.bitmap_sectors),
            ppl_area(other),
            (
                other.bblog_sector().map(|_| other.bblog_offset_sectors),
                other.bblog_size_sectors.into(),
            ),
        ];
        let reach = areas.into_iter().map(|(offset, sectors)| match offset {
            Some(offset) if at_end(other) => u64::from(offset.min(0).unsigned_abs()),
            Some(offset) => u64::from(offset.max(0).unsigned_abs()) + sectors,
            None => 0,
        });
        let least = if at_end(other) { 0 } else { SUPERBLOCK_SECTORS };
        reach.fold(least, u64::max).next_multiple_of(8)
    }

    /// The smallest device that `closer` takes.
    fn least_device_sectors(self, other: &Superblock) -> u64 {
        let metadata = self.metadata_sectors(other);
        if other.version == Version::V0_90 {
            return (other.data_offset + self.used_sectors).next_multiple_of(128) + 128;
        }
        if at_end(other) {
            // The superblock begins 8 to 12 KiB before the end.
            let superblock_at =
                (other.data_offset + self.used_sectors + metadata).next_multiple_of(8);
            return superblock_at + 16;
        }
        other.super_offset + metadata + self.used_sectors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::superblock::feature;

    const ROOM: Room = Room { used_sectors: 4096, bitmap_sectors: 3 };

    /// With a bitmap in sectors 16 to 19 and a bad-block log in 24 to 32.
    fn at_start(data_offset: u64, device_sectors: u64) -> Superblock {
        Superblock {
            feature_map: feature::BITMAP_OFFSET,
            bitmap_offset_sectors: 8,
            bblog_offset_sectors: 16,
            bblog_size_sectors: 8,
            super_offset: 8,
            data_offset,
            data_size: device_sectors - data_offset,
            size_sectors: 4096,
            ..Superblock::blank()
        }
    }

    fn offset(others: &[Superblock], device_sectors: u64) -> Result<(u64, u64), u64> {
        let superblock = place(&others.iter().collect::<Vec<_>>(), device_sectors, ROOM)?;
        assert_eq!(superblock.super_offset, superblock.version.location(device_sectors).unwrap());
        Ok((superblock.data_offset, superblock.data_size))
    }

    #[test]
    fn the_first_offset_that_leaves_room_is_taken() {
        let others = [at_start(8192, 20000), at_start(2048, 20000), at_start(2088, 20000)];
        assert_eq!(offset(&others, 8192 + 4096), Ok((8192, 4096)));
        assert_eq!(offset(&others, 8192 + 4095), Ok((2048, 8192 + 4095 - 2048)));
        assert_eq!(offset(&others, 2048 + 4096), Ok((2048, 4096)));
    }

    #[test]
    fn where_no_offset_fits_the_data_lie_as_late_as_they_can() {
        let others = [at_start(8192, 20000)];
        assert_eq!(offset(&others, 6000 + 4096), Ok((4096, 6000)));
        assert_eq!(offset(&others, 1001 + 4096), Ok((1000, 4097)));
        assert_eq!(offset(&others, 32 + 4096), Ok((32, 4096)));
        assert_eq!(offset(&others, 31 + 4096), Err(32 + 4096));
        assert_eq!(offset(&others, 8), Err(32 + 4096));
    }

    #[test]
    fn a_superblock_at_the_end_keeps_its_metadata_before_it() {
        let device_sectors = Version::V1_0.location(20000).unwrap() + 16;
        let other = Superblock {
            version: Version::V1_0,
            bitmap_offset_sectors: -16,
            bblog_offset_sectors: -8,
            super_offset: device_sectors - 16,
            data_offset: 0,
            data_size: device_sectors - 16 - 64,
            ..at_start(0, device_sectors)
        };
        let others = [other];
        assert_eq!(offset(&others, 64 + 4096 + 16), Ok((0, 4096)));
        assert_eq!(offset(&others, 16 + 4096 + 16), Ok((0, 4096)));
        assert_eq!(offset(&others, 16 + 4096 + 15), Err(16 + 4096 + 16));
    }
}
