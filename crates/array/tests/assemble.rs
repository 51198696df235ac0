//! Assembly: who is in, whether the array starts, and what people are told.

use braid_array::assemble::{Assembly, Candidate, Config, Options, Standing, Start, decide};
use braid_array::format::superblock::{MAX_SECTOR, Reshape, devflag, feature};
use braid_array::format::{BadBlocks, Bitmap, Role, Superblock, SuperblockError, Version};

const DATA_OFFSET: u64 = 2048;
const SIZE_SECTORS: u64 = 4096;
const UUID: [u8; 16] = [7; 16];

const RUN: Options = Options { run: true, force: false, read_only: false };
const FORCE: Options = Options { force: true, run: false, read_only: false };
const READ_ONLY: Options = Options { read_only: true, run: false, force: false };

/// A member of a clean array at event count 10, device number and role the same.
fn member(level: i32, layout: u32, raid_disks: u16, role: u16) -> Superblock {
    let mut set_name = [0; 32];
    set_name[..6].copy_from_slice(b"h:home");
    let mut roles = vec![Role::Spare; 128];
    for role in 0..raid_disks {
        roles[usize::from(role)] = Role::Active(role);
    }
    Superblock {
        version: Version::V1_2,
        feature_map: 0,
        set_uuid: UUID,
        set_name,
        ctime: 1,
        level,
        layout,
        size_sectors: if level > 0 { SIZE_SECTORS } else { 0 },
        chunk_sectors: if level == 1 { 0 } else { 128 },
        raid_disks: raid_disks.into(),
        bitmap_offset_sectors: 8,
        reshape: Reshape::default(),
        data_offset: DATA_OFFSET,
        data_size: SIZE_SECTORS,
        super_offset: 8,
        recovery_offset: 0,
        dev_number: role.into(),
        corrected_reads: 0,
        device_uuid: [u8::try_from(role).unwrap() + 1; 16],
        devflags: 0,
        bblog_shift: 0,
        bblog_size_sectors: 8,
        bblog_offset_sectors: 16,
        utime: 2,
        events: 10,
        resync_offset: MAX_SECTOR,
        roles,
    }
}

/// All members of an array.
fn array(level: i32, layout: u32, raid_disks: u16) -> Vec<Superblock> {
    (0..raid_disks).map(|role| member(level, layout, raid_disks, role)).collect()
}

fn raid5() -> Vec<Superblock> {
    array(5, 2, 3)
}

/// The devices `a`, `b`, ... with these superblocks.
fn candidates(superblocks: &[Superblock]) -> Vec<Candidate> {
    let device = |index: usize| char::from(b'a' + u8::try_from(index).unwrap()).to_string();
    let candidate = |(index, superblock): (usize, &Superblock)| Candidate {
        device: device(index),
        device_sectors: DATA_OFFSET + SIZE_SECTORS,
        superblock: Ok(superblock.clone()),
        bad_blocks: Ok(BadBlocks::default()),
        bitmap: superblock.bitmap_sector().map(|_| Ok(bitmap(superblock.events, 3))),
    };
    superblocks.iter().enumerate().map(candidate).collect()
}

/// A current bitmap with one bit set, whose bits were last cleared at event count 5.
fn bitmap(events: u64, bit: u64) -> Bitmap {
    let mut bitmap = Bitmap::new(UUID, SIZE_SECTORS, Some(65536), 8).unwrap();
    bitmap.set(bit);
    bitmap.superblock.events = events;
    bitmap.superblock.events_cleared = 5;
    bitmap
}

fn assemble(superblocks: &[Superblock], options: Options) -> Assembly {
    decide(candidates(superblocks), options)
}

fn verdicts(assembly: &Assembly) -> Vec<String> {
    assembly.verdicts.iter().map(|(device, verdict)| format!("{device}: {verdict}")).collect()
}

/// The configuration, missing members, where resync starts, and whether the bitmap guides it.
fn ready(assembly: Assembly) -> (Config, u16, Option<u64>, bool) {
    match assembly.start {
        Start::Ready { config, degraded, resync_from, by_bitmap } => {
            (*config, degraded, resync_from, by_bitmap)
        }
        Start::Refused { reason, .. } => panic!("refused: {reason}"),
    }
}

/// Reason, next step, and whether force would help.
fn refused(assembly: Assembly) -> (String, String, bool) {
    match assembly.start {
        Start::Refused { reason, next, could_force } => (reason, next, could_force),
        Start::Ready { .. } => panic!("started: {:?}", assembly.verdicts),
    }
}

