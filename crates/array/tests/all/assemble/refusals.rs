//! What is refused, and what `run` and `force` make of it.

use braid_array::assemble::{Candidate, Options, decide};
use braid_array::format::superblock::feature;
use braid_array::format::{BitmapError, DevRole, Superblock, SuperblockError, Version};
use braid_array::refusal::Next;
use braid_array::{Condition, Role};

use super::{
    FORCE, READ_ONLY, RUN, array, assemble, candidates, lose, raid5, ready, refused, verdicts,
    with_members,
};

#[test]
fn a_missing_member_must_be_known_to_be_missing_or_run_said() {
    let superblocks = raid5();
    let two = &superblocks[..2];
    let (reason, next, could_force) = refused(assemble(two, Options::default()));
    let text = "1 of the 3 members that were active when the array last ran cannot be used";
    assert_eq!((reason.as_str(), could_force), (text, false));
    assert_eq!(next.advice, "find the missing members, or start without them");
    assert_eq!(next.condition, Some(Condition::MembersLeftOut));
    assert_eq!(next.invocation, with_members(RUN, "ab"));
    for options in [RUN, FORCE, READ_ONLY] {
        assert_eq!(ready(assemble(two, options)).1, 1);
    }
    let mut superblocks = superblocks;
    lose(&mut superblocks, &[2], 14);
    assert_eq!(ready(assemble(&superblocks[..2], Options::default())).1, 1);
}

#[test]
fn a_degraded_parity_array_that_is_not_clean_needs_force() {
    let mut superblocks = raid5();
    superblocks.iter_mut().for_each(|sb| sb.resync_offset = 0);
    lose(&mut superblocks, &[1], 20);
    for options in [Options::default(), RUN, READ_ONLY] {
        let (reason, next, could_force) = refused(assemble(&superblocks, options));
        assert!(reason.starts_with("a member is missing and the array was not stopped cleanly"));
        let forced = Options { force: true, ..options };
        assert_eq!(next.invocation, with_members(forced, "ac"), "what was asked for stays");
        assert!(could_force);
    }
    let (config, degraded, resync_from, _) = ready(assemble(&superblocks, FORCE));
    assert_eq!((degraded, resync_from), (1, None));
    assert_eq!((config.superblock.resync_offset, config.force), (0, true));
    // As after a crash while a new array is built: the last member is being rebuilt.
    let mut superblocks = raid5();
    superblocks.iter_mut().for_each(|sb| sb.resync_offset = 0);
    superblocks[2].feature_map |= feature::RECOVERY_OFFSET;
    let (reason, next, _) = refused(assemble(&superblocks, Options::default()));
    assert!(reason.starts_with("a member is not rebuilt yet and the array was not"), "{reason}");
    assert_eq!(next.advice, "take for data what parity says there");
    assert_eq!(next.condition, Some(Condition::DirtyDegraded));
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
    let forced = Options { force: true, ..RUN };
    assert_eq!(next.invocation, with_members(forced, "abcd"));
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
    let role = DevRole::Active;
    assert_eq!(
        roles,
        [role(Role(0)), role(Role(1)), role(Role(2)), DevRole::Spare, DevRole::Spare]
    );
    let none = assemble(&superblocks[..1], FORCE);
    assert!(!refused(none).2, "force cannot conjure members up");
}

#[test]
fn force_takes_no_member_whose_role_or_number_another_has() {
    // Role 1 is being rebuilt on a new device, under the number that the stale b had; c is gone.
    let mut superblocks = array(5, 2, 3);
    lose(&mut superblocks, &[1, 2], 20);
    superblocks[0].roles[3] = DevRole::Active(Role(1));
    let mut new = superblocks[0].clone();
    (new.dev_number, new.feature_map) = (3, feature::RECOVERY_OFFSET);
    let there = [superblocks[0].clone(), superblocks[1].clone(), new.clone()];
    let assembly = assemble(&there, FORCE);
    assert_eq!(verdicts(&assembly)[1], "b: stale (event count 10, newest 20)");
    assert!(!refused(assembly).2, "the role is taken");
    let mut spare = superblocks[0].clone();
    (spare.dev_number, spare.roles[2]) = (2, DevRole::Spare);
    let there = [superblocks[0].clone(), superblocks[2].clone(), spare];
    let assembly = assemble(&there, FORCE);
    assert_eq!(verdicts(&assembly)[1..], ["b: stale (event count 10, newest 20)", "c: spare"]);
}

