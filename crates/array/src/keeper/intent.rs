//! Write intent: which chunks of sync space may be out of step, as md's bitmap records them.
//!
//! A bit is set and on the members before a write in its chunk starts. It is cleared lazily, after
//! a flush, when no write is in flight in the chunk, nothing asks for a resync of it, and every
//! role is in sync.

use std::collections::BTreeSet;

use crate::SECTOR_BYTES;
use crate::format::Bitmap;

const COUNT: u16 = 0x1fff;
/// Must be resynced, or copied to a member that was away.
const NEEDED: u16 = 0x8000;
/// Idle when the running update's flush began.
const NOMINATED: u16 = 0x4000;

/// The bitmap with what is in flight.
#[derive(Debug)]
pub(crate) struct Intent {
    pub(crate) bitmap: Bitmap,
    chunks: Vec<u16>,
    /// For each page, the metadata update that makes its bits durable.
    page_tickets: Vec<u64>,
    /// Chunks have become idle since candidates for clearing were last looked for.
    idled: bool,
}

impl Intent {
    /// Takes over a bitmap as read; `needed`: its bits ask for a resync.
    pub(crate) fn new(bitmap: Bitmap, needed: bool) -> Self {
        let chunks = (0..bitmap.bits())
            .map(|bit| if needed && bitmap.get(bit) { NEEDED } else { 0 })
            .collect();
        let page_tickets = vec![0; bitmap.pages() as usize];
        let idled = bitmap.count() > 0;
        Self { bitmap, chunks, page_tickets, idled }
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
    /// `pages`; the largest ticket already filed for its pages is returned.
    pub(crate) fn begin(&mut self, start: u64, end: u64, pages: &mut BTreeSet<usize>) -> u64 {
        let mut ticket = 0;
        for bit in self.chunk_range(start, end) {
            let count = self.chunks[bit] & COUNT;
            let flags = self.chunks[bit] & !COUNT & !NOMINATED;
            self.chunks[bit] = flags | (count + 1).min(COUNT);
            let page = self.bitmap.page_of_bit(bit as u64) as usize;
            if !self.bitmap.get(bit as u64) {
                self.bitmap.set(bit as u64);
                pages.insert(page);
            }
            ticket = ticket.max(self.page_tickets[page]);
        }
        ticket
    }

    pub(crate) fn set_page_ticket(&mut self, page: usize, ticket: u64) {
        self.page_tickets[page] = ticket;
    }

    /// A write is over. `keep`: redundancy is short, so the bits must outlive it.
    pub(crate) fn end(&mut self, start: u64, end: u64, keep: bool) {
        for bit in self.chunk_range(start, end) {
            let chunk = &mut self.chunks[bit];
            let count = (*chunk & COUNT).saturating_sub(1);
            *chunk = (*chunk & !COUNT) | count | if keep { NEEDED } else { 0 };
            self.idled |= *chunk & (COUNT | NEEDED) == 0;
        }
    }

    /// Does any chunk of the range ask for a resync?
    pub(crate) fn needs_resync(&self, start: u64, end: u64) -> bool {
        self.chunk_range(start, end).any(|bit| self.chunks[bit] & NEEDED != 0)
    }

    /// Is any bit of the range set?
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

    /// May there be anything to clear? Asked at every turn, so it looks at no chunk.
    pub(crate) const fn clearable(&self) -> bool {
        self.idled
    }

    /// Marks the chunks that are idle now as candidates for clearing.
    pub(crate) fn nominate(&mut self) {
        self.idled = false;
        for (bit, chunk) in self.chunks.iter_mut().enumerate() {
            if *chunk & (COUNT | NEEDED) == 0 && self.bitmap.get(bit as u64) {
                *chunk |= NOMINATED;
            }
        }
    }

    /// Clears the bits of the candidates that no write has touched since.
    pub(crate) fn clear_nominated(&mut self, pages: &mut BTreeSet<usize>) {
        for (bit, chunk) in self.chunks.iter_mut().enumerate() {
            if *chunk & NOMINATED != 0 {
                *chunk &= !NOMINATED;
                self.bitmap.clear(bit as u64);
                pages.insert(self.bitmap.page_of_bit(bit as u64) as usize);
            }
        }
    }

    /// Are these the writes that are counted, with bits that say so?
    ///
    /// # Errors
    /// What is not as it has to be.
    pub(super) fn check(&self, writes: &[(u64, u64, bool)]) -> Result<(), String> {
        let mut counts: Vec<u16> = self.chunks.iter().map(|chunk| chunk & COUNT).collect();
        for (start, end, _) in writes {
            for bit in self.chunk_range(*start, *end) {
                counts[bit] = counts[bit].wrapping_sub(1);
            }
        }
        if let Some(bit) = counts.iter().position(|count| *count != 0) {
            return Err(format!("writes in chunk {bit} are off by {}", counts[bit] as i16));
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
