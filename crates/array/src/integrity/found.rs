//! Areas as they are found when an array is assembled.

use super::trust::Trust;
use crate::SECTOR_BYTES;
use crate::format::integrity::{
    BLOCK_SECTORS, COPY_BYTES, IntegrityArea, IntegrityHeader, PAGE_BLOCKS, PageMarks,
    SuperblockDigest, TABLE_PAGE_BYTES, TablePage,
};
use crate::format::{Superblock, Version};

/// Bytes of the longest superblock.
const SUPERBLOCK_BYTES: u32 = 4096;
/// Bytes that are read at a time.
const READ_BYTES: u64 = 1 << 20;

/// Places of an area, of the data that it covers, and of the superblock that it goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AreaPlace {
    pub(crate) area: IntegrityArea,
    /// Sector of the device at which the area begins.
    pub(crate) start: u64,
    /// Sector of the device at which the data begin.
    pub(crate) data_offset: u64,
    /// Sector of the superblock.
    pub(crate) superblock: u64,
    pub(crate) version: Version,
}

/// An area behind the data of a member, as it was found, and what it is worth.
#[derive(Clone, Debug)]
pub struct FoundArea {
    pub(crate) place: AreaPlace,
    pub(crate) header: IntegrityHeader,
    pub(crate) on_disk: SuperblockDigest,
    pub(crate) marks: PageMarks,
    /// Somebody else was here: what the marks say does not count.
    pub(crate) foreign: bool,
}

impl FoundArea {
    /// Looks for an area behind the data of a member with this superblock, through
    /// `read(sector, bytes)`, which answers with exactly so many bytes or with the reason why it
    /// cannot. `None`: there is none.
    ///
    /// # Errors
    /// The reason why there is one that cannot be used. The array does without it.
    pub fn read(
        superblock: &Superblock,
        device_sectors: u64,
        mut read: impl FnMut(u64, u32) -> Result<Vec<u8>, String>,
    ) -> Result<Option<Self>, String> {
        let Some(area) = IntegrityArea::new(superblock.data_size) else { return Ok(None) };
        let Some(start) = area.start(superblock.data_offset) else { return Ok(None) };
        let fits = start.checked_add(area.sectors()).is_some_and(|end| end <= device_sectors);
        if !fits {
            return Ok(None);
        }
        // What cannot be read is not whole.
        let mut copy = |number| {
            let sector = start + number * COPY_BYTES as u64 / SECTOR_BYTES;
            read(sector, COPY_BYTES as u32).unwrap_or_else(|_| vec![0; COPY_BYTES])
        };
        let copies = [copy(0), copy(1)];
        // Without an area nothing is said of a superblock that cannot be read to its end.
        let bytes = read(superblock.super_offset, SUPERBLOCK_BYTES).unwrap_or_default();
        let copies = [copies[0].as_slice(), copies[1].as_slice()];
        let trust = Trust::of(superblock, &bytes, copies);
        let foreign = matches!(trust, Trust::Foreign(_));
        let header = match trust {
            // Nothing would tell rot from what md has written.
            Trust::Absent | Trust::Unwitnessed(_) => return Ok(None),
            Trust::Damaged(why) => return Err(why.to_string()),
            Trust::Trusted(header) | Trust::Foreign(header) => header,
        };
        let version = superblock.version;
        let Some(on_disk) = SuperblockDigest::of(version, &bytes) else { return Ok(None) };
        let marks = if foreign {
            PageMarks::all(header.area_id, area.pages())
        } else {
            read_marks(&header, start, &mut read)
        };
        let place = AreaPlace {
            area,
            start,
            data_offset: superblock.data_offset,
            superblock: superblock.super_offset,
            version,
        };
        Ok(Some(Self { place, header, on_disk, marks, foreign }))
    }
}

impl FoundArea {
    /// Returns whether what its marks say counts.
    #[must_use]
    pub const fn is_trusted(&self) -> bool {
        !self.foreign
    }

    /// The number of blocks whose checksums are known, if the array was stopped with all written.
    #[must_use]
    pub fn counted(&self) -> Option<u64> {
        let count = self.header.counted?;
        let counts = !self.foreign && count.marks == self.marks.digest();
        counts.then_some(count.blocks)
    }

    /// The sectors of the device at which the whole blocks lie whose checksums are known, through
    /// `read(sector, bytes)`.
    pub fn known<'a>(
        &'a self,
        mut read: impl FnMut(u64, u32) -> Result<Vec<u8>, String> + 'a,
    ) -> impl Iterator<Item = u64> + 'a {
        let AreaPlace { area, start, data_offset, .. } = self.place;
        let unmarked = (0..area.pages()).filter(|page| !self.marks.get(*page as usize));
        let known = unmarked.flat_map(move |number| {
            let bytes = read(start + area.page_at(number) / SECTOR_BYTES, TABLE_PAGE_BYTES as u32);
            let page = TablePage::decode(self.header.area_id, number, &bytes.unwrap_or_default());
            let known = move |block: &u64| {
                page.as_ref().is_some_and(|page| page.get(*block as usize).is_some())
            };
            (0..PAGE_BLOCKS).filter(known).map(move |block| number * PAGE_BLOCKS + block)
        });
        let whole = known.map(move |block| area.block(block));
        let whole = whole.filter(|sectors| sectors.end - sectors.start == BLOCK_SECTORS);
        whole.map(move |sectors| data_offset + sectors.start)
    }
}

/// Reads the marks; those that cannot be read are set.
fn read_marks(
    header: &IntegrityHeader,
    start: u64,
    read: &mut impl FnMut(u64, u32) -> Result<Vec<u8>, String>,
) -> PageMarks {
    let IntegrityHeader { area, area_id, .. } = *header;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < area.marks_bytes() {
        let at = bytes.len() as u64;
        let len = (area.marks_bytes() - at).min(READ_BYTES);
        let sector = start + (area.marks_at() + at) / SECTOR_BYTES;
        let zeroes = || vec![0; len as usize];
        bytes.extend(read(sector, len as u32).unwrap_or_else(|_| zeroes()));
    }
    PageMarks::decode(area_id, area.pages(), &bytes)
        .unwrap_or_else(|_| PageMarks::all(area_id, area.pages()))
}
