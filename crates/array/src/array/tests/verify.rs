//! A member that is replaced goes when the copy of it can be read, and not before; one that was
//! rebuilt is in sync when that can be.

use super::restart::is_data_write;
use super::world::Fate;
use super::*;
use crate::action::{Command, IoError};
use crate::events::{Fault, SyncAction, SyncEnd};
use crate::status::MemberState;

const REDUNDANT: [(i32, u32, u32, u32); 4] =
    [(1, 0, 2, 0), (5, 2, 3, 16), (6, 2, 4, 16), (10, 0x102, 4, 16)];

fn state(world: &World, id: MemberId) -> MemberState {
    world.array.status().member(id).unwrap().state
}

/// The reason why a member failed.
fn why_failed(world: &World, id: MemberId) -> Option<(String, Fault)> {
    world.events.iter().find_map(|event| match event {
        ArrayEvent::MemberFailed { member, reason, fault, .. } if *member == id => {
            Some((reason.to_string(), *fault))
        }
        _ => None,
    })
}

/// Replaces the first member by one whose I/O fares so: why that failed.
fn replace(
    world: &mut World,
    fate: impl Fn(IoOp) -> Fate + 'static,
) -> (MemberId, Option<(String, Fault)>) {
    let new = world.add_disk();
    world.rule(move |member, op| if member == new { fate(op) } else { Fate::Serve });
    world.command(Command::Replace(MemberId(0)));
    let why = why_failed(world, new);
    (new, why)
}

#[test]
fn a_copy_that_cannot_be_read_takes_nothing_over() {
    for (level, layout, disks, chunk) in REDUNDANT {
        let what = format!("level {level}");
        let mut world = World::new(level, layout, disks, chunk);
        let content = fill(&mut world);
        let (new, why) = replace(&mut world, |op| match op {
            IoOp::Read { sector, .. } if sector >= DATA_OFFSET => Fate::Fail(IoError::MEDIUM),
            _ => Fate::Serve,
        });
        assert_eq!(state(&world, new), MemberState::Faulty, "{what}: {:?}", world.events);
        let (reason, fault) = why.unwrap();
        assert_eq!(reason, "what was copied to it cannot be read back", "{what}");
        assert!(fault.sector.is_some(), "{what}");
        assert_eq!(state(&world, MemberId(0)), MemberState::InSync, "{what}");
        assert_eq!(world.array.status().degraded, 0, "{what}");
        assert!(!world.events.contains(&ArrayEvent::MemberActive(new)), "{what}");
        let ended = world.ended(SyncAction::Recovery);
        assert!(!matches!(ended, Some(SyncEnd::Complete)), "{what}: it is not complete");
        compare(&mut world, &content, &what);
    }
}

/// The first unit, the last one, and every one.
#[test]
fn a_copy_that_is_not_what_was_copied_takes_nothing_over() {
    for (level, layout, disks, chunk) in REDUNDANT {
        for lost in [0..64, MEMBER_SECTORS - UNIT..MEMBER_SECTORS, 0..MEMBER_SECTORS] {
            let what = format!("level {level}, {lost:?} is lost");
            let mut world = World::new(level, layout, disks, chunk);
            let content = fill(&mut world);
            let (new, why) = replace(&mut world, move |op| match op {
                IoOp::Write { sector, .. }
                    if is_data_write(op) && lost.contains(&(sector - DATA_OFFSET)) =>
                {
                    Fate::Lose
                }
                _ => Fate::Serve,
            });
            let (reason, _) = why.unwrap_or_else(|| panic!("{what}: {:?}", world.events));
            assert_eq!(reason, "does not hold what was copied to it", "{what}");
            assert_eq!(state(&world, new), MemberState::Faulty, "{what}");
            assert_eq!(state(&world, MemberId(0)), MemberState::InSync, "{what}");
            assert_eq!(world.array.status().degraded, 0, "{what}");
            compare(&mut world, &content, &what);
        }
    }
}

