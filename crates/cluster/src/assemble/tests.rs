use braid_array::Role;
use braid_array::format::{MoveNote, Version};

use super::*;
use crate::create::{NewArray, NewBitmap};

fn md(level: Level) -> Family {
    Family::Md { level, layout: Layout::default_for(level) }
}

/// The volumes of a new array.
fn volumes(family: Family, nodes: u8) -> Vec<Candidate> {
    let array = NewArray {
        name: "host:a".into(),
        set_uuid: [7; 16],
        ctime: 1,
        family,
        chunk_bytes: None,
        size_bytes: 8 << 20,
        bitmap: NewBitmap::Default,
        journal_bytes: 0,
        parts_only: false,
        note: MoveNote::Apart,
    };
    let uuids: Vec<_> = (0..nodes).map(|number| [number + 1; 16]).collect();
    let blueprint = array.plan(&uuids, &[]).expect("an array");
    let candidate = |(number, writes): (usize, &Vec<(u64, Vec<u8>)>)| {
        let (sector, bytes) = writes.last().expect("a superblock");
        assert_eq!(*sector, SUPERBLOCK_SECTOR);
        let superblock = Superblock::decode(Version::V1_2, *sector, bytes);
        let place = superblock.as_ref().ok().and_then(Superblock::bitmap_sector);
        let bitmap = place.and_then(|place| writes.iter().find(|(sector, _)| *sector == place));
        Candidate {
            address: format!("h{number}:7000"),
            volume: "a".into(),
            bytes: blueprint.volume_bytes,
            superblock,
            bitmap: bitmap.map(|(_, bytes)| Bitmap::decode(bytes)),
            bad_blocks: Ok(BadBlocks::default()),
        }
    };
    blueprint.writes.iter().enumerate().map(candidate).collect()
}

fn superblock(candidate: &mut Candidate) -> &mut Superblock {
    candidate.superblock.as_mut().expect("a superblock")
}

fn ready(candidates: &[Candidate], options: Options) -> Startable {
    match decide(candidates, options).start {
        Start::Ready(plan) => *plan,
        Start::Refused(refusal) => panic!("refused: {refusal}"),
    }
}

fn refused(candidates: &[Candidate], options: Options) -> String {
    match decide(candidates, options).start {
        Start::Ready(plan) => panic!("can start: {plan:?}"),
        Start::Refused(refusal) => refusal.to_string(),
    }
}

fn addresses(plan: &Startable) -> Vec<&str> {
    plan.members.iter().flatten().map(|member| member.address.as_str()).collect()
}

#[test]
fn a_new_array_starts_whatever_the_order_of_its_members() {
    let levels = [Level::Raid0, Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6];
    let levels = levels.into_iter().chain([Level::Raid10]);
    for family in levels.map(md).chain([Family::Xor2d]) {
        let mut candidates = volumes(family, 5);
        candidates.reverse();
        let assembly = decide(&candidates, Options::default());
        assert_eq!(assembly.newest.map(|sb| sb.level), Some(family.encode().0));
        let plan = ready(&candidates, Options::default());
        assert_eq!(plan.family, family);
        assert_eq!(addresses(&plan), ["h0:7000", "h1:7000", "h2:7000", "h3:7000", "h4:7000"]);
        assert_eq!((plan.degraded(), plan.dirty, plan.read_only), (0, false, false));
        let rows = u64::from(family.code(5, 0).unwrap().rows());
        let bytes = plan.stripes * rows * u64::from(plan.chunk_bytes);
        assert!(bytes <= 8 << 20 && bytes > (8 << 20) - (1 << 20), "{family:?} {bytes}");
        let sb = &plan.members[3].as_ref().unwrap().superblock;
        assert_eq!((sb.level, sb.dev_number), (family.encode().0, 3));
    }
}

#[test]
fn a_degraded_array_goes_on() {
    let candidates = volumes(Family::Xor2d, 5);
    let plan = ready(&candidates[1..4], Options::default());
    assert_eq!((plan.degraded(), plan.read_only), (2, false));
    assert!(plan.members[0].is_none() && plan.members[4].is_none());
    assert!(refused(&candidates[..2], Options::default()).contains("it needs 3 of 5"));
    assert!(refused(&volumes(md(Level::Raid5), 3)[..1], Options::default()).contains("needs 2"));
    assert!(refused(&volumes(md(Level::Raid0), 3)[..2], Options::default()).contains("all 3"));
}

