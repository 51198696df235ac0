use braid_array::format::superblock::MAX_SECTOR;
use braid_array::format::{Bitmap, DevRole, Superblock, Version};
use braid_array::level::{Layout, Level};
use braid_array::{Refusal, Role};

use super::*;
use crate::family::XOR2D_MD_LEVEL;

fn new(family: Family, chunk_bytes: Option<u32>, size_bytes: u64) -> NewArray {
    let name = "host:a".to_owned();
    let bitmap = NewBitmap::Default;
    let set_uuid = [7; 16];
    let journal_bytes = 0;
    let parts_only = false;
    NewArray {
        name,
        set_uuid,
        ctime: 1,
        family,
        chunk_bytes,
        size_bytes,
        bitmap,
        journal_bytes,
        parts_only,
        note: MoveNote::Apart,
    }
}

fn md(level: Level) -> Family {
    Family::Md { level, layout: Layout::default_for(level) }
}

fn uuids(count: u8) -> Vec<[u8; 16]> {
    (0..count).map(|number| [number; 16]).collect()
}

fn superblock(blueprint: &Blueprint, role: usize) -> Superblock {
    let (sector, bytes) = blueprint.writes[role].last().expect("a superblock");
    Superblock::decode(Version::V1_2, *sector, bytes).expect("one that can be read")
}

#[test]
fn volumes_have_room_for_what_was_asked_for_and_are_clean() {
    let families = [Level::Raid0, Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6];
    let families = families.into_iter().chain([Level::Raid10]).map(md).chain([Family::Xor2d]);
    for family in families {
        for size_bytes in [8 << 20, 100 << 20, (20 << 30) + 12345, 5 << 40] {
            let blueprint = new(family, None, size_bytes).plan(&uuids(6), &[]).expect("an array");
            assert_eq!(blueprint.writes.len(), 6);
            for role in 0..6 {
                let sb = superblock(&blueprint, role);
                let used = if family.is_redundant() { sb.size_sectors } else { sb.data_size };
                assert!(used * 512 <= size_bytes, "{family:?}");
                assert!(used * 512 > size_bytes - (1 << 20), "{family:?} {used}");
                assert_eq!((sb.data_offset + used) * 512, blueprint.volume_bytes, "{family:?}");
                assert_eq!(sb.resync_offset, MAX_SECTOR);
                assert_eq!(sb.role(), DevRole::Active(Role::at(role)));
                assert_eq!((sb.level, sb.layout), family.encode());
                assert_eq!(sb.chunk_sectors == 0, family == md(Level::Raid1));
            }
            let writes = blueprint.writes.iter().flatten();
            assert!(writes.clone().all(|(_, bytes)| bytes.len() % 512 == 0));
        }
    }
}

#[test]
fn redundant_arrays_have_a_bitmap_unless_it_is_not_wanted() {
    let of = |array: NewArray| {
        let blueprint = array.plan(&uuids(6), &[]).expect("an array");
        let sb = superblock(&blueprint, 1);
        let sector = sb.bitmap_sector()?;
        let (_, bytes) = blueprint.writes[1].iter().find(|(at, _)| *at == sector).expect("written");
        Some(Bitmap::decode(bytes).expect("a bitmap"))
    };
    for family in [md(Level::Raid5), md(Level::Raid10), Family::Xor2d] {
        for (size_bytes, chunk_bytes) in
            [(8 << 20, 64 << 10), (1 << 30, 1 << 19), (4 << 40, 64 << 20)]
        {
            let bitmap = of(new(family, None, size_bytes)).expect("a bitmap");
            assert_eq!(bitmap.superblock.chunk_bytes, chunk_bytes, "{family:?}");
            assert_eq!(bitmap.count(), 0);
        }
        let none = NewArray { bitmap: NewBitmap::None, ..new(family, None, 8 << 20) };
        assert_eq!(of(none), None);
    }
    assert_eq!(of(new(md(Level::Raid0), None, 8 << 20)), None);
}

#[test]
fn sizes_are_rounded_down_to_whole_stripes() {
    let blueprint = new(Family::Xor2d, Some(64 << 10), (1 << 20) - 1).plan(&uuids(5), &[]).unwrap();
    let sb = superblock(&blueprint, 4);
    // 4 rows of 64 KiB.
    assert_eq!(sb.size_sectors * 512, 3 * (256 << 10));
    assert_eq!((sb.level, sb.chunk_sectors), (XOR2D_MD_LEVEL, 128));
}

#[test]
fn what_cannot_be_is_refused() {
    let error = |array: NewArray, nodes| {
        Refusal::from(array.plan(&uuids(nodes), &[]).unwrap_err()).to_string()
    };
    let size = 64 << 20;
    assert!(error(new(Family::Xor2d, None, size), 3).contains("4 to 34"));
    assert!(error(new(Family::Xor2d, None, size), 35).contains("4 to 34"));
    assert!(error(new(md(Level::Linear), None, size), 3).contains("raid0"));
    assert!(error(new(md(Level::Raid5), Some(5000), size), 3).contains("multiple of 4K"));
    assert!(error(new(md(Level::Raid5), Some(0), size), 3).contains("multiple of 4K"));
    assert!(error(new(md(Level::Raid5), None, 0), 3).contains("less than a stripe"));
    assert!(error(new(Family::Xor2d, None, 128 << 10), 5).contains("at least 262144"));
    let long = NewArray { name: "n".repeat(33), ..new(md(Level::Raid5), None, size) };
    assert!(error(long, 3).contains("33 bytes"));
}
