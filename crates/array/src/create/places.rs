//! Places of superblock, bitmap, logs and data of a new array on its devices.

use super::{AREA_SECTORS, CreateError, GIB_SECTORS, MIB_SECTORS, NewArray};
use crate::format::Version;
use crate::format::integrity::IntegrityArea;

/// The places on the devices of one array.
#[derive(Clone, Copy, Debug)]
pub(super) struct DevicePlaces {
    version: Version,
    /// Sector at which data begins.
    pub(super) data_offset: u64,
    /// Sectors kept for a bitmap or log, besides superblock and bad-block log.
    kept_sectors: u64,
    /// An integrity area lies behind the data.
    integrity: bool,
}

impl DevicePlaces {
    /// Returns the places for an array whose smallest device has so many sectors.
    ///
    /// # Errors
    /// Data cannot begin where it is asked to.
    pub(super) fn of(array: &NewArray, smallest: u64) -> Result<Self, CreateError> {
        let kept_sectors = bitmap_space(smallest).max(array.log.log_sectors());
        let (least, usual) = match array.version {
            Version::V1_0 => (0, 0),
            Version::V0_90 | Version::V1_1 | Version::V1_2 => {
                let before = if array.version == Version::V1_1 { 0 } else { AREA_SECTORS };
                let usual = data_offset(smallest, array.chunk_sectors, array.log.log_sectors());
                (before + 2 * AREA_SECTORS + kept_sectors, usual)
            }
        };
        let data_offset = array.data_offset.unwrap_or(usual);
        if data_offset < least || !data_offset.is_multiple_of(AREA_SECTORS) {
            return Err(CreateError::DataOffset { data_offset, least_sectors: least });
        }
        let NewArray { version, integrity, .. } = *array;
        Ok(Self { version, data_offset, kept_sectors, integrity })
    }

    /// Returns where the superblock lies on a device that has room for data.
    pub(super) fn super_offset(self, device_sectors: u64) -> u64 {
        self.version.location(device_sectors).unwrap_or(0)
    }

    /// Returns how many sectors a device has for data.
    pub(super) fn data_sectors(self, device_sectors: u64) -> u64 {
        let end = match self.version {
            Version::V1_0 => {
                self.super_offset(device_sectors).saturating_sub(self.kept_sectors + AREA_SECTORS)
            }
            Version::V0_90 | Version::V1_1 | Version::V1_2 => device_sectors,
        };
        if self.integrity {
            let area = IntegrityArea::largest(self.data_offset, end);
            return area.map_or(0, IntegrityArea::data_sectors);
        }
        end.saturating_sub(self.data_offset)
    }

    /// Returns where a bitmap or log of so many sectors lies, from the superblock.
    pub(super) fn bitmap_offset(self, sectors: u64) -> i16 {
        match self.version {
            Version::V1_0 => -small(sectors + AREA_SECTORS),
            Version::V0_90 | Version::V1_1 | Version::V1_2 => small(AREA_SECTORS),
        }
    }

    /// Returns where the bad-block log lies, from the superblock: beside so many sectors for a
    /// bitmap.
    pub(super) fn bblog_offset(self, sectors: u64) -> i16 {
        match self.version {
            Version::V1_0 => -small(AREA_SECTORS),
            Version::V0_90 | Version::V1_1 | Version::V1_2 => small(AREA_SECTORS + sectors),
        }
    }
}

fn small(sectors: u64) -> i16 {
    i16::try_from(sectors).expect("a few MiB")
}

/// Returns where data starts: behind the metadata and about 0.1 % of headroom for a reshape (at
/// most 128 MiB, at least two chunks), in whole MiB.
pub(super) fn data_offset(device_sectors: u64, chunk_sectors: u32, log_sectors: u64) -> u64 {
    let mut headroom = 128 * MIB_SECTORS;
    let least = 2 * u64::from(chunk_sectors);
    while headroom << 10 > device_sectors && headroom > least {
        headroom >>= 1;
    }
    let behind = bitmap_space(device_sectors).max(log_sectors);
    (3 * AREA_SECTORS + behind + headroom).next_multiple_of(MIB_SECTORS)
}

/// The space kept for a bitmap: 4 KiB; 64 KiB above 8 GiB; 128 KiB from 200 GiB on.
pub(super) const fn bitmap_space(device_sectors: u64) -> u64 {
    if device_sectors >= 200 * GIB_SECTORS + 128 {
        256
    } else if device_sectors > 8 * GIB_SECTORS + 8 {
        128
    } else {
        8
    }
}
