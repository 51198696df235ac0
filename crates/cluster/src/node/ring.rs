//! The memory that a node gives to pipelines: one ring each.

use std::collections::BTreeMap;

use braid_array::array::Scratch;

/// Rings start at multiples of this.
const ALIGN: u64 = 4096;

/// Which part of the space is taken.
#[derive(Debug)]
pub(super) struct Rings {
    space: Scratch,
    /// Length by first byte.
    taken: BTreeMap<u64, u64>,
}

impl Rings {
    pub(super) const fn new(space: Scratch) -> Self {
        Self { space, taken: BTreeMap::new() }
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.space.bytes
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.taken.values().sum()
    }

    pub(super) fn count(&self) -> usize {
        self.taken.len()
    }

    pub(super) fn has(&self, offset: u64) -> bool {
        self.taken.contains_key(&offset)
    }

    /// The first gap that is long enough; otherwise the length of the longest.
    pub(super) fn take(&mut self, bytes: u64) -> Result<u64, u64> {
        let bytes = bytes.next_multiple_of(ALIGN);
        let end = self.space.offset + self.space.bytes;
        let (mut from, mut longest) = (self.space.offset, 0);
        let ends = self.taken.iter().map(|(&offset, &bytes)| (offset, offset + bytes));
        for (gap_end, next) in ends.chain([(end, end)]) {
            let gap = gap_end - from;
            if gap >= bytes {
                self.taken.insert(from, bytes);
                return Ok(from);
            }
            longest = gap.max(longest);
            from = next;
        }
        Err(longest)
    }

    pub(super) fn give(&mut self, offset: u64) {
        self.taken.remove(&offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_do_not_overlap_and_come_back() {
        let mut rings = Rings::new(Scratch { offset: 8192, bytes: 40960 });
        assert_eq!(rings.take(4096), Ok(8192));
        assert_eq!(rings.take(5000), Ok(12288));
        assert_eq!(rings.take(4096), Ok(20480));
        assert_eq!(rings.used_bytes(), 16384);
        assert_eq!(rings.take(1 << 20), Err(24576));
        rings.give(12288);
        assert_eq!(rings.take(8192 + 1), Ok(24576));
        assert_eq!(rings.take(8192), Ok(12288));
        assert_eq!(rings.used_bytes(), 4096 + 8192 + 4096 + 12288);
    }
}
