//! What starts, and with what.

use braid_array::Role;
use braid_array::assemble::{Had, Options, Standing, Start, decide};
use braid_array::format::superblock::{devflag, feature};
use braid_array::format::{BadBlocks, Bitmap, DevRole, Superblock};

use super::{
    READ_ONLY, RUN, SIZE_SECTORS, UUID, array, assemble, bitmap, candidates, lose, member, raid5,
    ready, refused, verdicts,
};

#[test]
fn a_complete_clean_array_starts() {
    for (level, layout, raid_disks) in [(-1, 0, 2), (0, 0, 2), (1, 0, 2), (4, 0, 3), (6, 2, 4)] {
        let superblocks = array(level, layout, raid_disks);
        let (config, degraded, resync_from, _) = ready(assemble(&superblocks, Options::default()));
        assert_eq!((degraded, resync_from), (0, None), "level {level}");
        assert_eq!(config.superblock, superblocks[0]);
        let standings: Vec<Standing> = config.members.iter().map(|m| m.standing).collect();
        let in_sync = |role| Standing::InSync { role };
        assert_eq!(standings, Role::all(raid_disks).map(in_sync).collect::<Vec<_>>());
    }
}

#[test]
fn an_unclean_array_is_resynced_and_by_its_bitmap_if_that_is_current() {
    let mut superblocks = raid5();
    superblocks.iter_mut().for_each(|sb| sb.resync_offset = 100);
    let (config, _, resync_from, by_bitmap) = ready(assemble(&superblocks, Options::default()));
    assert_eq!((resync_from, by_bitmap), (Some(100), false));
    assert!(config.bitmap.is_none());

    superblocks.iter_mut().for_each(|sb| sb.feature_map = feature::BITMAP_OFFSET);
    let mut with_bitmaps = candidates(&superblocks);
    with_bitmaps[1].bitmap = Some(Ok(bitmap(10, 30)));
    with_bitmaps[2].bitmap = Some(Ok(bitmap(9, 31)));
    let start = ready(decide(with_bitmaps.clone(), Options::default()));
    let bits = start.0.bitmap.unwrap();
    assert!(start.3 && bits.get(3) && bits.get(30), "the bits of both current ones");
    assert_eq!(bits.count(), 2);

    with_bitmaps.iter_mut().for_each(|c| c.bitmap = Some(Ok(bitmap(9, 1))));
    let (config, _, resync_from, by_bitmap) =
        ready(decide(with_bitmaps.clone(), Options::default()));
    assert_eq!((resync_from, by_bitmap), (Some(100), false));
    assert_eq!(config.bitmap.map(|b| (b.count(), b.superblock.events_cleared)), Some((32, 10)));

    let broken = Err(braid_array::format::BitmapError::NoMagic);
    with_bitmaps.iter_mut().for_each(|c| c.bitmap = Some(broken.clone()));
    let (reason, next, _) = refused(decide(with_bitmaps.clone(), Options::default()));
    assert_eq!(reason, "no member's bitmap can be read");
    assert!(next.advice.contains("no-bitmap"));
    assert!(ready(decide(with_bitmaps, READ_ONLY)).0.bitmap.is_none());
}

#[test]
fn a_bitmap_of_another_size_is_fitted_and_what_is_new_is_dirty() {
    let mut superblocks = array(1, 0, 2);
    superblocks.iter_mut().for_each(|sb| {
        sb.feature_map = feature::BITMAP_OFFSET;
        sb.resync_offset = 0;
    });
    let mut with_bitmaps = candidates(&superblocks);
    let mut short = Bitmap::new(UUID, SIZE_SECTORS / 2, Some(65536), 8).unwrap();
    short.superblock.events = 10;
    with_bitmaps.iter_mut().for_each(|c| c.bitmap = Some(Ok(short.clone())));
    let bitmap = ready(decide(with_bitmaps, Options::default())).0.bitmap.unwrap();
    let dirty: Vec<_> = bitmap.dirty_ranges().map(|r| (r.start, r.end)).collect();
    assert_eq!(dirty, [(SIZE_SECTORS / 2, SIZE_SECTORS)]);
}

#[test]
fn one_event_behind_is_current_two_is_stale() {
    for (behind, current) in [(0, true), (1, true), (2, false)] {
        let mut superblocks = raid5();
        superblocks[1].events -= behind;
        let assembly = assemble(&superblocks, RUN);
        let expected =
            if current { "b: active, role 1" } else { "b: stale (event count 8, newest 10)" };
        assert_eq!(verdicts(&assembly)[1], expected);
        assert_eq!(ready(assembly).1, u16::from(!current));
    }
    // One behind, but the newest says it is out: it failed while the others were written.
    let mut superblocks = raid5();
    lose(&mut superblocks, &[1], 11);
    let assembly = assemble(&superblocks, Options::default());
    assert_eq!(verdicts(&assembly)[1], "b: stale (event count 10, newest 11)");
    let config = ready(assembly).0;
    assert_eq!(config.members.iter().map(|m| m.device.as_str()).collect::<String>(), "ac");
}

