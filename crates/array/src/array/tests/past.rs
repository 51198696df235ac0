//! Members that are put back as they were at an earlier time, while the array was in use. Nothing
//! but the event count can tell, and an array that is never idle must move it, too.

use super::restart::is_data_write;
use super::*;
use crate::action::Command;

/// A write here stays under way, so that the array is never idle.
const BUSY: u64 = MEMBER_SECTORS - UNIT;

/// A raid1 that is never idle.
fn busy_world(change: impl Fn(&mut Config)) -> World {
    let mut world = World::with(1, 0, 2, 0, change);
    world.run();
    world.hold(|_, op| {
        let IoOp::Write { sector, .. } = op else { return false };
        is_data_write(op) && sector >= DATA_OFFSET + BUSY
    });
    assert!(!world.begin_write(BUSY, &noise(9, 512)));
    world
}

/// Returns whether the unit at the beginning is marked on this disk.
fn is_marked(world: &World, disk: usize) -> bool {
    let bitmap: Bitmap = world.candidate(disk).bitmap.unwrap().unwrap();
    bitmap.get(0)
}

/// Lets time pass until it is not, though the array is in use.
fn clear_marks(world: &mut World) {
    while is_marked(world, 0) || is_marked(world, 1) {
        assert!(world.pass_time(), "marks are cleared while the array is in use");
    }
}

/// The contents of a member, put back once its marks were cleared, do not count at a start.
#[test]
fn a_copy_from_before_marks_were_cleared_is_stale() {
    let mut world = busy_world(add_bitmap);
    let copy = world.disks[1].as_ref().unwrap().image.clone();
    assert!(world.begin_write(0, &noise(1, 512)));
    clear_marks(&mut world);
    world.disks.iter_mut().flatten().for_each(disk::Disk::flush);
    world.disks[1].as_mut().unwrap().image = copy;
    world.cut_power_and_restart();
    assert_eq!(world.array.status().degraded, 1, "the copy is not in sync");
    assert!(world.read(0, 1).unwrap() == noise(1, 512));
}

/// Nor when it comes back to the running array: the bitmap does not say what it lacks.
#[test]
fn a_copy_from_before_marks_were_cleared_is_rebuilt_as_a_whole() {
    let mut world = busy_world(add_bitmap);
    let copy = world.disks[1].as_ref().unwrap().image.clone();
    assert!(world.begin_write(0, &noise(1, 512)));
    clear_marks(&mut world);
    world.hold_nothing();
    world.run();
    world.command(Command::Fail(MemberId(1)));
    world.command(Command::Remove(MemberId(1)));
    world.disks[1].as_mut().unwrap().image = copy;
    world.add(1, true);
    let refusal = world.refusals.pop().expect("what changed is not known");
    assert!(refusal.contains("what changed is not known"), "{refusal}");
    world.add(1, false);
    world.run();
    assert_eq!(world.array.status().degraded, 0);
    assert_eq!(world.data(1, 0, 1), noise(1, 512));
}

/// A copy from after the flush of a checkpoint has all that its marks said: it counts.
#[test]
fn a_copy_from_after_the_flush_counts() {
    let mut world = busy_world(add_bitmap);
    assert!(world.begin_write(0, &noise(1, 512)));
    let before = world.superblock(0).events;
    let end = world.now.plus_millis(31_000);
    while world.now < end {
        assert!(world.pass_time());
    }
    assert!(world.superblock(0).events >= before + 2);
    let copy = world.disks[1].as_ref().unwrap().image.clone();
    world.hold_nothing();
    world.disks.iter_mut().flatten().for_each(disk::Disk::flush);
    world.disks[1].as_mut().unwrap().image = copy;
    world.cut_power_and_restart();
    assert_eq!(world.array.status().degraded, 0);
}

/// Without a bitmap the event count moves all the same, though more seldom.
#[test]
fn a_copy_from_long_ago_is_stale_without_a_bitmap() {
    let mut world = busy_world(|_| {});
    let copy = world.disks[1].as_ref().unwrap().image.clone();
    assert!(world.begin_write(0, &noise(1, 512)));
    let end = world.now.plus_millis(30_000);
    while world.now < end {
        assert!(world.pass_time(), "a checkpoint is due within 30 s");
    }
    world.disks.iter_mut().flatten().for_each(disk::Disk::flush);
    world.disks[1].as_mut().unwrap().image = copy;
    world.cut_power_and_restart();
    assert_eq!(world.array.status().degraded, 1);
}

/// After a stop no copy from before it counts, however short the time.
#[test]
fn a_copy_from_before_a_stop_is_stale() {
    let mut world = World::new(1, 0, 2, 0);
    assert!(world.begin_write(0, &noise(1, 512)));
    let copy = world.disks[1].as_ref().unwrap().image.clone();
    assert!(world.begin_write(0, &noise(2, 512)));
    world.command(Command::Stop);
    world.disks[1].as_mut().unwrap().image = copy;
    world.cut_power_and_restart();
    assert_eq!(world.array.status().degraded, 1);
    assert!(world.read(0, 1).unwrap() == noise(2, 512));
}
