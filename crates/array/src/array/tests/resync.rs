//! Resync: after an unclean stop, together with a recovery, and stopped halfway.

use super::restart::is_data_write;
use super::*;
use crate::Role;
use crate::action::Command;
use crate::events::{SyncAction, SyncEnd};
use crate::format::superblock::feature;

/// Every disk's data area holds something else: nothing is in step.
pub(super) fn scatter(world: &mut World) {
    for (seed, disk) in world.disks.iter_mut().flatten().enumerate() {
        disk.write(
            DATA_OFFSET,
            &noise(seed as u64, (MEMBER_SECTORS * SECTOR_BYTES) as usize),
            true,
        );
    }
}

pub(super) fn unclean(config: &mut Config) {
    config.superblock.resync_offset = 0;
    config.force = true;
    for member in &mut config.members {
        member.superblock.resync_offset = 0;
    }
}

/// The last of the members is being rebuilt, and is so far.
fn rebuilding(config: &mut Config, role: Role, offset: u64, replacement: bool) {
    let member = config.members.last_mut().unwrap();
    member.standing = Standing::Rebuilding { role, offset, replacement, had: Had::NOTHING };
    member.superblock.recovery_offset = offset;
    member.superblock.feature_map |= feature::RECOVERY_OFFSET;
    if replacement {
        member.superblock.feature_map |= feature::REPLACEMENT;
    }
}

pub(super) fn resync_ended(world: &World) -> bool {
    world.ended(SyncAction::Resync) == Some(SyncEnd::Complete)
}

/// Left to a repair afterwards, the strip was not in step while its unit already counted as such.
#[test]
fn a_resync_writes_what_it_could_not_read_before_it_ends() {
    for (level, layout, disks, chunk) in
        [(1, 0, 2, 0), (1, 0, 3, 0), (6, 2, 4, 16), (6, 0, 5, 32), (10, 0x102, 4, 16)]
    {
        let mut world = World::with(level, layout, disks, chunk, unclean);
        if level != 6 {
            scatter(&mut world);
        }
        let unreadable = DATA_OFFSET + 10;
        world.bad.push((MemberId(1), unreadable));
        world.hold(move |member, op| {
            member == MemberId(1) && is_data_write(op) && covers(op, unreadable)
        });
        world.run();
        assert!(!world.held.is_empty(), "level {level}: it is to be written");
        assert!(!resync_ended(&world), "level {level}: ended with a strip unwritten");
        world.hold_nothing();
        world.run();
        assert!(resync_ended(&world), "level {level}");
        assert!(world.bad.is_empty(), "level {level}");
        assert_eq!(world.check(), 0, "level {level}");
    }
}

fn covers(op: IoOp, wanted: u64) -> bool {
    matches!(op, IoOp::Write { sector, buf, .. }
        if (sector..sector + u64::from(buf.len) / SECTOR_BYTES).contains(&wanted))
}

/// Below the mark too, what was in flight may differ; a resync compares holders of roles only.
#[test]
fn after_an_unclean_stop_a_replacement_is_given_everything_again() {
    for (level, layout, disks, chunk) in [(1, 0, 2, 0), (10, 0x102, 4, 16), (5, 2, 3, 16)] {
        let mut world = World::with(level, layout, disks, chunk, |config| {
            let mut heir = config.members[0].clone();
            heir.superblock.dev_number = disks;
            heir.superblock.device_uuid = [99; 16];
            config.members.push(heir);
            config.superblock.roles.push(DevRole::Active(Role(0)));
            for member in &mut config.members {
                member.superblock.roles.push(DevRole::Active(Role(0)));
            }
            rebuilding(config, Role(0), MEMBER_SECTORS / 2, true);
            unclean(config);
        });
        scatter(&mut world);
        let sectors = world.array.array_sectors();
        world.run_until_idle();
        world.run();
        let heir = MemberId(disks as u16);
        assert!(world.events.contains(&ArrayEvent::MemberActive(heir)), "level {level}");
        let content = world.read(0, sectors.min(2048)).unwrap();
        assert_eq!(world.check(), 0, "level {level}: the replacement differs");
        assert_eq!(world.read(0, sectors.min(2048)).unwrap(), content);
        let old = world.data(0, 0, MEMBER_SECTORS);
        let new = world.data(disks as usize, 0, 2048);
        assert!(old == new, "level {level}");
    }
}

