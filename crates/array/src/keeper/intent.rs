//! Write intent: the chunks of sync space that may be out of step, as md's bitmap records them.
//!
//! A bit is set and on the members before a write in its chunk starts. The bit is cleared lazily,
//! after a flush, when no write is in flight in the chunk, nothing asks for a resync of it, and
//! every role is in sync.

use std::collections::{BTreeMap, BTreeSet};

use crate::SECTOR_BYTES;
use crate::format::Bitmap;

/// The count of writes in a chunk, of which more are counted beside.
const COUNT: u16 = 0x1fff;
/// Flag of a chunk that must be resynced, or copied to a member that was away.
const NEEDED: u16 = 0x8000;
/// Idle when the flush of the running checkpoint began.
const NOMINATED: u16 = 0x4000;

/// The bitmap with what is in flight.
#[derive(Debug)]
pub(crate) struct Intent {
    pub(crate) bitmap: Bitmap,
    chunks: Vec<u16>,
    /// Writes in a chunk beyond [`COUNT`].
    beyond: BTreeMap<usize, u64>,
    /// Bits that are not on the members yet, and the metadata update that puts them there.
    unwritten: BTreeMap<usize, u64>,
    /// Number of chunks ahead of a sequential writer that are marked before it gets there.
    ahead: usize,
    /// Chunks have become idle since candidates for clearing were last looked for.
    idled: bool,
}

impl Intent {
    /// Takes over a bitmap as read; `needed`: its bits ask for a resync; `ahead`: how many chunks
    /// ahead of a sequential writer are marked early.
    pub(crate) fn new(bitmap: Bitmap, needed: bool, ahead: usize) -> Self {
        let chunks = (0..bitmap.bits())
            .map(|bit| if needed && bitmap.get(bit) { NEEDED } else { 0 })
            .collect();
        let idled = bitmap.count() > 0;
        Self { bitmap, chunks, beyond: BTreeMap::new(), unwritten: BTreeMap::new(), ahead, idled }
    }

