//! Write intent: the chunks of sync space that may be out of step, as md's bitmap records them.
//!
//! A bit is set and on the members before a write in its chunk starts. The bit is cleared lazily,
//! after a flush, when no write is in flight in the chunk, nothing asks for a resync of it, and
//! every role is in sync. Writes are counted by [`regions`](crate::regions).

use std::collections::BTreeSet;
use std::ops::Range;

use crate::SECTOR_BYTES;
use crate::format::Bitmap;
use crate::regions::{CountedRegions, RegionMarks};

/// The bitmap with what is in flight. The bits that are needed are those of chunks which must be
/// resynced, or copied to a member that was away.
#[derive(Debug)]
pub(crate) struct Intent {
    pub(crate) bitmap: Bitmap,
    chunks: CountedRegions,
}

impl RegionMarks for Bitmap {
    fn is_marked(&self, region: usize) -> bool {
        self.get(region as u64)
    }

    fn mark(&mut self, region: usize) -> bool {
        !crate::broken("intent") && self.set(region as u64)
    }

    fn unmark(&mut self, region: usize) {
        self.clear(region as u64);
    }

    fn page_of(&self, region: usize) -> usize {
        self.page_of_bit(region as u64) as usize
    }
}

impl Intent {
    /// Takes over a bitmap as read; `needed`: its bits ask for a resync; `ahead`: how many chunks
    /// ahead of a sequential writer are marked early.
    pub(crate) fn new(bitmap: Bitmap, needed: bool, ahead: usize) -> Self {
        let count = bitmap.bits() as usize;
        let is_needed = |bit| needed && bitmap.get(bit as u64);
        let chunks = CountedRegions::new(count, ahead, &bitmap, is_needed);
        Self { bitmap, chunks }
    }

    /// The same for a bitmap of a larger space, in which nothing is in flight: what lies behind
    /// `synced` asks for a resync.
    pub(super) fn with(&self, bitmap: Bitmap, synced: u64) -> Self {
        let mut intent = Self::new(bitmap, false, self.chunks.ahead());
        let end = intent.bitmap.superblock.sync_size_sectors;
        if synced < end && !crate::broken("grow-bitmap") {
            // A chunk may be new in part; and the bitmap may be of that size already, from a move
            // that was undone.
            intent.need(synced, end);
        }
        intent
    }

    /// Has this range ask for a resync: the whole bitmap is to be written then.
    pub(super) fn need(&mut self, start: u64, end: u64) {
        for bit in self.chunk_range(start, end) {
            self.chunks.need(bit);
            self.bitmap.set(bit as u64);
        }
    }

    /// The same without any bit: nothing is in flight, and all is in sync.
    pub(super) fn cleared(&self) -> Self {
        let bitmap = Bitmap::empty(self.bitmap.superblock.clone());
        Self::new(bitmap, false, self.chunks.ahead())
    }

    pub(crate) fn chunk_sectors(&self) -> u64 {
        u64::from(self.bitmap.superblock.chunk_bytes) / SECTOR_BYTES
    }

    fn chunk_range(&self, start: u64, end: u64) -> Range<usize> {
        let chunk = self.chunk_sectors();
        let last = end.div_ceil(chunk).min(self.chunks.len() as u64);
        (start / chunk) as usize..last as usize
    }

    /// A write in `[start, end)` wants to begin. Pages that must be written first are added to
    /// `pages`; `next` is the ticket of the update that will write them. Returned is the ticket
    /// that the write has to wait for.
    pub(crate) fn begin(
        &mut self,
        start: u64,
        end: u64,
        next: u64,
        pages: &mut BTreeSet<usize>,
    ) -> u64 {
        let range = self.chunk_range(start, end);
        self.chunks.begin(&mut self.bitmap, range, next, pages)
    }

    /// The updates up to this ticket are done.
    pub(crate) fn told(&mut self, done: u64) {
        self.chunks.told(done);
    }

    /// A write is over. `keep`: redundancy is short, so the bits must outlive it.
    pub(crate) fn end(&mut self, start: u64, end: u64, keep: bool) {
        self.chunks.end(self.chunk_range(start, end), keep);
    }

    /// Returns whether any chunk of the range asks for a resync.
    pub(crate) fn needs_resync(&self, start: u64, end: u64) -> bool {
        self.chunk_range(start, end).any(|bit| self.chunks.is_needed(bit))
    }

    /// The chunks that ask for a resync.
    pub(crate) fn needed(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let sectors = self.chunk_sectors();
        let needed = (0..self.chunks.len()).filter(|bit| self.chunks.is_needed(*bit));
        needed.map(move |bit| (bit as u64 * sectors, (bit as u64 + 1) * sectors))
    }

    /// Returns whether any bit of the range is set.
    pub(crate) fn dirty(&self, start: u64, end: u64) -> bool {
        self.chunk_range(start, end).any(|bit| self.bitmap.get(bit as u64))
    }

