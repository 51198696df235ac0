//! What a write changes, as logs tell it: rows in which the same strips change.

use super::super::job::{Job, Kind};
use super::super::map::Map;
use crate::Buf;
use crate::plan::parity::{Segment, Source};
use crate::plan::{Plan, Rows};

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

/// What the write of this job changes; nothing where it is no write of stripes. Its plan is made.
pub(super) fn changes(job: &Job, map: &Map) -> Vec<Change> {
    match &job.kind {
        Kind::Write { segments, .. } => {
            let segments = job.whole_blocks.as_ref().unwrap_or(segments);
            cuts(segments).filter_map(|rows| change(segments, rows, job.run.plan())).collect()
        }
        Kind::ZeroStripes { start, end, .. } => {
            vec![Change {
                rows: Rows::new(0, (end - start) as u32),
                data: (0..map.geometry.data_disks()).map(|index| (index, None)).collect(),
                sums: vec![Contents::Zeroes; map.geometry.parity_disks() as usize],
            }]
        }
        _ => Vec::new(),
    }
}

/// Rows between two places where strips begin or end to be covered.
fn cuts(segments: &[Segment]) -> impl Iterator<Item = Rows> + use<> {
    let mut cuts: Vec<u32> = segments.iter().flat_map(|s| [s.rows.start, s.rows.end]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    (1..cuts.len()).map(move |at| Rows::new(cuts[at - 1], cuts[at]))
}

fn change(segments: &[Segment], rows: Rows, plan: &Plan) -> Option<Change> {
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
    let mut sums: Vec<_> = plan.sums.iter().filter(|sum| sum.rows == rows).collect();
    sums.sort_unstable_by_key(|sum| sum.strip);
    let sums = sums.into_iter().map(|sum| match sum.source {
        Source::Buf(buf) => Contents::Buf(buf),
        Source::Zeroes { .. } => Contents::Zeroes,
    });
    Some(Change { rows, data, sums: sums.collect() })
}

/// Do these segments change neighbouring strips only, in each row? A partial parity log can tell
/// of no others.
pub(in super::super) fn is_consecutive(segments: &[Segment]) -> bool {
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
