//! Numbers that a seed draws.

use std::ops::Range;

/// `SplitMix64`.
#[derive(Clone, Debug)]
pub(super) struct Dice {
    state: u64,
}

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Within a range that is not empty.
    pub(super) const fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// True this often of a hundred times.
    pub(super) const fn percent(&mut self, percent: u64) -> bool {
        self.within(0..100) < percent
    }

    /// One of several.
    pub(super) fn one_of<T: Copy>(&mut self, several: &[T]) -> T {
        several[self.within(0..several.len() as u64) as usize]
    }
}
