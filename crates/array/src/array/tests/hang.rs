//! Members that answer nothing: once such a member is failed, nobody waits for it, and nobody uses
//! the memory it may still read or write.

use super::world::Fate;
use super::*;
use crate::RequestId;
use crate::action::{Command, IoError};

const REDUNDANT: [(i32, u32, u32, u32); 5] =
    [(1, 0, 2, 0), (5, 2, 3, 16), (6, 2, 4, 16), (10, 0x102, 4, 16), (10, 0x201, 2, 16)];

/// Member 1 answers nothing of this kind.
fn hang(world: &mut World, which: impl Fn(IoOp) -> bool + 'static) {
    world.hold(move |member, op| member == MemberId(1) && which(op));
}

/// The buffer of request `number` of [`ask`].
fn buf(world: &World, number: usize, bytes: usize) -> Buf {
    let buf = world.data_buf(bytes);
    Buf { offset: buf.offset + number as u64 * 65536, ..buf }
}

/// All of the array is asked for in pieces; how many requests that are.
fn ask(world: &mut World, op: Op, content: &[u8]) -> usize {
    for (number, bytes) in content.chunks(65536).enumerate() {
        let buf = buf(world, number, bytes.len());
        if matches!(op, Op::Write { .. }) {
            world.bytes(buf).copy_from_slice(bytes);
        }
        world.request(op, number as u64 * 128, bytes.len() as u64 / SECTOR_BYTES, buf);
    }
    world.run_until_idle();
    content.len().div_ceil(65536)
}

/// Fails member 1; what was answered by that.
fn fail(world: &mut World) -> Vec<Result<(), RequestError>> {
    let id = crate::action::CommandId(0);
    let command = Command::Fail(MemberId(1));
    world.array.handle(world.now, Event::Command { id, command });
    world.run_until_idle();
    world.answers.retain(|(id, _)| *id != RequestId(0));
    results(world)
}

fn results(world: &mut World) -> Vec<Result<(), RequestError>> {
    std::mem::take(&mut world.answers).into_iter().map(|(_, result)| result).collect()
}

#[test]
fn requests_commands_and_the_end_do_not_wait_for_a_failed_member() {
    for (level, layout, disks, chunk) in REDUNDANT {
        let what = format!("level {level} layout {layout:#x}");
        let mut world = World::new(level, layout, disks, chunk);
        let content = fill(&mut world)[..16 * 65536].to_vec();
        hang(&mut world, |_| true);
        let asked = ask(&mut world, Op::Write { fua: true }, &content);
        assert!(results(&mut world).len() < asked && !world.held.is_empty(), "{what}");
        assert!(world.begin_command(Command::Fail(MemberId(1))), "{what}: fail waits");
        assert_eq!(world.abandoned.len(), world.held.len(), "{what}");
        world.run();
        assert_eq!(world.superblock(0).role_of(1), DevRole::Faulty, "{what}");
        assert!(!world.begin_command(Command::Remove(MemberId(1))), "{what}: removed too early");
        assert_eq!(world.run().len(), 1, "{what}: remove waits for ever");
        assert_eq!(world.array.free_member(), Some(MemberId(1)), "{what}");
        assert!(world.begin_command(Command::Stop), "{what}: stop waits");
        assert!(world.array.idle(), "{what}");
        world.hold_nothing();
    }
}

#[test]
fn what_a_late_read_may_still_write_is_used_by_nobody() {
    for (level, layout, disks, chunk) in REDUNDANT {
        let what = format!("level {level} layout {layout:#x}");
        let mut world = World::new(level, layout, disks, chunk);
        let content = fill(&mut world);
        let some = &content[..16 * 65536];
        hang(&mut world, |op| matches!(op, IoOp::Read { .. }));
        let asked = ask(&mut world, Op::Read, some);
        assert!(results(&mut world).len() < asked, "{what}");
        let again = fail(&mut world);
        let held = |result: &&Result<(), RequestError>| **result == Err(RequestError::BufferHeld);
        let count = again.iter().filter(held).count();
        assert!(count > 0 && count == again.len(), "{what}: {again:?}");
        // Reads and writes go on in the meantime, in all scratch there is.
        compare(&mut world, &content, &what);
        let fresh = noise(9, 65536);
        world.write(0, &fresh).unwrap();
        // What comes in late is anything.
        for disk in world.disks[1].iter_mut() {
            disk.image.fill(0xdb);
        }
        world.release();
        assert!(world.read(0, 128).unwrap() == fresh, "{what}");
        assert!(world.array.idle(), "{what}");
        assert_eq!(world.held.len(), 0, "{what}");
    }
}

