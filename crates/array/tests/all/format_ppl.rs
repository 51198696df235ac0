//! The codec of the partial parity log against what Linux md wrote (see `data/README.md`), and
//! against damaged headers and superblocks that name no place for it.

use braid_array::format::ppl::{PplArea, PplEntry, PplError, PplHeader};
use braid_array::format::superblock::feature;
use braid_array::format::{Superblock, Version};
use crc32c::crc32c;

const UNIT: &[u8] = include_bytes!("../data/ppl.unit");
const FULL_ROW: &[u8] = include_bytes!("../data/ppl-full-row.unit");
const SUPERBLOCK: &[u8] = include_bytes!("../data/ppl.superblock");

fn superblock() -> Superblock {
    Superblock::decode(Version::V1_2, 8, SUPERBLOCK).unwrap()
}

fn uuid() -> [u8; 16] {
    superblock().set_uuid
}

/// The header with one field changed and the checksum made right again.
fn patched(at: usize, field: &[u8]) -> Vec<u8> {
    let mut bytes = UNIT[..4096].to_vec();
    bytes[at..at + field.len()].copy_from_slice(field);
    bytes[532..536].fill(0);
    let sum = crc32c(&bytes);
    bytes[532..536].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn headers_say_what_was_written() {
    let header = PplHeader::decode(UNIT, uuid()).unwrap();
    let expected = PplEntry {
        data_sector: 8,
        pp_bytes: 4096,
        data_bytes: 4096,
        parity_disk: 2,
        checksum: crc32c(&UNIT[4096..]),
    };
    assert_eq!(header, PplHeader { generation: 13, entries: vec![expected] });
    assert_eq!(header.unit_bytes(), 8192);

    let header = PplHeader::decode(FULL_ROW, uuid()).unwrap();
    let expected = PplEntry { data_sector: 768, pp_bytes: 0, data_bytes: 65536, ..expected };
    let expected = PplEntry { checksum: 0, ..expected };
    assert_eq!(header, PplHeader { generation: 14, entries: vec![expected] });
    assert_eq!(header.unit_bytes(), 4096);
}

#[test]
fn headers_are_written_as_md_writes_them() {
    for bytes in [&UNIT[..4096], FULL_ROW] {
        let header = PplHeader::decode(bytes, uuid()).unwrap();
        assert_eq!(header.encode(uuid()), bytes);
    }
    let entry = PplEntry {
        data_sector: u64::MAX - 8,
        pp_bytes: 0,
        data_bytes: 4096,
        parity_disk: 0,
        checksum: 7,
    };
    let full = PplHeader { generation: u64::MAX, entries: vec![entry; 148] };
    assert_eq!(PplHeader::decode(&full.encode(uuid()), uuid()), Ok(full));
}

#[test]
fn other_bytes_are_refused() {
    let refused = |bytes: &[u8]| PplHeader::decode(bytes, uuid()).unwrap_err();
    assert_eq!(refused(&UNIT[..4095]), PplError::Short);
    assert_eq!(refused(&[0; 4096]), PplError::Checksum);
    for at in [0, 512, 520, 531, 536, 4095] {
        let mut bytes = UNIT.to_vec();
        bytes[at] ^= 1;
        assert_eq!(refused(&bytes), PplError::Checksum, "byte {at}");
    }
    assert_eq!(PplHeader::decode(UNIT, [1; 16]), Err(PplError::Foreign));
    for error in [PplError::Short, PplError::Checksum, PplError::Foreign] {
        assert!(!error.is_whole(), "{error}");
    }
}

#[test]
fn a_whole_header_that_cannot_be_says_so() {
    let refused = |at, field: &[u8]| {
        let error = PplHeader::decode(&patched(at, field), uuid()).unwrap_err();
        assert!(error.is_whole());
        error
    };
    assert_eq!(refused(528, &149u32.to_le_bytes()), PplError::Entries(149));
    // Sizes that are no whole sectors, or none; more partial parity than data.
    assert_eq!(refused(544, &4097u32.to_le_bytes()), PplError::Entry(0));
    assert_eq!(refused(548, &4097u32.to_le_bytes()), PplError::Entry(0));
    assert_eq!(refused(548, &0u32.to_le_bytes()), PplError::Entry(0));
    assert_eq!(refused(544, &8192u32.to_le_bytes()), PplError::Entry(0));
    // Data that ends beyond any device.
    assert_eq!(refused(536, &(u64::MAX - 7).to_le_bytes()), PplError::Entry(0));
}

#[test]
fn the_area_is_where_md_has_it() {
    let superblock = superblock();
    let area = PplArea { sector: 16, sectors: 2048, is_ring: true };
    assert_eq!(PplArea::of(&superblock), Ok(Some(area)));
    assert_eq!(superblock.bblog_sector(), Some(16 + 2048));

    let single = Superblock { feature_map: feature::PPL, ..superblock.clone() };
    assert_eq!(PplArea::of(&single), Ok(Some(PplArea { is_ring: false, ..area })));
    // Superblock 1.0: before the superblock, behind the data.
    let last = Superblock {
        version: Version::V1_0,
        super_offset: 32752,
        bitmap_offset_sectors: i32::from_le_bytes([0x80, 0xff, 120, 0]),
        data_offset: 0,
        data_size: 32624,
        bblog_offset_sectors: -8,
        ..superblock.clone()
    };
    // No room for two of the largest units: each begins at the start.
    let area = PplArea { sector: 32752 - 128, sectors: 120, is_ring: false };
    assert_eq!(PplArea::of(&last), Ok(Some(area)));
    // Partial parity in whole stripes.
    let odd = i32::from_le_bytes([8, 0, 31, 0]);
    let odd = Superblock { bitmap_offset_sectors: odd, ..superblock };
    assert_eq!(PplArea::of(&odd).unwrap().unwrap().sectors, 24);
}

#[test]
fn an_area_that_cannot_be_is_refused() {
    let sound = superblock();
    let at = |offset: i16, size: u16| {
        let [low, high] = offset.to_le_bytes();
        let [size_low, size_high] = size.to_le_bytes();
        let field = i32::from_le_bytes([low, high, size_low, size_high]);
        let changed = Superblock { bitmap_offset_sectors: field, ..sound.clone() };
        PplArea::of(&changed).unwrap_err()
    };
    let no_room = "its partial parity log has no room";
    assert_eq!(at(8, 15), no_room);
    assert_eq!(at(8, 0), no_room);
    assert_eq!(at(0, 16), no_room);
    assert_eq!(at(-9, 16), "its partial parity log lies outside of any device");
    assert_eq!(at(-8, 16), "its partial parity log overlaps with the superblock");
    assert_eq!(at(8, 2056), "its partial parity log overlaps with the bad-block log");
    assert_eq!(at(4080, 16), "its partial parity log overlaps with the data");

    let with = |feature_map| PplArea::of(&Superblock { feature_map, ..sound.clone() });
    assert_eq!(with(feature::BAD_BLOCKS), Ok(None));
    for other in [feature::PPL, feature::JOURNAL, feature::BITMAP_OFFSET] {
        let excluded = Err("it has logs that exclude each other");
        assert_eq!(with(feature::MULTIPLE_PPLS | other), excluded);
    }
}
