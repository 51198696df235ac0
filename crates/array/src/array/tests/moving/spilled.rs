//! Moves in place, of what is saved beside the members before it is overwritten.

use super::super::disk::Disk;
use super::super::world::Fate;
use super::*;
use crate::action::NewMember;
use crate::assemble::{Candidate, Options, SpillConfig, Start, decide, decide_saving};
use crate::format::backup::{BackupHeader, HEADER_SECTORS};

/// Chunks that there is no room for, before the data or behind them.
const IN_PLACE: &[Change] = &[
    (5, 2, 3, 64, Grow::Layout(0)),
    (5, 2, 3, 64, Grow::RaidDisks(4)),
    (5, 3, 4, 16, Grow::Chunk(64)),
    (6, 2, 4, 64, Grow::RaidDisks(6)),
    (6, 18, 5, 64, Grow::Layout(2)),
    (4, 0, 4, 64, Grow::Chunk(8)),
    (5, 0, 2, 64, Grow::RaidDisks(3)),
    (6, 8, 5, 128, Grow::Chunk(64)),
];

fn largest_chunk(change: Change) -> u64 {
    let to = if let Grow::Chunk(to) = change.4 { to } else { 0 };
    change.3.max(to).into()
}

fn unit(change: Change) -> u64 {
    largest_chunk(change) * data_disks(change).1
}

/// An array, the disks that it gets, and the one that it saves to, which has room for two units.
fn with_spill(change: Change, bitmap: bool) -> (World, usize) {
    let (level, layout, from, chunk, _) = change;
    let mut world = World::with(level, layout, from, chunk, |config| {
        if bitmap {
            add_bitmap(config);
        }
    });
    (from..roles_after(change)).for_each(|_| _ = world.add_disk());
    let spill = world.disks.len();
    world.disks.push(Some(Disk::filled(HEADER_SECTORS + 2 * unit(change), 0)));
    drop_backup(&mut world, spill);
    (world, spill)
}

/// No header tells of anything: as a file is made, and after a restart.
fn drop_backup(world: &mut World, spill: usize) {
    let header = BackupHeader { set_uuid: [7; 16], mtime: 0, start: 0, length: 0 };
    world.disks[spill].as_mut().unwrap().write(0, &header.encode(), true);
}

fn attach(world: &mut World, spill: usize) {
    let member = world.array.free_member().unwrap();
    world.places.insert(member, spill);
    world.command(Command::Spill(Box::new(NewMember {
        member,
        device: "spill".to_owned(),
        device_sectors: world.disks[spill].as_ref().unwrap().sectors(),
        superblock: None,
        bad_blocks: None,
        readd: false,
        device_uuid: [0; 16],
    })));
    assert_ne!(world.array.free_member(), Some(member));
}

/// Cuts the power, and goes on as `assemble --backup-file` does.
fn restart(world: &mut World, spill: usize) {
    world.disks.iter_mut().flatten().for_each(Disk::cut_power);
    let members = 0..spill;
    let candidates: Vec<Candidate> = members.map(|index| world.candidate(index)).collect();
    let options = Options { run: true, force: true, read_only: false };
    let config = match decide(candidates.clone(), options).start {
        Start::Ready { config, .. } => config,
        _ => go_on(world, spill, &candidates, options),
    };
    world.start(*config, |_, _| false);
}

/// Restores what was saved, and goes on with it.
fn go_on(
    world: &mut World,
    spill: usize,
    candidates: &[Candidate],
    options: Options,
) -> Box<Config> {
    let to_read = decide(candidates.to_vec(), Options { read_only: true, ..options });
    let Start::Halfway(mut halfway) = to_read.start else { panic!("{:?}", to_read.start) };
    let disks = world.disks.clone();
    let mut read = |device: &str, sector, bytes| {
        let index: usize = device["disk".len()..].parse().unwrap();
        Some(disks[index].as_ref()?.read(sector, bytes).to_vec())
    };
    let device = format!("disk{spill}");
    let sectors = disks[spill].as_ref().unwrap().sectors();
    halfway.look(&mut read).unwrap();
    let header = read(&device, 0, 512).unwrap();
    halfway.add_backup(&device, sectors, &header).unwrap();
    assert_eq!(halfway.weigh(&mut read), None);
    let settlement = halfway.settled(candidates, 1, true, &mut read).expect("goes on");
    for write in settlement.data.iter().chain(&settlement.metadata) {
        let index: usize = write.device["disk".len()..].parse().unwrap();
        world.disks[index].as_mut().unwrap().write(write.sector, &write.bytes, true);
    }
    drop_backup(world, spill);
    let assembly = decide_saving(settlement.candidates, options);
    let Start::Ready { mut config, .. } = assembly.start else { panic!("{:?}", assembly.start) };
    config.spill = Some(SpillConfig { device, sectors });
    config
}

#[test]
fn data_move_in_place() {
    for &change in IN_PLACE {
        let (mut world, spill) = with_spill(change, true);
        let before = world.array.array_sectors();
        let content = fill_kept(&mut world, change);
        attach(&mut world, spill);
        world.command(Command::Grow(change.4));
        world.run();
        assert_eq!(world.superblock(0).data_offset, DATA_OFFSET, "{change:?}");
        assert!(has_ended(&world), "{change:?}: {:?}", world.events);
        assert_eq!(world.array.array_sectors(), sectors_after(change, before), "{change:?}");
        holds(&mut world, &content, &format!("{change:?} moved"));
        assert_eq!(world.check(), 0, "{change:?}");
        let content = fill(&mut world);
        world.command(Command::Fail(MemberId(1)));
        compare(&mut world, &content, &format!("{change:?}"));
    }
}

/// The power goes after each of the writes, with volatile caches, also of the device that is saved
/// to; and once more in the middle of what follows.
#[test]
fn the_power_goes_at_any_write_of_a_move_in_place() {
    for &change in IN_PLACE {
        let mut most = 0;
        loop {
            let (mut world, spill) = with_spill(change, most % 2 == 0);
            let content = fill_kept(&mut world, change);
            attach(&mut world, spill);
            let seen = lose_after(&mut world, most);
            world.begin_command(Command::Grow(change.4));
            let all = seen.get();
            let what = format!("{change:?}: {most} of {all} writes");
            if most % 5 == 4 {
                world.disks.iter_mut().flatten().for_each(Disk::flush);
            }
            restart(&mut world, spill);
            assert_eq!(world.array.status().degraded, 0, "{what}");
            if most % 3 == 0 {
                lose_after(&mut world, most % 40);
                world.run_until_idle();
                restart(&mut world, spill);
            }
            world.rule(|_, _| Fate::Serve);
            world.run();
            holds(&mut world, &content, &what);
            assert_eq!(world.check(), 0, "{what}");
            if most > all {
                break;
            }
            most += if most > 60 && most + 80 < all { 13 } else { 1 };
        }
    }
}
