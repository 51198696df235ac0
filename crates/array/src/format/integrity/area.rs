//! Places within an integrity area, for data of any length.

use std::ops::Range;

use super::marks::{MARKS_PAGE_BYTES, SECTOR_PAGES};
use super::{BLOCK_SECTORS, COPY_BYTES, PAGE_BLOCKS, TABLE_PAGE_BYTES};
use crate::SECTOR_BYTES;

/// Sectors of data that a page of the table covers: 3.75 MiB.
const PAGE_SECTORS: u64 = PAGE_BLOCKS * BLOCK_SECTORS;

/// The most pages of a table.
const MAX_PAGES: u64 = u32::MAX as u64;

/// Where the marks begin.
const MARKS_AT: u64 = 2 * COPY_BYTES as u64;

/// The layout of the area for so many sectors of data. Places are bytes from the begin of the area,
/// sectors are those of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegrityArea {
    data_sectors: u64,
}

impl IntegrityArea {
    /// Returns the layout for so many sectors of data: one at least, and 15 PiB at most.
    #[must_use]
    pub const fn new(data_sectors: u64) -> Option<Self> {
        if data_sectors == 0 || data_sectors > MAX_PAGES * PAGE_SECTORS {
            return None;
        }
        Some(Self { data_sectors })
    }

    /// Returns the layout for the most whole blocks of data that begin at sector `first` of a
    /// device and leave room for their area before sector `end`.
    #[must_use]
    pub fn largest(first: u64, end: u64) -> Option<Self> {
        let room = end.checked_sub(first)?.min(MAX_PAGES * PAGE_SECTORS);
        let fits = |blocks: u64| {
            let area = Self { data_sectors: blocks * BLOCK_SECTORS };
            let end_of = |start: u64| start.checked_add(area.sectors());
            area.start(first).and_then(end_of).is_some_and(|needed| needed <= end)
        };
        let mut least = 0;
        let mut most = room / BLOCK_SECTORS;
        while least < most {
            let middle = most - (most - least) / 2;
            if fits(middle) {
                least = middle;
            } else {
                most = middle - 1;
            }
        }
        Self::new(least * BLOCK_SECTORS)
    }

    /// Returns the sector of the device at which the area lies if it is behind the data, which
    /// begin at sector `data_offset`: the next whole block.
    #[must_use]
    pub fn start(self, data_offset: u64) -> Option<u64> {
        data_offset.checked_add(self.data_sectors)?.checked_next_multiple_of(BLOCK_SECTORS)
    }

    /// Sectors of data that it covers.
    #[must_use]
    pub const fn data_sectors(self) -> u64 {
        self.data_sectors
    }

    /// Number of blocks, the last of which may be shorter.
    #[must_use]
    pub const fn blocks(self) -> u64 {
        self.data_sectors.div_ceil(BLOCK_SECTORS)
    }

    /// Number of pages of the table.
    #[must_use]
    pub const fn pages(self) -> u64 {
        self.blocks().div_ceil(PAGE_BLOCKS)
    }

    /// Where the marks begin.
    #[must_use]
    pub const fn marks_at(self) -> u64 {
        MARKS_AT
    }

    /// Bytes of the marks: whole pages of eight sectors.
    #[must_use]
    pub const fn marks_bytes(self) -> u64 {
        let bytes = self.pages().div_ceil(SECTOR_PAGES) * SECTOR_BYTES;
        bytes.next_multiple_of(MARKS_PAGE_BYTES as u64)
    }

    /// Where a page of the table lies.
    #[must_use]
    pub const fn page_at(self, page: u64) -> u64 {
        MARKS_AT + self.marks_bytes() + page * TABLE_PAGE_BYTES
    }

    /// Sectors of the whole area.
    #[must_use]
    pub const fn sectors(self) -> u64 {
        self.page_at(self.pages()) / SECTOR_BYTES
    }

    /// The sectors of a block.
    #[must_use]
    pub fn block(self, block: u64) -> Range<u64> {
        let start = (block * BLOCK_SECTORS).min(self.data_sectors);
        start..(start + BLOCK_SECTORS).min(self.data_sectors)
    }

    /// The sectors of which a page has the checksums.
    #[must_use]
    pub fn page(self, page: u64) -> Range<u64> {
        let start = (page * PAGE_SECTORS).min(self.data_sectors);
        start..(start + PAGE_SECTORS).min(self.data_sectors)
    }

