//! The marks of an integrity area: a bit for each page of the table, set while its entries prove
//! nothing.
//!
//! ```text
//! sector n:   0 bits of the pages from 4064 × n on, lowest first [508]       508 checksum
//! ```
//!
//! The checksum is the CRC32C of the name of the area, the number of the sector (64 bits,
//! little-endian), and the bits: a sector of another place or area does not fit. One that does not
//! fit has all its pages marked. Bits behind the last page are zeroes, and are not looked at.
//! Sectors come in whole pages of eight; each of them is torn off by itself.

use super::AreaId;
use crate::SECTOR_BYTES;

/// Bytes that are written at once: eight sectors.
pub const MARKS_PAGE_BYTES: usize = 4096;

/// Words of bits in a sector.
const SECTOR_WORDS: usize = 127;
/// Pages of the table that a sector has the marks of.
pub(super) const SECTOR_PAGES: u64 = 32 * SECTOR_WORDS as u64;
const SECTORS_OF_A_PAGE: usize = MARKS_PAGE_BYTES / SECTOR_BYTES as usize;

/// The marks of all pages of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageMarks {
    area_id: AreaId,
    pages: usize,
    /// Whole sectors: bits behind the last page are zeroes.
    words: Vec<u32>,
}

/// The reason why bytes are not the marks of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("marks of the integrity area are cut off after {bytes} of {needed} bytes")]
pub struct MarksError {
    /// Bytes there are.
    pub bytes: u64,
    /// Bytes there should be.
    pub needed: u64,
}

impl PageMarks {
    /// Decodes the marks of so many pages.
    ///
    /// # Errors
    /// [`MarksError`], when there are not enough bytes.
    pub fn decode(area_id: AreaId, pages: u64, bytes: &[u8]) -> Result<Self, MarksError> {
        let needed = pages.div_ceil(SECTOR_PAGES).saturating_mul(SECTOR_BYTES);
        let sectors = usize::try_from(needed).ok().and_then(|needed| bytes.get(..needed));
        let Some(sectors) = sectors else {
            return Err(MarksError { bytes: bytes.len() as u64, needed });
        };
        let mut words = Vec::with_capacity(sectors.len() / 4);
        for (number, sector) in (0..).zip(sectors.chunks_exact(SECTOR_BYTES as usize)) {
            let (bits, sum) = sector.split_at(4 * SECTOR_WORDS);
            if sum == checksum(area_id, number, bits).to_le_bytes() {
                words.extend(bits.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)));
            } else {
                words.extend([u32::MAX; SECTOR_WORDS]);
            }
        }
        let mut marks = Self { area_id, pages: pages as usize, words };
        marks.clear_padding();
        Ok(marks)
    }

    /// Returns the marks of so many pages, all of which are marked.
    ///
    /// # Panics
    /// When no table has so many.
    #[must_use]
    pub fn all(area_id: AreaId, pages: u64) -> Self {
        let sectors = usize::try_from(pages.div_ceil(SECTOR_PAGES)).expect("a table's pages");
        let words = vec![u32::MAX; sectors * SECTOR_WORDS];
        let mut marks = Self { area_id, pages: pages as usize, words };
        marks.clear_padding();
        marks
    }

    fn clear_padding(&mut self) {
        for (word, first) in self.words.iter_mut().zip((0..).step_by(32)) {
            *word &= match self.pages.saturating_sub(first) {
                used @ 0..32 => (1 << used) - 1,
                _ => u32::MAX,
            };
        }
    }

    /// Number of pages of the table.
    #[must_use]
    pub const fn pages(&self) -> usize {
        self.pages
    }

    /// The CRC32C of all bits.
    #[must_use]
    pub fn digest(&self) -> u32 {
        self.words.iter().fold(0, |sum, word| crc32c::crc32c_append(sum, &word.to_le_bytes()))
    }

    /// Number of pages that are marked.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Returns whether a page is marked. Pages that there are not are not.
    #[must_use]
    pub fn get(&self, page: usize) -> bool {
        self.words.get(page / 32).is_some_and(|word| word >> (page % 32) & 1 == 1)
    }

    /// Marks a page; false when it was marked.
    ///
    /// # Panics
    /// When there is no such page.
    pub fn set(&mut self, page: usize) -> bool {
        assert!(page < self.pages, "page {page} of a table of {}", self.pages);
        let was_set = self.get(page);
        self.words[page / 32] |= 1 << (page % 32);
        !was_set
    }

    /// Takes a page's mark away.
    ///
    /// # Panics
    /// When there is no such page.
    pub fn clear(&mut self, page: usize) {
        assert!(page < self.pages, "page {page} of a table of {}", self.pages);
        self.words[page / 32] &= !(1 << (page % 32));
    }

    /// Number of pages of marks, as they are written.
    #[must_use]
    pub const fn marks_pages(&self) -> usize {
        self.words.len().div_ceil(SECTOR_WORDS * SECTORS_OF_A_PAGE)
    }

    /// The page of marks that has the mark of this page of the table.
    #[must_use]
    pub const fn marks_page_of(page: usize) -> usize {
        page / (32 * SECTOR_WORDS * SECTORS_OF_A_PAGE)
    }

    /// A page of marks as it is written.
    ///
    /// # Panics
    /// When there is no such page.
    #[must_use]
    pub fn encode(&self, marks_page: usize) -> Vec<u8> {
        assert!(marks_page < self.marks_pages(), "page {marks_page} of {}", self.marks_pages());
        let mut bytes = Vec::with_capacity(MARKS_PAGE_BYTES);
        let first = marks_page * SECTORS_OF_A_PAGE;
        for sector in first..first + SECTORS_OF_A_PAGE {
            let from = bytes.len();
            for word in sector * SECTOR_WORDS..(sector + 1) * SECTOR_WORDS {
                let word = self.words.get(word).copied().unwrap_or(0);
                bytes.extend_from_slice(&word.to_le_bytes());
            }
            let sum = checksum(self.area_id, sector as u64, &bytes[from..]);
            bytes.extend_from_slice(&sum.to_le_bytes());
        }
        bytes
    }
}