/// The other members see these device numbers leave, and go on to event count `events`.
fn lose(superblocks: &mut [Superblock], lost: &[usize], events: u64) {
    for (index, superblock) in superblocks.iter_mut().enumerate() {
        if !lost.contains(&index) {
            superblock.events = events;
            lost.iter().for_each(|number| superblock.roles[*number] = Role::Spare);
        }
    }
}

#[test]
fn a_complete_clean_array_starts() {
    for (level, layout, raid_disks) in [(-1, 0, 2), (0, 0, 2), (1, 0, 2), (4, 0, 3), (6, 2, 4)] {
        let superblocks = array(level, layout, raid_disks);
        let (config, degraded, resync_from, _) = ready(assemble(&superblocks, Options::default()));
        assert_eq!((degraded, resync_from), (0, None), "level {level}");
        assert_eq!(config.superblock, superblocks[0]);
        let standings: Vec<Standing> = config.members.iter().map(|m| m.standing).collect();
        let in_sync = |role| Standing::InSync { role };
        assert_eq!(standings, (0..raid_disks).map(in_sync).collect::<Vec<_>>());
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
    assert!(next.contains("no-bitmap"));
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
fn a_missing_member_must_be_known_to_be_missing_or_run_said() {
    let superblocks = raid5();
    let two = &superblocks[..2];
    let (reason, next, could_force) = refused(assemble(two, Options::default()));
    let text = "1 of the 3 members that were active when the array last ran cannot be used";
    assert_eq!((reason.as_str(), could_force), (text, false));
    let text = "find the missing members, or start without them: braid assemble --run a b";
    assert_eq!(next, text);
    for options in [RUN, FORCE, READ_ONLY] {
        assert_eq!(ready(assemble(two, options)).1, 1);
    }
    let mut superblocks = superblocks;
    lose(&mut superblocks, &[2], 14);
    assert_eq!(ready(assemble(&superblocks[..2], Options::default())).1, 1);
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
fn a_degraded_parity_array_that_is_not_clean_needs_force() {
    let mut superblocks = raid5();
    superblocks.iter_mut().for_each(|sb| sb.resync_offset = 0);
    lose(&mut superblocks, &[1], 20);
    for options in [Options::default(), RUN, READ_ONLY] {
        let (reason, next, could_force) = refused(assemble(&superblocks, options));
        assert!(reason.starts_with("a member is missing and the array was not stopped cleanly"));
        assert!(next.ends_with("braid assemble --force a c"), "{next}");
        assert!(could_force);
    }
    let (config, degraded, resync_from, _) = ready(assemble(&superblocks, FORCE));
    assert_eq!((degraded, resync_from), (1, None));
    assert_eq!((config.superblock.resync_offset, config.force), (0, true));
    // P and Q of what is left need not agree.
    let mut superblocks = array(6, 2, 4);
    superblocks.iter_mut().for_each(|sb| sb.resync_offset = 0);
    lose(&mut superblocks, &[1], 20);
    let (_, degraded, resync_from, _) = ready(assemble(&superblocks, FORCE));
    assert_eq!((degraded, resync_from), (1, Some(0)));
    // Mirrors lose nothing by it.
    for level in [(1, 0, 3), (10, 0x102, 4)] {
        let mut superblocks = array(level.0, level.1, level.2);
        superblocks.iter_mut().for_each(|sb| sb.resync_offset = 0);
        lose(&mut superblocks, &[1], 20);
        let (_, degraded, resync_from, _) = ready(assemble(&superblocks, Options::default()));
        assert_eq!((degraded, resync_from), (1, Some(0)));
    }
}

#[test]
fn force_takes_the_newest_stale_members_and_those_of_their_time() {
    let mut superblocks = array(5, 2, 4);
    lose(&mut superblocks, &[3], 20);
    let two_left = &mut superblocks[..3];
    lose(two_left, &[1, 2], 30);
    let (reason, next, could_force) = refused(assemble(&superblocks, RUN));
    assert!(reason.starts_with("1 of the 4 members of this raid5 can be used, it needs 3 of 4"));
    assert!(reason.contains("; b is out: stale (event count 20, newest 30); c is out"), "{reason}");
    assert!(next.ends_with("braid assemble --force a b c d"), "{next}");
    assert!(could_force);
    let assembly = assemble(&superblocks, FORCE);
    assert_eq!(
        verdicts(&assembly)[1..],
        [
            "b: stale (event count 20, newest 30), forced into role 1",
            "c: stale (event count 20, newest 30), forced into role 2",
            "d: stale (event count 10, newest 30)"
        ]
    );
    let (config, degraded, ..) = ready(assembly);
    assert_eq!(degraded, 1);
    let roles = &config.superblock.roles[..5];
    let role = Role::Active;
    assert_eq!(roles, [role(0), role(1), role(2), Role::Spare, Role::Spare]);
    let none = assemble(&superblocks[..1], FORCE);
    assert!(!refused(none).2, "force cannot conjure members up");
}

#[test]
fn force_takes_no_member_whose_role_or_number_another_has() {
    // Role 1 is being rebuilt on a new device, under the number that the stale b had; c is gone.
    let mut superblocks = array(5, 2, 3);
    lose(&mut superblocks, &[1, 2], 20);
    superblocks[0].roles[3] = Role::Active(1);
    let mut new = superblocks[0].clone();
    (new.dev_number, new.feature_map) = (3, feature::RECOVERY_OFFSET);
    let there = [superblocks[0].clone(), superblocks[1].clone(), new.clone()];
    let assembly = assemble(&there, FORCE);
    assert_eq!(verdicts(&assembly)[1], "b: stale (event count 10, newest 20)");
    assert!(!refused(assembly).2, "the role is taken");
    let mut spare = superblocks[0].clone();
    (spare.dev_number, spare.roles[2]) = (2, Role::Spare);
    let there = [superblocks[0].clone(), superblocks[2].clone(), spare];
    let assembly = assemble(&there, FORCE);
    assert_eq!(verdicts(&assembly)[1..], ["b: stale (event count 10, newest 20)", "c: spare"]);
}

#[test]
fn halves_of_a_split_mirror_are_told_apart() {
    let mut superblocks = array(1, 0, 2);
    superblocks[0].roles[1] = Role::Spare;
    superblocks[1].roles[0] = Role::Spare;
    for options in [Options::default(), RUN, FORCE, READ_ONLY] {
        let assembly = assemble(&superblocks, options);
        let text = "a: split from b: each side went on alone to event count 10";
        assert_eq!(verdicts(&assembly)[0], text);
        let (reason, next, could_force) = refused(assembly);
        let text = "a and b are two halves of a split array: each went on alone to event count 10";
        assert_eq!((reason.as_str(), could_force), (text, false));
        assert!(next.ends_with("braid assemble --readonly a"), "{next}");
    }
    // One half is newer: it is the array, as for md.
    superblocks[1].events = 11;
    let assembly = assemble(&superblocks, Options::default());
    assert_eq!(verdicts(&assembly), ["a: stale (event count 10, newest 11)", "b: active, role 1"]);
    assert_eq!(ready(assembly).1, 1);
    assert_eq!(ready(assemble(&superblocks[..1], Options::default())).1, 1);
}

#[test]
fn strangers_and_copies_are_named_and_refused() {
    let mut superblocks = raid5();
    let mut foreign = superblocks[0].clone();
    foreign.set_uuid = [0xab; 16];
    superblocks.insert(0, foreign);
    let (reason, next, _) = refused(assemble(&superblocks, RUN));
    let uuid = "abababab:abababab:abababab:abababab";
    assert_eq!(reason, format!("a: belongs to another array, h:home ({uuid})"));
    assert_eq!(next, "braid assemble b c d");

    superblocks[0] = superblocks[3].clone();
    let (reason, next, _) = refused(assemble(&superblocks, RUN));
    assert_eq!(reason, "d: the same member as a, or a copy of it");
    assert_eq!(next, "braid assemble a b c");
    superblocks[0].events -= 1;
    assert_eq!(ready(assemble(&superblocks, Options::default())).1, 0, "an old copy is left out");

    let mut with_blank = candidates(&raid5());
    with_blank[1].superblock = Err(SuperblockError::NoMagic);
    with_blank[0].device = "it's".to_owned();
    let (reason, next, _) = refused(decide(with_blank, RUN));
    assert_eq!(reason, "b: no md superblock");
    assert_eq!(next, r"braid assemble 'it'\''s' c");
    let blank = |candidates: Vec<Candidate>| refused(decide(candidates, RUN)).0;
    assert_eq!(blank(vec![]), "no members were given");
    let mut none = candidates(&raid5()[..1]);
    none[0].superblock = Err(SuperblockError::NoMagic);
    assert_eq!(blank(none), "a: no md superblock");
}

#[test]
fn damaged_and_cut_off_members_count_as_missing_and_are_explained() {
    let mut damaged = candidates(&raid5());
    damaged[1].superblock = Err(SuperblockError::BadChecksum { stored: 0xbad, computed: 0x600d });
    let (reason, ..) = refused(decide(damaged.clone(), Options::default()));
    let text = "b is out: md superblock checksum is wrong (stored bad, computed 600d)";
    assert!(reason.ends_with(text), "{reason}");
    assert_eq!(ready(decide(damaged, RUN)).1, 1);

    let mut cut_off = candidates(&raid5());
    cut_off[2].device_sectors -= 1;
    let assembly = decide(cut_off, RUN);
    let text = "c: cut off: has 6143 sectors, its superblock needs 6144";
    assert_eq!(verdicts(&assembly)[2], text);
    assert_eq!(ready(assembly).1, 1);
}

#[test]
fn arrays_that_are_not_run_are_refused_by_name() {
    let with = |change: &dyn Fn(&mut Superblock)| {
        let mut superblocks = raid5();
        superblocks.iter_mut().for_each(change);
        refused(assemble(&superblocks, FORCE))
    };
    let (reason, next, _) = with(&|sb| sb.feature_map = feature::JOURNAL);
    assert_eq!(reason, "the array uses a write journal, which braid does not run");
    assert_eq!(next, "assemble it with mdadm");
    assert!(with(&|sb| sb.feature_map = feature::RESHAPE_ACTIVE).0.contains("reshape"));
    assert_eq!(with(&|sb| sb.level = -4).0, "the array is of level multipath");
    assert_eq!(with(&|sb| sb.level = 7).0, "the array is of level with number 7");
    assert!(with(&|sb| sb.layout = 99).0.contains("99"));
    assert!(with(&|sb| sb.chunk_sectors = 0).0.starts_with("the superblocks describe no array"));
    for raid_disks in [0, 1921, u32::MAX] {
        let reason = with(&|sb| sb.raid_disks = raid_disks).0;
        assert_eq!(reason, format!("the array says it has {raid_disks} members"));
    }
    let (reason, next, _) = with(&|sb| sb.version = Version::V0_90);
    assert!(reason.contains("0.90"));
    assert_eq!(next, "braid assemble --readonly a b c");
    let mut old = raid5();
    old.iter_mut().for_each(|sb| {
        sb.version = Version::V0_90;
        (sb.data_offset, sb.super_offset, sb.bblog_size_sectors) = (0, 4096, 0);
    });
    assert_eq!(ready(assemble(&old, READ_ONLY)).1, 0);
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
    let mut others: Vec<Superblock> = (3..7).map(|number| member(5, 2, 3, number)).collect();
    others[0].roles[3] = Role::Active(0);
    others[0].feature_map = feature::REPLACEMENT | feature::RECOVERY_OFFSET;
    others[0].recovery_offset = u64::MAX;
    others[2].roles[5] = Role::Faulty;
    others[3].roles[6] = Role::Journal;
    superblocks.iter_mut().for_each(|sb| sb.roles[3] = Role::Active(0));
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
        by_bitmap: false,
    };
    assert_eq!(config.members[1].standing, rebuilding(1, 1000, false));
    assert_eq!(config.members[3].standing, rebuilding(0, SIZE_SECTORS, true));
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
fn places_that_cannot_be_are_refused() {
    let verdict = |change: &dyn Fn(&mut Superblock)| {
        let mut superblocks = raid5();
        change(&mut superblocks[1]);
        verdicts(&assemble(&superblocks, RUN))[1].clone()
    };
    let says = |change: &dyn Fn(&mut Superblock), text: &str| {
        assert_eq!(verdict(change), format!("b: its superblock {text}"));
    };
    says(&|sb| sb.bblog_offset_sectors = 2040, "puts the data over the bad-block log");
    says(&|sb| sb.bblog_offset_sectors = i32::MAX, "puts the bad-block log beyond its end");
    says(&|sb| sb.bblog_offset_sectors = -9, "puts the bad-block log outside of any device");
    says(&|sb| sb.bblog_offset_sectors = -7, "puts the superblock over the bad-block log");
    says(&|sb| sb.data_offset = 0, "puts the data over the superblock");
    says(&|sb| sb.data_size = 4000, "uses 4096 sectors of a data area of 4000");
    says(&|sb| sb.size_sectors = 4000, "has another size than the newest one");
    assert_eq!(verdict(&|sb| sb.bblog_shift = 17), "b: bad-block log in units of 2^17 sectors");
    says(&|sb| sb.level = 6, "has another level than the newest one");
    says(&|sb| sb.raid_disks = 4, "has another number of members than the newest one");
    let text = verdict(&|sb| sb.dev_number = 1920);
    assert_eq!(text, "b: its device number is 1920, not below 1920");
    let text = verdict(&|sb| sb.roles[1] = Role::Active(3));
    assert_eq!(text, "b: its role is 3, the array has 3 members");
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
