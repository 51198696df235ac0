//! What is found in the log on one device.

use crate::format::Superblock;
use crate::format::ppl::PplArea;
use crate::format::superblock::{Role, feature};
use crate::geometry::{Geometry, Shape};
use crate::level::{Layout, Level};
use crate::log::ReadSectors;
use crate::log::journal::{JournalArea, JournalScan};
use crate::log::ppl::PplScan;

/// What the log on one device tells.
#[derive(Clone, Debug)]
pub enum FoundLog {
    /// The partial parity log of a member.
    PartialParity(PplScan),
    /// The journal.
    Journal(JournalScan),
}

/// Reads the log on the device with this superblock; `None` where it has none.
///
/// # Errors
/// Why it cannot be read or trusted, for people.
pub(super) fn read_log(
    superblock: &Superblock,
    device_sectors: u64,
    read: &mut ReadSectors<'_>,
) -> Option<Result<FoundLog, String>> {
    let set_uuid = superblock.set_uuid;
    let within = |start: u64, sectors: u64| {
        let end = start.checked_add(sectors).filter(|end| *end <= device_sectors);
        end.map(|_| ()).ok_or_else(|| "it ends beyond the end of the device".to_owned())
    };
    match superblock.role() {
        Role::Journal if superblock.has(feature::JOURNAL) => {
            let scan = JournalArea::of(superblock).and_then(|area| {
                within(area.start, area.sectors)?;
                let geometry = geometry(superblock)?;
                JournalScan::read(area, set_uuid, &geometry, read)
            });
            Some(scan.map(FoundLog::Journal))
        }
        Role::Active(_) => match PplArea::of(superblock) {
            Ok(None) => None,
            Ok(Some(area)) => {
                let scan = within(area.sector, area.sectors)
                    .and_then(|()| PplScan::read(area, set_uuid, read));
                Some(scan.map(FoundLog::PartialParity))
            }
            Err(reason) => Some(Err(reason.to_owned())),
        },
        _ => None,
    }
}

/// The geometry of an array with parity, as one superblock tells it.
fn geometry(superblock: &Superblock) -> Result<Geometry, String> {
    let level = Level::from_md(superblock.level).filter(|level| level.parity_disks() > 0);
    let level = level.ok_or("it is of an array without parity")?;
    let layout = Layout::decode(level, superblock.layout, superblock.raid_disks)
        .map_err(|error| error.to_string())?;
    Geometry::new(&Shape {
        level,
        layout,
        raid_disks: superblock.raid_disks,
        chunk_sectors: superblock.chunk_sectors,
        size_sectors: superblock.size_sectors,
        member_data_sectors: &[],
    })
    .map_err(|error| error.to_string())
}
