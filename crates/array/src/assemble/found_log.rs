//! The log on one device, as it is found.

use crate::format::Superblock;
use crate::format::ppl::PplArea;
use crate::format::superblock::{DevRole, feature};
use crate::geometry::{Geometry, Shape};
use crate::level::{Layout, Level};
use crate::log::ReadSectors;
use crate::log::journal::{JournalArea, JournalScan};
use crate::log::ppl::PplScan;

/// Contents of the log on one device.
#[derive(Clone, Debug)]
pub enum FoundLog {
    /// The partial parity log of a member.
    PartialParity(PplScan),
    /// The journal.
    Journal(JournalScan),
}

/// Place of the log on one device.
#[derive(Clone, Debug)]
pub enum LogPlace {
    /// The partial parity log of a member.
    PartialParity(PplArea),
    /// The journal.
    Journal(JournalArea),
}

/// Returns where the log on the device with this superblock lies; `None` where it has none.
///
/// # Errors
/// The reason why there can be none, for people.
pub fn log_place(superblock: &Superblock, device_sectors: u64) -> Result<Option<LogPlace>, String> {
    let within = |start: u64, sectors: u64| {
        let end = start.checked_add(sectors).filter(|end| *end <= device_sectors);
        end.map(|_| ()).ok_or_else(|| "it ends beyond the end of the device".to_owned())
    };
    match superblock.role() {
        DevRole::Journal if superblock.has(feature::JOURNAL) => {
            let area = JournalArea::of(superblock)?;
            within(area.start, area.sectors)?;
            Ok(Some(LogPlace::Journal(area)))
        }
        DevRole::Active(_) => {
            let Some(area) = PplArea::of(superblock)? else { return Ok(None) };
            within(area.sector, area.sectors)?;
            Ok(Some(LogPlace::PartialParity(area)))
        }
        _ => Ok(None),
    }
}

/// Reads the log on the device with this superblock; `None` where it has none.
///
/// # Errors
/// The reason why it cannot be read or trusted, for people.
pub(super) fn read_log(
    superblock: &Superblock,
    device_sectors: u64,
    read: &mut ReadSectors<'_>,
) -> Option<Result<FoundLog, String>> {
    let set_uuid = superblock.set_uuid;
    let place = log_place(superblock, device_sectors).transpose()?;
    Some(place.and_then(|place| match place {
        LogPlace::Journal(area) => {
            let geometry = parity_geometry(superblock)?;
            JournalScan::read(area, set_uuid, &geometry, read).map(FoundLog::Journal)
        }
        LogPlace::PartialParity(area) => {
            PplScan::read(area, set_uuid, read).map(FoundLog::PartialParity)
        }
    }))
}

/// The geometry of an array with parity, as one superblock tells it.
///
/// # Errors
/// When it tells of no such array: the reason, for people.
pub fn parity_geometry(superblock: &Superblock) -> Result<Geometry, String> {
    let level = Level::from_md(superblock.level).filter(|level| level.parity_disks() > 0);
    geometry_of(level.ok_or("it is of an array without parity")?, superblock)
}

/// The geometry of an array of this level, whose members use equal parts, as one superblock tells
/// it.
///
/// # Errors
/// When it tells of no such array: the reason, for people.
pub(crate) fn geometry_of(level: Level, superblock: &Superblock) -> Result<Geometry, String> {
    let layout = Layout::decode(level, superblock.layout, superblock.raid_disks)
        .map_err(|error| error.to_string())?;
    Geometry::moving(&shape_of(level, layout, superblock, &[])).map_err(|error| error.to_string())
}

/// The shape of an array of this level and layout, as one superblock tells it; `data_sectors` by
/// role is what members have, for levels whose members use unequal parts.
pub(crate) const fn shape_of<'a>(
    level: Level,
    layout: Layout,
    superblock: &Superblock,
    data_sectors: &'a [u64],
) -> Shape<'a> {
    Shape {
        level,
        layout,
        raid_disks: superblock.raid_disks,
        chunk_sectors: superblock.chunk_sectors,
        size_sectors: superblock.size_sectors,
        member_data_sectors: data_sectors,
    }
}