    /// The same for a bitmap of a larger space, in which nothing is in flight: what lies behind
    /// `synced` asks for a resync.
    pub(super) fn with(&self, bitmap: Bitmap, synced: u64) -> Self {
        let mut intent = Self::new(bitmap, false, self.ahead);
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
            self.chunks[bit] |= NEEDED;
            self.bitmap.set(bit as u64);
        }
    }

    /// The same without any bit: nothing is in flight, and all is in sync.
    pub(super) fn cleared(&self) -> Self {
        Self::new(Bitmap::empty(self.bitmap.superblock.clone()), false, self.ahead)
    }

    pub(crate) fn chunk_sectors(&self) -> u64 {
        u64::from(self.bitmap.superblock.chunk_bytes) / SECTOR_BYTES
    }

    fn chunk_range(&self, start: u64, end: u64) -> std::ops::Range<usize> {
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
        let mut ticket = 0;
        for bit in self.chunk_range(start, end) {
            let count = self.chunks[bit] & COUNT;
            let flags = self.chunks[bit] & !COUNT & !NOMINATED;
            self.chunks[bit] = flags | (count + 1).min(COUNT);
            if count == COUNT {
                *self.beyond.entry(bit).or_default() += 1;
            }
            self.mark(bit, next, pages);
            ticket = ticket.max(self.unwritten.get(&bit).copied().unwrap_or(0));
            self.mark_ahead(bit, next, pages);
        }
        ticket
    }

    fn mark(&mut self, bit: usize, next: u64, pages: &mut BTreeSet<usize>) {
        if !crate::broken("intent") && self.bitmap.set(bit as u64) {
            self.unwritten.insert(bit, next);
            pages.insert(self.bitmap.page_of_bit(bit as u64) as usize);
        }
    }

    /// Marks chunks ahead of a sequential writer, which may be at work where the chunk before is
    /// marked, too: as soon as half of those ahead are used up, so that nobody waits for them.
    fn mark_ahead(&mut self, bit: usize, next: u64, pages: &mut BTreeSet<usize>) {
        let last = (bit + self.ahead).min(self.chunks.len().saturating_sub(1));
        let middle = (bit + self.ahead.div_ceil(2)).min(last);
        let alone = bit > 0 && !self.bitmap.get(bit as u64 - 1);
        if alone || self.bitmap.get(middle as u64) {
            return;
        }
        for ahead in bit + 1..=last {
            self.mark(ahead, next, pages);
        }
        self.idled = true;
    }

    /// The updates up to this ticket are done.
    pub(crate) fn told(&mut self, done: u64) {
        self.unwritten.retain(|_, ticket| *ticket > done);
    }

    /// A write is over. `keep`: redundancy is short, so the bits must outlive it.
    pub(crate) fn end(&mut self, start: u64, end: u64, keep: bool) {
        for bit in self.chunk_range(start, end) {
            let is_beyond = self.end_beyond(bit);
            let chunk = &mut self.chunks[bit];
            let count = (*chunk & COUNT).saturating_sub(u16::from(!is_beyond));
            *chunk = (*chunk & !COUNT) | count | if keep { NEEDED } else { 0 };
            self.idled |= *chunk & (COUNT | NEEDED) == 0;
        }
    }

    /// Counts a write off that is counted beside, if there is one in this chunk.
    fn end_beyond(&mut self, bit: usize) -> bool {
        let Some(more) = self.beyond.get_mut(&bit) else { return false };
        *more -= 1;
        if *more == 0 {
            self.beyond.remove(&bit);
        }
        true
    }

    /// Returns whether any chunk of the range asks for a resync.
    pub(crate) fn needs_resync(&self, start: u64, end: u64) -> bool {
        self.chunk_range(start, end).any(|bit| self.chunks[bit] & NEEDED != 0)
    }

    /// The chunks that ask for a resync.
    pub(crate) fn needed(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let sectors = self.chunk_sectors();
        let starts = (0..).step_by(sectors as usize);
        let needed = starts.zip(&self.chunks).filter(|(_, chunk)| **chunk & NEEDED != 0);
        needed.map(move |(start, _)| (start, start + sectors))
    }

    /// Returns whether any bit of the range is set.
    pub(crate) fn dirty(&self, start: u64, end: u64) -> bool {
        self.chunk_range(start, end).any(|bit| self.bitmap.get(bit as u64))
    }

    /// Everything in step again: no chunk asks for a resync, but for those that have something
    /// `left` in their range.
    pub(crate) fn resynced(&mut self, left: impl Fn(u64, u64) -> bool) {
        let sectors = self.chunk_sectors();
        for (start, chunk) in (0..).step_by(sectors as usize).zip(&mut self.chunks) {
            if !left(start, start + sectors) {
                *chunk &= !NEEDED;
            }
        }
        self.idled = true;
    }

    /// Returns whether there may be anything to clear. Called at every turn, so it looks at no
    /// chunk.
    pub(crate) const fn clearable(&self) -> bool {
        self.idled
    }

    /// Looks for chunks to clear again: some that had to stay marked may not have to any more.
    pub(crate) const fn look_again(&mut self) {
        self.idled = true;
    }

    /// Marks the chunks that are idle now, and not marked ahead of a write under way, as candidates
    /// for clearing, but for those of a range that somebody `lacks`.
    pub(crate) fn nominate(&mut self, lacks: impl Fn(u64, u64) -> bool) {
        self.forget_nominated();
        self.idled = false;
        let mut busy_until = 0;
        let sectors = self.chunk_sectors();
        for (bit, chunk) in self.chunks.iter_mut().enumerate() {
            let start = bit as u64 * sectors;
            if *chunk & COUNT != 0 {
                busy_until = bit + 1 + self.ahead;
            }
            let idle = *chunk & (COUNT | NEEDED) == 0 && bit >= busy_until;
            if idle && self.bitmap.get(bit as u64) && !lacks(start, start + sectors) {
                *chunk |= NOMINATED;
            }
        }
    }

    /// Makes no chunk a candidate any more.
    pub(crate) fn forget_nominated(&mut self) {
        self.chunks.iter_mut().for_each(|chunk| *chunk &= !NOMINATED);
        self.idled = true;
    }

    /// Clears the bits of the candidates that no write has touched since.
    pub(crate) fn clear_nominated(&mut self, pages: &mut BTreeSet<usize>) {
        for (bit, chunk) in self.chunks.iter_mut().enumerate() {
            if *chunk & NOMINATED != 0 {
                *chunk &= !NOMINATED;
                self.bitmap.clear(bit as u64);
                self.unwritten.remove(&bit);
                pages.insert(self.bitmap.page_of_bit(bit as u64) as usize);
            }
        }
    }

    /// Checks that exactly these writes are counted, and that bits are set for them.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(super) fn check(&self, writes: &[(u64, u64, bool)]) -> Result<(), String> {
        let counted = |(bit, chunk): (usize, &u16)| {
            u64::from(chunk & COUNT) + self.beyond.get(&bit).copied().unwrap_or(0)
        };
        let mut counts: Vec<u64> = self.chunks.iter().enumerate().map(counted).collect();
        for (start, end, _) in writes {
            for bit in self.chunk_range(*start, *end) {
                counts[bit] = counts[bit].wrapping_sub(1);
            }
        }
        if let Some(bit) = counts.iter().position(|count| *count != 0) {
            return Err(format!("writes in chunk {bit} are off by {}", counts[bit] as i64));
        }
        let told = |bit: usize| self.chunks[bit] & !NOMINATED == 0 || self.bitmap.get(bit as u64);
        if let Some(bit) = (0..self.chunks.len()).find(|bit| !told(*bit)) {
            return Err(format!("chunk {bit} is in use without its bit"));
        }
        Ok(())
    }

    pub(crate) fn dirty_bits(&self) -> u64 {
        self.bitmap.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
