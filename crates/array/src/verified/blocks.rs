//! Blocks of a member's data that an I/O is about.

use std::ops::Range;

use crate::format::integrity::{BLOCK_SECTORS, IntegrityArea};
use crate::{Buf, SECTOR_BYTES};

/// Sectors of a member's data, counted from their first, and the blocks they lie in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockRange {
    /// First sector.
    pub(super) start: u64,
    /// Sector behind the last one.
    pub(super) end: u64,
    /// Blocks that they have any sector of.
    pub(super) touched: Range<u64>,
    /// Blocks that they have all sectors of.
    pub(super) whole: Range<u64>,
}

impl BlockRange {
    /// Returns the blocks of these sectors, all of which the area covers.
    pub(super) fn new(area: IntegrityArea, start: u64, end: u64) -> Self {
        let touched = start / BLOCK_SECTORS..end.div_ceil(BLOCK_SECTORS);
        let first = start.div_ceil(BLOCK_SECTORS);
        let behind = if end == area.data_sectors() { area.blocks() } else { end / BLOCK_SECTORS };
        Self { start, end, touched, whole: first..behind.max(first) }
    }

    /// The blocks of which they have some sectors and not all: two at most.
    pub(super) fn cut(&self) -> impl Iterator<Item = u64> + use<> {
        let Self { touched, whole, .. } = self.clone();
        let is_cut = move |block: &u64| !whole.contains(block);
        let last = touched.end.checked_sub(1).filter(|last| *last > touched.start);
        touched.clone().next().into_iter().chain(last).filter(is_cut)
    }

    /// The part of a buffer with these sectors that has some of them.
    pub(super) fn part(&self, buf: Buf, sectors: Range<u64>) -> Buf {
        let bytes = |sectors: u64| (sectors * SECTOR_BYTES) as u32;
        buf.slice(bytes(sectors.start - self.start), bytes(sectors.end - sectors.start))
    }

    /// The part of a buffer with these sectors that has some of the whole blocks.
    pub(super) fn blocks(&self, buf: Buf, blocks: &Range<u64>) -> Buf {
        let end = (blocks.end * BLOCK_SECTORS).min(self.end);
        self.part(buf, blocks.start * BLOCK_SECTORS..end)
    }

    /// The sectors of a block that are among these, and their place in it in bytes.
    pub(super) fn within(&self, block: Range<u64>) -> (Range<u64>, u32) {
        let start = self.start.max(block.start);
        let at = ((start - block.start) * SECTOR_BYTES) as u32;
        (start..self.end.min(block.end), at)
    }
}

/// Cuts blocks into groups of at most so many.
pub(super) fn groups(blocks: Range<u64>, most: usize) -> impl Iterator<Item = Range<u64>> {
    let end = blocks.end;
    blocks.step_by(most).map(move |first| first..(first + most as u64).min(end))
}

/// Returns whether two ranges have anything in common.
pub(super) const fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_or_cut() {
        let area = IntegrityArea::new(20).expect("a size that can be");
        let blocks = |start, end| {
            let range = BlockRange::new(area, start, end);
            (range.touched.clone(), range.whole.clone(), range.cut().collect::<Vec<_>>())
        };
        assert_eq!(blocks(0, 16), (0..2, 0..2, vec![]));
        assert_eq!(blocks(1, 16), (0..2, 1..2, vec![0]));
        assert_eq!(blocks(1, 15), (0..2, 1..1, vec![0, 1]));
        assert_eq!(blocks(1, 2), (0..1, 1..1, vec![0]));
        assert_eq!(blocks(8, 20), (1..3, 1..3, vec![]), "the last block is shorter");
        assert_eq!(blocks(8, 19), (1..3, 1..2, vec![2]));
        assert_eq!(groups(3..8, 2).collect::<Vec<_>>(), [3..5, 5..7, 7..8]);
        let range = BlockRange::new(area, 3, 20);
        let buf = Buf { offset: 4096, len: 17 * 512 };
        assert_eq!(range.blocks(buf, &(2..3)), Buf { offset: 4096 + 13 * 512, len: 4 * 512 });
        assert_eq!(range.within(area.block(0)), (3..8, 3 * 512));
        assert_eq!(range.within(area.block(2)), (16..20, 0));
    }
}
