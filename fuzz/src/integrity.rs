//! Integrity areas: headers, marks and pages of a table, as a disk or a file of a stranger may have
//! them, and the trust in them.

use braid_array::Role;
use braid_array::format::integrity::{
    COPY_BYTES, IntegrityArea, IntegrityHeader, MAX_SEQUENCE, PageMarks, SuperblockDigest,
    TablePage,
};
use braid_array::format::superblock::DevRole;
use braid_array::format::{Superblock, Version};
use braid_array::integrity::{AcceptedSuperblocks, MarkedPages, Trust};
use crc32c::crc32c;

use crate::mutate::{Random, mutate};

const ARRAY: [u8; 16] = [7; 16];
const AREA: [u8; 16] = [8; 16];
const DATA_SECTORS: u64 = 100_000;
/// Bytes of a header before its checksum.
const SUMMED: usize = 508;

/// A choice of the superblock, and both copies of the header.
pub(crate) fn make_trust(random: &mut Random) -> Vec<u8> {
    let choice = random.next() as u8;
    let own = superblock(choice);
    let digest = digest(&own);
    let area = IntegrityArea::new(DATA_SECTORS).expect("a size");
    let first =
        IntegrityHeader::first(own.set_uuid, own.device_uuid, AREA, own.data_offset, area, digest);
    let second = first.next([digest, self::digest(&superblock(choice.wrapping_add(1)))]);
    let mut bytes = vec![choice.wrapping_add(random.below(3) as u8)];
    for header in [first, second] {
        let mut copy = header.encode();
        if random.below(2) == 0 {
            mutate(random, &mut copy, 352);
            copy.resize(COPY_BYTES, 0);
            mend(random, &mut copy, SUMMED);
        }
        bytes.append(&mut copy);
    }
    bytes.truncate(bytes.len() - random.below(4) / 3 * random.below(9000).min(bytes.len()));
    bytes
}

