//! A member that is replaced goes when the copy of it can be read, and not before.

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

/// Replaces the first member by one whose I/O fares so: why that failed.
fn replace(
    world: &mut World,
    fate: impl Fn(IoOp) -> Fate + 'static,
) -> (MemberId, Option<(String, Fault)>) {
    let new = world.add_disk();
    world.rule(move |member, op| if member == new { fate(op) } else { Fate::Serve });
    world.command(Command::Replace(MemberId(0)));
    let why = world.events.iter().find_map(|event| match event {
        ArrayEvent::MemberFailed { member, reason, fault, .. } if *member == new => {
            Some((reason.to_string(), *fault))
        }
        _ => None,
    });
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

/// What is read back is a small part, and what is written meanwhile is in both.
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
