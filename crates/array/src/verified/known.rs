//! The number of blocks whose checksums are known.

use crate::format::integrity::PageMarks;

/// The count in the pages of a table that were looked at.
#[derive(Debug)]
pub(super) struct KnownBlocks {
    blocks: u64,
    /// Bits of the pages that were not looked at; none once there are no more.
    unseen: Vec<u64>,
    left: usize,
}

impl KnownBlocks {
    /// Goes on from the count of an array that was stopped, if there is one. Pages that are marked
    /// know nothing.
    pub(super) fn new(counted: Option<u64>, marks: &PageMarks) -> Self {
        if let Some(blocks) = counted {
            return Self { blocks, unseen: Vec::new(), left: 0 };
        }
        let mut known = Self { blocks: 0, unseen: Vec::new(), left: 0 };
        for page in (0..marks.pages()).filter(|page| !marks.get(*page)) {
            known.unseen.resize(marks.pages().div_ceil(64), 0);
            known.unseen[page / 64] |= 1 << (page % 64);
            known.left += 1;
        }
        known
    }

    /// A page has come into memory, with so many blocks that are known.
    pub(super) fn saw(&mut self, page: u64, blocks: u32) {
        let bit = 1 << (page % 64);
        let Some(word) = self.unseen.get_mut((page / 64) as usize) else { return };
        if *word & bit == 0 {
            return;
        }
        *word &= !bit;
        self.blocks += u64::from(blocks);
        self.left -= 1;
        if self.left == 0 {
            self.unseen = Vec::new();
        }
    }

    /// A block of a page in memory is known, or not, that was not before, or was.
    pub(super) fn changed(&mut self, was: bool, is: bool) {
        self.blocks = (self.blocks + u64::from(is)).saturating_sub(u64::from(was));
    }

    /// The number, once all pages were looked at.
    pub(super) fn count(&self) -> Option<u64> {
        (self.left == 0).then_some(self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_once() {
        let mut marks = PageMarks::all([7; 16], 130);
        for page in [0, 64, 129] {
            marks.clear(page);
        }
        let mut known = KnownBlocks::new(None, &marks);
        for (page, blocks) in [(0, 10), (0, 10), (1, 960), (64, 0)] {
            known.saw(page, blocks);
        }
        assert_eq!(known.count(), None, "of page 129 nothing is known");
        known.changed(false, true);
        known.changed(true, true);
        known.saw(129, 5);
        assert_eq!(known.count(), Some(16));
        known.changed(true, false);
        assert_eq!(known.count(), Some(15));
        assert_eq!(KnownBlocks::new(Some(15), &marks).count(), Some(15));
        let all = PageMarks::all([7; 16], 130);
        assert_eq!(KnownBlocks::new(None, &all).count(), Some(0));
    }
}