/// Has the checksum behind these bytes fit, in most cases.
fn mend(random: &mut Random, bytes: &mut [u8], summed: usize) {
    if random.below(8) > 0 && bytes.len() >= summed + 4 {
        let sum = crc32c(&bytes[..summed]);
        bytes[summed..summed + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

fn superblock(choice: u8) -> Superblock {
    let versions = [Version::V1_2, Version::V0_90, Version::V1_0, Version::V1_1];
    Superblock {
        version: versions[usize::from(choice >> 6)],
        set_uuid: ARRAY,
        device_uuid: if choice >> 6 == 1 { [0; 16] } else { [9; 16] },
        level: if choice & 32 == 0 { 1 } else { 0 },
        raid_disks: 2,
        data_size: DATA_SECTORS,
        super_offset: DATA_SECTORS,
        events: u64::from(choice & 31),
        roles: vec![DevRole::Active(Role(0)); 2],
        ..Superblock::blank()
    }
}

fn digest(superblock: &Superblock) -> SuperblockDigest {
    SuperblockDigest::of(superblock.version, &superblock.encode()).expect("a superblock")
}

/// A table is trusted with a superblock that its header accepts, and with no other.
pub(crate) fn run_trust(bytes: &[u8]) {
    let Some((choice, copies)) = bytes.split_first() else { return };
    let (first, second) = copies.split_at(copies.len().min(COPY_BYTES));
    let own = superblock(*choice);
    let image = own.encode();
    let header = match Trust::of(&own, &image, [first, second]) {
        Trust::Absent | Trust::Damaged(_) => return,
        Trust::Foreign(header) => {
            assert!(!header.accepts(&digest(&own)));
            taken_over(&header, &own);
            return;
        }
        Trust::Trusted(header) => {
            assert!(own.level > 0, "nothing tells that md was here");
            header
        }
        Trust::Unwitnessed(header) => header,
    };
    let is_own = header.set_uuid == own.set_uuid && header.area.data_sectors() == own.data_size;
    assert!(is_own, "an area of something else");
    let mut later = image;
    let at = bytes.iter().fold(0, |sum, byte| (sum * 31 + usize::from(*byte)) % 256);
    later[at] ^= 1;
    let trust = Trust::of(&own, &later, [first, second]);
    assert!(!matches!(trust, Trust::Trusted(_) | Trust::Unwitnessed(_)), "byte {at} is not seen");
}

/// Whatever the header was, the next one is whole and accepts the superblock.
fn taken_over(header: &IntegrityHeader, own: &Superblock) {
    let marks = PageMarks::all(header.area_id, header.area.pages());
    let marked = MarkedPages::new(header.area, marks, 4);
    let (accepted, steps) = AcceptedSuperblocks::taken_over(header, digest(own), &marked);
    assert!(steps.len() >= 4, "marks, a flush, a header, a flush");
    let next = accepted.header();
    assert!(next.accepts(&digest(own)));
    // One with the last number that is believed is not taken over for ever.
    let decoded = IntegrityHeader::decode(next.copy(), &next.encode());
    assert_eq!(decoded.as_ref().ok(), (next.sequence <= MAX_SEQUENCE).then_some(next));
}

/// A number of pages, and marks.
pub(crate) fn make_marks(random: &mut Random) -> Vec<u8> {
    let pages = match random.below(4) {
        0 => random.next() >> random.below(64),
        _ => 1 + random.below(12_000) as u64,
    };
    let mut marks = PageMarks::all(AREA, pages.min(12_000));
    (0..marks.pages()).filter(|page| page % 3 == random.below(3)).for_each(|p| marks.clear(p));
    let mut bytes = (0..marks.marks_pages()).flat_map(|page| marks.encode(page)).collect();
    if random.below(2) == 0 {
        mutate(random, &mut bytes, 4096);
    }
    [pages.to_le_bytes().to_vec(), bytes].concat()
}

/// Marks are read for all pages or none, and written as they were read.
pub(crate) fn run_marks(bytes: &[u8]) {
    let Some((pages, bytes)) = bytes.split_first_chunk() else { return };
    let pages = u64::from_le_bytes(*pages);
    let Ok(marks) = PageMarks::decode(AREA, pages, bytes) else {
        assert!(pages.div_ceil(4064) > bytes.len() as u64 / 512, "there are enough");
        return;
    };
    assert_eq!(marks.pages() as u64, pages);
    assert!(marks.count() <= pages && !marks.get(marks.pages()));
    let again: Vec<u8> = (0..marks.marks_pages()).flat_map(|page| marks.encode(page)).collect();
    assert_eq!(PageMarks::decode(AREA, pages, &again).as_ref(), Ok(&marks), "encoding changed it");
    let Some(area) = IntegrityArea::new(pages.saturating_mul(7680)) else { return };
    assert!(area.marks_bytes() >= again.len() as u64 && area.page_at(0) >= 8192 + 512);
    let mut marked = MarkedPages::new(area, marks.clone(), 3);
    for (end, start) in (1..).zip(bytes.chunks_exact(8).take(8)) {
        let start = start.iter().fold(0, |sum, byte| sum << 7 | u64::from(*byte));
        let write = start..start.saturating_add(end * 1000);
        marked.begin(write.clone(), end, &mut std::collections::BTreeSet::new());
        assert_eq!(marked.check(std::slice::from_ref(&write)), Ok(()));
        marked.end(write, false);
    }
    marked.nominate();
    marked.clear_nominated();
    let unproved = marked.unproved().count() as u64;
    assert_eq!(unproved, marks.count(), "pages that were found marked stay so");
    assert_eq!(marked.marks().count(), unproved, "and no other does");
}

/// A page of a table.
pub(crate) fn make_table(random: &mut Random) -> Vec<u8> {
    let mut page = TablePage::unknown();
    for _ in 0..random.below(100) {
        let sum = (random.below(4) > 0).then(|| random.next() as u32);
        page.set(random.below(960), sum);
    }
    let mut bytes = page.encode(AREA, 3);
    if random.below(2) == 0 {
        mutate(random, &mut bytes, 4096);
        bytes.resize(4096, 0);
        mend(random, &mut bytes, 4092);
    }
    bytes
}

/// A page belongs to its place, and is written as it was read.
pub(crate) fn run_table(bytes: &[u8]) {
    assert_eq!(TablePage::decode(AREA, 4, bytes).and(TablePage::decode(AREA, 3, bytes)), None);
    let Some(page) = TablePage::decode(AREA, 3, bytes) else { return };
    let known = (0..960).filter(|block| page.get(*block).is_some()).count();
    assert_eq!(known as u32, page.count());
    let again = TablePage::decode(AREA, 3, &page.encode(AREA, 3));
    assert_eq!(again.as_ref(), Some(&page), "encoding changed it");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_trusted_now_and_then_and_decoded_mostly() {
        let mut seen = [0; 3];
        let mut tables = 0;
        for seed in 0..2000 {
            let bytes = make_trust(&mut Random::new(seed));
            run_trust(&bytes);
            let Some((choice, copies)) = bytes.split_first() else { continue };
            let (first, second) = copies.split_at(copies.len().min(COPY_BYTES));
            let own = superblock(*choice);
            match Trust::of(&own, &own.encode(), [first, second]) {
                Trust::Trusted(_) => seen[0] += 1,
                Trust::Unwitnessed(_) => seen[1] += 1,
                Trust::Foreign(_) => seen[2] += 1,
                Trust::Absent | Trust::Damaged(_) => {}
            }
            run_marks(&make_marks(&mut Random::new(seed)));
            let table = make_table(&mut Random::new(seed));
            run_table(&table);
            tables += u32::from(TablePage::decode(AREA, 3, &table).is_some());
        }
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
        assert!(tables > 1000, "{tables}");
    }
}
