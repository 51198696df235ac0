//! The write-intent bitmap: set before a write, cleared after it, and what a member that was away
//! is given.

use super::restart::{is_bitmap, is_data_write};
use super::*;
use crate::action::Command;

/// Another bit marks it than sector 0.
const ELSEWHERE: u64 = MEMBER_SECTORS - UNIT;

/// A raid1 or raid5 whose bitmap has a bit for each unit.
fn world(level: i32) -> World {
    let (disks, chunk) = if level == 1 { (2, 0) } else { (3, 16) };
    World::with(level, if level == 1 { 0 } else { 2 }, disks, chunk, add_bitmap)
}

/// Returns the range that the bitmap on a disk marks: first sector and end.
fn marked(world: &World, disk: usize) -> Vec<(u64, u64)> {
    let bitmap = world.candidate(disk).bitmap.unwrap().unwrap();
    bitmap.dirty_ranges().map(|range| (range.start, range.end)).collect()
}

/// The superblocks say "active", so that a write waits for its bit and nothing else.
fn make_active(world: &mut World) {
    world.run();
    assert!(world.begin_write(ELSEWHERE, &noise(9, 512)));
    world.issued.clear();
}

#[test]
fn a_bit_is_on_all_members_before_data_is_written_and_cleared_when_idle() {
    for level in [1, 5] {
        let mut world = world(level);
        make_active(&mut world);
        world.hold(|_, op| is_bitmap(op));
        world.begin_write(0, &noise(1, 512));
        assert!(!world.held.is_empty(), "level {level}: the bit is to be written");
        assert!(world.written().is_empty(), "level {level}: data written without the bit");
        world.hold_nothing();
        assert_eq!(world.answers.len(), 1);
        let disks = world.disks.len();
        for disk in 0..disks {
            assert_eq!(marked(&world, disk)[0], (0, UNIT), "level {level}: disk {disk}");
        }
        world.run();
        for disk in 0..disks {
            assert_eq!(marked(&world, disk), [], "level {level}: disk {disk}");
        }
    }
}

/// Even a bit that is set already in memory must be durable for the next write in its chunk.
#[test]
fn a_second_write_waits_for_the_bit_of_the_first() {
    let mut world = world(1);
    make_active(&mut world);
    world.hold(|_, op| is_bitmap(op));
    world.begin_write(0, &noise(1, 512));
    world.begin_write(8, &noise(2, 512));
    assert!(world.written().is_empty());
    world.hold_nothing();
    assert_eq!(world.answers.len(), 2);
}

#[test]
fn after_a_power_cut_only_what_is_marked_is_resynced() {
    for level in [1, 5] {
        let mut world = world(level);
        let content = fill(&mut world);
        world.run();
        // One member does not get the write.
        world.hold(|member, op| member == MemberId(1) && is_data_write(op));
        world.begin_write(16, &noise(1, 512));
        assert!(!world.held.is_empty());
        world.disks.iter_mut().flatten().for_each(disk::Disk::flush);
        world.cut_power_and_restart();
        world.run();
        let read: u64 = world
            .issued
            .iter()
            .map(|(_, op)| if let IoOp::Read { buf, .. } = op { buf.len.into() } else { 0 })
            .sum();
        let bit = UNIT * SECTOR_BYTES;
        assert_eq!(read, bit * world.disks.len() as u64, "level {level}: one bit's part of each");
        assert_eq!(world.check(), 0, "level {level}");
        let rest = world.read(UNIT * 2, 1024).unwrap();
        assert!(rest == content[(UNIT * 2 * SECTOR_BYTES) as usize..][..rest.len()]);
    }
}