/// Data that are read back are a small part, and data written meanwhile are in both.
#[test]
fn a_copy_that_can_be_read_takes_over() {
    for (level, layout, disks, chunk) in REDUNDANT {
        let what = format!("level {level}");
        let mut world = World::new(level, layout, disks, chunk);
        let content = fill(&mut world);
        let (new, why) = replace(&mut world, |_| Fate::Serve);
        assert_eq!(why, None, "{what}");
        assert_eq!(state(&world, new), MemberState::InSync, "{what}");
        assert_eq!(state(&world, MemberId(0)), MemberState::Faulty, "{what}");
        let read_back: u64 = world
            .issued
            .iter()
            .filter_map(|(member, op)| match op {
                IoOp::Read { buf, .. } if *member == new => Some(u64::from(buf.len) / SECTOR_BYTES),
                _ => None,
            })
            .sum();
        assert!((1..=MEMBER_SECTORS / 4).contains(&read_back), "{what}: {read_back} sectors");
        world.command(Command::Remove(MemberId(0)));
        compare(&mut world, &content, &what);
        assert_eq!(world.check(), 0, "{what}");
    }
}

const REBUILT: [(i32, u32, u32, u32); 6] =
    [(1, 0, 2, 0), (1, 0, 3, 0), (4, 0, 3, 16), (5, 2, 3, 16), (6, 2, 4, 16), (10, 0x102, 4, 16)];

/// The array lost its first member.
fn degraded((level, layout, disks, chunk): (i32, u32, u32, u32)) -> (World, Vec<u8>) {
    let mut world = World::new(level, layout, disks, chunk);
    let content = fill(&mut world);
    world.command(Command::Fail(MemberId(0)));
    world.command(Command::Remove(MemberId(0)));
    world.events.clear();
    (world, content)
}

/// Adds a disk and rebuilds the first member on it, while its I/O fares so.
fn rebuild(world: &mut World, fate: impl Fn(IoOp) -> Fate + 'static) -> MemberId {
    world.command(Command::Pause(true));
    let new = world.add_disk();
    world.rule(move |member, op| if member == new { fate(op) } else { Fate::Serve });
    world.issued.clear();
    world.command(Command::Pause(false));
    new
}

fn stays_degraded(world: &mut World, new: MemberId, reason: &str, content: &[u8], what: &str) {
    let (why, fault) = why_failed(world, new).unwrap_or_else(|| panic!("{what}: taken"));
    assert_eq!(why, reason, "{what}");
    assert!(fault.sector.is_some(), "{what}");
    assert_eq!(state(world, new), MemberState::Faulty, "{what}");
    assert_eq!(world.array.status().degraded, 1, "{what}");
    assert!(!world.events.contains(&ArrayEvent::MemberActive(new)), "{what}");
    let ended = world.ended(SyncAction::Recovery);
    assert!(!matches!(ended, Some(SyncEnd::Complete)), "{what}: {ended:?}");
    compare(world, content, what);
}

#[test]
fn a_spare_that_cannot_be_read_does_not_become_in_sync() {
    for shape in REBUILT {
        let what = format!("{shape:?}");
        let (mut world, content) = degraded(shape);
        let new = rebuild(&mut world, |op| match op {
            IoOp::Read { sector, .. } if sector >= DATA_OFFSET => Fate::Fail(IoError::MEDIUM),
            _ => Fate::Serve,
        });
        let reason = "what was rebuilt on it cannot be read back";
        stays_degraded(&mut world, new, reason, &content, &what);
        // The next one is as good as any.
        world.command(Command::Remove(new));
        let next = rebuild(&mut world, |_| Fate::Serve);
        assert_eq!(state(&world, next), MemberState::InSync, "{what}");
        compare(&mut world, &content, &what);
        assert_eq!(world.check(), 0, "{what}");
    }
}

/// The first unit, the last one, and every one.
#[test]
fn a_spare_that_does_not_hold_what_was_rebuilt_does_not_become_in_sync() {
    for shape in REBUILT {
        for lost in [0..64, MEMBER_SECTORS - UNIT..MEMBER_SECTORS, 0..MEMBER_SECTORS] {
            let what = format!("{shape:?}, {lost:?} is lost");
            let (mut world, content) = degraded(shape);
            let new = rebuild(&mut world, move |op| match op {
                IoOp::Write { sector, .. }
                    if is_data_write(op) && lost.contains(&(sector - DATA_OFFSET)) =>
                {
                    Fate::Lose
                }
                _ => Fate::Serve,
            });
            let reason = "does not hold what was rebuilt on it";
            stays_degraded(&mut world, new, reason, &content, &what);
        }
    }
}

