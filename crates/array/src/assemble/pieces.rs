//! Parts of arrays, read as one: one behind the other in a linear array.

use std::ops::Range;

use super::{Config, MemberConfig, Standing, StartLog};
use crate::Role;
use crate::format::superblock::{DevRole, MAX_SECTOR};
use crate::format::{BadBlocks, Superblock};
use crate::level::Level;

/// Arrays whose contents, one behind the other, are that of one more.
#[derive(Clone, Debug)]
pub struct Pieces {
    /// The array that puts them together; its members are these arrays.
    pub whole: Config,
    /// These arrays, in this order. Several of them may have the same devices.
    pub arrays: Vec<Config>,
}

/// A part of an array.
#[derive(Clone, Debug)]
pub struct ArrayPiece {
    /// The array.
    pub array: Config,
    /// Its size.
    pub array_sectors: u64,
    /// The part of it, in sectors.
    pub part: Range<u64>,
}

impl Pieces {
    /// Puts these together, to be read. The fields that identify an array are taken over from a
    /// superblock: version, UUID, name, times and event count.
    #[must_use]
    pub fn of(named: &Superblock, pieces: Vec<ArrayPiece>) -> Self {
        let superblock = linear(named, pieces.len());
        let blocks = pieces.iter().map(|piece| piece.array.block_bytes);
        let block_bytes = blocks.fold(named.logical_block_bytes.max(512), u32::max);
        let mut members = Vec::new();
        let mut arrays = Vec::new();
        for (number, ArrayPiece { array, array_sectors, part }) in (0..).zip(pieces) {
            let own = Superblock {
                data_offset: part.start,
                data_size: part.end - part.start,
                dev_number: number,
                ..superblock.clone()
            };
            members.push(MemberConfig {
                device: array.superblock.title(),
                device_sectors: array_sectors,
                superblock: own,
                bad_blocks: BadBlocks::default(),
                standing: Standing::InSync { role: Role(u16::try_from(number).unwrap_or(0)) },
            });
            arrays.push(array);
        }
        let whole = Config {
            superblock,
            members,
            bitmap: None,
            log: StartLog::None,
            read_only: true,
            force: true,
            block_bytes,
            spill: None,
        };
        Self { whole, arrays }
    }
}

/// The superblock of a linear array of so many pieces.
fn linear(named: &Superblock, pieces: usize) -> Superblock {
    let Superblock { version, set_uuid, set_name, ctime, utime, events, .. } = *named;
    Superblock {
        version,
        set_uuid,
        set_name,
        ctime,
        utime,
        events,
        level: Level::Linear.to_md(),
        raid_disks: u32::try_from(pieces).unwrap_or(u32::MAX),
        resync_offset: MAX_SECTOR,
        roles: (0..).map(Role).map(DevRole::Active).take(pieces).collect(),
        ..Superblock::blank()
    }
}