#[test]
fn halves_of_a_split_mirror_are_told_apart() {
    let mut superblocks = array(1, 0, 2);
    superblocks[0].roles[1] = DevRole::Spare;
    superblocks[1].roles[0] = DevRole::Spare;
    for options in [Options::default(), RUN, FORCE, READ_ONLY] {
        let assembly = assemble(&superblocks, options);
        let text = "a: split from b: each side went on alone to event count 10";
        assert_eq!(verdicts(&assembly)[0], text);
        let (reason, next, could_force) = refused(assembly);
        let text = "a and b are two halves of a split array: each went on alone to event count 10";
        assert_eq!((reason.as_str(), could_force), (text, false));
        let look = Options { read_only: true, ..options };
        assert_eq!(next.invocation, with_members(look, "a"));
    }
    // One half is newer: it is the array, as for md.
    superblocks[1].events = 11;
    let assembly = assemble(&superblocks, Options::default());
    let text = "a: split from b: each side went on alone (event count 10, newest 11), only a full \
                recovery brings it back";
    assert_eq!(verdicts(&assembly), [text, "b: active, role 1"]);
    assert_eq!(ready(assembly).1, 1);
    assert_eq!(ready(assemble(&superblocks[..1], Options::default())).1, 1);
}

#[test]
fn who_has_not_told_all_has_not_gone_on_alone() {
    // B and C each wrote that the other one is gone; A heard of neither.
    let mut superblocks = array(1, 0, 3);
    for (one, other) in [(1, 2), (2, 1)] {
        superblocks[one].roles[other] = DevRole::Spare;
        superblocks[one].events = 11;
    }
    let there = [2, 1, 0].map(|index: usize| superblocks[index].clone());
    let assembly = assemble(&there, Options::default());
    let stale = "b: stale (event count 11, newest 11)";
    assert_eq!(verdicts(&assembly), ["a: active, role 2", stale, "c: active, role 0"]);
    assert_eq!(ready(assembly).1, 1);
    // With A the array goes on, whoever says what.
    superblocks[0].events = 11;
    superblocks[0].roles[2] = DevRole::Spare;
    let assembly = assemble(&superblocks, Options::default());
    assert_eq!(verdicts(&assembly)[2], "c: stale (event count 11, newest 11)");
    // Without A nobody knows whom it has gone on with. By C it may be without A.
    assert!(refused(assemble(&superblocks[1..], Options::default())).0.contains("two halves"));
    superblocks[0].events = 10;
    superblocks[0].roles[2] = superblocks[2].roles[2];
    superblocks[2].roles[0] = DevRole::Spare;
    let assembly = assemble(&superblocks, Options::default());
    assert_eq!(verdicts(&assembly)[2], "c: active, role 2");
    assert_eq!(ready(assembly).1, 2);
}

#[test]
fn a_side_that_went_on_before_its_last_update_is_a_half() {
    // A and C went on without B, which went on without them. Of their last update C has not heard.
    let mut superblocks = array(1, 0, 3);
    for (index, gone) in [(0, 1), (2, 1), (1, 0), (1, 2)] {
        superblocks[index].roles[gone] = DevRole::Spare;
    }
    superblocks[2].events = 9;
    for there in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let there = there.map(|index: usize| superblocks[index].clone());
        let (reason, _, could_force) = refused(assemble(&there, FORCE));
        assert!(reason.contains("two halves") && !could_force, "{reason}");
    }
}