#[test]
fn a_member_that_comes_back_is_given_what_is_marked_and_nothing_else() {
    for level in [1, 5] {
        let mut world = world(level);
        let mut content = fill(&mut world);
        world.run();
        world.command(Command::Fail(MemberId(1)));
        world.command(Command::Remove(MemberId(1)));
        let news = noise(3, 8 * 512);
        for sector in [UNIT * 3, UNIT * 9 + 5] {
            world.write(sector, &news).unwrap();
            content[(sector * SECTOR_BYTES) as usize..][..news.len()].copy_from_slice(&news);
        }
        let expected = marked(&world, 0);
        assert_eq!(expected.len(), 2, "level {level}");
        world.issued.clear();
        world.add(1, true);
        world.run();
        assert_eq!(world.array.status().degraded, 0, "level {level}");
        let written = world.written();
        let sectors: u64 = written[&1].iter().map(|(_, sectors)| sectors).sum();
        assert_eq!(sectors, 2 * UNIT, "level {level}: {:?}", written[&1]);
        for (sector, sectors) in &written[&1] {
            let start = sector - DATA_OFFSET;
            let end = sector - DATA_OFFSET + sectors;
            assert!(expected.iter().any(|marked| marked.0 <= start && end <= marked.1));
        }
        assert_eq!(written.len(), 1, "level {level}: only the one that was away");
        compare(&mut world, &content, "re-added");
        assert_eq!(world.check(), 0, "level {level}");
        assert_eq!(marked(&world, 1), [], "level {level}: everybody has everything");
    }
}

#[test]
fn a_member_that_was_run_alone_meanwhile_is_rebuilt_as_a_whole() {
    let mut world = world(1);
    let mut content = fill(&mut world);
    world.run();
    world.command(Command::Fail(MemberId(1)));
    world.command(Command::Remove(MemberId(1)));
    // The other half, run by itself: its superblock says so, and it has data of its own.
    let disk = world.disks[1].as_mut().unwrap();
    let mut superblock =
        Superblock::decode(Version::V1_2, SUPER_SECTOR, disk.read(SUPER_SECTOR, 4096)).unwrap();
    superblock.events += 4;
    superblock.roles[0] = DevRole::Spare;
    disk.write(SUPER_SECTOR, &superblock.encode(), true);
    disk.write(DATA_OFFSET + UNIT * 5, &noise(8, 8 * 512), true);
    let news = noise(3, 8 * 512);
    world.write(UNIT * 3, &news).unwrap();
    content[(UNIT * 3 * SECTOR_BYTES) as usize..][..news.len()].copy_from_slice(&news);

    world.add(1, true);
    assert_eq!(world.refusals, ["disk1 is split from the array: each side went on alone"]);
    world.add(1, false);
    world.run();
    assert_eq!(world.array.status().degraded, 0);
    compare(&mut world, &content, "rebuilt");
    assert_eq!(world.check(), 0);
}

/// As the kernel placed it by default for years: 1 KiB behind the superblock's first byte.
#[test]
fn a_bitmap_close_behind_the_superblock_outlives_its_updates() {
    const CLOSE: u64 = 2;
    let mut world = World::with(1, 0, 2, 0, |config| {
        add_bitmap(config);
        let members = config.members.iter_mut().map(|member| &mut member.superblock);
        for superblock in members.chain([&mut config.superblock]) {
            superblock.bitmap_offset_sectors = CLOSE as i32;
        }
    });
    for disk in world.disks.iter_mut().flatten() {
        let bitmap = disk.read(BITMAP_SECTOR, 512).to_vec();
        disk.write(SUPER_SECTOR + CLOSE, &bitmap, true);
        disk.write(BITMAP_SECTOR, &[0x55; 4096], true);
    }
    world.write(0, &noise(1, 512)).unwrap();
    world.command(Command::Stop);
    for disk in 0..2 {
        assert_eq!(marked(&world, disk), [], "disk {disk}");
        let behind = world.disks[disk].as_ref().unwrap().read(BITMAP_SECTOR, 4096).to_vec();
        assert_eq!(behind, [0x55; 4096], "disk {disk}");
    }
    world.cut_power_and_restart();
}