/// Below the offset of a recovery, writes in flight may have left parity apart from the rest.
#[test]
fn a_resync_that_must_wait_for_a_recovery_follows_it() {
    for (level, layout, disks, chunk) in [(4, 0, 4, 32), (5, 2, 3, 16)] {
        for with_bitmap in [false, true] {
            let mut world = World::with(level, layout, disks, chunk, |config| {
                unclean(config);
                rebuilding(config, Role(disks as u16 - 1), MEMBER_SECTORS / 2, false);
                if with_bitmap {
                    add_bitmap(config);
                    config.bitmap.as_mut().unwrap().set_all();
                }
            });
            scatter(&mut world);
            world.run();
            let what = format!("level {level}, bitmap {with_bitmap}");
            assert_eq!(world.array.status().degraded, 0, "{what}");
            assert!(resync_ended(&world), "{what}");
            assert_eq!(world.check(), 0, "{what}");
        }
    }
}

/// Stopped cleanly within a resync, the superblocks say how far it came. A power cut after a write
/// below that must not leave them saying so.
#[test]
fn the_mark_of_a_resync_is_taken_back_before_a_write() {
    for (level, layout, disks, chunk) in [(1, 0, 2, 0), (5, 2, 3, 16), (10, 0x102, 4, 16)] {
        let mut world = World::with(level, layout, disks, chunk, |config| {
            unclean(config);
            let mark = MEMBER_SECTORS / 2;
            config.superblock.resync_offset = mark;
            for member in &mut config.members {
                member.superblock.resync_offset = mark;
            }
        });
        world.begin_command(Command::Pause(true));
        world.issued.clear();
        world.hold(|_, op| is_data_write(op));
        world.begin_write(0, &noise(1, 512));
        assert!(!world.held.is_empty(), "level {level}: the write is on its way");
        for disk in 0..disks as usize {
            assert_eq!(world.superblock(disk).resync_offset, 0, "level {level}: the old mark");
        }
        // The power is cut when one member alone has been written.
        world.hold(|_, _| true);
        world.held.truncate(1);
        world.release();
        world.disks.iter_mut().flatten().for_each(disk::Disk::flush);
        world.cut_power_and_restart();
        world.run();
        assert_eq!(world.check(), 0, "level {level}");
    }
}

#[test]
fn the_speed_is_that_of_now_and_the_limits_are_told() {
    let mut world = World::with(5, 2, 3, 16, unclean);
    let limit = |world: &mut World, min, max| {
        world.begin_command(Command::SpeedLimits { min_bytes_s: min, max_bytes_s: max });
        world.array.status().sync
    };
    let sync = limit(&mut world, Some(1 << 10), Some(16 * SECTOR_BYTES));
    assert_eq!(sync.min_bytes_per_s, 1 << 10);
    assert_eq!(sync.max_bytes_per_s, Some(16 * SECTOR_BYTES));
    let half = MEMBER_SECTORS / 2;
    while world.array.status().sync.done_sectors < half {
        assert!(world.pass_time());
    }
    let sync = world.array.status().sync;
    assert!(sync.bytes_per_s > 0 && sync.finish_s.is_some(), "{sync:?}");
    world.begin_command(Command::Pause(true));
    let sync = world.array.status().sync;
    assert_eq!((sync.bytes_per_s, sync.finish_s), (0, None), "paused: {sync:?}");
    assert!(sync.paused && sync.total_sectors == MEMBER_SECTORS);
    world.begin_command(Command::Pause(false));
    let sync = limit(&mut world, None, Some(0));
    assert_eq!((sync.bytes_per_s, sync.finish_s), (0, None), "no more than nothing: {sync:?}");
    assert!(!sync.paused && sync.max_bytes_per_s == Some(0));
    assert_eq!(sync.min_bytes_per_s, 1 << 10, "not asked to change");
    limit(&mut world, None, Some(u64::MAX));
    assert_eq!(world.array.status().sync.max_bytes_per_s, None);
    world.run();
    assert!(resync_ended(&world));
}

/// The maximum holds under load too, where it is below the minimum.
#[test]
fn requests_do_not_lift_the_largest_speed() {
    let mut world = World::with(5, 2, 3, 16, unclean);
    world.begin_command(Command::SpeedLimits { min_bytes_s: None, max_bytes_s: Some(0) });
    let before = world.array.status().sync.done_sectors;
    for step in 0..20 {
        world.now = world.now.plus_millis(50);
        assert!(world.begin_write(step, &noise(1, 512)));
    }
    let done = world.array.status().sync.done_sectors;
    assert!(done <= before + 16, "{done} sectors instead of {before}");
}
