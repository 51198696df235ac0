//! The memory that a node gives to pipelines: one ring each.

use std::collections::BTreeMap;
use std::ops::Range;

use braid_array::array::Scratch;

/// Rings start at multiples of this, and so do the slots in them.
pub(super) const ALIGN: u64 = 4096;

/// At most one part in this many of the memory is granted beyond the bases of clients, so that
/// later clients find room.
const BEYOND_PART: u64 = 2;

/// A part of the space that is taken.
#[derive(Clone, Copy, Debug)]
struct TakenRange {
    bytes: u64,
    /// Bytes at the front that may be used; or bytes with leftovers of a client that is gone.
    granted: u64,
    /// Bytes granted from the beginning; fewer if the leftovers of a client that is gone take less.
    base: u64,
}

/// The parts of the space that are taken, and their memory. There can be more space than memory: a
/// part of a ring that is not granted is only a range of addresses.
#[derive(Debug)]
pub(super) struct Rings {
    space: Scratch,
    /// Memory; `None` when there is as much as space, and it cannot be given back.
    limit: Option<u64>,
    /// By first byte.
    taken: BTreeMap<u64, TakenRange>,
}

impl Rings {
    pub(super) const fn new(space: Scratch) -> Self {
        Self { space, limit: None, taken: BTreeMap::new() }
    }

    /// Limits the memory to less than the space.
    pub(super) const fn set_limit(&mut self, bytes: u64) {
        self.limit = Some(bytes);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.limit.unwrap_or(self.space.bytes)
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.taken.values().map(|taken| taken.granted).sum()
    }

    pub(super) fn count(&self) -> usize {
        self.taken.len()
    }

    pub(super) fn granted(&self, offset: u64) -> Option<u64> {
        self.taken.get(&offset).map(|taken| taken.granted)
    }

    fn free_bytes(&self) -> u64 {
        self.bytes().saturating_sub(self.used_bytes())
    }

    /// Takes the first gap that is long enough, with this much of it granted. Otherwise returns the
    /// size that is available.
    pub(super) fn take(&mut self, bytes: u64, granted: u64) -> Result<u64, u64> {
        let bytes = bytes.next_multiple_of(ALIGN);
        let granted = self.limit.map_or(bytes, |_| granted.next_multiple_of(ALIGN).min(bytes));
        if granted > self.free_bytes() {
            return Err(self.free_bytes());
        }
        let end = self.space.offset + self.space.bytes;
        let mut from = self.space.offset;
        let mut longest = 0;
        let ends = self.taken.iter().map(|(&offset, taken)| (offset, offset + taken.bytes));
        for (gap_end, next) in ends.chain([(end, end)]) {
            let gap = gap_end - from;
            if gap >= bytes {
                self.taken.insert(from, TakenRange { bytes, granted, base: granted });
                return Ok(from);
            }
            longest = gap.max(longest);
            from = next;
        }
        Err(longest)
    }

    /// Grants all of a ring, if there is memory for it.
    pub(super) fn grant(&mut self, offset: u64) -> bool {
        let beyond: u64 = self.taken.values().map(|taken| taken.granted - taken.base).sum();
        let free = self.free_bytes().min((self.bytes() / BEYOND_PART).saturating_sub(beyond));
        let Some(taken) = self.taken.get_mut(&offset) else { return false };
        let fits = taken.bytes - taken.granted <= free;
        if fits {
            taken.granted = taken.bytes;
        }
        fits
    }

    /// Reduces the grant of a ring to its base.
    pub(super) fn shrink(&mut self, offset: u64) {
        if let Some(taken) = self.taken.get_mut(&offset) {
            taken.granted = taken.base;
        }
    }

    /// Reduces the grant of a ring whose client is gone to the bytes of leftovers.
    pub(super) fn keep(&mut self, offset: u64, bytes: u64) {
        if let Some(taken) = self.taken.get_mut(&offset) {
            taken.granted = bytes;
            taken.base = taken.base.min(bytes);
        }
    }

    /// Returns whether there is less memory than space, so that memory is given back.
    pub(super) const fn is_lean(&self) -> bool {
        self.limit.is_some()
    }

    /// Releases a ring. Returns its range.
    pub(super) fn release(&mut self, offset: u64) -> Range<u64> {
        let bytes = self.taken.remove(&offset).map_or(0, |taken| taken.bytes);
        offset..offset + bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_do_not_overlap_and_come_back() {
        let mut rings = Rings::new(Scratch { offset: 8192, bytes: 40960 });
        assert_eq!(rings.take(4096, 0), Ok(8192));
        assert_eq!(rings.take(5000, 0), Ok(12288));
        assert_eq!(rings.take(4096, 0), Ok(20480));
        assert_eq!(rings.used_bytes(), 16384);
        assert_eq!(rings.take(1 << 20, 0), Err(24576));
        rings.release(12288);
        assert_eq!(rings.take(8192 + 1, 0), Ok(24576));
        assert_eq!(rings.take(8192, 0), Ok(12288));
        assert_eq!(rings.used_bytes(), 4096 + 8192 + 4096 + 12288);
    }

    #[test]
    fn memory_is_granted_up_to_the_limit() {
        let mut rings = Rings::new(Scratch { offset: 0, bytes: 1 << 20 });
        rings.set_limit(65536);
        let a = rings.take(32768, 4096).expect("space");
        let b = rings.take(32768, 4096).expect("space");
        assert_eq!(rings.used_bytes(), 8192);
        assert!(rings.grant(a) && rings.grant(a));
        assert_eq!((rings.used_bytes(), rings.granted(a)), (36864, Some(32768)));
        assert!(!rings.grant(b), "half is for who comes later");
        assert_eq!(rings.granted(b), Some(4096), "refused as a whole");
        assert_eq!(rings.take(65536, 32768), Err(28672));
        rings.shrink(a);
        assert!(rings.grant(b) && !rings.grant(a));
        assert_eq!(rings.release(b), b..b + 32768);
        assert_eq!(rings.used_bytes(), 4096);
    }

    #[test]
    fn what_clients_that_are_gone_do_not_need_is_for_others() {
        let mut rings = Rings::new(Scratch { offset: 0, bytes: 1 << 20 });
        rings.set_limit(128 << 10);
        let gone = [0; 2].map(|_| rings.take(32768, 4096).expect("space"));
        let next = rings.take(49152, 4096).expect("space");
        assert!(gone.iter().all(|&ring| rings.grant(ring)) && !rings.grant(next));
        rings.keep(gone[0], 16384);
        assert!(!rings.grant(next), "what one left is among the half that is not for others");
        rings.keep(gone[1], 0);
        assert!(rings.grant(next));
        assert_eq!(rings.used_bytes(), 16384 + 49152);
        assert_eq!(rings.release(gone[0]), gone[0]..gone[0] + 32768);
        assert_eq!(rings.used_bytes(), 49152);
    }
}