    /// Everything in step again: no chunk asks for a resync, but for those that have something
    /// `left` in their range.
    pub(crate) fn resynced(&mut self, left: impl Fn(u64, u64) -> bool) {
        let sectors = self.chunk_sectors();
        self.chunks.need_no_more(|bit| left(bit as u64 * sectors, (bit as u64 + 1) * sectors));
    }

    /// Returns whether there may be anything to clear. Called at every turn, so it looks at no
    /// chunk.
    pub(crate) const fn clearable(&self) -> bool {
        self.chunks.clearable()
    }

    /// Looks for chunks to clear again: some that had to stay marked may not have to any more.
    pub(crate) const fn look_again(&mut self) {
        self.chunks.look_again();
    }

    /// Marks the chunks that are idle now, and not marked ahead of a write under way, as candidates
    /// for clearing, but for those of a range that somebody `lacks`.
    pub(crate) fn nominate(&mut self, lacks: impl Fn(u64, u64) -> bool) {
        let sectors = self.chunk_sectors();
        let lacks = |bit| lacks(bit as u64 * sectors, (bit as u64 + 1) * sectors);
        self.chunks.nominate(&self.bitmap, lacks);
    }

    /// Makes no chunk a candidate any more.
    pub(crate) fn forget_nominated(&mut self) {
        self.chunks.forget_nominated();
    }

    /// Clears the bits of the candidates that no write has touched since.
    pub(crate) fn clear_nominated(&mut self, pages: &mut BTreeSet<usize>) {
        self.chunks.clear_nominated(&mut self.bitmap, pages);
    }

    /// Checks that exactly these writes are counted, and that bits are set for them.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(super) fn check(&self, writes: &[(u64, u64, bool)]) -> Result<(), String> {
        let ranges = writes.iter().map(|(start, end, _)| self.chunk_range(*start, *end));
        self.chunks.check(&self.bitmap, "chunk", ranges)
    }

    pub(crate) fn dirty_bits(&self) -> u64 {
        self.bitmap.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regions::COUNT;

    const CHUNK_SECTORS: u64 = 8;

    fn intent(ahead: usize) -> Intent {
        let bitmap = Bitmap::new([1; 16], 64 * CHUNK_SECTORS, Some(4096), 8).expect("it fits");
        Intent::new(bitmap, false, ahead)
    }

    /// Writes so many chunks, one after the other. Returns how often the writer had to wait.
    fn waits(intent: &mut Intent, chunks: std::ops::Range<u64>) -> u64 {
        let mut done = 0;
        let mut waits = 0;
        for chunk in chunks {
            let start = chunk * CHUNK_SECTORS;
            let end = start + CHUNK_SECTORS;
            let ticket = intent.begin(start, end, done + 1, &mut BTreeSet::new());
            waits += u64::from(ticket > done);
            // An update was under way meanwhile.
            done += 1;
            intent.told(done);
            intent.end(start, end, false);
        }
        waits
    }

    #[test]
    fn who_writes_on_and_on_waits_for_the_first_chunk_only() {
        assert_eq!(waits(&mut intent(0), 0..32), 32);
        assert_eq!(waits(&mut intent(4), 0..32), 1);
        // Where nothing is marked, the one before it tells.
        assert_eq!(waits(&mut intent(4), 20..52), 2);
    }

    #[test]
    fn what_is_marked_ahead_is_forgotten_once_nobody_writes_before_it() {
        let mut intent = intent(4);
        let mut pages = BTreeSet::new();
        intent.begin(0, CHUNK_SECTORS, 1, &mut pages);
        assert_eq!(intent.dirty_bits(), 5);
        intent.nominate(|_, _| false);
        intent.clear_nominated(&mut pages);
        assert_eq!(intent.dirty_bits(), 5, "a write is under way");
        intent.end(0, CHUNK_SECTORS, false);
        assert!(intent.clearable());
        intent.nominate(|_, _| false);
        intent.clear_nominated(&mut pages);
        assert_eq!(intent.dirty_bits(), 0);
    }

    #[test]
    fn a_bit_stays_while_any_of_very_many_writes_is_under_way() {
        let mut intent = intent(0);
        let mut pages = BTreeSet::new();
        let writes = 2 * u64::from(COUNT);
        for _ in 0..writes {
            intent.begin(0, 8, 1, &mut pages);
        }
        for left in (0..writes).rev() {
            intent.end(0, 8, false);
            assert!(left == 0 || !intent.clearable(), "{left} are under way");
        }
        intent.nominate(|_, _| false);
        intent.clear_nominated(&mut pages);
        assert_eq!(intent.dirty_bits(), 0);
        assert_eq!(intent.check(&[]), Ok(()));
    }

    #[test]
    fn a_write_waits_for_its_own_chunk_and_for_no_other_of_the_page() {
        let mut intent = intent(0);
        let mut pages = BTreeSet::new();
        assert_eq!(intent.begin(0, 8, 1, &mut pages), 1);
        intent.told(1);
        assert_eq!(intent.begin(400, 408, 2, &mut pages), 2);
        assert_eq!(intent.begin(0, 8, 3, &mut pages), 0);
        assert_eq!(intent.begin(400, 408, 3, &mut pages), 2);
    }
}
