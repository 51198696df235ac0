//! A new area, behind the data of a new member.

use crate::SECTOR_BYTES;
use crate::format::Superblock;
use crate::format::integrity::{
    AreaId, COPY_BYTES, IntegrityArea, IntegrityHeader, PageMarks, SuperblockDigest,
};

/// Returns what to write to a device, as sectors and whole blocks of 4 KiB, so that it has an area
/// that knows nothing yet: before its superblock, which has these bytes. `None` where no area has
/// a place.
#[must_use]
pub fn new_area(
    superblock: &Superblock,
    bytes: &[u8],
    area_id: AreaId,
) -> Option<Vec<(u64, Vec<u8>)>> {
    let area = IntegrityArea::new(superblock.data_size)?;
    let start = area.start(superblock.data_offset)?;
    let digest = SuperblockDigest::of(superblock.version, bytes)?;
    let Superblock { set_uuid, device_uuid, data_offset, .. } = *superblock;
    let header = IntegrityHeader::first(set_uuid, device_uuid, area_id, data_offset, area, digest);
    let mut first = header.encode();
    first.resize(COPY_BYTES, 0);
    let second = vec![0; COPY_BYTES];
    let marks = PageMarks::all(area_id, area.pages());
    let marks = (0..marks.marks_pages()).flat_map(|page| marks.encode(page)).collect();
    let at = |byte: u64| start + byte / SECTOR_BYTES;
    Some(vec![(at(0), first), (at(COPY_BYTES as u64), second), (at(area.marks_at()), marks)])
}