#[test]
fn what_journals_hold_is_what_the_newest_superblock_says() {
    let live = feature::NODE_JOURNALS | feature::NODE_PPL;
    let unrecorded = live | feature::NODE_UNRECORDED;
    for (newest, older) in [(live, 0), (0, unrecorded), (live, unrecorded)] {
        let mut candidates = volumes(md(Level::Raid5), 4);
        for (number, candidate) in candidates.iter_mut().enumerate() {
            let superblock = superblock(candidate);
            superblock.feature_map |= if number == 3 { older } else { newest };
            superblock.events += if number == 3 { 0 } else { 10 };
        }
        let plan = ready(&candidates, Options::default());
        for member in plan.members.iter().flatten() {
            assert_eq!(member.superblock.feature_map & feature::OVER_NODES, newest, "{older:#x}");
        }
    }
}

#[test]
fn members_that_fell_behind_are_given_what_they_missed() {
    let mut candidates = volumes(Family::Xor2d, 5);
    for candidate in &mut candidates[1..] {
        superblock(candidate).events += 5;
    }
    let assembly = decide(&candidates, Options::default());
    assert!(matches!(assembly.verdicts[0].1, Verdict::Stale { .. }), "{:?}", assembly.verdicts);
    let plan = ready(&candidates, Options::default());
    assert_eq!((plan.degraded(), plan.behind()), (0, 1));
    let behind = &plan.members[0].as_ref().unwrap().superblock;
    assert_eq!((behind.recovery_offset, behind.events), (0, 5));
    // Whoever only reads does without it.
    let looks = Options { read_only: true, ..Options::default() };
    assert_eq!(ready(&candidates, looks).degraded(), 1);
    // It went on while the others were gone.
    superblock(&mut candidates[0]).roles[1..].fill(DevRole::Faulty);
    let plan = ready(&candidates, Options::default());
    assert_eq!((plan.degraded(), plan.behind()), (1, 0));
    superblock(&mut candidates[0]).roles = superblock(&mut candidates[1]).roles.clone();
    // One event is what an interrupted update of the superblocks leaves: the keeper tells it of
    // that before there is another one.
    superblock(&mut candidates[0]).events += 4;
    let plan = ready(&candidates, Options::default());
    assert_eq!(plan.degraded(), 0);
    let events = plan.members.iter().flatten().map(|member| member.superblock.events);
    assert_eq!(events.collect::<Vec<u64>>(), [4, 5, 5, 5, 5]);
}

#[test]
fn who_comes_back_to_find_its_number_taken_gets_another() {
    let mut candidates = volumes(md(Level::Raid1), 3);
    // The last one became a member anew while the one before it was away. A number that a command
    // made faulty is not given to another one, unless there is none else: it is out then, too.
    superblock(&mut candidates[2]).dev_number = 1;
    for (last, numbers, expected, out) in [
        (DevRole::Spare, 3, [0, 2, 1], 0),
        (DevRole::Faulty, 3, [0, 3, 1], 0),
        (DevRole::Faulty, MAX_DEV, [0, 2, 1], 1),
    ] {
        for number in [0, 2] {
            let superblock = superblock(&mut candidates[number]);
            superblock.events = 5;
            superblock.roles[1..3].copy_from_slice(&[DevRole::Active(Role(2)), last]);
            superblock.roles.resize(numbers as usize, last);
        }
        let plan = ready(&candidates, Options::default());
        assert_eq!((plan.degraded(), plan.behind(), plan.made_faulty()), (0, 1 - out, out));
        let numbers = plan.members.iter().flatten().map(|member| member.superblock.dev_number);
        assert_eq!(numbers.collect::<Vec<u32>>(), expected);
    }
}

