//! Members that fail, are missing or are replaced: the superblocks tell before writes are
//! acknowledged, and every superblock in between can be started from.

use super::restart::is_data_write;
use super::restart::is_superblock;
use super::world::Fate;
use super::*;
use crate::Role;
use crate::action::{Command, IoError};
use crate::keeper::SAFE_MODE_MS;
use crate::status::{ArrayState, MemberState};

/// The superblocks say "active", and no time passes that would change it: background work does
/// not wait either.
fn make_active(world: &mut World) {
    let min_bytes_s = Some(u64::MAX);
    world.begin_command(Command::SpeedLimits { min_bytes_s, max_bytes_s: None });
    assert!(world.begin_write(0, &noise(1, 512)));
    assert_eq!(world.superblock(0).resync_offset, 0);
}

const REDUNDANT: [(i32, u32, u32, u32); 4] =
    [(1, 0, 2, 0), (5, 2, 3, 16), (6, 2, 4, 16), (10, 0x102, 4, 16)];

#[test]
fn a_write_error_is_on_the_superblocks_before_the_write_is_acknowledged() {
    for (level, layout, disks, chunk) in REDUNDANT {
        let mut world = World::new(level, layout, disks, chunk);
        make_active(&mut world);
        world.rule(|member, op| match op {
            _ if is_superblock(op) => Fate::Hold,
            _ if is_data_write(op) && member == MemberId(1) => Fate::Fail(IoError::MEDIUM),
            _ => Fate::Serve,
        });
        assert!(!world.begin_write(0, &noise(2, 64 * 512)), "level {level}: answered too early");
        assert!(world.held.iter().all(|(_, member, _)| *member != MemberId(1)));
        world.hold_nothing();
        assert_eq!(world.answers.len(), 1, "level {level}");
        for other in (0..disks as usize).filter(|disk| *disk != 1) {
            assert_eq!(world.superblock(other).role_of(1), DevRole::Faulty, "level {level}");
        }
        world.cut_power_and_restart();
        assert_eq!(world.array.status().degraded, 1, "level {level}");
    }
}

/// Then the member counts as current when it is back, and has not what was written.
#[test]
fn a_write_is_not_acknowledged_when_no_superblock_can_tell_who_missed_it() {
    for (level, layout, disks, chunk) in REDUNDANT {
        let mut world = World::new(level, layout, disks, chunk);
        make_active(&mut world);
        world.rule(|member, op| match op {
            _ if is_superblock(op) => Fate::Fail(IoError::GONE),
            _ if is_data_write(op) && member == MemberId(1) => Fate::Fail(IoError::MEDIUM),
            _ => Fate::Serve,
        });
        let answer = world.write(0, &noise(2, 64 * 512));
        assert_eq!(answer, Err(RequestError::Failed), "level {level}");
        assert!(world.events.contains(&ArrayEvent::ArrayFailed), "level {level}");
    }
}

/// Until the members know who has taken over, either may hold the role after a power cut, and both
/// have what was acknowledged.
#[test]
fn a_replaced_member_gets_writes_until_the_members_know() {
    for cut in [true, false] {
        let mut world = World::new(1, 0, 2, 0);
        make_active(&mut world);
        let new = world.add_disk();
        world.hold(|_, op| is_superblock(op));
        world.begin_command(Command::Replace(MemberId(0)));
        world.release_until(|world| world.events.contains(&ArrayEvent::MemberActive(new)));
        let data = noise(2, 512);
        assert!(world.begin_write(0, &data), "it can be acknowledged");
        assert!((0..3).all(|disk| world.data(disk, 0, 1) == data));
        if cut {
            world.disks.iter_mut().flatten().for_each(disk::Disk::flush);
            world.disks[1] = None;
            world.cut_power_and_restart();
            assert_eq!(world.read(0, 1).unwrap(), data);
            continue;
        }
        world.hold_nothing();
        assert_eq!(world.superblock(1).role_of(0), DevRole::Faulty);
        assert!(world.begin_write(0, &noise(3, 512)));
        assert!(world.data(0, 0, 1) == data, "it has left");
    }
}

/// A command may name the spare that replaces a member; where that one is gone, the member stays.
#[test]
fn a_member_is_replaced_by_the_spare_that_was_named() {
    for lost in [false, true] {
        let mut world = World::new(1, 0, 2, 0);
        make_active(&mut world);
        let other = world.add_disk();
        let named = world.add_disk();
        world.command(Command::Pause(true));
        world.command(Command::ReplaceWith { old: MemberId(0), spare: named });
        let state = |world: &World, id| world.array.status().member(id).map(|m| m.state);
        assert_eq!(state(&world, named), Some(MemberState::Rebuilding));
        assert_eq!(state(&world, other), Some(MemberState::Spare));
        if lost {
            world.command(Command::Fail(named));
        }
        world.command(Command::Pause(false));
        world.run_until_idle();
        let (old, new) = if lost {
            (MemberState::InSync, MemberState::Faulty)
        } else {
            (MemberState::Faulty, MemberState::InSync)
        };
        assert_eq!(state(&world, MemberId(0)), Some(old));
        assert_eq!(state(&world, named), Some(new));
        assert_eq!(state(&world, other), Some(MemberState::Spare), "lost: {lost}");
    }
}

