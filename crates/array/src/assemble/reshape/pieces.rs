//! What is read of an array in the middle of a reshape: pieces, each of an array by one map or of a
//! backup, one behind the other in a linear array.

use std::ops::Range;

use super::super::described::{Described, DescribedMember};
use super::super::{Config, MemberConfig, Standing, StartLog};
use super::maps::Side;
use super::{Backup, Halfway};
use crate::format::superblock::{DevRole, MAX_SECTOR};
use crate::format::{BadBlocks, Superblock};
use crate::level::{Layout, Level};
use crate::{Refusal, Role};

/// Arrays whose contents, one behind the other, are that of the array in the middle of a reshape.
#[derive(Clone, Debug)]
pub struct Pieces {
    /// The array that puts them together; its members are these arrays.
    pub whole: Config,
    /// These arrays, in this order. Several of them have the same devices.
    pub arrays: Vec<Config>,
}

/// Where a piece comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source<'a> {
    Map(Side),
    Backup(&'a Backup),
}

impl Halfway {
    /// What is to be read.
    ///
    /// # Errors
    /// When a map that is needed cannot be read, and when what only a backup holds is needed, and
    /// `force` was not asked for.
    pub fn pieces(&self) -> Result<Pieces, Refusal> {
        self.check_backup()?;
        let mut arrays = Vec::new();
        let mut members = Vec::new();
        let sources = self.sources();
        let superblock = self.linear(sources.len());
        for (number, (range, source)) in (0..).zip(sources) {
            let (config, start, sectors) = match source {
                Source::Map(side) => {
                    let mut config = self.config(side).map_err(Clone::clone)?.clone();
                    let name: &[u8] = if side == Side::Old { b"old-map" } else { b"new-map" };
                    config.superblock.set_name = named(name);
                    (config, range.start, self.numbers.map(side).array_sectors())
                }
                Source::Backup(backup) => {
                    let mut config = backup_array(backup)?;
                    config.superblock.set_uuid = self.superblock.set_uuid;
                    (config, range.start - backup.array.start, backup.sectors())
                }
            };
            let own = Superblock {
                data_offset: start,
                data_size: range.end - range.start,
                dev_number: number,
                ..superblock.clone()
            };
            members.push(MemberConfig {
                device: config.superblock.title(),
                device_sectors: sectors,
                superblock: own,
                bad_blocks: BadBlocks::default(),
                standing: Standing::InSync { role: Role(u16::try_from(number).unwrap_or(0)) },
            });
            arrays.push(config);
        }
        let whole = Config {
            superblock,
            members,
            bitmap: None,
            log: StartLog::None,
            read_only: true,
            force: true,
            block_bytes: self.superblock.logical_block_bytes.max(512),
        };
        Ok(Pieces { whole, arrays })
    }

    /// The ranges of the array in order, and where each comes from.
    fn sources(&self) -> Vec<(Range<u64>, Source<'_>)> {
        let size = self.numbers.size_sectors();
        let moved = self.code.iter().flat_map(|code| &code.moved);
        let ranges = self.backups.iter().map(|backup| &backup.array).chain(moved);
        let mut cuts: Vec<u64> = ranges.flat_map(|range| [range.start, range.end]).collect();
        cuts.extend([0, self.front, size]);
        cuts.retain(|cut| *cut <= size);
        cuts.sort_unstable();
        cuts.dedup();
        let mut sources: Vec<(Range<u64>, Source<'_>)> = Vec::new();
        for cut in cuts.windows(2) {
            let source = self.source(cut[0]);
            match sources.last_mut() {
                Some((range, last)) if *last == source => range.end = cut[1],
                _ => sources.push((cut[0]..cut[1], source)),
            }
        }
        sources
    }

    /// Where what lies on this sector comes from.
    fn source(&self, at: u64) -> Source<'_> {
        if let Some(backup) = self.backups.iter().find(|backup| backup.array.contains(&at)) {
            return Source::Backup(backup);
        }
        let (before, behind) = self.numbers.sides();
        if self.code.as_ref().is_some_and(|code| code.is_moved(at)) {
            return Source::Map(Side::New);
        }
        Source::Map(if at < self.front { before } else { behind })
    }

    /// The superblock of a linear array of so many pieces, with the name of the array.
    fn linear(&self, pieces: usize) -> Superblock {
        let Superblock { version, set_uuid, set_name, ctime, utime, events, .. } = *self.superblock;
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
}

/// A backup as an array of one device.
fn backup_array(backup: &Backup) -> Result<Config, Refusal> {
    let member = DescribedMember {
        device: backup.device.clone(),
        device_sectors: backup.data.end,
        data_offset: backup.data.start,
    };
    let described = Described {
        name: "backup".to_owned(),
        level: Level::Linear,
        layout: Layout::None,
        chunk_sectors: 0,
        members: vec![Some(member)],
    };
    described.config()
}

fn named(name: &[u8]) -> [u8; 32] {
    let mut set_name = [0; 32];
    set_name.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    set_name
}
