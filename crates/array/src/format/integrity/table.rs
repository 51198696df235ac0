//! A page of the table of an integrity area: the checksums of 960 blocks, and which are known.
//!
//! ```text
//!    0 checksums of blocks, four bytes each [960]     3840 known: bits, lowest first [120]
//! 3960 number of the page       3968 area[16]         3984 zeroes         4092 checksum
//! ```
//!
//! All numbers are little-endian. The checksum of a block is the CRC32C of its bytes, which are
//! fewer in a last block that is shorter, and zero where it is not known; that of the page is the
//! CRC32C of the 4092 bytes before. A page that does not fit, or says that it belongs elsewhere,
//! knows nothing.

use super::{AreaId, PAGE_BLOCKS, TABLE_PAGE_BYTES};
use crate::format::bytes::{array_at, put, u32_at, u64_at};

const BLOCKS: usize = PAGE_BLOCKS as usize;
const KNOWN_AT: usize = 4 * BLOCKS;
const KNOWN_BYTES: usize = BLOCKS / 8;
const NUMBER_AT: usize = KNOWN_AT + KNOWN_BYTES;
const AREA_AT: usize = NUMBER_AT + 8;
const CHECKSUM_AT: usize = PAGE_BYTES - 4;
const PAGE_BYTES: usize = TABLE_PAGE_BYTES as usize;

/// Returns the checksum of a block.
#[must_use]
pub fn block_sum(block: &[u8]) -> u32 {
    crc32c::crc32c(block)
}

/// The checksums of the blocks of a page, as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePage {
    sums: Box<[u32; BLOCKS]>,
    known: [u8; KNOWN_BYTES],
}

impl TablePage {
    /// Returns a page that knows nothing.
    #[must_use]
    pub fn unknown() -> Self {
        Self { sums: Box::new([0; BLOCKS]), known: [0; KNOWN_BYTES] }
    }

    /// Decodes the page of this number; `None` when it does not fit.
    #[must_use]
    pub fn decode(area_id: AreaId, number: u64, bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..PAGE_BYTES)?;
        let fits = crc32c::crc32c(&bytes[..CHECKSUM_AT]) == u32_at(bytes, CHECKSUM_AT)
            && u64_at(bytes, NUMBER_AT) == number
            && array_at(bytes, AREA_AT) == area_id;
        if !fits {
            return None;
        }
        let mut page = Self::unknown();
        page.known = array_at(bytes, KNOWN_AT);
        for block in 0..BLOCKS {
            if page.is_known(block) {
                page.sums[block] = u32_at(bytes, 4 * block);
            }
        }
        Some(page)
    }

    /// The bytes of the page of this number.
    #[must_use]
    pub fn encode(&self, area_id: AreaId, number: u64) -> Vec<u8> {
        let mut bytes = vec![0; PAGE_BYTES];
        for (field, sum) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(self.sums.iter()) {
            *field = sum.to_le_bytes();
        }
        put(&mut bytes, KNOWN_AT, self.known);
        put(&mut bytes, NUMBER_AT, number.to_le_bytes());
        put(&mut bytes, AREA_AT, area_id);
        let sum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        put(&mut bytes, CHECKSUM_AT, sum.to_le_bytes());
        bytes
    }

    const fn is_known(&self, block: usize) -> bool {
        self.known[block / 8] >> (block % 8) & 1 == 1
    }

    /// Number of blocks whose checksum is known.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.known.iter().map(|bits| bits.count_ones()).sum()
    }

    /// Returns the checksum of a block of the page, if it is known.
    ///
    /// # Panics
    /// When no page has such a block.
    #[must_use]
    pub fn get(&self, block: usize) -> Option<u32> {
        self.is_known(block).then_some(self.sums[block])
    }

    /// Takes the checksum of a block of the page; `None`: it is not known any more.
    ///
    /// # Panics
    /// When no page has such a block.
    pub fn set(&mut self, block: usize, sum: Option<u32>) {
        self.sums[block] = sum.unwrap_or(0);
        let bit = 1 << (block % 8);
        if sum.is_some() {
            self.known[block / 8] |= bit;
        } else {
            self.known[block / 8] &= !bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: AreaId = [9; 16];

    fn page() -> TablePage {
        let mut page = TablePage::unknown();
        page.set(0, Some(0));
        page.set(1, Some(0x0403_0201));
        page.set(959, Some(u32::MAX));
        page
    }

    #[test]
    fn it_lies_where_its_ruler_says() {
        let bytes = page().encode(AREA, 0x0807_0605);
        assert_eq!(bytes.len(), 4096);
        assert_eq!(bytes[..8], [0, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(bytes[3836..3841], [255, 255, 255, 255, 3]);
        assert_eq!(bytes[3959..3969], [0x80, 5, 6, 7, 8, 0, 0, 0, 0, 9]);
        assert!(bytes[3984..4092].iter().all(|byte| *byte == 0));
        assert_eq!(TablePage::decode(AREA, 0x0807_0605, &bytes), Some(page()));
    }

    #[test]
    fn a_page_of_another_place_or_with_any_other_bit_knows_nothing() {
        let bytes = page().encode(AREA, 7);
        assert_eq!(TablePage::decode(AREA, 8, &bytes), None);
        assert_eq!(TablePage::decode([8; 16], 7, &bytes), None);
        assert_eq!(TablePage::decode(AREA, 7, &bytes[..4095]), None);
        assert_eq!(TablePage::decode(AREA, 0, &[0; 4096]), None, "never written");
        for bit in 0..4096 * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(TablePage::decode(AREA, 7, &changed), None, "{bit}");
        }
    }

    #[test]
    fn a_block_is_known_until_it_is_not() {
        let mut page = page();
        assert_eq!(page.count(), 3);
        assert_eq!(page.get(0), Some(0), "a checksum may be zero");
        assert_eq!(page.get(2), None);
        page.set(1, None);
        assert_eq!(page.get(1), None);
        assert_eq!(page.count(), 2);
        page.set(0, None);
        page.set(959, None);
        assert_eq!(page, TablePage::unknown());
    }

    #[test]
    fn checksums_are_those_of_castagnoli() {
        // Of RFC 3720, appendix B.4.
        assert_eq!(block_sum(&[0; 32]), 0x8a91_36aa);
        assert_eq!(block_sum(b"123456789"), 0xe306_9283);
    }
}
