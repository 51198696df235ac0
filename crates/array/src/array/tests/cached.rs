//! Writes of parts of stripes that were written a moment ago, on members that let reads wait.

use super::*;
use crate::action::Command;

const PAGE_SECTORS: u64 = 8;

fn is_read(op: IoOp) -> bool {
    matches!(op, IoOp::Read { .. })
}

/// RAID 5 of four, with content.
fn filled() -> World {
    let mut world = World::new(5, 2, 4, 128);
    fill(&mut world);
    world
}

/// The same, of which is known that its members let reads wait.
fn world() -> World {
    let mut world = filled();
    write_slowly(&mut world, 4096, 9);
    world
}

/// Writes a page, each read answered later than it was asked for; how many reads that took.
fn write_slowly(world: &mut World, sector: u64, seed: u64) -> usize {
    world.issued.clear();
    world.hold(|_, op| is_read(op));
    let mut answered = world.begin_write(sector, &noise(seed, PAGE_SECTORS as usize * 512));
    while !answered {
        world.now = world.now.plus_millis(1);
        world.release();
        answered = !std::mem::take(&mut world.answers).is_empty();
    }
    world.hold_nothing();
    world.issued.iter().filter(|(_, op)| is_read(*op)).count()
}

/// Writes pages that are neither behind one another nor near, so that nothing is known of them.
fn written_twice(sector: u64) -> World {
    let mut world = world();
    assert_eq!(write_slowly(&mut world, sector, 1), 2, "the data and its sum");
    assert_eq!(write_slowly(&mut world, sector, 2), 2, "from now on it is kept");
    world
}

#[test]
fn the_third_write_of_a_page_reads_nothing() {
    let mut world = written_twice(0);
    for seed in 3..6 {
        assert_eq!(write_slowly(&mut world, 0, seed), 0);
    }
    assert_eq!(world.read(0, PAGE_SECTORS).unwrap(), noise(5, PAGE_SECTORS as usize * 512));
    assert_eq!(world.check(), 0);
}

#[test]
fn what_is_kept_is_not_given_back() {
    let mut world = written_twice(0);
    world.give_back_unused();
    assert_eq!(write_slowly(&mut world, 0, 3), 0);
    assert_eq!(world.check(), 0);
}

#[test]
fn its_sum_is_known_to_writes_of_other_strips() {
    let mut world = written_twice(0);
    assert_eq!(write_slowly(&mut world, 128, 3), 1, "the data alone");
    assert_eq!(world.check(), 0);
}

#[test]
fn members_that_answer_at_once_are_asked_each_time() {
    let mut world = filled();
    for seed in 1..5 {
        world.issued.clear();
        world.write(0, &noise(seed, PAGE_SECTORS as usize * 512)).unwrap();
        assert_eq!(world.issued.iter().filter(|(_, op)| is_read(*op)).count(), 2);
    }
    assert!(world.array.idle(), "nothing is kept");
}

#[test]
fn a_stream_of_small_writes_reads_each_strip_once() {
    let mut world = world();
    let reads: usize =
        (0..16).map(|page| write_slowly(&mut world, page * PAGE_SECTORS, page)).sum();
    // The first write is not known to belong to a stream.
    assert_eq!(reads, 4);
    assert_eq!(world.check(), 0);
}

#[test]
fn nothing_is_kept_of_what_others_write_or_after_failures_and_commands() {
    let mut world = written_twice(0);
    // All stripes that the page is in, and more.
    world.request(Op::WriteZeroes { fua: false, unmap: false }, 0, 3 * 128 * 2, Buf::default());
    assert_eq!(world.run().len(), 1);
    assert_ne!(write_slowly(&mut world, 0, 3), 0, "zeroes");

    let mut world = written_twice(0);
    world.command(Command::Fail(MemberId(2)));
    let content = noise(3, PAGE_SECTORS as usize * 512);
    world.write(0, &content).unwrap();
    assert_eq!(world.read(0, PAGE_SECTORS).unwrap(), content, "whoever is missing");
}

#[test]
fn what_is_kept_is_given_back_when_time_has_passed_or_the_array_stops() {
    let mut world = written_twice(0);
    assert!(!world.array.idle());
    world.run();
    assert!(world.array.idle(), "a second without a write");
    assert_eq!(write_slowly(&mut world, 0, 3), 2);
    world.command(Command::Stop);
    assert!(world.array.idle());
}

/// The read of the rest of a strip fails: it is not what the write needed.
#[test]
fn a_sector_that_cannot_be_read_along_costs_no_redundancy() {
    let mut world = world();
    write_slowly(&mut world, 0, 2);
    // Rows 64 of a data strip and of its sum.
    for member in 0..4 {
        world.bad.push((MemberId(member), DATA_OFFSET + 64));
    }
    write_slowly(&mut world, PAGE_SECTORS, 3);
    assert_eq!(
        world.read(PAGE_SECTORS, PAGE_SECTORS).unwrap(),
        noise(3, PAGE_SECTORS as usize * 512)
    );
}