/// Its device vanishes after all was copied: before its superblock says so, or while the others'
/// do.
#[test]
fn a_member_stays_when_its_replacement_is_lost_while_taking_over() {
    for (level, layout, disks, chunk) in REDUNDANT {
        for told in [false, true] {
            let what = format!("level {level}, told {told}");
            let mut world = World::new(level, layout, disks, chunk);
            let mut content = fill(&mut world);
            make_active(&mut world);
            let new = world.add_disk();
            world.hold(|_, op| is_superblock(op));
            world.begin_command(Command::Replace(MemberId(0)));
            world.release_until(|world| world.events.contains(&ArrayEvent::MemberActive(new)));
            if told {
                world.hold(move |member, op| member != new && is_superblock(op));
                world.release();
                assert!(!world.held.is_empty(), "{what}: the others are being told");
            }
            world.disks[disks as usize] = None;
            let data = noise(2, 512);
            content[..512].copy_from_slice(&data);
            let answered = world.begin_write(0, &data);
            world.hold_nothing();
            assert!(answered || world.answers.len() == 1, "{what}");
            assert_eq!(world.array.status().degraded, 0, "{what}");
            for disk in 0..disks as usize {
                let superblock = world.superblock(disk);
                assert_eq!(superblock.role_of(0), DevRole::Active(Role(0)), "{what}: disk {disk}");
                assert_eq!(superblock.role_of(disks), DevRole::Faulty, "{what}: disk {disk}");
            }
            world.disks.iter_mut().flatten().for_each(disk::Disk::flush);
            world.cut_power_and_restart();
            assert_eq!(world.array.status().degraded, 0, "{what}");
            compare(&mut world, &content, &what);
        }
    }
}

/// An array that was active when its power was cut does not write superblocks before the first
/// write for any other reason.
#[test]
fn a_member_missing_at_the_start_is_recorded_before_a_write_is_acknowledged() {
    for (level, layout, disks, chunk) in [(1, 0, 2, 0), (10, 0x102, 4, 16)] {
        let mut world = World::new(level, layout, disks, chunk);
        make_active(&mut world);
        let missing = world.disks[1].take();
        world.cut_power_and_restart_holding(|_, op| is_superblock(op));
        assert!(!world.begin_write(0, &noise(2, 512)), "level {level}: answered too early");
        world.hold_nothing();
        assert_eq!(world.answers.len(), 1);
        world.disks[1] = missing;
        world.cut_power_and_restart();
        assert_eq!(world.array.status().degraded, 1, "level {level}: it must be stale");
    }
}

/// A power cut during an update leaves members one event behind, which still counts as current;
/// two behind is stale.
#[test]
fn members_one_update_behind_never_fall_two_behind() {
    let mut world = World::with(5, 2, 3, 16, |config| {
        config.members[2].superblock.events -= 1;
    });
    world.hold(|member, op| member == MemberId(2) && is_superblock(op));
    world.begin_write(0, &noise(1, 512));
    assert!(!world.held.is_empty(), "a superblock was to be written");
    world.cut_power_and_restart();
    assert_eq!(world.array.status().degraded, 0, "nobody failed");
}

/// One update tells that a member became in sync and that another failed. Both would be missing if
/// the failure were known alone.
#[test]
fn a_member_that_became_in_sync_says_so_before_others_tell_of_a_failure() {
    for (level, layout, disks, chunk) in [(4, 0, 4, 32), (5, 2, 3, 16), (10, 0x102, 4, 16)] {
        let mut world = World::new(level, layout, disks, chunk);
        make_active(&mut world);
        world.begin_command(Command::Fail(MemberId(0)));
        world.begin_command(Command::Remove(MemberId(0)));
        world.hold(|_, op| op == IoOp::Flush);
        let new = world.add_disk();
        world.release_until(|world| world.events.contains(&ArrayEvent::MemberActive(new)));
        world.begin_command(Command::Fail(MemberId(1)));
        // The update's flush goes through; the new member's superblock does not arrive.
        world.hold(move |member, op| member == new && is_superblock(op));
        world.release();
        assert!(!world.held.is_empty());
        world.disks[0] = None;
        world.cut_power_and_restart();
        assert_eq!(world.array.status().degraded, 0, "level {level}: only one was told of");
    }
}

/// Acknowledged data are in the caches of members that nobody can flush any more. With the power
/// back, all of them are in sync by their superblocks.
#[test]
fn a_flush_of_an_array_that_has_failed_fails() {
    for (level, layout, disks, chunk) in REDUNDANT.into_iter().chain([(0, 0, 2, 16)]) {
        let mut world = World::new(level, layout, disks, chunk);
        world.write(0, &noise(1, 512)).unwrap();
        // Only what is asked of members from now on fails.
        world.rule(|_, _| Fate::Fail(IoError::GONE));
        for _ in 0..2 {
            world.request(Op::Flush, 0, 0, Buf::default());
            let answers = world.run();
            assert_eq!(answers.len(), 1, "level {level}");
            assert!(answers[0].1.is_err(), "level {level}: nobody has flushed anything");
        }
    }
}