    /// The pages that have the checksums of a range of sectors, as far as there are any.
    #[must_use]
    pub fn pages_of(self, sectors: Range<u64>) -> Range<u64> {
        let end = sectors.end.min(self.data_sectors);
        if sectors.start >= end {
            return 0..0;
        }
        sectors.start / PAGE_SECTORS..end.div_ceil(PAGE_SECTORS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(data_sectors: u64) -> IntegrityArea {
        IntegrityArea::new(data_sectors).expect("a size that can be")
    }

    #[test]
    fn parts_lie_behind_one_another_without_gaps() {
        // Pages, bytes of marks, sectors of the area; at the edges of blocks, pages and sectors.
        let table: [(u64, u64, u64, u64); 11] = [
            (1, 1, 4096, 32),
            (7, 1, 4096, 32),
            (8, 1, 4096, 32),
            (9, 1, 4096, 32),
            (7679, 1, 4096, 32),
            (7680, 1, 4096, 32),
            (7681, 2, 4096, 40),
            (7680 * 4064, 4064, 4096, 24 + 8 * 4064),
            (7680 * 4064 * 8, 4064 * 8, 4096, 24 + 8 * 4064 * 8),
            (7680 * 4064 * 8 + 1, 4064 * 8 + 1, 8192, 32 + 8 * (4064 * 8 + 1)),
            (MAX_PAGES * PAGE_SECTORS, MAX_PAGES, 541_102_080, 34_360_795_216),
        ];
        for (data_sectors, pages, marks_bytes, sectors) in table {
            let area = area(data_sectors);
            assert_eq!(area.pages(), pages, "{data_sectors}");
            assert_eq!(area.marks_bytes(), marks_bytes, "{data_sectors}");
            assert_eq!(area.sectors(), sectors, "{data_sectors}");
            assert_eq!(area.page_at(0), area.marks_at() + marks_bytes);
            assert!(area.marks_bytes() / SECTOR_BYTES * SECTOR_PAGES >= pages);
            assert_eq!(area.sectors() * SECTOR_BYTES, area.page_at(pages - 1) + TABLE_PAGE_BYTES);
        }
        assert_eq!(IntegrityArea::new(0), None);
        assert_eq!(IntegrityArea::new(MAX_PAGES * PAGE_SECTORS + 1), None);
    }

    #[test]
    fn it_is_a_960th_of_the_data() {
        let disk = area(20_000_000_000_000 / SECTOR_BYTES);
        assert!(disk.sectors() * 958 < disk.data_sectors());
    }

    #[test]
    fn blocks_and_pages_cover_the_data_once() {
        for data_sectors in [1, 8, 9, 7679, 7680, 7681, 15361] {
            let area = area(data_sectors);
            let whole = |ranges: Vec<Range<u64>>| {
                assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
                assert_eq!(ranges[0].start, 0);
                assert_eq!(ranges[ranges.len() - 1].end, data_sectors);
                assert!(ranges.iter().all(|range| !range.is_empty()));
            };
            whole((0..area.blocks()).map(|block| area.block(block)).collect());
            whole((0..area.pages()).map(|page| area.page(page)).collect());
            assert!(area.block(area.blocks()).is_empty());
            assert!(area.page(area.pages()).is_empty());
            for page in 0..area.pages() {
                assert_eq!(area.pages_of(area.page(page)), page..page + 1);
            }
        }
        let area = area(7681);
        assert_eq!(area.pages_of(7679..7681), 0..2);
        assert_eq!(area.pages_of(0..u64::MAX), 0..2);
        assert_eq!(area.pages_of(7681..7682), 0..0);
        assert_eq!(area.pages_of(5..5), 0..0);
    }

    #[test]
    fn no_block_more_fits_the_device() {
        for first in [0, 1, 7, 2048, 262_144] {
            let least = first + 8 + 7 + 32;
            for room in (0..4000).chain([7680, 7720, 7721, 1 << 20, 1 << 34]) {
                let end = least + room;
                let Some(area) = IntegrityArea::largest(first, end) else {
                    assert!(room < 8, "{first} {room}");
                    continue;
                };
                let end_of = |area: IntegrityArea| {
                    area.start(first).expect("no such device") + area.sectors()
                };
                assert!(end_of(area) <= end, "{first} {room}");
                let more = IntegrityArea::new(area.data_sectors() + 8).expect("it can be");
                assert!(end_of(more) > end, "{first} {room}");
                assert!(area.start(first).is_some_and(|start| start.is_multiple_of(8)));
            }
        }
        assert_eq!(IntegrityArea::largest(9, 8), None);
        assert_eq!(IntegrityArea::largest(0, 39), None);
        assert_eq!(IntegrityArea::largest(0, 40), IntegrityArea::new(8));
        assert_eq!(IntegrityArea::largest(u64::MAX - 9, u64::MAX), None);
        let most = IntegrityArea::largest(0, u64::MAX).map(IntegrityArea::pages);
        assert_eq!(most, Some(MAX_PAGES));
    }
}
