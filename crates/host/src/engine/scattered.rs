//! Addresses behind the end of any array that map to scattered pieces of this one, such as the
//! extents of an extended volume. Exports use them; a request there is split by pieces of the
//! array.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The first such address: an array has fewer than 2^54 sectors, however much it grows.
const START: u64 = 1 << 63;
/// Multiple at which scattered ranges begin, so that blocks of the array are blocks in them.
const ALIGN_BYTES: u64 = 1 << 20;

/// The scattered ranges of an array, opened once.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScatteredRanges(Arc<OnceLock<Vec<ScatteredRange>>>);

/// Bytes of the array, one piece after the other.
#[derive(Debug)]
struct ScatteredRange {
    start: u64,
    pieces: Vec<Range<u64>>,
}

/// Returns the start of a range for each list of pieces, one behind the other.
pub(crate) fn starts<'a>(all: impl IntoIterator<Item = &'a [Range<u64>]>) -> Vec<u64> {
    let mut next = START;
    let mut place = |pieces: &[Range<u64>]| {
        let start = next;
        next = (start + length(pieces)).next_multiple_of(ALIGN_BYTES);
        start
    };
    all.into_iter().map(&mut place).collect()
}

/// Returns the sum of the pieces' lengths.
pub(crate) fn length(pieces: &[Range<u64>]) -> u64 {
    pieces.iter().map(|piece| piece.end - piece.start).sum()
}

impl ScatteredRanges {
    /// Opens ranges at the places that [`starts`] chose. A second call changes nothing.
    pub(crate) fn open(&self, scattered: impl IntoIterator<Item = (u64, Vec<Range<u64>>)>) {
        let scattered =
            scattered.into_iter().map(|(start, pieces)| ScatteredRange { start, pieces });
        // They were opened before: by the same look at the array.
        let _ = self.0.set(scattered.collect());
    }

    /// Returns whether an offset lies at or behind the start of the first range.
    pub(super) fn hold(&self, offset: u64) -> bool {
        let first = self.0.get().and_then(|scattered| scattered.first());
        first.is_some_and(|range| range.start <= offset)
    }

    /// Returns the places on the array of bytes of a range, up to its end.
    pub(super) fn pieces(&self, bytes: &Range<u64>) -> Vec<Range<u64>> {
        let scattered = self.0.get().map_or(&[][..], Vec::as_slice);
        let after = scattered.partition_point(|range| range.start <= bytes.start);
        let Some(range) = scattered[..after].last() else { return Vec::new() };
        let mut at = range.start;
        let cut = range.pieces.iter().filter_map(|piece| {
            let begin = at;
            at += piece.end - piece.start;
            let from = bytes.start.max(begin);
            let to = bytes.end.min(at);
            (from < to).then(|| piece.start + (from - begin)..piece.start + (to - begin))
        });
        cut.collect()
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "of one piece")]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_an_annex_are_pieces_of_the_array() {
        const M: u64 = 1 << 20;
        let volumes = [vec![4 * M..6 * M, M..2 * M], vec![8 * M..8 * M + 4096, 2 * M..3 * M]];
        let starts = starts(volumes.iter().map(Vec::as_slice));
        assert_eq!(starts, [START, START + 3 * M]);
        let scattered = ScatteredRanges::default();
        assert!(!scattered.hold(START) && scattered.pieces(&(START..START + M)).is_empty());
        scattered.open(starts.iter().copied().zip(volumes.clone()));
        assert!(scattered.hold(START) && !scattered.hold(START - 1));
        let pieces = |from: u64, to: u64| scattered.pieces(&(START + from..START + to));
        assert_eq!(pieces(0, 3 * M), volumes[0]);
        assert_eq!(pieces(M, M + 512), [5 * M..5 * M + 512]);
        assert_eq!(pieces(2 * M - 512, 2 * M + 512), [6 * M - 512..6 * M, M..M + 512]);
        assert_eq!(pieces(3 * M, 3 * M + 8192), [8 * M..8 * M + 4096, 2 * M..2 * M + 4096]);
        assert_eq!(pieces(3 * M - 512, 3 * M + 512), [2 * M - 512..2 * M], "not the next one");
    }
}