/// Each member that failed could have been done without, as long as it was the only one.
#[test]
fn a_flush_under_way_fails_with_the_array() {
    for (level, layout, disks, chunk) in REDUNDANT {
        let mut world = World::new(level, layout, disks, chunk);
        make_active(&mut world);
        let last = MemberId(disks as u16 - 1);
        world.rule(move |member, op| match op {
            IoOp::Flush if member == last => Fate::Hold,
            _ => Fate::Fail(IoError::GONE),
        });
        world.request(Op::Flush, 0, 0, Buf::default());
        world.run_until_idle();
        world.hold_nothing();
        let answers: Vec<_> = world.run().into_iter().map(|(_, result)| result).collect();
        assert_eq!(answers, [Err(RequestError::Failed)], "level {level}");
    }
}

#[test]
fn a_stop_is_answered_after_the_last_update_of_the_superblocks() {
    let mut world = World::new(10, 0x102, 2, 16);
    make_active(&mut world);
    world.rule(|member, op| match op {
        IoOp::Flush if member == MemberId(1) => Fate::Fail(IoError::GONE),
        _ if is_superblock(op) => Fate::Hold,
        _ => Fate::Serve,
    });
    world.begin_command(Command::Stop);
    while !world.held.is_empty() {
        assert!(world.answers.is_empty(), "superblocks were still being written");
        world.release();
    }
    assert_eq!(world.answers.len(), 1);
    assert_eq!(world.superblock(0).role_of(1), DevRole::Faulty);
}

#[test]
fn a_stop_is_answered_after_a_read_that_came_during_it() {
    let mut world = World::new(5, 2, 3, 16);
    make_active(&mut world);
    world.hold(|_, op| is_superblock(op));
    world.begin_command(Command::Stop);
    assert_eq!(world.held.len(), 3);
    let buf = world.data_buf(4096);
    world.hold(|_, op| matches!(op, IoOp::Read { .. }));
    world.request(Op::Read, 0, 8, buf);
    world.run_until_idle();
    while let Some(at) = world.held.iter().position(|(_, _, op)| is_superblock(*op)) {
        world.release_one(at);
        world.run_until_idle();
    }
    assert!(world.answers.is_empty(), "a read is under way");
    world.hold_nothing();
    world.run_until_idle();
    assert_eq!(world.answers.len(), 2);
}

#[test]
fn the_superblocks_say_clean_after_idling_and_active_before_the_next_write() {
    let mut world = World::new(5, 2, 3, 16);
    make_active(&mut world);
    assert_eq!(world.array.deadline(), Some(world.now.plus_millis(SAFE_MODE_MS)));
    world.run();
    assert!((0..3).all(|disk| world.superblock(disk).resync_offset == MAX_SECTOR));
    world.issued.clear();
    world.hold(|_, op| is_superblock(op));
    world.begin_write(0, &noise(2, 512));
    assert_eq!(world.held.len(), 3);
    assert!(world.written().is_empty(), "written while the superblocks said clean");
    world.hold_nothing();
    assert!(!world.written().is_empty());
}

#[test]
fn nobody_is_told_clean_before_the_superblocks_say_so() {
    let mut world = World::new(5, 2, 3, 16);
    make_active(&mut world);
    world.hold(|_, op| is_superblock(op));
    assert!(world.pass_time());
    assert_eq!(world.held.len(), 3);
    assert_eq!(world.array.status().state, ArrayState::Active);
    world.hold_nothing();
    assert_eq!(world.array.status().state, ArrayState::Clean);
}

/// One event behind counts as current, and a forced start takes such a member back.
#[test]
fn a_failed_member_is_two_events_behind_when_a_write_is_acknowledged() {
    for (level, layout, disks, chunk) in [(1, 0, 3, 0), (5, 2, 3, 16), (10, 0x102, 4, 16)] {
        let mut world = World::new(level, layout, disks, chunk);
        fill(&mut world);
        world.rule(|member, op| match op {
            IoOp::Write { sector, .. } if member == MemberId(0) && sector >= DATA_OFFSET => {
                Fate::Fail(IoError::GONE)
            }
            _ => Fate::Serve,
        });
        assert!(world.begin_write(0, &noise(1, 65536)), "level {level}: not acknowledged");
        let failed = world.superblock(0).events;
        let kept = world.superblock(1).events;
        assert!(failed + 2 <= kept, "level {level}: events {failed} and {kept}");
    }
}

/// Status tells of the last update as the superblocks do.
#[test]
fn the_time_of_the_last_update_is_that_of_the_superblocks() {
    let mut world = World::new(5, 2, 3, 16);
    world.now = world.now.plus_millis(7_000);
    world.command(Command::Fail(MemberId(1)));
    let told = world.superblock(0).utime;
    assert_ne!(told, 0);
    assert_eq!(world.array.status().superblock.utime, told);
}