#[test]
fn whom_a_command_made_faulty_has_a_vote_and_is_given_nothing() {
    let mut candidates = volumes(md(Level::Raid1), 3);
    for candidate in &mut candidates[..2] {
        let superblock = superblock(candidate);
        superblock.events += 5;
        superblock.roles[2] = DevRole::Faulty;
    }
    let plan = ready(&candidates, Options::default());
    assert_eq!((plan.degraded(), plan.behind(), plan.made_faulty()), (0, 0, 1));
    assert!(plan.members[2].as_ref().is_some_and(ClientMember::was_made_faulty));
}

#[test]
fn one_that_heard_alone_of_the_last_update_is_no_half_of_a_split_array() {
    let mut candidates = volumes(md(Level::Raid1), 2);
    superblock(&mut candidates[0]).roles[1] = DevRole::Spare;
    candidates.iter_mut().for_each(|candidate| superblock(candidate).events += 1);
    for candidates in [candidates.clone(), candidates.iter().rev().cloned().collect()] {
        let plan = ready(&candidates, Options::default());
        assert_eq!((plan.degraded(), plan.behind()), (0, 1));
        assert!(
            plan.members[1]
                .as_ref()
                .is_some_and(|member| { member.superblock.has(feature::RECOVERY_OFFSET) })
        );
    }
    // Where each went on without the other, a person has to choose.
    superblock(&mut candidates[1]).roles[0] = DevRole::Faulty;
    let start = decide(&candidates, Options::default()).start;
    assert!(matches!(start, Start::Refused(why) if why.reason.contains("split")));
}

#[test]
fn a_dirty_array_that_lacks_a_member_starts_by_force_alone() {
    let mut candidates = volumes(Family::Xor2d, 5);
    candidates.iter_mut().for_each(|candidate| superblock(candidate).resync_offset = 0);
    assert!(ready(&candidates, Options::default()).dirty);
    let Start::Refused(why) = decide(&candidates[1..], Options::default()).start else {
        panic!("it can start")
    };
    assert!(why.reason.contains("may be wrong"), "{why}");
    let options = local::Options { force: true, ..local::Options::default() };
    let devices = candidates[1..].iter().map(Candidate::name).collect();
    let force = Invocation::Assemble { name: None, rename: false, options, devices };
    assert_eq!(why.next.invocation, Some(Box::new(force)));
    let force = Options { force: true, ..Options::default() };
    assert_eq!(ready(&candidates[1..], force).degraded(), 1);
}

#[test]
fn the_bits_of_all_members_count() {
    let mut candidates = volumes(Family::Xor2d, 5);
    for (bit, candidate) in (0..).zip(&mut candidates[..2]) {
        superblock(candidate).resync_offset = 0;
        let Some(Ok(bitmap)) = &mut candidate.bitmap else { panic!("no bitmap") };
        bitmap.set(bit);
    }
    candidates[2..].iter_mut().for_each(|candidate| superblock(candidate).resync_offset = 0);
    let plan = ready(&candidates, Options::default());
    assert!(plan.dirty && plan.by_bitmap);
    let bitmap = plan.bitmap.expect("a bitmap");
    assert_eq!((bitmap.count(), bitmap.get(0), bitmap.get(1)), (2, true, true));
    // What no bitmap tells of is all to be made right.
    for candidate in &mut candidates {
        superblock(candidate).events += 1;
    }
    let plan = ready(&candidates, Options::default());
    let bitmap = plan.bitmap.expect("a bitmap");
    assert!(!plan.by_bitmap && bitmap.count() == bitmap.bits());
}

#[test]
fn strangers_are_refused() {
    let mut candidates = volumes(Family::Xor2d, 5);
    superblock(&mut candidates[2]).set_uuid = [9; 16];
    assert!(refused(&candidates, Options::default()).contains("another array"));
    // The same member, reached by two names.
    let mut candidates = volumes(Family::Xor2d, 5);
    let twice = Candidate { address: "other:7000".into(), ..candidates[0].clone() };
    candidates.push(twice);
    assert!(refused(&candidates, Options::default()).contains("the same member as"));
}