#[test]
fn a_half_that_went_on_alone_is_not_caught_up_by_the_bitmap() {
    // Each case: level, layout, members, one half. The other half has more events, and a bitmap
    // that was not cleared since they parted.
    let cases: [(i32, u32, u16, &[usize]); 3] =
        [(1, 0, 2, &[0]), (10, 0x102, 4, &[0, 2]), (6, 2, 4, &[1, 2])];
    for (level, layout, raid_disks, half) in cases {
        let mut superblocks = array(level, layout, raid_disks);
        superblocks.iter_mut().for_each(|sb| sb.feature_map = feature::BITMAP_OFFSET);
        let other: Vec<usize> = (0..raid_disks.into()).filter(|n| !half.contains(n)).collect();
        let mut parted = superblocks.clone();
        lose(&mut parted, &other, 20);
        lose(&mut superblocks, half, 23);
        half.iter().for_each(|index| superblocks[*index] = parted[*index].clone());
        for options in [Options::default(), FORCE] {
            let text = verdicts(&assemble(&superblocks, options));
            for index in half {
                assert!(text[*index].contains(": split from "), "{text:?}");
                assert!(text[*index].contains("event count 20, newest 23"), "{text:?}");
            }
        }
    }
}

#[test]
fn who_was_with_one_that_was_left_behind_later_has_not_gone_on_alone() {
    // B and C went on without A, which came back; then C was lost, and then B.
    let mut superblocks = array(1, 0, 3);
    superblocks.iter_mut().for_each(|sb| sb.feature_map = feature::BITMAP_OFFSET);
    lose(&mut superblocks, &[0], 20);
    for (last, events, gone) in [(1, 30, [2].as_slice()), (0, 40, &[1, 2])] {
        for superblock in &mut superblocks[..=last] {
            superblock.roles[0] = DevRole::Active(Role(0));
            gone.iter().for_each(|&number| superblock.roles[number] = DevRole::Spare);
            superblock.events = events;
        }
    }
    let text = verdicts(&assemble(&superblocks, Options::default()));
    let b = "b: stale (event count 30, newest 40), can be caught up by re-add";
    assert_eq!(text[1..], [b, "c: stale (event count 20, newest 40)"]);
    // Nobody tells that without B, nor where B was with A only to be rebuilt.
    let there = [superblocks[0].clone(), superblocks[2].clone()];
    let text = verdicts(&assemble(&there, Options::default()));
    assert!(text[1].contains(": split from a"), "{text:?}");
    superblocks[1].feature_map |= feature::RECOVERY_OFFSET;
    let text = verdicts(&assemble(&superblocks, Options::default()));
    assert!(text[2].contains(": split from a"), "{text:?}");
}