#[test]
fn a_stale_member_can_be_caught_up_if_the_bitmap_was_not_cleared_since() {
    for (cleared, re_add) in [(5, true), (10, true), (11, false)] {
        let mut superblocks = array(1, 0, 2);
        superblocks.iter_mut().for_each(|sb| sb.feature_map = feature::BITMAP_OFFSET);
        lose(&mut superblocks, &[1], 20);
        let mut candidates = candidates(&superblocks);
        let mut bits = bitmap(20, 1);
        bits.superblock.events_cleared = cleared;
        candidates[0].bitmap = Some(Ok(bits));
        let text = verdicts(&decide(candidates, Options::default()))[1].clone();
        assert_eq!(text.ends_with("can be caught up by re-add"), re_add, "{text}");
    }
}

#[test]
fn a_member_rebuilt_to_the_end_is_in_sync() {
    let mut superblocks = array(5, 2, 3);
    superblocks[1].feature_map = feature::RECOVERY_OFFSET;
    superblocks[1].recovery_offset = superblocks[1].size_sectors;
    let assembly = assemble(&superblocks, Options::default());
    assert_eq!(verdicts(&assembly)[1], "b: active, role 1");
    superblocks[1].recovery_offset -= 1;
    let assembly = assemble(&superblocks, Options::default());
    assert!(verdicts(&assembly)[1].starts_with("b: rebuilding role 1"));
}

#[test]
fn members_without_a_whole_role_are_what_their_superblock_says() {
    let mut superblocks = array(5, 2, 3);
    superblocks[1].feature_map = feature::RECOVERY_OFFSET;
    superblocks[1].recovery_offset = 1000;
    let mut others: Vec<Superblock> = (3..7).map(|number| member(5, 2, 3, Role(number))).collect();
    others[0].roles[3] = DevRole::Active(Role(0));
    others[0].feature_map = feature::REPLACEMENT | feature::RECOVERY_OFFSET;
    others[0].recovery_offset = u64::MAX;
    others[2].roles[5] = DevRole::Faulty;
    others[3].roles[6] = DevRole::Journal;
    for superblock in &mut superblocks {
        superblock.roles[3] = DevRole::Active(Role(0));
        superblock.roles[6] = DevRole::Journal;
    }
    superblocks.extend(others);
    let assembly = assemble(&superblocks, Options::default());
    assert_eq!(
        verdicts(&assembly)[1..],
        [
            "b: rebuilding role 1, done up to sector 1000",
            "c: active, role 2",
            "d: replacing role 0, done up to sector 4096",
            "e: spare",
            "f: marked faulty in its own superblock",
            "g: write journal",
        ]
    );
    let (config, degraded, ..) = ready(assembly);
    assert_eq!((degraded, config.members.len()), (1, 5));
    let rebuilding = |role, offset, replacement| Standing::Rebuilding {
        role,
        offset,
        replacement,
        had: Had::NOTHING,
    };
    assert_eq!(config.members[1].standing, rebuilding(Role(1), 1000, false));
    assert_eq!(config.members[3].standing, rebuilding(Role(0), SIZE_SECTORS, true));
    assert_eq!(config.members[4].standing, Standing::Spare);

    // Without the member it was to replace, the replacement is the member.
    let assembly = assemble(&superblocks[1..4], RUN);
    assert_eq!(verdicts(&assembly)[2], "c: active, role 0");
    superblocks[3].recovery_offset = 7;
    let (reason, ..) = refused(assemble(&superblocks[1..4], RUN));
    assert!(reason.starts_with("1 of the 3 members of this raid5 can be used"), "{reason}");
}

#[test]
fn levels_start_with_as_many_members_as_they_need() {
    // mdadm's rule for raid10: of each run of `copies` neighbours, from every `near`-th on, one.
    let mirrors = |near: usize, far: usize, disks: usize, held: &dyn Fn(usize) -> bool| {
        (0..disks)
            .map(|i| i * near % disks)
            .all(|first| (0..near * far).any(|copy| held((first + copy) % disks)))
    };
    for (level, layout, disks) in [
        (-1, 0, 3),
        (0, 0, 3),
        (1, 0, 3),
        (4, 0, 3),
        (5, 2, 4),
        (6, 2, 5),
        (10, 0x102, 4),
        (10, 0x102, 5),
        (10, 0x103, 5),
        (10, 0x201, 4),
        (10, 0x1_0201, 3),
        (10, 0x202, 5),
    ] {
        let superblocks = array(level, layout, disks);
        let disks = usize::from(disks);
        for set in 1..1u32 << disks {
            let held = |role: usize| set & 1 << role != 0;
            let lost = disks - set.count_ones() as usize;
            let expected = match level {
                -1 | 0 => lost == 0,
                1 => true,
                4 | 5 => lost <= 1,
                6 => lost <= 2,
                _ => {
                    let layout = layout as usize;
                    mirrors(layout & 0xff, layout >> 8 & 0xff, disks, &held)
                }
            };
            let there: Vec<Superblock> = superblocks
                .iter()
                .enumerate()
                .filter(|(i, _)| held(*i))
                .map(|(_, sb)| sb.clone())
                .collect();
            let start = assemble(&there, RUN).start;
            let started = matches!(start, Start::Ready { .. });
            assert_eq!(
                started, expected,
                "level {level} layout {layout:#x} set {set:#b}: {start:?}"
            );
        }
    }
}

