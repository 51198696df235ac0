//! What a stack of arrays tells of itself.

use super::world::World;
use super::*;
use crate::action::Command;
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

#[test]
fn no_command_takes_an_array_within_for_a_leaf() {
    let mut world = mirrors();
    for command in [Command::Fail, Command::Remove, Command::Replace] {
        assert!(!world.begin_command(command(Stack::array(MemberId(0)))));
    }
    assert_eq!(world.refusals, ["no such member"; 3]);
    assert_eq!(world.array.status().degraded, 0);
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