#[test]
fn a_member_that_knows_too_little_of_the_others_is_not_caught_up_by_the_bitmap() {
    let mirror = |raid_disks| {
        let mut superblocks = array(1, 0, raid_disks);
        superblocks.iter_mut().for_each(|sb| sb.feature_map = feature::BITMAP_OFFSET);
        superblocks
    };
    // B and C ran without A, and B is gone; then A ran alone, and got a new device in B's role
    // under B's number. C lists that number.
    let mut superblocks = mirror(3);
    lose(&mut superblocks, &[0], 20);
    for number in [0, 1] {
        superblocks[number].events = 30;
        superblocks[number].roles[..3].copy_from_slice(&[
            DevRole::Active(Role(0)),
            DevRole::Active(Role(1)),
            DevRole::Spare,
        ]);
    }
    let text = verdicts(&assemble(&superblocks, Options::default()));
    assert_eq!(text[2], "c: stale (event count 20, newest 30)");
    // B ran without A, and a new device got A's role. A has more events.
    let mut superblocks = mirror(2);
    lose(&mut superblocks[..1], &[1], 30);
    superblocks[1].events = 20;
    superblocks[1].roles[..3].copy_from_slice(&[
        DevRole::Spare,
        DevRole::Active(Role(1)),
        DevRole::Active(Role(0)),
    ]);
    let text = verdicts(&assemble(&superblocks, Options::default()));
    assert_eq!(text[1], "b: stale (event count 20, newest 30)");
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
    assert_eq!(next.invocation, with_members(RUN, "bcd"));

    superblocks[0] = superblocks[3].clone();
    let (reason, next, _) = refused(assemble(&superblocks, RUN));
    assert_eq!(reason, "d: the same member as a, or a copy of it");
    assert_eq!(next.invocation, with_members(RUN, "abc"));
    superblocks[0].events -= 1;
    assert_eq!(ready(assemble(&superblocks, Options::default())).1, 0, "an old copy is left out");

    let mut with_blank = candidates(&raid5());
    with_blank[1].superblock = Err(SuperblockError::NoMagic);
    let (reason, next, _) = refused(decide(with_blank, RUN));
    assert_eq!(reason, "b: no md superblock");
    assert_eq!(next.invocation, with_members(RUN, "ac"));
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
    let (reason, next, _) = with(&|sb| sb.feature_map = feature::CLUSTERED);
    assert_eq!(reason, "the array uses clustered md, which braid does not run");
    let by_mdadm = Next::from("assemble it with mdadm");
    assert_eq!(next, by_mdadm.of(Condition::NotSupported));
    assert!(with(&|sb| sb.feature_map = feature::RESHAPE_ACTIVE).0.contains("reshape"));
    assert_eq!(with(&|sb| sb.level = -4).0, "the array is of level multipath");
    assert_eq!(with(&|sb| sb.level = 7).0, "the array is of level with number 7");
    assert!(with(&|sb| sb.layout = 99).0.contains("99"));
    assert!(with(&|sb| sb.chunk_sectors = 0).0.starts_with("the superblocks describe no array"));
    for raid_disks in [0, 1921, u32::MAX] {
        let reason = with(&|sb| sb.raid_disks = raid_disks).0;
        assert_eq!(reason, format!("the array says it has {raid_disks} members"));
    }
    let old = |sb: &mut Superblock| {
        sb.version = Version::V0_90;
        (sb.data_offset, sb.super_offset, sb.bblog_size_sectors) = (0, 4096, 0);
    };
    let (reason, next, _) = with(&|sb| {
        old(sb);
        (sb.level, sb.layout) = (0, 0);
    });
    assert!(reason.contains("0.90"));
    let look = Options { read_only: true, ..FORCE };
    assert_eq!(next.invocation, with_members(look, "abc"));
    let mut superblocks = raid5();
    superblocks.iter_mut().for_each(old);
    assert_eq!(ready(assemble(&superblocks, FORCE)).1, 0);
}

#[test]
fn an_array_with_another_kind_of_bitmap_is_refused_and_nothing_dropped() {
    let mut superblocks = raid5();
    superblocks.iter_mut().for_each(|sb| sb.feature_map = feature::BITMAP_OFFSET);
    let refusal = |errors: &[Option<BitmapError>]| {
        let mut candidates = candidates(&superblocks);
        for (candidate, error) in candidates.iter_mut().zip(errors) {
            if let Some(error) = error {
                candidate.bitmap = Some(Err(error.clone()));
            }
        }
        assert!(ready(decide(candidates.clone(), READ_ONLY)).0.read_only);
        refused(decide(candidates, FORCE))
    };
    for (version, kind) in [(6, "lockless"), (5, "clustered")] {
        let of_a_kind = BitmapError::Version { version, kind };
        for bitmaps in [vec![Some(of_a_kind.clone())], vec![None, Some(of_a_kind)]] {
            let (reason, next, could_force) = refusal(&bitmaps);
            let text = format!("the array uses a {kind} bitmap, which braid does not run");
            assert_eq!((reason, could_force), (text, false));
            let next = next.advice;
            assert!(next.contains("mdadm") && !next.contains("no-bitmap"), "{next}");
        }
    }
    // What it was cannot be told, so everything must be compared once it is gone.
    let gone = Some(BitmapError::NoMagic);
    let (reason, next, _) = refusal(&[gone.clone(), gone.clone(), gone]);
    assert_eq!(reason, "no member's bitmap can be read");
    let next = next.advice;
    let drop = next.find("--update=no-bitmap");
    let resync = next.find("--update=resync");
    assert!(drop.is_some() && drop < resync, "{next}");
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
    let text = verdict(&|sb| sb.roles[1] = DevRole::Active(Role(3)));
    assert_eq!(text, "b: its role is 3, the array has 3 members");
}