fn checksum(area_id: AreaId, number: u64, bits: &[u8]) -> u32 {
    let sum = crc32c::crc32c(&area_id);
    crc32c::crc32c_append(crc32c::crc32c_append(sum, &number.to_le_bytes()), bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: AreaId = [5; 16];

    fn encoded(marks: &PageMarks) -> Vec<u8> {
        (0..marks.marks_pages()).flat_map(|page| marks.encode(page)).collect()
    }

    /// Without any mark.
    fn none(pages: u64) -> PageMarks {
        let mut marks = PageMarks::all(AREA, pages);
        (0..marks.pages()).for_each(|page| marks.clear(page));
        marks
    }

    #[test]
    fn a_mark_lies_where_the_ruler_says() {
        for (page, byte, bit) in [(0, 0, 0), (9, 1, 1), (4063, 507, 7), (4064, 512, 0)] {
            let mut marks = none(9000);
            assert!(marks.set(page));
            assert!(!marks.set(page));
            let bytes = encoded(&marks);
            assert_eq!(bytes.len(), MARKS_PAGE_BYTES);
            assert_eq!(bytes[byte], 1 << bit, "{page}");
            assert_eq!(marks.count(), 1);
            let decoded = PageMarks::decode(AREA, 9000, &bytes);
            assert_eq!(decoded.as_ref(), Ok(&marks));
            assert!(marks.get(page) && !marks.get(page + 1));
        }
    }

    #[test]
    fn marks_are_read_as_they_were_written() {
        for pages in [1, 31, 32, 33, 4063, 4064, 4065, 32511, 32512, 32513, 65025] {
            for step in [1, 2, 31, 4064] {
                let mut marks = none(pages);
                assert_eq!(marks.count(), 0);
                (0..pages as usize).step_by(step).for_each(|page| _ = marks.set(page));
                let bytes = encoded(&marks);
                assert_eq!(bytes.len(), 4096 * pages.div_ceil(32512) as usize);
                assert_eq!(PageMarks::decode(AREA, pages, &bytes).as_ref(), Ok(&marks));
                assert_eq!(marks.count(), pages.div_ceil(step as u64));
            }
            let last = pages as usize - 1;
            assert_eq!(PageMarks::marks_page_of(last) + 1, none(pages).marks_pages());
        }
    }

    #[test]
    fn a_sector_that_does_not_fit_has_all_its_pages_marked() {
        let pages = 3 * SECTOR_PAGES - 5;
        let whole = encoded(&none(pages));
        for (at, marked) in [(0, 4064), (511, 4064), (600, 4064), (1535, 4059), (1536, 0)] {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            let marks = PageMarks::decode(AREA, pages, &bytes).expect("long enough");
            assert_eq!(marks.count(), marked, "{at}");
        }
        // The sectors of a place further on, and those of another area.
        let shifted = PageMarks::decode(AREA, 4064, &whole[512..]).expect("long enough");
        assert_eq!(shifted.count(), 4064);
        let other = PageMarks::decode([6; 16], pages, &whole).expect("long enough");
        assert_eq!(other, PageMarks::all([6; 16], pages));
        let blank = PageMarks::decode(AREA, 33, &[0; 512]).expect("long enough");
        assert_eq!(blank.count(), 33, "never written");
    }

    #[test]
    fn no_more_is_allocated_than_was_read() {
        let needed = u64::from(u32::MAX).div_ceil(4064) * 512;
        let found = PageMarks::decode(AREA, u32::MAX.into(), &[0; 4096]);
        assert_eq!(found, Err(MarksError { bytes: 4096, needed }));
        assert!(PageMarks::decode(AREA, u64::MAX, &[0; 4096]).is_err());
        assert!(PageMarks::decode(AREA, 4065, &[0; 512]).is_err());
    }
}