/// Also what an earlier run of the recovery has rebuilt.
#[test]
fn a_recovery_that_goes_on_after_a_restart_is_read_back_as_a_whole() {
    for shape in REBUILT {
        let what = format!("{shape:?}");
        let (mut world, content) = degraded(shape);
        let middle = DATA_OFFSET + MEMBER_SECTORS / 2;
        let new = rebuild(&mut world, move |op| match op {
            IoOp::Write { sector, .. } if is_data_write(op) => {
                if sector >= middle {
                    Fate::Hold
                } else {
                    Fate::Lose
                }
            }
            _ => Fate::Serve,
        });
        let disk = world.disk(new);
        assert_eq!(world.superblock(disk).recovery_offset, MEMBER_SECTORS / 2, "{what}");
        world.cut_power_and_restart();
        world.run();
        let of_disk = |member: &MemberId| world.disk(*member) == disk;
        let members = world.array.status().members;
        let new = members.iter().map(|member| member.member).find(of_disk).unwrap();
        let reason = "does not hold what was rebuilt on it";
        stays_degraded(&mut world, new, reason, &content, &what);
    }
}

/// Two at once, of which one lies: the other is not blamed, nor is it asked.
#[test]
fn of_two_that_are_rebuilt_only_the_one_that_is_wrong_fails() {
    for (shape, wrong) in [((6, 2, 4, 16), 0), ((6, 2, 4, 16), 1), ((1, 0, 3, 0), 0)] {
        let what = format!("{shape:?}, {wrong} is wrong");
        let (mut world, content) = degraded(shape);
        world.command(Command::Fail(MemberId(1)));
        world.command(Command::Remove(MemberId(1)));
        world.command(Command::Pause(true));
        let new = [world.add_disk(), world.add_disk()];
        let liar = new[wrong];
        world.rule(move |member, op| match op {
            _ if member == liar && is_data_write(op) => Fate::Lose,
            _ => Fate::Serve,
        });
        world.command(Command::Pause(false));
        assert_eq!(state(&world, liar), MemberState::Faulty, "{what}: {:?}", world.events);
        assert_eq!(state(&world, new[1 - wrong]), MemberState::InSync, "{what}");
        assert_eq!(world.array.status().degraded, 1, "{what}");
        compare(&mut world, &content, &what);
    }
}

/// A small part of it is read.
#[test]
fn a_spare_that_holds_what_was_rebuilt_becomes_in_sync() {
    for shape in REBUILT {
        let what = format!("{shape:?}");
        let (mut world, content) = degraded(shape);
        let new = rebuild(&mut world, |_| Fate::Serve);
        assert_eq!(state(&world, new), MemberState::InSync, "{what}: {:?}", world.events);
        let read_back: u64 = world
            .issued
            .iter()
            .filter_map(|(member, op)| match op {
                IoOp::Read { buf, .. } if *member == new => Some(u64::from(buf.len) / SECTOR_BYTES),
                _ => None,
            })
            .sum();
        assert!((1..=MEMBER_SECTORS / 4).contains(&read_back), "{what}: {read_back} sectors");
        compare(&mut world, &content, &what);
    }
}

/// Parity of an array that was assumed to be clean may not fit what a returning member had before.
#[test]
fn a_member_that_returns_is_asked_for_what_it_was_given_alone() {
    for shape in [(5, 2, 3, 16), (6, 2, 4, 16), (1, 0, 3, 0)] {
        let what = format!("{shape:?}");
        let (level, layout, disks, chunk) = shape;
        let mut world = World::with(level, layout, disks, chunk, add_bitmap);
        super::resync::scatter(&mut world);
        world.command(Command::Fail(MemberId(0)));
        world.command(Command::Remove(MemberId(0)));
        let middle = world.array.array_sectors() / 2;
        let data = noise(5, 64 << 10);
        world.write(middle, &data).unwrap();
        let id = world.add(0, true);
        world.run();
        assert_eq!(state(&world, id), MemberState::InSync, "{what}: {:?}", world.events);
        assert!(world.read(middle, 128).unwrap() == data, "{what}");
    }
}
