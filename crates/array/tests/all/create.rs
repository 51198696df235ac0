//! New arrays: where mdadm puts things, which members must be synced, and what is refused.

use braid_array::Role;
use braid_array::assemble::{Candidate, Options, Start, decide};
use braid_array::create::{Blueprint, CreateError, NewArray, NewBitmap, NewDevice, NewLog};
use braid_array::format::superblock::{MAX_SECTOR, feature};
use braid_array::format::{DevRole, Superblock, Version};
use braid_array::level::{Layout, Level};

const MIB: u64 = 2048;
const GIB: u64 = 1024 * MIB;
const TIB: u64 = 1024 * GIB;
const INTERNAL: NewBitmap = NewBitmap::Internal { chunk_bytes: None };

fn new_array(level: Level, chunk_kib: u32) -> NewArray {
    NewArray {
        name: "h:new".to_owned(),
        set_uuid: [1; 16],
        ctime: 1_700_000_000,
        level,
        layout: Layout::default_for(level),
        chunk_sectors: chunk_kib * 2,
        version: Version::V1_2,
        data_offset: None,
        size_sectors: None,
        bitmap: NewBitmap::Default,
        log: NewLog::None,
        assume_clean: true,
        integrity: false,
    }
}

fn device(device_sectors: u64) -> NewDevice {
    NewDevice { device_sectors, device_uuid: [9; 16] }
}

fn plan(array: &NewArray, roles: usize, device_sectors: u64) -> Blueprint {
    array.plan(&vec![Some(device(device_sectors)); roles], &[]).unwrap()
}

fn first(blueprint: &Blueprint) -> &Superblock {
    blueprint.superblocks[0].as_ref().unwrap()
}

#[test]
fn everything_lies_where_mdadm_puts_it() {
    // Level, chunk in KiB, device, bitmap; data offset, used size and bad-block log of mdadm 4.2.
    let default = NewBitmap::Default;
    for (level, chunk, sectors, bitmap, data_offset, size, bblog) in [
        (Level::Raid5, 512, 16 * MIB, default, 4096, 28672, 16),
        (Level::Raid5, 512, 64 * MIB, default, 4096, 126_976, 16),
        (Level::Raid5, 64, 32 * MIB, default, 2048, 63488, 16),
        (Level::Raid5, 512, GIB, INTERNAL, 4096, 2_093_056, 16),
        (Level::Raid5, 512, 100 * GIB, default, 133_120, 209_582_080, 136),
        (Level::Raid5, 512, 100 * GIB, INTERNAL, 133_120, 209_582_080, 16),
        (Level::Raid5, 512, TIB, default, 264_192, 2_147_219_456, 16),
        (Level::Raid1, 0, 16 * MIB, default, 2048, 30720, 16),
        (Level::Raid1, 0, 7 * GIB, default, 10240, 7 * GIB - 10240, 16),
        (Level::Raid1, 0, 9 * GIB, default, 18432, 9 * GIB - 18432, 136),
        (Level::Raid1, 0, 9 * GIB, INTERNAL, 18432, 9 * GIB - 18432, 16),
        (Level::Raid1, 0, 15 * TIB, default, 264_192, 15 * TIB - 264_192, 72),
        (Level::Raid0, 64, 16 * MIB, default, 2048, 0, 8),
        (Level::Raid0, 512, GIB, default, 4096, 0, 8),
        (Level::Linear, 0, 24 * MIB, default, 2048, 0, 8),
    ] {
        let array = NewArray { bitmap, ..new_array(level, chunk) };
        let blueprint = plan(&array, 3, sectors);
        let sb = first(&blueprint);
        let found = (sb.data_offset, sb.size_sectors, sb.bblog_offset_sectors);
        assert_eq!(found, (data_offset, size, bblog), "{level} of {sectors}");
        assert_eq!((sb.super_offset, sb.data_size), (8, sectors - data_offset));
        let has_bitmap = bitmap == INTERNAL || sb.size_sectors >= 100 * GIB;
        assert_eq!(sb.has(feature::BITMAP_OFFSET), has_bitmap);
        assert_eq!(blueprint.bitmap.is_some(), has_bitmap);
        let chunk = blueprint.bitmap.map(|bitmap| bitmap.superblock.chunk_bytes);
        assert_eq!(chunk, has_bitmap.then_some(64 << 20));
    }
    for (chunk_bytes, sectors, bblog) in
        [(4 << 20, TIB, 80), (512 << 10, 201 * GIB, 112), (4 << 20, 201 * GIB, 24)]
    {
        let bitmap = NewBitmap::Internal { chunk_bytes: Some(chunk_bytes) };
        let blueprint = plan(&NewArray { bitmap, ..new_array(Level::Raid1, 0) }, 2, sectors);
        assert_eq!(first(&blueprint).bblog_offset_sectors, bblog);
    }
    let bitmap = NewBitmap::Internal { chunk_bytes: Some(512 << 10) };
    let array = NewArray { bitmap, ..new_array(Level::Raid1, 0) };
    let error = array.plan(&[Some(device(TIB)); 2], &[]).unwrap_err();
    assert_eq!(error, CreateError::Bitmap, "mdadm refuses it, too");
}

