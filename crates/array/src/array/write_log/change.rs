//! Changes of a write, as logs tell them: rows in which the same strips change.

use super::super::map::ArrayMap;
use super::super::recording::{Recorded, cuts};
use crate::Buf;
use crate::plan::parity::{Segment, Source};
use crate::plan::{PlannedSum, Rows};

/// Rows of a unit in which a write changes these strips of data, and what it makes of the sums.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) rows: Rows,
    /// By their numbers; without a buffer they become zeroes.
    pub(super) data: Vec<(u32, Option<Buf>)>,
    /// P, and Q where the level has it; none where they are not to be recorded.
    pub(super) sums: Vec<Contents>,
}

/// New contents of rows of a strip.
#[derive(Clone, Copy, Debug)]
pub(super) enum Contents {
    Buf(Buf),
    Zeroes,
}

/// Lists what this changes; nothing where it writes no new contents.
pub(super) fn changes(recorded: Recorded<'_>, map: &ArrayMap) -> Vec<Change> {
    match recorded {
        Recorded::Write { segments, sums, .. } => {
            cuts(segments).filter_map(|rows| change(segments, rows, sums)).collect()
        }
        Recorded::Zeroes { start, end } => {
            vec![Change {
                rows: Rows::new(0, (end - start) as u32),
                data: (0..map.geometry.data_disks()).map(|index| (index, None)).collect(),
                sums: vec![Contents::Zeroes; map.geometry.parity_disks() as usize],
            }]
        }
        Recorded::Rebuilt { .. } => Vec::new(),
    }
}

fn change(segments: &[Segment], rows: Rows, sums: &[PlannedSum]) -> Option<Change> {
    let covers =
        |segment: &&Segment| segment.rows.start <= rows.start && rows.end <= segment.rows.end;
    let contents = |segment: &Segment| match segment.source {
        Source::Buf(buf) => {
            let start = rows.start - segment.rows.start;
            Some(Rows::new(start, start + rows.sectors()).of(buf))
        }
        Source::Zeroes { .. } => None,
    };
    let covered = segments.iter().filter(covers);
    let mut data: Vec<_> = covered.map(|segment| (segment.index, contents(segment))).collect();
    if data.is_empty() {
        return None;
    }
    data.sort_unstable_by_key(|(index, _)| *index);
    let mut sums: Vec<_> = sums.iter().filter(|sum| sum.rows == rows).collect();
    sums.sort_unstable_by_key(|sum| sum.strip);
    let sums = sums.into_iter().map(|sum| match sum.source {
        Source::Buf(buf) => Contents::Buf(buf),
        Source::Zeroes { .. } => Contents::Zeroes,
    });
    Some(Change { rows, data, sums: sums.collect() })
}
