//! The ring of a journal, and what was recorded in it and still counts.

use std::collections::VecDeque;

use crate::MemberId;
use crate::format::journal::BLOCK_SECTORS;

/// Where a ring lies and how far it is used; positions are in sectors from its first one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    /// Its device.
    pub(super) member: MemberId,
    /// The device's sector at which it begins.
    pub(super) start: u64,
    /// Its size.
    pub(super) sectors: u64,
    /// The first block that counts.
    pub(super) tail: u64,
    /// The place of the next block.
    pub(super) head: u64,
    /// The sequence number of the next block.
    pub(super) seq: u64,
}

impl Ring {
    /// Returns the position so many sectors behind another.
    pub(super) const fn after(&self, position: u64, sectors: u64) -> u64 {
        (position + sectors) % self.sectors
    }

    pub(super) const fn used(&self) -> u64 {
        (self.head + self.sectors - self.tail) % self.sectors
    }

    /// Returns whether so many sectors more have room.
    pub(super) const fn fits(&self, sectors: u64) -> bool {
        sectors <= self.room()
    }

    /// Room that is left: then a block fits still, and head and tail never meet.
    pub(super) const fn room(&self) -> u64 {
        self.sectors.saturating_sub(self.used() + 2 * BLOCK_SECTORS)
    }
}

/// Writes that were recorded together.
#[derive(Clone, Copy, Debug)]
struct Batch {
    /// Where its first block lies.
    start: u64,
    /// The number of its parts that are not in place: writes, and pages that wait in memory.
    left: usize,
}

/// The batches that count, oldest first; their numbers follow one another.
#[derive(Debug, Default)]
pub(super) struct Batches {
    list: VecDeque<Batch>,
    next: u64,
}

impl Batches {
    /// One more, of which so much is not in place: its number.
    pub(super) fn push(&mut self, start: u64, left: usize) -> u64 {
        let number = self.next;
        self.next += 1;
        self.list.push_back(Batch { start, left });
        number
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Batch> {
        let first = self.next - self.list.len() as u64;
        self.list.get_mut(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    /// So much more of a batch is not in place.
    pub(super) fn keep(&mut self, number: u64, more: usize) {
        if let Some(batch) = self.get_mut(number) {
            batch.left += more;
        }
    }

    /// Something of a batch is in place.
    pub(super) fn release(&mut self, number: u64) {
        if let Some(batch) = self.get_mut(number) {
            batch.left -= 1;
        }
    }

    /// Where the first one lies.
    pub(super) fn first(&self) -> Option<u64> {
        self.list.front().map(|batch| batch.start)
    }

    /// Returns whether one batch is left, all of which is in place.
    pub(super) fn is_one_in_place(&self) -> bool {
        self.list.len() == 1 && self.list[0].left == 0
    }

    /// Forgets the first ones that are in place, but not the last one: the tail lies on a block
    /// always. Where what counts begins now, if that has moved.
    pub(super) fn forget(&mut self) -> Option<u64> {
        let before = self.list.len();
        while self.list.len() > 1 && self.list[0].left == 0 {
            self.list.pop_front();
        }
        if self.list.len() < before { self.first() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_tail_of_a_ring_never_meet() {
        let ring =
            |tail, head| Ring { member: MemberId(0), start: 0, sectors: 80, tail, head, seq: 1 };
        assert_eq!(ring(0, 0).used(), 0);
        assert_eq!(ring(64, 16).used(), 32);
        assert_eq!(ring(0, 72).after(72, 8), 0);
        // A block always has room behind what fits.
        assert!(ring(64, 16).fits(32));
        assert!(!ring(64, 16).fits(40));
        assert!(ring(0, 0).fits(64));
        assert!(!ring(0, 0).fits(72));
    }
}
