//! Reading an array in the middle of a reshape: pieces, each of an array by one map or of a backup,
//! one behind the other in a linear array.

use std::ops::Range;

use super::super::described::{Described, DescribedMember};
use super::super::{ArrayPiece, Config, Pieces};
use super::{Backup, Halfway};
use crate::Refusal;
use crate::format::Superblock;
use crate::format::reshaped::Side;
use crate::level::{Layout, Level};

/// Source of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PieceSource<'a> {
    Map(Side),
    Backup(&'a Backup),
}

impl Halfway {
    /// Returns the pieces that are to be read.
    ///
    /// # Errors
    /// When a map that is needed cannot be read, and when data are needed that only a backup holds,
    /// and `force` was not asked for.
    pub fn pieces(&self) -> Result<Pieces, Refusal> {
        self.check_backup()?;
        let piece = |(range, source): (Range<u64>, PieceSource<'_>)| match source {
            PieceSource::Map(side) => {
                let mut array = self.config(side).map_err(Clone::clone)?.clone();
                let name = if side == Side::Old { "old-map" } else { "new-map" };
                array.superblock.set_name = Superblock::name_field(name);
                let array_sectors = self.numbers.map(side).array_sectors();
                Ok(ArrayPiece { array, array_sectors, part: range })
            }
            PieceSource::Backup(backup) => {
                let mut array = backup_array(backup)?;
                array.superblock.set_uuid = self.superblock.set_uuid;
                let start = range.start - backup.array.start;
                let part = start..start + (range.end - range.start);
                Ok(ArrayPiece { array, array_sectors: backup.sectors(), part })
            }
        };
        let pieces = self.sources().into_iter().map(piece).collect::<Result<_, Refusal>>()?;
        Ok(Pieces::of(&self.superblock, pieces))
    }

    /// The ranges of the array in order, and where each comes from.
    fn sources(&self) -> Vec<(Range<u64>, PieceSource<'_>)> {
        let size = self.numbers.size_sectors();
        let moved = self.code.iter().flat_map(|code| &code.moved);
        let ranges = self.backups.iter().map(|backup| &backup.array).chain(moved);
        let mut cuts: Vec<u64> = ranges.flat_map(|range| [range.start, range.end]).collect();
        cuts.extend([0, self.front, size]);
        cuts.retain(|cut| *cut <= size);
        cuts.sort_unstable();
        cuts.dedup();
        let mut sources: Vec<(Range<u64>, PieceSource<'_>)> = Vec::new();
        for cut in cuts.windows(2) {
            let source = self.source(cut[0]);
            match sources.last_mut() {
                Some((range, last)) if *last == source => range.end = cut[1],
                _ => sources.push((cut[0]..cut[1], source)),
            }
        }
        sources
    }

    /// Returns the source of what lies on this sector.
    fn source(&self, at: u64) -> PieceSource<'_> {
        if let Some(backup) = self.backups.iter().find(|backup| backup.array.contains(&at)) {
            return PieceSource::Backup(backup);
        }
        let (before, behind) = self.numbers.sides();
        if self.code.as_ref().is_some_and(|code| code.is_moved(at)) {
            return PieceSource::Map(Side::New);
        }
        PieceSource::Map(if at < self.front { before } else { behind })
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
