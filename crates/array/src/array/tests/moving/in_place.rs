//! Moves that md began in place.

use super::super::disk::Disk;
use super::super::world::Fate;
use super::*;

/// A reshape to more members that has come some way, as md makes one where there is no room before
/// the data: they begin at the same place in both maps.
fn in_place(change: Change) -> (World, Vec<u8>) {
    let stopped = |most| {
        let mut world = begin(change, false);
        let content = fill(&mut world);
        world.run();
        lose_after(&mut world, most);
        world.begin_command(Command::Grow(change.4));
        world.disks.iter_mut().flatten().for_each(Disk::cut_power);
        world.rule(|_, _| Fate::Serve);
        (world, content)
    };
    let has_moved = |(world, _): &(World, Vec<u8>)| world.superblock(0).reshape.position >= 512;
    let (mut world, content) = (40..).step_by(20).map(stopped).find(has_moved).expect("a move");
    for index in 0..world.disks.len() {
        let mut superblock = world.superblock(index);
        assert!(superblock.has(feature::RESHAPE_ACTIVE), "{change:?}: it is over");
        let parity = if change.0 == 6 { 2 } else { 1 };
        let rows = superblock.reshape.position / u64::from(superblock.raid_disks - parity);
        let from = superblock.data_offset - u64::from(superblock.reshape.new_offset.unsigned_abs());
        let disk = world.disks[index].as_mut().unwrap();
        let moved = disk.read(from, (rows * SECTOR_BYTES) as usize).to_vec();
        disk.write(superblock.data_offset, &moved, true);
        superblock.feature_map &= !feature::NEW_OFFSET;
        disk.write(superblock.super_offset, &superblock.encode(), true);
    }
    (world, content)
}

/// And the power goes at its writes.
#[test]
fn what_md_began_in_place_goes_on() {
    for change in [CHANGES[0], CHANGES[1], CHANGES[4]] {
        let mut most = 0;
        loop {
            let (mut world, content) = in_place(change);
            let seen = lose_after(&mut world, most);
            world.cut_power_and_restart();
            let what = format!("{change:?}: {most} writes");
            let is_all = seen.get() <= most;
            world.cut_power_and_restart();
            world.rule(|_, _| Fate::Serve);
            world.run();
            holds(&mut world, &content, &what);
            assert_eq!(world.array.status().superblock.raid_disks, roles_after(change), "{what}");
            assert_eq!(world.check(), 0, "{what}");
            if is_all {
                break;
            }
            most += 17;
        }
    }
    let (mut world, _) = in_place(CHANGES[0]);
    world.cut_power_and_restart_holding(|_, op| matches!(op, IoOp::Write { .. }));
    let line = world.refused(Command::Grow(Grow::Undo));
    assert!(line.contains("nothing takes what is overwritten on the way back"), "{line}");
}
