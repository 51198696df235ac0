//! Status and events of a stack of arrays.

use super::world::World;
use super::*;
use crate::Role;
use crate::action::{Command, NewMember};
use crate::stack::Stack;
use crate::status::MemberState;

/// A mirror of two mirrors.
fn mirrors() -> World {
    World::stack((1, 0, 2, 0), (1, 0, 2, 0))
}

/// The events of the array within.
fn within(world: &World, index: u16) -> Vec<&ArrayEvent> {
    let wanted = Stack::array(MemberId(index));
    let of = world.events.iter().filter_map(|event| match event {
        ArrayEvent::Within { array, event } if *array == wanted => Some(&**event),
        _ => None,
    });
    of.collect()
}

/// The members that failed, by these events.
fn failed<'a>(events: impl IntoIterator<Item = &'a ArrayEvent>) -> Vec<MemberId> {
    let of = |event: &ArrayEvent| match event {
        ArrayEvent::MemberFailed { member, .. } => Some(*member),
        _ => None,
    };
    events.into_iter().filter_map(of).collect()
}

#[test]
fn a_failed_leaf_is_told_of_and_not_the_array_it_is_in() {
    let mut world = mirrors();
    let leaf = Stack::leaf(1, MemberId(0));
    world.command(Command::Fail(leaf));
    assert!(failed(&world.events).is_empty(), "{:?}", world.events);
    assert!(within(&world, 0).is_empty(), "{:?}", world.events);
    assert_eq!(failed(within(&world, 1)), [leaf]);
    let status = world.array.status();
    assert_eq!(status.member(leaf).map(|member| member.state), Some(MemberState::Faulty));
    let array = Stack::array(MemberId(1));
    assert_eq!(status.member(array).map(|member| member.state), Some(MemberState::InSync));
    assert_eq!(status.array_within(array).map(|child| child.degraded), Some(1));
    assert!(status.array_within(leaf).is_none());
}

#[test]
fn an_array_within_that_is_lost_is_told_of_by_its_own_id() {
    let mut world = mirrors();
    fill(&mut world);
    for member in 0..2 {
        world.disks[2 + member] = None;
    }
    world.read(0, 64).unwrap();
    let array = Stack::array(MemberId(1));
    world.write(0, &noise(5, 64 << 9)).unwrap();
    assert_eq!(failed(&world.events), [array], "{:?}", world.events);
    assert!(within(&world, 1).contains(&&ArrayEvent::ArrayFailed));
    assert!(!world.events.contains(&ArrayEvent::ArrayFailed), "the other mirror serves");
}

/// A mirror of two arrays without redundancy.
fn striped() -> World {
    World::stack((1, 0, 2, 0), (0, 2, 2, 16))
}

fn new_member(world: &World, member: MemberId, readd: bool) -> Command {
    Command::Add(Box::new(NewMember {
        member,
        device: format!("new{}", member.0),
        device_sectors: DATA_OFFSET + MEMBER_SECTORS,
        superblock: None,
        bad_blocks: None,
        readd,
        device_uuid: [world.events.len() as u8; 16],
    }))
}

#[test]
fn an_array_within_is_failed_removed_and_added_as_a_member() {
    for (mut world, readd) in [(mirrors(), false), (striped(), false), (striped(), true)] {
        let content = fill(&mut world);
        let array = Stack::array(MemberId(0));
        world.command(Command::Fail(array));
        assert_eq!(failed(&world.events), [array]);
        assert_eq!(world.array.status().degraded, 1);
        let command = new_member(&world, array, false);
        assert!(world.refused(command).ends_with("is a member already"));
        world.write(0, &noise(1, 4096)).unwrap();
        world.command(Command::Remove(array));
        // Taken back or added, it is given everything.
        let command = new_member(&world, array, readd);
        world.command(command);
        assert_eq!(world.array.status().degraded, 0, "{:?}", world.events);
        assert_eq!(world.check(), 0);
        // The other one is not needed any more.
        world.command(Command::Fail(Stack::array(MemberId(1))));
        assert!(world.read(8, 128).unwrap()[..] == content[4096..][..65536]);
        assert!(world.read(0, 8).unwrap() == noise(1, 4096));
    }
}

