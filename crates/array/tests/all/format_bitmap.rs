//! The bitmap codec against a bitmap that Linux md wrote, and the bit arithmetic.

use braid_array::format::bitmap::state;
use braid_array::format::{Bitmap, BitmapError};

const BITMAP: &[u8] = include_bytes!("../data/v12.bitmap");
const UUID: [u8; 16] = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes();

/// Starts and ends of the dirty ranges.
fn dirty(bitmap: &Bitmap) -> Vec<(u64, u64)> {
    bitmap.dirty_ranges().map(|range| (range.start, range.end)).collect()
}

#[test]
fn what_md_wrote_is_read_and_written_the_same() {
    let bitmap = Bitmap::decode(BITMAP).unwrap();
    let sb = &bitmap.superblock;
    assert_eq!((sb.uuid, sb.version, sb.state), (UUID, 4, 0));
    assert_eq!((sb.events, sb.events_cleared), (19, 0));
    assert_eq!((sb.sync_size_sectors, sb.chunk_bytes, sb.daemon_sleep_s), (30720, 128 << 10, 5));
    assert_eq!((bitmap.bits(), bitmap.count(), bitmap.pages()), (120, 1, 1));
    // One 64 KiB chunk of each member was written at 512 KiB of the data area.
    assert_eq!(dirty(&bitmap), [(1024, 1280)]);
    let used = 256 + 120 / 8;
    assert_eq!(bitmap.encode_page(0)[..used], BITMAP[..used]);
    assert_eq!(bitmap.page_bytes(0, 512), 512);
    assert_eq!(bitmap.page_bytes(0, 4096), 4096);
}

#[test]
fn a_bitmap_counts_for_its_own_array_and_not_when_behind() {
    let mut bitmap = Bitmap::decode(BITMAP).unwrap();
    assert!(!bitmap.stale(UUID, 19));
    assert!(bitmap.stale(UUID, 20));
    assert!(bitmap.stale([0; 16], 19));
    bitmap.superblock.state |= state::STALE;
    assert!(bitmap.stale(UUID, 19));
}

#[test]
fn all_pages_of_a_large_bitmap_survive_writing_and_reading() {
    // 100,003 bits, the last of which stands for a part of a chunk: 4 pages.
    let mut bitmap = Bitmap::new(UUID, 100_002 * 128 + 5, Some(65536), 256).unwrap();
    assert_eq!((bitmap.bits(), bitmap.pages(), bitmap.size_sectors()), (100_003, 4, 25));
    let dirty = [0, 1, 63, 64, 30_719, 30_720, 30_721, 63_487, 63_488, 100_002];
    for bit in dirty {
        assert!(bitmap.set(bit) && !bitmap.set(bit));
    }
    let pages: Vec<u64> = dirty.iter().map(|bit| bitmap.page_of_bit(*bit)).collect();
    assert_eq!(pages, [0, 0, 0, 0, 0, 1, 1, 1, 2, 3]);
    let written: Vec<Vec<u8>> = (0..4).map(|page| bitmap.encode_page(page)).collect();
    assert!(written.iter().all(|page| page.len() == 4096));
    let bytes = written.concat();
    let bits = |bytes: &[u8]| bytes[256..].iter().map(|byte| byte.count_ones()).sum::<u32>();
    assert_eq!(bits(&bytes), 10);
    assert_eq!(bytes[256 + 30_720 / 8], 0b11);
    let last = bitmap.page_bytes(3, 512) as usize;
    assert_eq!(last, 25 * 512 - 3 * 4096);
    assert_eq!(Bitmap::decode(&bytes[..3 * 4096 + last]).unwrap(), bitmap);
    assert!(bitmap.clear(64) && !bitmap.clear(64) && !bitmap.get(64));
    assert_eq!(bitmap.count(), 9);
}

#[test]
fn sectors_and_bits_agree() {
    let mut bitmap = Bitmap::new(UUID, 1000, Some(64 << 10), 8).unwrap();
    assert_eq!(bitmap.bits(), 8);
    assert_eq!(bitmap.bits_for(0..1), 0..1);
    assert_eq!(bitmap.bits_for(127..129), 0..2);
    assert_eq!(bitmap.bits_for(128..256), 1..2);
    assert_eq!(bitmap.bits_for(900..u64::MAX), 7..8);
    assert!(bitmap.bits_for(1000..2000).is_empty());
    assert!(bitmap.bits_for(5..5).is_empty());
    assert_eq!(bitmap.sectors_of_bit(7), 896..1000);
    for bit in [1, 2, 5, 7] {
        bitmap.set(bit);
    }
    let ranges = [(128, 384), (640, 768), (896, 1000)];
    assert_eq!(dirty(&bitmap), ranges);
    bitmap.set_all();
    assert_eq!((bitmap.count(), bitmap.get(8)), (8, false));
    assert_eq!(dirty(&bitmap), [(0, 1000)]);
}

