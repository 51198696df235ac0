//! The write-intent bitmap.
//!
//! On disk: the superblock (256 bytes), then at once the bits, bit `b` being bit `b % 8` of byte `b
//! / 8`. Reads and writes are of pages of 4 KiB, the first of which begins with the superblock;
//! only the sectors in use belong to the last page.

use std::ops::Range;

pub use super::bitmap_superblock::{BitmapError, BitmapSuperblock, MAX_BITS, state};
use super::bitmap_superblock::{SUPERBLOCK_BYTES, VERSION};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;

/// Bits before the first page's own, which the superblock takes.
const SUPERBLOCK_BITS: u64 = SUPERBLOCK_BYTES as u64 * 8;

/// Bits of a page.
const PAGE_BITS: u64 = PAGE_BYTES as u64 * 8;

/// mdadm's default chunk, when the bits of smaller chunks would fit, too.
const DEFAULT_CHUNK_BYTES: u32 = 64 << 20;

/// mdadm's smallest chunk.
const MIN_CHUNK_BYTES: u32 = 4096;

/// A bitmap in memory: one bit for each chunk of sync space. A set bit means that the members may
/// differ there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    /// Its superblock. The chunk and the size of the sync space do not change.
    pub superblock: BitmapSuperblock,
    /// Bits beyond the last one are zero.
    bits: Vec<u64>,
}

impl Bitmap {
    /// A new bitmap with all bits clear, for a space of `space_sectors` behind the superblock.
    /// Without a chunk it takes mdadm's default: 64 MiB, or more where that would not fit.
    /// `None` when the chunk asked for is no power of two from 4 KiB on, when its bits do not fit,
    /// or when there is nothing to sync.
    #[must_use]
    pub fn new(
        uuid: [u8; 16],
        sync_size_sectors: u64,
        chunk_bytes: Option<u32>,
        space_sectors: u64,
    ) -> Option<Self> {
        let space_bits = space_sectors.checked_mul(512 * 8)?.checked_sub(SUPERBLOCK_BITS)?;
        let max_bits = space_bits.min(MAX_BITS);
        let fits = |chunk: u32| sync_size_sectors.div_ceil(u64::from(chunk) / 512) <= max_bits;
        let chunk_bytes = match chunk_bytes {
            Some(chunk) => (chunk.is_power_of_two() && chunk >= MIN_CHUNK_BYTES && fits(chunk))
                .then_some(chunk)?,
            None => (DEFAULT_CHUNK_BYTES.ilog2()..32).map(|log| 1 << log).find(|c| fits(*c))?,
        };
        if sync_size_sectors == 0 {
            return None;
        }
        let superblock = BitmapSuperblock {
            version: VERSION,
            uuid,
            events: 0,
            events_cleared: 0,
            sync_size_sectors,
            state: 0,
            chunk_bytes,
            daemon_sleep_s: 5,
            write_behind: 0,
            sectors_reserved: 0,
        };
        Some(Self::empty(superblock))
    }

    /// Creates a bitmap without any bit.
    pub(crate) fn empty(superblock: BitmapSuperblock) -> Self {
        let words = usize::try_from(superblock.bits().div_ceil(64)).expect("at most MAX_BITS");
        Self { superblock, bits: vec![0; words] }
    }

