//! Memory that an executor takes back from an idle machine: all of it but what somebody means.

use super::logs::add_journal;
use super::*;
use crate::action::Command;
use crate::log::journal::{JournalArea, JournalScan};
use crate::status::JournalMode;

const PAGES: u64 = 4;
const SECTORS: u64 = PAGES * 8;

/// An array whose journal writes back, with dirty pages, and what they hold.
fn dirty(level: i32) -> (World, Vec<u8>) {
    let mut world = World::with(level, 2, 5, 16, add_journal);
    world.run();
    world.command(Command::JournalMode(JournalMode::WriteBack));
    let data = noise(7, (SECTORS * SECTOR_BYTES) as usize);
    assert!(world.begin_write(8, &data), "it is answered with no time passing");
    let status = world.array.status();
    assert_eq!(status.journal.map(|journal| journal.dirty_bytes), Some(PAGES * 4096));
    (world, data)
}

fn scratch_bytes(world: &World) -> u64 {
    world.arena.len() as u64 - (4 << 20)
}

#[test]
fn dirty_pages_are_not_given_back() {
    for level in [5, 6] {
        let (mut world, data) = dirty(level);
        let given = world.give_back_unused();
        assert_eq!(given, scratch_bytes(&world) - PAGES * 4096);
        assert!(world.read(8, SECTORS).unwrap() == data, "level {level}");
        // They go in place when they are old, with parity that fits.
        while world.pass_time() {}
        assert_eq!(world.give_back_unused(), scratch_bytes(&world), "nothing is held");
        assert!(world.read(8, SECTORS).unwrap() == data, "level {level}");
        assert_eq!(world.check(), 0);
    }
}

#[test]
fn nor_are_those_of_a_read_only_array() {
    for level in [5, 6] {
        let (before, data) = dirty(level);
        let journal = MemberId(5);
        let geometry = geometry_of(&config(level, 2, 5, 16)).unwrap();
        let disk = before.disks[usize::from(journal.0)].as_ref().unwrap();
        let superblock = disk.durable(SUPER_SECTOR, 4096);
        let superblock = Superblock::decode(Version::V1_2, SUPER_SECTOR, &superblock).unwrap();
        let tail = superblock.recovery_offset;
        let area = JournalArea { start: DATA_OFFSET, sectors: MEMBER_SECTORS, tail };
        let mut read = |sector, bytes| Ok(disk.durable(sector, bytes as usize));
        let scan = JournalScan::read(area, [7; 16], &geometry, &mut read).unwrap();
        assert_eq!(scan.data.len() as u64, PAGES);
        let mut world = World::with(level, 2, 5, 16, |config| {
            add_journal(config);
            config.read_only = true;
            config.log = StartLog::Journal { member: journal, scan: scan.clone() };
        });
        world.disks = before.disks;
        world.run();
        assert_eq!(world.give_back_unused(), scratch_bytes(&world) - PAGES * 4096);
        assert!(world.read(8, SECTORS).unwrap() == data, "level {level}");
    }
}
