//! The log of a new array against the write hole: who can have one, where it lies, and what is to
//! be seen in it first.

use super::places::DevicePlaces;
use super::{CreateError, MIB_SECTORS, NewDevice};
use crate::format::journal::{self, MetaBlock};
use crate::format::ppl::{self, PplArea, PplHeader};
use crate::format::superblock::feature;
use crate::format::{DevRole, Superblock};
use crate::level::Level;
use crate::units::UNIT_SECTORS;

/// The least of a journal of an array with so many members.
pub(crate) fn least_journal_sectors(members: u32) -> u64 {
    journal::least_sectors(members, UNIT_SECTORS.into()).max(4 * MIB_SECTORS)
}

/// The log that closes the write hole of a level with parity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewLog {
    /// Nothing: a resync, or what the bitmap tells of it, follows an unclean stop.
    #[default]
    None,
    /// Partial parity logs on all members; RAID 5.
    PartialParity,
    /// A journal on a device of its own; RAID 4, 5 and 6.
    Journal {
        /// The device.
        device: NewDevice,
        /// Random: the number of the journal's first block.
        first_seq: u32,
    },
}

impl NewLog {
    /// Checks that the level can have it, with what else was asked for.
    pub(super) fn check(
        self,
        level: Level,
        devices: usize,
        bitmap: bool,
    ) -> Result<(), CreateError> {
        let what = match self {
            Self::None => return Ok(()),
            Self::PartialParity if level != Level::Raid5 => "partial parity logs",
            Self::PartialParity if devices > ppl::MAX_MEMBERS => {
                "partial parity logs on more than 64 members"
            }
            Self::PartialParity if bitmap => "partial parity logs and a bitmap",
            Self::Journal { .. } if level.parity_disks() == 0 => "a journal",
            Self::Journal { .. } if bitmap => "a journal and a bitmap",
            Self::PartialParity | Self::Journal { .. } => return Ok(()),
        };
        Err(CreateError::Log { level, what })
    }

    /// Returns how many sectors it takes of each member.
    pub(super) const fn log_sectors(self) -> u64 {
        match self {
            Self::PartialParity => ppl::DEFAULT_SECTORS,
            Self::None | Self::Journal { .. } => 0,
        }
    }

    /// The feature by which superblocks tell of it, and where they say that it lies: so many
    /// sectors from them.
    pub(super) fn told(self, offset: i16) -> Option<(u32, i32)> {
        match self {
            Self::None => None,
            Self::PartialParity => {
                let sectors = u16::try_from(ppl::DEFAULT_SECTORS).expect("below 32 MiB");
                Some((feature::MULTIPLE_PPLS, ppl::place_code(offset, sectors)))
            }
            Self::Journal { .. } => Some((feature::JOURNAL, 0)),
        }
    }

    /// The device of the journal.
    pub(super) const fn journal(self) -> Option<NewDevice> {
        match self {
            Self::Journal { device, .. } => Some(device),
            Self::None | Self::PartialParity => None,
        }
    }

    /// Returns the first content of the log on the device with this superblock: the sector, and the
    /// bytes.
    pub(super) fn first_write(self, superblock: &Superblock) -> Option<(u64, Vec<u8>)> {
        if let Ok(Some(area)) = PplArea::of(superblock) {
            let header = PplHeader { generation: 0, entries: Vec::new() };
            return Some((area.sector, header.encode(superblock.set_uuid)));
        }
        match self {
            Self::Journal { first_seq, .. } if superblock.role() == DevRole::Journal => {
                let block = MetaBlock { seq: first_seq.into(), position: 0, payloads: Vec::new() };
                Some((superblock.data_offset, block.encode(superblock.set_uuid)))
            }
            _ => None,
        }
    }
}

/// Checks that the journal has room on this device, behind where data begins.
pub(super) fn check_journal(
    device: NewDevice,
    places: DevicePlaces,
    members: u32,
) -> Result<(), CreateError> {
    let least = least_journal_sectors(members);
    let device_sectors = device.device_sectors;
    let data_sectors = places.data_sectors(device_sectors);
    let needed_sectors = device_sectors - data_sectors + least;
    if data_sectors < least {
        return Err(CreateError::JournalTooSmall { device_sectors, needed_sectors });
    }
    Ok(())
}
