//! Changes that a log records: the values that jobs and their plans hand to it.

use super::map::ArrayMap;
use crate::assemble::StartLog;
use crate::plan::parity::Segment;
use crate::plan::{PlannedSum, Rows};
use crate::{Buf, MemberId};

/// The demands of a log on writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogKind {
    /// There is none.
    #[default]
    None,
    /// In each row neighbouring strips are changed.
    PartialParity,
    /// Whole blocks of 4 KiB are changed.
    Journal,
}

impl LogKind {
    /// Names the kind of a log that was found.
    pub(super) const fn of(log: &StartLog) -> Self {
        match log {
            StartLog::None | StartLog::JournalOff { .. } => Self::None,
            StartLog::PartialParity { .. } => Self::PartialParity,
            StartLog::Journal { .. } => Self::Journal,
        }
    }
}

/// Strips of scratch that a write takes which a journal records, in an array with so many roles.
/// Parts of blocks are made whole: what is read for that has strips of its own.
pub(super) const fn recorded_strips(roles: usize) -> usize {
    3 * roles
}

/// Changes of stripes that a log has to know of before they are carried out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Recorded<'a> {
    /// New contents for parts of the unit that begins at this row, and the sums they make.
    Write { start: u64, segments: &'a [Segment], sums: &'a [PlannedSum], way: &'a Way },
    /// Zeroes for whole stripes.
    Zeroes { start: u64, end: u64 },
    /// Strips of a unit that these members get.
    Rebuilt { targets: &'a [MemberId] },
}

/// The way a write of stripes is carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Way {
    /// Data and sums are written, after they were recorded where there is a log.
    #[default]
    Through,
    /// Data are recorded, and left as dirty pages.
    Back(Vec<LeftPage>),
    /// The dirty pages of its unit go in place; then the write is planned anew.
    Destage,
}

/// A page of a unit: the unit's first row, the strip, and the page's first row within the unit.
pub(super) type PageKey = (u64, u32, u32);

/// A page that a write leaves in the journal and in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeftPage {
    pub(super) key: PageKey,
    /// Its memory.
    pub(super) buf: Buf,
}

impl LeftPage {
    /// Gives the page of this sector of the array its memory.
    pub(super) fn of(map: &ArrayMap, sector: u64, buf: Buf) -> Self {
        Self { key: map.unit_place(sector), buf }
    }

    /// The rows of its unit, in sync space.
    pub(super) fn unit_rows(&self, map: &ArrayMap) -> (u64, u64) {
        (self.key.0, self.key.0 + map.unit_sectors())
    }

    /// Its first sector in the array.
    pub(super) fn sector(&self, map: &ArrayMap) -> u64 {
        let (start, strip, row) = self.key;
        map.data_sector(start + u64::from(row), strip)
    }
}

/// Rows between two places where strips begin or end to be covered.
pub(super) fn cuts(segments: &[Segment]) -> impl Iterator<Item = Rows> + use<> {
    let mut cuts: Vec<u32> = segments.iter().flat_map(|s| [s.rows.start, s.rows.end]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    (1..cuts.len()).map(move |at| Rows::new(cuts[at - 1], cuts[at]))
}

/// Tells whether these segments change neighbouring strips only, in each row: a partial parity log
/// can tell of no others.
pub(super) fn is_consecutive(segments: &[Segment]) -> bool {
    cuts(segments).all(|rows| {
        let covers =
            |segment: &&Segment| segment.rows.start <= rows.start && rows.end <= segment.rows.end;
        let covered = || segments.iter().filter(covers).map(|segment| segment.index);
        let (Some(first), Some(last)) = (covered().min(), covered().max()) else { return true };
        covered().count() as u32 == last - first + 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::parity::Source;

    fn segment(index: u32, start: u32, end: u32) -> Segment {
        Segment { index, rows: Rows::new(start, end), source: Source::Zeroes { unmap: false } }
    }

    #[test]
    fn neighbours_are_told_from_strips_with_others_between() {
        assert!(is_consecutive(&[segment(0, 0, 8), segment(1, 0, 8)]));
        assert!(is_consecutive(
            &[segment(2, 0, 8), segment(1, 4, 16), segment(3, 0, 4)].as_slice()[..2]
        ));
        assert!(!is_consecutive(&[segment(0, 0, 8), segment(2, 0, 8)]));
        assert!(is_consecutive(&[segment(0, 0, 8), segment(2, 8, 16)]), "not in the same rows");
        assert!(!is_consecutive(&[segment(0, 0, 9), segment(2, 8, 16)]));
    }
}
