//! Areas as they are found when an array is assembled.

use super::trust::{Trust, TrustError};
use crate::SECTOR_BYTES;
use crate::format::integrity::{
    AreaId, BLOCK_SECTORS, COPY_BYTES, IntegrityArea, IntegrityHeader, PAGE_BLOCKS, PageMarks,
    SuperblockDigest, TABLE_PAGE_BYTES, TablePage,
};
use crate::format::superblock::feature;
use crate::format::{DevRole, Superblock, Version};

/// Bytes of the longest superblock.
const SUPERBLOCK_BYTES: u32 = 4096;
/// Bytes that are read at a time.
const READ_BYTES: u64 = 1 << 20;

/// Places of an area, of the data that it covers, and of the superblock that it goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AreaPlace {
    pub(crate) area: IntegrityArea,
    /// The area is in a store beside the member, and not behind its data.
    pub(crate) stored: bool,
    /// Sector of the device, or of the store, at which the area begins.
    pub(crate) start: u64,
    /// Sector of the device at which the data begin.
    pub(crate) data_offset: u64,
    /// Sector of the superblock.
    pub(crate) superblock: u64,
    pub(crate) version: Version,
}

/// An area of a member, behind its data or in a store, as it was found, and what it is worth.
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
        read: impl Fn(u64, u32) -> Result<Vec<u8>, String>,
    ) -> Result<Option<Self>, TrustError> {
        let area = IntegrityArea::new(superblock.data_size);
        let start = area.and_then(|area| area.start(superblock.data_offset));
        let Some((area, start)) = area.zip(start) else { return Ok(None) };
        let place = AreaPlace::of(superblock, area, start, false);
        let fits = start.checked_add(area.sectors()).is_some_and(|end| end <= device_sectors);
        if fits { Self::look(superblock, place, &read, &read) } else { Ok(None) }
    }

    /// Looks for an area in the store of a member with this superblock. Both are read as above.
    ///
    /// # Errors
    /// The reason why there is one that cannot be used.
    pub fn stored(
        superblock: &Superblock,
        read_member: impl Fn(u64, u32) -> Result<Vec<u8>, String>,
        read_store: impl Fn(u64, u32) -> Result<Vec<u8>, String>,
    ) -> Result<Option<Self>, TrustError> {
        let Ok(area) = storable(superblock) else { return Ok(None) };
        let place = AreaPlace::of(superblock, area, 0, true);
        Self::look(superblock, place, &read_member, &read_store)
    }

    /// Begins an area of this name in the store of a member, which holds zeroes: it is written when
    /// the array starts. `None` where the member can have none.
    pub fn begun(
        superblock: &Superblock,
        area_id: AreaId,
        read_member: impl Fn(u64, u32) -> Result<Vec<u8>, String>,
    ) -> Option<Self> {
        let area = storable(superblock).ok()?;
        let bytes = read_member(superblock.super_offset, SUPERBLOCK_BYTES).unwrap_or_default();
        let on_disk = SuperblockDigest::of(superblock.version, &bytes)?;
        let Superblock { set_uuid, device_uuid, data_offset, .. } = *superblock;
        let header =
            IntegrityHeader::first(set_uuid, device_uuid, area_id, data_offset, area, on_disk);
        let place = AreaPlace::of(superblock, area, 0, true);
        let marks = PageMarks::all(area_id, area.pages());
        Some(Self { place, header, on_disk, marks, foreign: true })
    }

    fn look(
        superblock: &Superblock,
        place: AreaPlace,
        read_member: &dyn Fn(u64, u32) -> Result<Vec<u8>, String>,
        read: &dyn Fn(u64, u32) -> Result<Vec<u8>, String>,
    ) -> Result<Option<Self>, TrustError> {
        let AreaPlace { area, start, version, .. } = place;
        // What cannot be read is not whole.
        let copy = |number| {
            let sector = start + number * COPY_BYTES as u64 / SECTOR_BYTES;
            read(sector, COPY_BYTES as u32).unwrap_or_else(|_| vec![0; COPY_BYTES])
        };
        let copies = [copy(0), copy(1)];
        // Without an area nothing is said of a superblock that cannot be read to its end.
        let bytes = read_member(superblock.super_offset, SUPERBLOCK_BYTES).unwrap_or_default();
        let copies = [copies[0].as_slice(), copies[1].as_slice()];
        let trust = Trust::of(superblock, &bytes, copies);
        let foreign = matches!(trust, Trust::Foreign(_));
        let header = match trust {
            // Nothing would tell rot from what md has written.
            Trust::Absent | Trust::Unwitnessed(_) => return Ok(None),
            Trust::Damaged(why) => return Err(why),
            Trust::Trusted(header) | Trust::Foreign(header) => header,
        };
        let Some(on_disk) = SuperblockDigest::of(version, &bytes) else { return Ok(None) };
        let marks = if foreign {
            PageMarks::all(header.area_id, area.pages())
        } else {
            read_marks(&header, start, read)
        };
        Ok(Some(Self { place, header, on_disk, marks, foreign }))
    }
}

impl AreaPlace {
    const fn of(superblock: &Superblock, area: IntegrityArea, start: u64, stored: bool) -> Self {
        Self {
            area,
            stored,
            start,
            data_offset: superblock.data_offset,
            superblock: superblock.super_offset,
            version: superblock.version,
        }
    }
}

/// Returns the area that a member with this superblock has in a store.
///
/// # Errors
/// The reason why it has none.
pub fn storable(superblock: &Superblock) -> Result<IntegrityArea, &'static str> {
    if superblock.level <= 0 {
        return Err("its level has no redundancy");
    }
    if superblock.version == Version::V0_90 {
        return Err("superblocks of version 0.90 give members no names");
    }
    if superblock.role() == DevRole::Journal {
        return Err("it holds a journal");
    }
    if superblock.has(feature::RESHAPE_ACTIVE) {
        return Err("its data are being moved");
    }
    IntegrityArea::new(superblock.data_size).ok_or("it holds no data")
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

    /// The sectors of the device at which the whole blocks lie whose checksums are known. The area
    /// is read through `read(sector, bytes)`.
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
    read: &dyn Fn(u64, u32) -> Result<Vec<u8>, String>,
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