    /// Decodes a whole bitmap: `size_sectors` of its superblock, or more.
    ///
    /// # Errors
    /// [`BitmapError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BitmapError> {
        let superblock = BitmapSuperblock::decode(bytes)?;
        let bit_bytes = usize::try_from(superblock.bits().div_ceil(8)).expect("at most MAX_BITS");
        let needed = SUPERBLOCK_BYTES + bit_bytes;
        let Some(raw) = bytes.get(SUPERBLOCK_BYTES..needed) else {
            return Err(BitmapError::Truncated { bytes: bytes.len(), needed });
        };
        let mut bitmap = Self::empty(superblock);
        for (word, raw) in bitmap.bits.iter_mut().zip(raw.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..raw.len()].copy_from_slice(raw);
            *word = u64::from_le_bytes(bytes);
        }
        bitmap.clear_padding();
        Ok(bitmap)
    }

    /// The same bits for a sync space of another size; bits for new space are set, be a part of it
    /// old. `None` when there would be none, or too many.
    #[must_use]
    pub fn resized(&self, sync_size_sectors: u64) -> Option<Self> {
        let superblock = BitmapSuperblock { sync_size_sectors, ..self.superblock.clone() };
        if sync_size_sectors == 0 || superblock.bits() > MAX_BITS {
            return None;
        }
        let mut bitmap = Self::empty(superblock);
        let kept = bitmap.bits.len().min(self.bits.len());
        bitmap.bits[..kept].copy_from_slice(&self.bits[..kept]);
        bitmap.clear_padding();
        let before = self.superblock.sync_size_sectors;
        if before < sync_size_sectors {
            let first = before / bitmap.superblock.chunk_sectors();
            (first..bitmap.bits()).for_each(|bit| _ = bitmap.set(bit));
        }
        Some(bitmap)
    }

    /// A bitmap for a larger sync space in so many sectors, for members that are all in line. The
    /// chunk is doubled until it fits, as md does; bits of what is new are set, and those of what
    /// is not only where the chunk stays. `None` when it cannot fit.
    #[must_use]
    pub fn grown(&self, sync_size_sectors: u64, space_sectors: u64) -> Option<Self> {
        let old = &self.superblock;
        if sync_size_sectors == old.sync_size_sectors {
            return Some(self.clone());
        }
        let reserved = match u64::from(old.sectors_reserved) {
            0 => space_sectors,
            kept => kept.min(space_sectors),
        };
        let space_bits = (reserved * 512 * 8).checked_sub(SUPERBLOCK_BITS)?.min(MAX_BITS);
        let mut chunks = (old.chunk_bytes.ilog2()..32).map(|log| 1_u32 << log);
        let fits = |chunk: &u32| sync_size_sectors.div_ceil(u64::from(*chunk) / 512) <= space_bits;
        let chunk_bytes = chunks.find(fits)?;
        if chunk_bytes == old.chunk_bytes {
            return self.resized(sync_size_sectors);
        }
        let superblock = BitmapSuperblock { sync_size_sectors, chunk_bytes, ..old.clone() };
        let mut bitmap = Self::empty(superblock);
        let first = old.sync_size_sectors / bitmap.superblock.chunk_sectors();
        (first..bitmap.bits()).for_each(|bit| _ = bitmap.set(bit));
        Some(bitmap)
    }

    /// A page as it is written, 4096 bytes. See [`Bitmap::page_bytes`] for how many belong to it.
    ///
    /// # Panics
    /// When there is no such page.
    #[must_use]
    pub fn encode_page(&self, page: u64) -> Vec<u8> {
        assert!(page < self.pages(), "page {page} of a bitmap of {}", self.pages());
        let mut out = Vec::with_capacity(PAGE_BYTES);
        if page == 0 {
            out.extend_from_slice(&self.superblock.encode());
        }
        let words = PAGE_BITS / 64;
        let first = (page * words).saturating_sub(SUPERBLOCK_BITS / 64);
        let last = (page + 1) * words - SUPERBLOCK_BITS / 64;
        for word in first..last {
            let word = usize::try_from(word).ok().and_then(|index| self.bits.get(index));
            out.extend_from_slice(&word.copied().unwrap_or(0).to_le_bytes());
        }
        out
    }

    /// Returns how many bytes of a page to write: all of them, except in the last page. There it is
    /// the part in use, rounded up to blocks of `block_bytes`, since the bad-block log may lie
    /// behind.
    #[must_use]
    pub fn page_bytes(&self, page: u64, block_bytes: u32) -> u32 {
        let used = SUPERBLOCK_BYTES as u64 + self.bits().div_ceil(8);
        let rest = used.saturating_sub(page * PAGE_BYTES as u64).min(PAGE_BYTES as u64);
        u32::try_from(rest).expect("a page at most").next_multiple_of(block_bytes)
    }

    /// Number of pages.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        (SUPERBLOCK_BITS + self.bits()).div_ceil(PAGE_BITS)
    }

    /// The page a bit lies in.
    #[must_use]
    pub const fn page_of_bit(&self, bit: u64) -> u64 {
        (SUPERBLOCK_BITS + bit) / PAGE_BITS
    }

    /// Sectors it occupies on a member, superblock included.
    #[must_use]
    pub const fn size_sectors(&self) -> u64 {
        self.superblock.size_sectors()
    }

    /// Number of bits.
    #[must_use]
    pub const fn bits(&self) -> u64 {
        self.superblock.bits()
    }

    /// Number of set bits.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.bits.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Number of set bits in each of so many parts of it, which are as long as one another, or one
    /// bit longer.
    #[must_use]
    pub fn counts(&self, parts: u64) -> Vec<u32> {
        let begin = |part: u64| part * self.bits() / parts;
        (0..parts).map(|part| self.count_in(begin(part)..begin(part + 1))).collect()
    }

    fn count_in(&self, bits: Range<u64>) -> u32 {
        let (first, first_mask) = place(bits.start);
        let (last, last_mask) = place(bits.end);
        let words = self.bits.iter().enumerate().take(last.saturating_add(1)).skip(first);
        let ones = words.map(|(index, word)| {
            let before = if index == first { first_mask - 1 } else { 0 };
            let upto = if index == last { last_mask - 1 } else { u64::MAX };
            (word & upto & !before).count_ones()
        });
        ones.sum()
    }

    /// The bits that a range of sync sectors touches, as far as there are any.
    #[must_use]
    pub fn bits_for(&self, sectors: Range<u64>) -> Range<u64> {
        let chunk = self.superblock.chunk_sectors();
        let end = sectors.end.min(self.superblock.sync_size_sectors);
        if sectors.start >= end {
            return 0..0;
        }
        sectors.start / chunk..end.div_ceil(chunk)
    }

    /// The sync sectors a bit stands for.
    #[must_use]
    pub fn sectors_of_bit(&self, bit: u64) -> Range<u64> {
        self.sectors_of(bit..bit + 1)
    }

    fn sectors_of(&self, bits: Range<u64>) -> Range<u64> {
        let chunk = self.superblock.chunk_sectors();
        let end = (bits.end * chunk).min(self.superblock.sync_size_sectors);
        (bits.start * chunk).min(end)..end
    }

    /// Returns whether the bit is set. Bits beyond the last are not.
    #[must_use]
    pub fn get(&self, bit: u64) -> bool {
        let (index, mask) = place(bit);
        self.bits.get(index).is_some_and(|word| word & mask != 0)
    }

    /// Sets a bit; false when it was set.
    ///
    /// # Panics
    /// When there is no such bit.
    pub fn set(&mut self, bit: u64) -> bool {
        assert!(bit < self.bits(), "bit {bit} of a bitmap of {}", self.bits());
        let (index, mask) = place(bit);
        let was_set = self.bits[index] & mask != 0;
        self.bits[index] |= mask;
        !was_set
    }

    /// Clears a bit; false when it was clear.
    ///
    /// # Panics
    /// When there is no such bit.
    pub fn clear(&mut self, bit: u64) -> bool {
        assert!(bit < self.bits(), "bit {bit} of a bitmap of {}", self.bits());
        let (index, mask) = place(bit);
        let was_set = self.bits[index] & mask != 0;
        self.bits[index] &= !mask;
        was_set
    }

    /// Sets all bits.
    pub fn set_all(&mut self) {
        self.bits.fill(u64::MAX);
        self.clear_padding();
    }

    /// Sets all bits that are set in the other bitmap. When that one is cut differently, the bits
    /// that its dirty ranges touch.
    pub fn union(&mut self, other: &Self) {
        for range in other.dirty_ranges() {
            for bit in self.bits_for(range) {
                self.set(bit);
            }
        }
    }

    /// The runs of set bits, as ranges of sync sectors, in order.
    pub fn dirty_ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let start = self.next(from, true)?;
            let end = self.next(start, false).unwrap_or_else(|| self.bits());
            from = end;
            Some(self.sectors_of(start..end))
        })
    }

    /// The first bit of this value from `from` on.
    fn next(&self, from: u64, value: bool) -> Option<u64> {
        let (index, mask) = place(from);
        let mut skipped = mask - 1;
        for (at, word) in self.bits.iter().enumerate().skip(index) {
            let wanted = if value { *word } else { !*word } & !skipped;
            if wanted != 0 {
                let bit = at as u64 * 64 + u64::from(wanted.trailing_zeros());
                return (bit < self.bits()).then_some(bit);
            }
            skipped = 0;
        }
        None
    }

    /// Returns whether the bitmap says nothing about an array with this UUID and event count. Every
    /// bit is to be taken as set then. md updates the bitmap before the superblocks, so a good one
    /// is never behind.
    #[must_use]
    pub fn stale(&self, array_uuid: [u8; 16], array_events: u64) -> bool {
        self.superblock.uuid != array_uuid
            || self.superblock.events < array_events
            || self.superblock.state & (state::STALE | state::WRITE_ERROR) != 0
    }

    fn clear_padding(&mut self) {
        let used = self.bits() % 64;
        if used != 0
            && let Some(last) = self.bits.last_mut()
        {
            *last &= (1 << used) - 1;
        }
    }
}

/// Index and mask of a bit. An index beyond the address space is beyond every bitmap.
fn place(bit: u64) -> (usize, u64) {
    (usize::try_from(bit / 64).unwrap_or(usize::MAX), 1 << (bit % 64))
}
