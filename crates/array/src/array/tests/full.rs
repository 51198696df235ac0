//! Members without room: writes are refused, members stay, and what differs is brought in line.

use std::cell::Cell;
use std::rc::Rc;

use super::world::Fate;
use super::*;
use crate::IoErrorKind;
use crate::action::{Command, IoError};
use crate::events::SyncAction;
use crate::status::MemberState;

const FULL: IoError = IoError { kind: IoErrorKind::Full, errno: Some(28) };
const SHAPES: [(i32, u32, u32, u32); 5] =
    [(1, 0, 2, 0), (4, 0, 4, 32), (5, 2, 3, 16), (6, 2, 4, 16), (10, 0x102, 4, 16)];

/// The members for which `which` holds have no room for what is written from `sector` on.
fn fill_up(
    world: &mut World,
    from_sector: u64,
    which: impl Fn(MemberId) -> bool + 'static,
) -> Rc<Cell<bool>> {
    let full = Rc::new(Cell::new(true));
    let is_full = Rc::clone(&full);
    world.rule(move |member, op| match op {
        IoOp::Write { sector, .. } if sector >= from_sector && is_full.get() && which(member) => {
            Fate::Fail(FULL)
        }
        _ => Fate::Serve,
    });
    full
}

fn all_in_sync(world: &World) -> bool {
    world.array.status().members.iter().all(|member| member.state == MemberState::InSync)
}

/// Writes at the beginning, with no time passing: the answers.
fn write_now(world: &mut World, data: &[u8]) -> Vec<Result<(), RequestError>> {
    let buf = world.data_buf(data.len());
    world.bytes(buf).copy_from_slice(data);
    world.request(Op::Write { fua: false }, 0, data.len() as u64 / SECTOR_BYTES, buf);
    world.run_until_idle();
    std::mem::take(&mut world.answers).into_iter().map(|(_, result)| result).collect()
}

/// Time passes until this holds.
fn wait(world: &mut World, what: &str, holds: impl Fn(&World) -> bool) {
    while !holds(world) {
        assert!(world.pass_time(), "{what}: it stands still");
        world.run_until_idle();
    }
}

#[test]
fn a_write_without_room_is_refused_and_the_members_stay() {
    for (level, layout, disks, chunk) in SHAPES {
        for everywhere in [false, true] {
            let what = format!("level {level} layout {layout:#x}, everywhere: {everywhere}");
            let mut world = World::new(level, layout, disks, chunk);
            let content = fill(&mut world);
            world.run_until_idle();
            let full = fill_up(&mut world, DATA_OFFSET, move |id| everywhere || id == MemberId(1));
            let new = noise(99, 64 << 10);
            assert_eq!(write_now(&mut world, &new), [Err(RequestError::NoSpace)], "{what}");
            assert!(all_in_sync(&world), "{what}: a member left");
            let told = |event: &ArrayEvent| matches!(event, ArrayEvent::MemberFull { .. });
            assert!(world.events.iter().any(told), "{what}");
            assert!(world.array.status().unsynced_sectors > 0, "{what}: nothing is marked");
            full.set(false);
            wait(&mut world, &what, |world| {
                world.array.status().unsynced_sectors == 0
                    && world.ended(SyncAction::Resync).is_some()
            });
            assert_eq!(world.check(), 0, "{what}: the members differ");
            let other = 65536..content.len();
            assert_eq!(world.read(128, 128).unwrap(), content[other][..65536], "{what}");
            world.write(0, &new).unwrap();
            assert_eq!(world.read(0, 128).unwrap(), new, "{what}");
        }
    }
}

/// A missing strip comes from the strips of the others: half a write would take it along.
#[test]
fn a_degraded_parity_array_waits_for_room() {
    for (level, layout, disks, chunk) in [(5, 2, 3, 16), (6, 2, 4, 16)] {
        let mut world = World::new(level, layout, disks, chunk);
        let mut content = fill(&mut world);
        world.command(Command::Fail(MemberId(0)));
        world.run_until_idle();
        let full = fill_up(&mut world, DATA_OFFSET, |_| true);
        let new = noise(7, 4096);
        assert_eq!(write_now(&mut world, &new), [], "level {level}: it is answered");
        for _ in 0..10 {
            assert!(world.pass_time());
            world.run_until_idle();
        }
        full.set(false);
        wait(&mut world, "a write", |world| !world.answers.is_empty());
        assert_eq!(world.answers.remove(0).1, Ok(()), "level {level}");
        content[..4096].copy_from_slice(&new);
        compare(&mut world, &content, "after there was room");
    }
}

/// The array cannot go on without having said it; a member that never has room is failed.
#[test]
fn metadata_waits_for_room() {
    for ever in [false, true] {
        let mut world = World::new(1, 0, 2, 0);
        world.run_until_idle();
        let full = fill_up(&mut world, 0, |id| id == MemberId(1));
        let new = noise(3, 512);
        assert_eq!(write_now(&mut world, &new), [], "a write comes before the superblocks");
        assert!(all_in_sync(&world));
        full.set(ever);
        wait(&mut world, "a write", |world| !world.answers.is_empty());
        assert_eq!(all_in_sync(&world), !ever);
        assert_eq!(world.answers[0].1, Ok(()));
    }
}
