//! What is read of an array in the middle of a reshape: pieces, each of an array by one map or of a
//! backup, one behind the other in a linear array.

use std::ops::Range;

use super::super::described::{Described, DescribedMember};
use super::super::{Config, Piece, Pieces};
use super::maps::Side;
use super::{Backup, Halfway};
use crate::Refusal;
use crate::level::{Layout, Level};

/// Where a piece comes from.
#[derive(Clone, Copy, Debug)]
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
        let piece = |(range, source): (Range<u64>, Source<'_>)| match source {
            Source::Map(side) => {
                let mut array = self.config(side).map_err(Clone::clone)?.clone();
                let name: &[u8] = if side == Side::Old { b"old-map" } else { b"new-map" };
                array.superblock.set_name = named(name);
                let array_sectors = self.numbers.map(side).array_sectors();
                Ok(Piece { array, array_sectors, part: range })
            }
            Source::Backup(backup) => {
                let mut array = backup_array(backup)?;
                array.superblock.set_uuid = self.superblock.set_uuid;
                let start = range.start - backup.array.start;
                let part = start..start + (range.end - range.start);
                Ok(Piece { array, array_sectors: backup.sectors(), part })
            }
        };
        let pieces = self.sources().into_iter().map(piece).collect::<Result<_, Refusal>>()?;
        Ok(Pieces::of(&self.superblock, pieces))
    }

    /// The ranges of the array in order, and where each comes from.
    fn sources(&self) -> Vec<(Range<u64>, Source<'_>)> {
        let size = self.numbers.size_sectors();
        let (before, behind) = self.numbers.sides();
        let mut sources = Vec::new();
        let mut at = 0;
        while at < size {
            let within = |backup: &&Backup| backup.array.contains(&at);
            let (end, source) = if let Some(backup) = self.backups.iter().find(within) {
                (backup.array.end, Source::Backup(backup))
            } else {
                let next = self.backups.iter().map(|backup| backup.array.start);
                let next = next.filter(|start| *start > at).min().unwrap_or(size);
                if at < self.front {
                    (next.min(self.front), Source::Map(before))
                } else {
                    (next, Source::Map(behind))
                }
            };
            let end = end.min(size);
            sources.push((at..end, source));
            at = end;
        }
        sources
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
