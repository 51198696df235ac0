//! The bad-block log of a member.

/// Bad ranges of one device, in absolute device sectors: sorted, disjoint, not adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadBlocks {
    ranges: Vec<(u64, u64)>,
}

impl BadBlocks {
    /// No bad blocks?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The bad ranges: first sector and number of sectors.
    #[must_use]
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Does the range touch a bad one?
    #[must_use]
    pub fn overlaps(&self, _sector: u64, _sectors: u64) -> bool {
        todo!()
    }

    /// Mark a range bad. False, and nothing changed, when it would not fit the on-disk log.
    pub fn insert(&mut self, _sector: u64, _sectors: u64) -> bool {
        todo!()
    }

    /// A range was rewritten: no longer bad. False when splitting a range would not fit the log.
    pub fn remove(&mut self, _sector: u64, _sectors: u64) -> bool {
        todo!()
    }
}