/// What mdadm 4.2 does with the other versions.
#[test]
fn every_version_has_its_places() {
    let sectors = GIB + 5;
    let end = GIB - 16;
    for (version, bitmap, log, places) in [
        // Superblock, data, size of that, bad-block log, bitmap.
        (Version::V1_1, NewBitmap::None, NewLog::None, (0, 4096, sectors - 4096, 16, 0)),
        (Version::V1_1, INTERNAL, NewLog::None, (0, 4096, sectors - 4096, 16, 8)),
        (Version::V1_0, NewBitmap::None, NewLog::None, (end, 0, end - 16, -8, 0)),
        (Version::V1_0, INTERNAL, NewLog::None, (end, 0, end - 16, -8, -16)),
        (Version::V1_0, NewBitmap::None, NewLog::PartialParity, (end, 0, end - 2056, -8, -2056)),
    ] {
        let array = NewArray { version, bitmap, log, ..new_array(Level::Raid5, 64) };
        let blueprint = plan(&array, 3, sectors);
        let sb = first(&blueprint);
        let at = match log {
            NewLog::PartialParity => i32::from(sb.bitmap_offset_sectors as i16),
            _ => sb.bitmap_offset_sectors,
        };
        let found = (sb.super_offset, sb.data_offset, sb.data_size, sb.bblog_offset_sectors, at);
        assert_eq!(found, places, "{version:?} {bitmap:?}");
        assert_eq!(Superblock::decode(version, sb.super_offset, &sb.encode()).as_ref(), Ok(sb));
        // Nothing lies on anything else, and all of it on the device.
        let mut areas: Vec<(u64, u64)> = blueprint
            .writes(0)
            .into_iter()
            .map(|(sector, bytes)| (sector, sector + bytes.len() as u64 / 512))
            .collect();
        areas.push((sb.data_offset, sb.data_offset + sb.size_sectors));
        areas.sort_unstable();
        assert!(areas.windows(2).all(|two| two[0].1 <= two[1].0), "{version:?}: {areas:?}");
        assert!(areas.last().unwrap().1 <= sectors);
    }
}

#[test]
fn data_begins_where_it_is_asked_to() {
    for (version, least) in [(Version::V1_2, 32), (Version::V1_1, 24), (Version::V1_0, 0)] {
        let array = |data_offset| NewArray {
            version,
            data_offset: Some(data_offset),
            ..new_array(Level::Raid1, 0)
        };
        for data_offset in [least, 8 * MIB] {
            let blueprint = plan(&array(data_offset), 2, GIB);
            let sb = first(&blueprint);
            assert_eq!(sb.data_offset, data_offset);
            assert!(sb.data_offset + sb.size_sectors <= GIB);
        }
        for data_offset in [least + 1, least.wrapping_sub(8), GIB] {
            let refused = array(data_offset).plan(&[Some(device(GIB)); 2], &[]);
            assert!(refused.is_err(), "{version:?} {data_offset}");
        }
    }
}