#[test]
fn a_leaf_that_its_array_needs_leads_to_the_array_around_it() {
    let mut world = mirrors();
    world.command(Command::Fail(Stack::leaf(0, MemberId(0))));
    for (mut world, leaf) in [(world, 1), (striped(), 0)] {
        let leaf = Stack::leaf(0, MemberId(leaf));
        let reason = world.refused(Command::Fail(leaf));
        assert!(reason.contains("cannot do without it, and the array goes on without"), "{reason}");
        let advice = world.advice.last().unwrap();
        assert!(advice.starts_with("fail that as a whole first"), "{advice}");
        world.command(Command::Fail(Stack::array(MemberId(1))));
        let reason = world.refused(Command::Fail(leaf));
        assert!(reason.starts_with("the array would lose data without"), "{reason}");
        assert!(!world.advice.last().unwrap().contains("backup"));
    }
}

/// The device fails, or an administrator takes it off.
#[test]
fn an_array_without_redundancy_is_rebuilt_on_a_new_leaf() {
    for dies in [true, false] {
        let mut world = striped();
        let mut content = fill(&mut world);
        let array = Stack::array(MemberId(0));
        let leaf = Stack::leaf(0, MemberId(1));
        if dies {
            world.disks[1] = None;
            let new = noise(3, 65536);
            world.write(0, &new).unwrap();
            content[..65536].copy_from_slice(&new);
            assert_eq!(failed(&world.events), [array]);
        } else {
            world.command(Command::Fail(array));
        }
        world.command(Command::Fail(leaf));
        let without = new_member(&world, Stack::leaf(0, MemberId(2)), false);
        assert!(world.refused(without).contains("no member was removed"));
        world.command(Command::Remove(leaf));
        let status = world.array.status();
        assert_eq!(status.children[0].degraded, 1, "dies: {dies}");
        let command = new_member(&world, array, false);
        assert_eq!(world.refused(command), "it has lost too many members of its own");

        let member = world.array.free_member_within(array).unwrap();
        assert_eq!((member, world.array.free_member()), (leaf, Some(leaf)));
        world.disks[1] = Some(disk::Disk::filled(DATA_OFFSET + MEMBER_SECTORS, 0xee));
        let command = new_member(&world, member, false);
        world.command(command);
        let status = world.array.status();
        assert_eq!(status.degraded, 0, "dies: {dies}: {:?}", world.events);
        assert_eq!(world.check(), 0);
        // Who returns is told from who followed.
        let events = [0, 1].map(|disk| world.superblock(disk).events);
        assert!(events[0] == events[1] && events[0] > 1, "{events:?}");
        assert_eq!(world.superblock(1).role(), DevRole::Active(Role(1)));
        world.command(Command::Fail(Stack::array(MemberId(1))));
        compare(&mut world, &content, "rebuilt");
    }
}

#[test]
fn a_check_counts_in_all_arrays() {
    let mut world = mirrors();
    fill(&mut world);
    let differs = |world: &World| {
        let status = world.array.status();
        (
            status.mismatch_sectors,
            status.children.iter().map(|child| child.mismatch_sectors).collect(),
        )
    };
    assert_eq!(differs(&world), (None, vec![None, None]));
    // One copy of four: the mirror it is in differs; the outer one reads the other copy or this.
    let disk = world.disks[3].as_mut().unwrap();
    disk.write(DATA_OFFSET * 2 + 8, &noise(9, 4096), true);
    let counted = world.check();
    let (all, inner): (Option<u64>, Vec<Option<u64>>) = differs(&world);
    assert_eq!(all, Some(counted));
    assert_eq!((inner[0], inner[1].is_some_and(|found| found > 0)), (Some(0), true));
    assert!(counted >= inner[1].unwrap(), "{counted} of {inner:?}");
}

#[test]
fn the_limits_of_background_work_are_those_of_the_arrays_that_have_some() {
    let mut world = World::stack((0, 2, 2, 16), (1, 0, 2, 0));
    world.command(Command::SpeedLimits { min_bytes_s: Some(77), max_bytes_s: Some(99) });
    let sync = world.array.status().sync;
    assert_eq!((sync.min_bytes_per_s, sync.max_bytes_per_s), (77, Some(99)));
}
