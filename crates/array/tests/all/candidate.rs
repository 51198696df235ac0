//! Reading all metadata of a device: what md wrote, placed on a device in memory.

use std::collections::BTreeMap;

use braid_array::assemble::Candidate;
use braid_array::format::{BadBlocksError, BitmapError, SuperblockError, Version};

const DEVICE_SECTORS: u64 = 32768;
const V12: &[u8] = include_bytes!("../data/v12.superblock");
const V12_BITMAP: &[u8] = include_bytes!("../data/v12.bitmap");
const V12_BBLOG: &[u8] = include_bytes!("../data/v12.bblog");
const V11: &[u8] = include_bytes!("../data/v11.superblock");
const V090: &[u8] = include_bytes!("../data/v090.superblock");

/// A device with these bytes at these sectors and zeroes elsewhere.
fn read(parts: &[(u64, &[u8])], unreadable: Option<u64>) -> Candidate {
    let mut sectors = BTreeMap::new();
    for (at, bytes) in parts {
        for (index, sector) in bytes.chunks(512).enumerate() {
            sectors.insert(at + index as u64, sector);
        }
    }
    Candidate::read("disk".to_owned(), DEVICE_SECTORS, |sector, bytes| {
        let end = sector + u64::from(bytes / 512);
        assert!(bytes > 0 && bytes.is_multiple_of(512) && end <= DEVICE_SECTORS);
        assert!(bytes <= Candidate::MAX_READ_BYTES);
        if unreadable.is_some_and(|bad| (sector..end).contains(&bad)) {
            return Err("input/output error".to_owned());
        }
        let part = |at| sectors.get(&at).map_or_else(|| vec![0; 512], |bytes| bytes.to_vec());
        Ok((sector..end).flat_map(part).collect())
    })
}

#[test]
fn superblock_bitmap_and_bad_blocks_are_found() {
    let found = read(&[(8, V12), (16, V12_BITMAP), (24, V12_BBLOG)], None);
    assert_eq!(found.superblock.unwrap().name(), "h:twelve");
    assert_eq!(found.bitmap.unwrap().unwrap().count(), 1);
    assert_eq!(found.bad_blocks.unwrap().ranges(), [(10_000, 8), (20_000, 700)]);
}

#[test]
fn without_the_feature_there_is_neither_bitmap_nor_log() {
    let found = read(&[(0, V11), (16, V12_BBLOG)], None);
    assert_eq!(found.superblock.unwrap().version, Version::V1_1);
    assert!(found.bitmap.is_none());
    assert!(found.bad_blocks.unwrap().is_empty());
}

#[test]
fn the_array_created_last_counts() {
    // 0.90 was made after 1.2, on the same devices.
    let found = read(&[(8, V12), (32640, V090)], None);
    assert_eq!(found.superblock.unwrap().version, Version::V0_90);
    let mut older = V090.to_vec();
    older[24..28].copy_from_slice(&1u32.to_le_bytes());
    older[152..156].fill(0);
    let sum: u64 = older.as_chunks().0.iter().map(|w| u64::from(u32::from_le_bytes(*w))).sum();
    let sum = u32::try_from((sum & 0xffff_ffff) + (sum >> 32)).unwrap();
    older[152..156].copy_from_slice(&sum.to_le_bytes());
    let found = read(&[(8, V12), (32640, &older)], None);
    assert_eq!(found.superblock.unwrap().version, Version::V1_2);
}

#[test]
fn damage_is_reported_rather_than_absence() {
    assert_eq!(read(&[], None).superblock.unwrap_err(), SuperblockError::NoMagic);
    let mut damaged = V12.to_vec();
    damaged[200] ^= 1;
    let found = read(&[(8, &damaged)], None).superblock.unwrap_err();
    assert!(matches!(found, SuperblockError::BadChecksum { .. }));
    let found = read(&[(8, V12)], Some(9)).superblock.unwrap_err();
    assert_eq!(found.to_string(), "sector 8 cannot be read: input/output error");
    let all = [(8, V12), (16, V12_BITMAP), (24, V12_BBLOG)];
    let found = read(&all, Some(16));
    let reason = "input/output error".to_owned();
    assert_eq!(found.bitmap, Some(Err(BitmapError::Read { reason: reason.clone() })));
    assert!(found.bad_blocks.is_ok());
    assert_eq!(read(&all, Some(24)).bad_blocks, Err(BadBlocksError::Read { reason }));
}