#[test]
fn raid10_says_the_size_that_md_rounds_to() {
    // Each of the far copies has a part of the member, and all parts are equal.
    for (far, chunks) in [(2, 494), (3, 495)] {
        let size_sectors = Some(495 * 128);
        let layout = Layout::decode(Level::Raid10, far << 8 | 1, 3).unwrap();
        let array = NewArray { size_sectors, layout, ..new_array(Level::Raid10, 64) };
        assert_eq!(first(&plan(&array, 3, 32 * MIB)).size_sectors, chunks * 128, "{far}");
    }
}

#[test]
fn what_is_written_assembles() {
    for level in Level::ALL {
        let chunk = if matches!(level, Level::Raid1 | Level::Linear) { 0 } else { 64 };
        let redundant = !matches!(level, Level::Linear | Level::Raid0);
        let mut array = NewArray { assume_clean: false, ..new_array(level, chunk) };
        if redundant {
            array.bitmap = NewBitmap::Internal { chunk_bytes: Some(65536) };
        }
        let spares = vec![device(33 * MIB); usize::from(redundant)];
        let blueprint = array.plan(&[Some(device(32 * MIB + 5)); 4], &spares).unwrap();
        let candidates = (0..blueprint.superblocks.len()).map(|index| {
            let writes = blueprint.writes(index);
            let ends_at_superblock = writes.last().map(|(sector, _)| *sector);
            assert_eq!(ends_at_superblock, Some(8));
            let mut image = vec![0xa5; 1 << 20];
            for (sector, bytes) in writes {
                assert!(bytes.len().is_multiple_of(4096) && sector.is_multiple_of(8));
                let at = usize::try_from(sector).unwrap() * 512;
                image[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            let sectors = if index < 4 { 32 * MIB + 5 } else { 33 * MIB };
            Candidate::read(index.to_string(), sectors, |sector, bytes| {
                let at = usize::try_from(sector).unwrap() * 512;
                let mut out = vec![0; bytes as usize];
                if let Some(part) = image.get(at..at + bytes as usize) {
                    out.copy_from_slice(part);
                }
                Ok(out)
            })
        });
        let assembly = decide(candidates.collect(), Options::default());
        let Start::Ready { config, degraded, resync_from, by_bitmap } = assembly.start else {
            panic!("{level}: {:?}", assembly.start);
        };
        // raid4 and raid5 begin with the rebuild of their last member.
        let rebuilt = matches!(level, Level::Raid4 | Level::Raid5);
        let resynced = redundant && !rebuilt;
        assert_eq!((degraded, config.members.len()), (u16::from(rebuilt), 4 + spares.len()));
        assert_eq!((resync_from, by_bitmap), (resynced.then_some(0), resynced));
        let all_dirty = config.bitmap.map(|bitmap| bitmap.count() == bitmap.bits());
        assert_eq!(all_dirty, redundant.then_some(true), "{level}");
    }
}

#[test]
fn missing_members_leave_nothing_to_sync_or_one_to_rebuild() {
    let states = |level: Level, missing: &[usize], assume_clean: bool| {
        let chunk = if level == Level::Raid1 { 0 } else { 64 };
        let array = NewArray { assume_clean, ..new_array(level, chunk) };
        let mut roles = [Some(device(GIB)); 4];
        missing.iter().for_each(|role| roles[*role] = None);
        let superblocks = array.plan(&roles, &[]).unwrap().superblocks;
        let rebuilt: Vec<usize> = (0..4)
            .filter(|i| superblocks[*i].as_ref().is_some_and(|s| s.has(feature::RECOVERY_OFFSET)))
            .collect();
        let first = superblocks.iter().flatten().next().unwrap();
        for role in Role::all(4) {
            let expected = match superblocks[role.index()] {
                Some(_) => DevRole::Active(role),
                None => DevRole::Spare,
            };
            assert_eq!(first.roles[role.index()], expected);
        }
        (first.resync_offset, rebuilt)
    };
    assert_eq!(states(Level::Raid5, &[], false), (MAX_SECTOR, vec![3]));
    assert_eq!(states(Level::Raid5, &[], true), (MAX_SECTOR, vec![]));
    assert_eq!(states(Level::Raid5, &[1], false), (MAX_SECTOR, vec![]));
    assert_eq!(states(Level::Raid6, &[3], false), (MAX_SECTOR, vec![2]));
    assert_eq!(states(Level::Raid6, &[3], true), (MAX_SECTOR, vec![]));
    assert_eq!(states(Level::Raid6, &[0, 3], false), (MAX_SECTOR, vec![]));
    assert_eq!(states(Level::Raid1, &[0, 1], false), (0, vec![]));
    assert_eq!(states(Level::Raid1, &[0, 1, 2], false), (MAX_SECTOR, vec![]));
    assert_eq!(states(Level::Raid10, &[1], false), (0, vec![]));
}

#[test]
fn raid0_of_unequal_members_says_how_its_zones_lie() {
    let array = new_array(Level::Raid0, 64);
    let even = plan(&array, 2, GIB);
    assert_eq!((first(&even).layout, first(&even).feature_map), (1, 0));
    let roles = [Some(device(GIB)), Some(device(GIB + 127)), Some(device(2 * GIB))];
    let equal_chunks = array.plan(&roles[..2], &[]).unwrap();
    assert_eq!(first(&equal_chunks).feature_map, 0);
    let uneven = array.plan(&roles, &[]).unwrap();
    assert_eq!(first(&uneven).feature_map, feature::RAID0_LAYOUT);
}

#[test]
fn what_cannot_be_is_refused() {
    let roles = [Some(device(GIB)); 3];
    let raid5 = new_array(Level::Raid5, 512);
    let error = |array: &NewArray, roles: &[Option<NewDevice>], spares: &[NewDevice]| {
        array.plan(roles, spares).unwrap_err()
    };
    let small = [Some(device(GIB)), None, Some(device(4096 + 1023))];
    let too_small = CreateError::DeviceTooSmall { index: 2, device_sectors: 5119 };
    assert_eq!(error(&raid5, &small, &[]), too_small);
    assert_eq!(error(&raid5, &[Some(device(0)); 3], &[]).to_string().find("device 0"), Some(0));
    let array = NewArray { size_sectors: Some(GIB), ..raid5.clone() };
    let too_large = CreateError::SizeTooLarge { size_sectors: GIB, available_sectors: GIB - 4096 };
    assert_eq!(error(&array, &roles, &[]), too_large);
    let array = NewArray { size_sectors: Some(1000), ..raid5.clone() };
    assert!(matches!(error(&array, &roles, &[]), CreateError::SizeTooSmall { .. }));
    let missing = [roles[0], None, None];
    let too_few = |level, missing| CreateError::TooFew { level, missing };
    assert_eq!(error(&raid5, &missing, &[]), too_few(Level::Raid5, 2));
    assert_eq!(error(&raid5, &[None; 3], &[]), too_few(Level::Raid5, 3));
    let raid0 = new_array(Level::Raid0, 64);
    assert_eq!(error(&raid0, &missing, &[]), too_few(Level::Raid0, 2));
    let text = |error: CreateError| error.to_string();
    assert_eq!(text(error(&raid0, &roles, &[device(GIB)])), "raid0 has no spares");
    let array = NewArray { bitmap: INTERNAL, ..raid0 };
    assert_eq!(text(error(&array, &roles, &[])), "raid0 has no bitmap");
    let array = NewArray { name: "x".repeat(33), ..raid5.clone() };
    assert_eq!(error(&array, &roles, &[]), CreateError::NameTooLong { bytes: 33 });
    assert_eq!(error(&raid5, &roles, &[device(GIB); 1918]), CreateError::TooManyDevices);
    assert!(raid5.plan(&roles, &[device(GIB); 1917]).is_ok());
}