#[test]
fn a_superblock_that_hangs_on_its_way_holds_nobody_once_its_member_failed() {
    let mut world = World::with(1, 0, 2, 0, add_bitmap);
    hang(&mut world, |op| matches!(op, IoOp::Write { sector, .. } if sector < DATA_OFFSET));
    assert!(!world.begin_write(0, &noise(1, 512)), "the members must know first");
    assert!(world.begin_command(Command::Fail(MemberId(1))));
    world.run();
    assert_eq!(world.superblock(0).role_of(1), DevRole::Faulty);
    world.write(8, &noise(2, 512)).unwrap();
}

#[test]
fn a_stop_gives_a_member_that_answers_nothing_a_minute() {
    for (level, layout, disks, chunk) in REDUNDANT.into_iter().chain([(0, 2, 2, 16)]) {
        let what = format!("level {level} layout {layout:#x}");
        let mut world = World::new(level, layout, disks, chunk);
        fill(&mut world);
        hang(&mut world, |_| true);
        let begun = world.now;
        assert!(!world.begin_command(Command::Stop), "{what}");
        world.run();
        assert!(world.now >= begun.plus_millis(60_000), "{what}: gave up after {:?}", world.now);
        assert!(world.array.idle(), "{what}");
        if level > 0 {
            assert_eq!(world.superblock(0).role_of(1), DevRole::Faulty, "{what}");
            assert_eq!(world.superblock(0).resync_offset, MAX_SECTOR, "{what}");
        }
    }
}

/// The leaf of an array of arrays hangs in a read; the outer array's scratch is not used either.
#[test]
fn a_leaf_that_hangs_is_given_up_in_an_array_of_arrays() {
    for (outer, inner) in [((0, 2, 2, 16), (1, 0, 2, 0)), ((5, 2, 3, 16), (1, 0, 2, 0))] {
        let mut world = World::stack(outer, inner);
        let content = fill(&mut world);
        let leaf = crate::stack::Stack::leaf(1, MemberId(0));
        world.hold(move |member, op| member == leaf && matches!(op, IoOp::Read { .. }));
        for number in 0..8 {
            let buf = buf(&world, number, 65536);
            world.request(Op::Read, number as u64 * 128, 128, buf);
        }
        let small = noise(4, 512);
        world.run_until_idle();
        for stripe in 0..8 {
            world.begin_write(1024 + stripe * 32, &small);
        }
        assert!(!world.held.is_empty());
        assert!(world.begin_command(Command::Fail(leaf)));
        world.rule(|_, _| Fate::Serve);
        let index = world.disk(leaf);
        for disk in world.disks[index].iter_mut() {
            disk.image.fill(0xdb);
        }
        world.run();
        world.release();
        assert!(world.array.idle());
        for stripe in 0..8 {
            assert!(world.read(1024 + stripe * 32, 1).unwrap() == small);
        }
        assert!(world.read(0, 1024).unwrap() == content[..1024 * 512]);
    }
}

#[test]
fn a_late_answer_means_nothing_to_the_member_that_has_the_id_now() {
    let mut world = World::new(1, 0, 2, 0);
    let content = fill(&mut world);
    hang(&mut world, |_| true);
    world.begin_write(0, &content[..512]);
    world.begin_command(Command::Fail(MemberId(1)));
    world.begin_command(Command::Remove(MemberId(1)));
    world.run();
    let late = std::mem::take(&mut world.held);
    world.rule(|_, _| Fate::Serve);
    let new = world.add_disk();
    assert_eq!(new, MemberId(1));
    for (io, ..) in late {
        world.array.handle(world.now, Event::Done { io, result: Err(IoError::GONE) });
    }
    world.run();
    let status = world.array.status();
    assert_eq!((status.degraded, status.members[1].errors), (0, 0));
    let _: Vec<(RequestId, Result<(), RequestError>)> = world.run();
    compare(&mut world, &content, "recovered");
}