#[test]
fn the_bitmap_lies_where_the_newest_superblock_says_on_every_member() {
    let verdict = |offset: i32, bblog: i32| {
        let mut superblocks = array(1, 0, 2);
        superblocks[0].feature_map = feature::BITMAP_OFFSET;
        superblocks[0].bitmap_offset_sectors = offset;
        (superblocks[0].events, superblocks[0].bblog_offset_sectors) = (11, 1000);
        superblocks[1].bblog_offset_sectors = bblog;
        let assembly = assemble(&superblocks, RUN);
        (verdicts(&assembly)[1].clone(), assembly)
    };
    let (text, assembly) = verdict(8, 16);
    assert_eq!(text, "b: active, role 1");
    let config = ready(assembly).0;
    assert_eq!(config.members[1].superblock.bitmap_sector(), Some(16), "b did not know of it");
    assert_eq!(verdict(2, 16).0, "b: active, role 1", "old mdadm packed it closer");
    let over = |name: &str| format!("b: its superblock puts the {name} over the bitmap");
    assert_eq!(verdict(16, 16).0, over("bad-block log"));
    assert_eq!(verdict(2040, 16).0, over("data"));

    // The other way round: one that missed the update which removed the bitmap.
    let mut superblocks = array(1, 0, 2);
    superblocks[0].events = 11;
    superblocks[1].feature_map = feature::BITMAP_OFFSET;
    let config = ready(assemble(&superblocks, Options::default())).0;
    assert!(config.bitmap.is_none() && config.members[1].superblock.bitmap_sector().is_none());

    // 32 bits and the superblock fill a sector; 4096 bits need two, which reach into the log.
    let mut superblocks = array(1, 0, 2);
    superblocks.iter_mut().for_each(|sb| {
        (sb.feature_map, sb.bitmap_offset_sectors) = (feature::BITMAP_OFFSET, 15);
    });
    for (chunk_bytes, fits) in [(65536, true), (512, false)] {
        let mut candidates = candidates(&superblocks);
        let mut bitmap = bitmap(10, 0);
        bitmap.superblock.chunk_bytes = chunk_bytes;
        let bitmap = bitmap.resized(SIZE_SECTORS).unwrap();
        candidates.iter_mut().for_each(|c| c.bitmap = Some(Ok(bitmap.clone())));
        let assembly = decide(candidates, RUN);
        assert_eq!(matches!(assembly.start, Start::Ready { .. }), fits, "{:?}", assembly.verdicts);
    }
}

#[test]
fn logs_and_flags_of_members_are_handed_on() {
    let mut superblocks = array(1, 0, 2);
    superblocks[1].devflags = devflag::WRITE_MOSTLY;
    let mut candidates = candidates(&superblocks);
    let mut bad = BadBlocks::default();
    assert!(bad.insert(3000, 8));
    candidates[1].bad_blocks = Ok(bad.clone());
    let config = ready(decide(candidates.clone(), Options::default())).0;
    assert_eq!(config.members[1].bad_blocks, bad);
    assert_eq!(config.members[1].superblock.devflags, devflag::WRITE_MOSTLY);
    candidates[1].bad_blocks = Err(braid_array::format::BadBlocksError::TooMany);
    assert_eq!(ready(decide(candidates, RUN)).0.members.len(), 1);
}

#[test]
fn the_block_size_that_a_superblock_keeps_is_that_of_the_array() {
    for (kept, expected) in [(0, 512), (512, 512), (4096, 4096)] {
        let mut superblocks = array(1, 0, 2);
        superblocks.iter_mut().for_each(|sb| sb.logical_block_bytes = kept);
        let config = ready(assemble(&superblocks, Options::default())).0;
        assert_eq!(config.block_bytes, expected);
    }
}

#[test]
fn sizes_that_md_rounds_to_the_same_are_the_same() {
    // Two far copies in chunks of 64 KiB: md uses an even number of chunks of each member.
    let mut superblocks = array(10, 0x201, 3);
    for (sizes, fits) in
        [([4096, 4096], true), ([4096 - 256, 4096 - 128], true), ([4096, 4096 - 128], false)]
    {
        for superblock in &mut superblocks {
            superblock.size_sectors = sizes[0];
        }
        superblocks[1].size_sectors = sizes[1];
        let text = verdicts(&assemble(&superblocks, RUN))[1].clone();
        assert_eq!(text == "b: active, role 1", fits, "{sizes:?}: {text}");
    }
}