#[test]
fn the_union_covers_both_also_when_chunks_differ() {
    let mut fine = Bitmap::new(UUID, 4096, Some(64 << 10), 8).unwrap();
    let mut coarse = Bitmap::new(UUID, 4096, Some(512 << 10), 8).unwrap();
    fine.set(0);
    coarse.set(1);
    coarse.union(&fine);
    assert_eq!(dirty(&coarse), [(0, 2048)]);
    coarse.clear(0);
    fine.union(&coarse);
    assert_eq!(dirty(&fine), [(0, 128), (1024, 2048)]);
}

#[test]
fn the_default_chunk_is_mdadms() {
    let chunk = |sectors: u64, space| Bitmap::new(UUID, sectors, None, space).unwrap();
    assert_eq!(chunk(1 << 20, 8).superblock.chunk_bytes, 64 << 20);
    assert_eq!(chunk(32_211_990_528, 256).superblock.chunk_bytes, 64 << 20);
    // 1 PiB in 4 KiB: 30,720 bits of 64 GiB would be needed, more than a chunk can be.
    assert_eq!(chunk(1 << 41, 256).superblock.chunk_bytes, 1 << 30 << 1);
    assert!(Bitmap::new(UUID, 1 << 41, None, 8).is_none());
    assert!(Bitmap::new(UUID, 1 << 31, Some(512 << 10), 256).is_none());
    assert!(Bitmap::new(UUID, 1 << 20, Some(3 << 20), 256).is_none());
    assert!(Bitmap::new(UUID, 1 << 20, Some(2048), 256).is_none());
    assert!(Bitmap::new(UUID, 0, None, 256).is_none());
    assert!(Bitmap::new(UUID, 1, None, u64::MAX).is_none());
}

#[test]
fn hostile_bitmaps_are_refused() {
    let patched = |at: usize, value: u32| {
        let mut bytes = BITMAP.to_vec();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        Bitmap::decode(&bytes).unwrap_err()
    };
    let malformed = |field, value| BitmapError::Malformed { field, value };
    assert_eq!(patched(0, 0), BitmapError::NoMagic);
    assert_eq!(patched(4, 5), BitmapError::Version { version: 5, kind: "clustered" });
    assert_eq!(patched(4, 6), BitmapError::Version { version: 6, kind: "lockless" });
    assert_eq!(patched(68, 2), BitmapError::Version { version: 4, kind: "clustered" });
    assert_eq!(patched(52, 0), malformed("chunksize", 0));
    assert_eq!(patched(52, 3 << 20), malformed("chunksize", 3 << 20));
    assert_eq!(patched(40, 0), malformed("sync_size", 0));
    assert_eq!(patched(44, u32::MAX), malformed("sync_size", (0xffff_ffff << 32) | 30720));
    assert_eq!(patched(56, 0), malformed("daemon_sleep", 0));
    // Sixteen times the size: more bits than were read.
    let truncated = Bitmap::decode(&BITMAP[..260]).unwrap_err();
    assert_eq!(truncated, BitmapError::Truncated { bytes: 260, needed: 271 });
    assert!(matches!(patched(41, 0x0078_0000), BitmapError::Truncated { .. }));
}

#[test]
fn set_bits_are_counted_by_part() {
    let mut bitmap = Bitmap::new(UUID, 1000 * 128, Some(65536), 256).unwrap();
    assert_eq!(bitmap.bits(), 1000);
    for bit in [0, 63, 64, 127, 128, 499, 500, 999] {
        bitmap.set(bit);
    }
    assert_eq!(bitmap.counts(2), [6, 2]);
    let each = bitmap.counts(1000);
    assert!((0..).zip(each).all(|(bit, count)| (count == 1) == bitmap.get(bit)));
    for parts in [1, 3, 7, 64, 256, 999] {
        let counts = bitmap.counts(parts);
        assert_eq!((counts.len() as u64, counts.iter().sum::<u32>()), (parts, 8), "{parts}");
    }
    bitmap.set_all();
    assert_eq!(bitmap.counts(3), [333, 333, 334]);
}

#[test]
fn a_bit_of_which_a_part_is_new_is_set() {
    let bitmap = Bitmap::new(UUID, 96, Some(32 << 10), 8).unwrap();
    assert_eq!(dirty(&bitmap), []);
    assert_eq!(dirty(&bitmap.resized(128).unwrap()), [(64, 128)]);
    assert_eq!(dirty(&bitmap.resized(96).unwrap()), []);
    assert_eq!(dirty(&bitmap.resized(80).unwrap()), []);
}