#[test]
fn a_volume_that_lost_its_superblock_is_done_without() {
    let mut candidates = volumes(Family::Xor2d, 5);
    candidates[3].superblock = Err(SuperblockError::NoMagic);
    let assembly = decide(&candidates, Options::default());
    let said: Vec<String> = assembly.verdicts.iter().map(|(_, v)| v.to_string()).collect();
    assert_eq!(said[3], "no md superblock");
    assert!(assembly.verdicts.iter().filter(|(_, verdict)| verdict.attached()).count() == 4);
    assert_eq!(ready(&candidates, Options::default()).degraded(), 1);
    candidates.iter_mut().for_each(|one| one.superblock = Err(SuperblockError::NoMagic));
    assert!(refused(&candidates, Options::default()).contains("no md superblock"));
}

#[test]
fn members_that_do_not_know_all_they_hold_start_with_that() {
    let mut candidates = volumes(md(Level::Raid5), 3);
    let mut bad = BadBlocks::default();
    assert!(bad.insert(2048 + 128, 8));
    superblock(&mut candidates[1]).feature_map |= feature::BAD_BLOCKS;
    candidates[1].bad_blocks = Ok(bad.clone());
    let plan = ready(&candidates, Options::default());
    let found = |role: usize| plan.members[role].as_ref().expect("a member").bad_blocks.clone();
    assert_eq!([0, 1, 2].map(found), [BadBlocks::default(), bad, BadBlocks::default()]);
    // One whose list cannot be read may hold anything.
    candidates[1].bad_blocks = Err(BadBlocksError::TooMany);
    let plan = ready(&candidates, Options::default());
    assert!(plan.members[1].is_none());
}

#[test]
fn numbers_that_make_no_array_are_refused() {
    let sizes = |change: fn(&mut Superblock)| {
        let mut candidates = volumes(Family::Xor2d, 5);
        candidates.iter_mut().for_each(|candidate| change(superblock(candidate)));
        refused(&candidates, Options::default())
    };
    assert!(sizes(|sb| sb.size_sectors -= 8).contains("whole stripes"));
    assert!(!sizes(|sb| sb.level = 6263).is_empty());
    assert!(!sizes(|sb| sb.chunk_sectors = 0).is_empty());
    assert!(!sizes(|sb| sb.chunk_sectors = u32::MAX).is_empty());
    assert!(!sizes(|sb| sb.raid_disks = 35).is_empty());
    assert!(!sizes(|sb| sb.raid_disks = u32::MAX).is_empty());
}

/// A RAID-5 whose first volumes tell of another stripe, and by how many bytes volumes got longer.
fn grown(told: usize) -> (Vec<Candidate>, u64) {
    let mut candidates = volumes(md(Level::Raid5), 4);
    let stripe_sectors = u64::from(superblock(&mut candidates[0]).chunk_sectors);
    let bytes = stripe_sectors * SECTOR_BYTES;
    for (number, candidate) in candidates.iter_mut().enumerate() {
        candidate.bytes += bytes;
        let superblock = superblock(candidate);
        superblock.data_size = superblock.size_sectors;
        if number < told {
            superblock.size_sectors += stripe_sectors;
            superblock.data_size += stripe_sectors;
            superblock.events += 1;
        }
    }
    (candidates, bytes)
}

#[test]
fn the_newest_superblock_tells_the_size_also_of_members_that_did_not_hear_of_it() {
    let before = ready(&grown(0).0, Options::default()).stripes;
    for told in 1..4 {
        let plan = ready(&grown(told).0, Options::default());
        assert_eq!((plan.degraded(), plan.behind(), plan.stripes), (0, 0, before + 1));
        for member in plan.members.iter().flatten() {
            let Superblock { size_sectors, data_size, .. } = member.superblock;
            assert!(data_size >= size_sectors, "{size_sectors} of {data_size}");
        }
    }
    // Those that heard of it are away.
    let plan = ready(&grown(1).0[1..], Options::default());
    assert_eq!((plan.degraded(), plan.stripes), (1, before));
}

#[test]
fn a_copy_of_a_volume_from_before_it_became_longer_is_done_without() {
    let (mut candidates, bytes) = grown(3);
    candidates[3].bytes -= bytes;
    for candidate in &mut candidates[..3] {
        superblock(candidate).events += 10;
    }
    let plan = ready(&candidates, Options::default());
    assert_eq!((plan.degraded(), plan.behind()), (1, 0));
    candidates[3].bytes += bytes;
    assert_eq!(ready(&candidates, Options::default()).behind(), 1);
}
