//! Partial parity logs go off while an array gets another shape, and come back afterwards, whatever
//! happens meanwhile.

use super::*;
use crate::action::Command;
use crate::format::ppl::{self, PplArea, is_suspended, place_code};
use crate::grow::Grow;
use crate::log::ppl::PplScan;
use world::{Fate, holds, lose_after, lose_once_more, next_cut};

/// Where the logs lie, behind the bad-block log. Before the data there is room for two chunks.
const AREA: PplArea = PplArea { sector: 32, sectors: 16, is_ring: false };
const CHUNK: u32 = 8;
/// Sectors of each member that are used where there is to be room behind them.
const LESS: u64 = MEMBER_SECTORS - 192;

/// Members before, and what is to change. All of each member is used at first, but for what becomes
/// larger.
const CHANGES: [(u32, Grow); 6] = [
    (3, Grow::RaidDisks(4)),
    (3, Grow::Layout(0)),
    (4, Grow::RaidDisks(3)),
    (3, Grow::RaidDisks(5)),
    (3, Grow::Size(None)),
    (4, Grow::Size(Some(LESS - 64))),
];

fn begin(change: (u32, Grow), feature: u32) -> World {
    let mut world = made(change, feature);
    if let (disks, Grow::RaidDisks(to)) = change {
        (disks..to).for_each(|_| _ = world.add_disk());
    }
    world.run();
    world
}

/// The array, about to start.
fn made((disks, grow): (u32, Grow), feature: u32) -> World {
    World::with(5, 2, disks, CHUNK, |config| {
        let members = config.members.iter_mut().map(|member| &mut member.superblock);
        for superblock in members.chain([&mut config.superblock]) {
            superblock.feature_map |= feature;
            superblock.bitmap_offset_sectors = place_code(24, AREA.sectors as u16);
            if matches!(grow, Grow::Size(_)) {
                superblock.size_sectors = LESS;
            }
        }
        let generations = vec![Some(0); config.members.len()];
        config.log = StartLog::PartialParity { fixes: Vec::new(), generations, closed: false };
    })
}

/// Fills the array. Returns what is to stay of that.
fn fill_kept(world: &mut World, grow: Grow) -> Vec<u8> {
    let mut content = fill(world);
    if matches!(grow, Grow::RaidDisks(3) | Grow::Size(Some(_))) {
        content.truncate(content.len() / 2);
    }
    content
}

fn log(world: &World, index: usize) -> PplScan {
    let disk = world.disks[index].as_ref().unwrap();
    let mut read = |sector: u64, len: u32| Ok(disk.read(sector, len as usize).to_vec());
    PplScan::read(AREA, [7; 16], &mut read).unwrap()
}

/// The disks of members with roles.
fn active(world: &World) -> Vec<usize> {
    let members = world.array.status().members.into_iter();
    let active = members.filter(|member| member.role.is_some());
    active.map(|member| world.disk(member.member)).collect()
}

/// Checks that all members have logs again where they were, in the form that they had.
fn are_back(world: &World, feature: u32, what: &str) {
    for disk in active(world) {
        let superblock = world.superblock(disk);
        assert!(superblock.has(feature) && !is_suspended(&superblock), "{what}: {superblock:?}");
        assert_eq!(superblock.feature_map & feature::ANY_PPL, feature, "{what}");
        assert_eq!(superblock.bitmap_offset_sectors, place_code(24, 16), "{what}");
        assert!(!log(world, disk).blank, "{what}: disk {disk}");
    }
}

#[test]
fn logs_are_off_while_the_shape_changes_and_on_again_afterwards() {
    for (number, change) in CHANGES.into_iter().enumerate() {
        let feature = if number % 2 == 0 { feature::PPL } else { feature::MULTIPLE_PPLS };
        let what = format!("{change:?}");
        let mut world = begin(change, feature);
        let content = fill_kept(&mut world, change.1);
        let reason = "the array has partial parity logs, which cannot change with its shape";
        assert_eq!(world.refused(Command::Grow(change.1)), reason);
        are_back(&world, feature, &what);
        // As soon as superblocks say so, the change is on its way.
        world.hold(|_, op| matches!(op, IoOp::Write { .. } | IoOp::WriteZeroes { .. }));
        assert!(!world.begin_command(Command::GrowSuspending(change.1)));
        let told =
            |world: &World| active(world).iter().any(|disk| is_suspended(&world.superblock(*disk)));
        world.release_until(told);
        let status = world.array.status();
        assert!(
            is_suspended(&status.superblock) && !status.superblock.has(feature::LOGS),
            "{what}"
        );
        world.hold_nothing();
        world.run();
        are_back(&world, feature, &what);
        assert!(active(&world).iter().all(|disk| log(&world, *disk).entries.is_empty()), "{what}");
        holds(&mut world, &content, &what);
        assert_eq!(world.check(), 0, "{what}");
        world.write(8, &noise(3, 4096)).unwrap();
        let recorded = active(&world).iter().any(|disk| !log(&world, *disk).entries.is_empty());
        assert!(recorded, "{what}: writes are in logs again");
        world.cut_power_and_restart();
        assert!(!world.array.status().superblock.has(feature::RESHAPE_ACTIVE), "{what}");
        assert_eq!(world.check(), 0, "{what}");
    }
}

/// What is asked for while the array starts is not refused: who starts it need not wait for that.
#[test]
fn a_change_begins_when_the_array_has_started() {
    for stops in [false, true] {
        let mut world = made(CHANGES[1], feature::PPL);
        world.hold(|_, op| matches!(op, IoOp::Write { .. }));
        world.run_until_idle();
        assert!(!world.begin_command(Command::GrowSuspending(CHANGES[1].1)));
        assert_eq!(world.refusals, [""; 0], "it waits");
        if stops {
            world.tell(Command::Stop);
        }
        world.hold_nothing();
        world.run();
        let layout = world.superblock(0).layout;
        let after = if stops { 2 } else { 0 };
        assert_eq!(layout, after);
        let why: &[&str] = if stops { &["the array is being stopped"] } else { &[] };
        assert_eq!(world.refusals, why);
    }
}

/// No superblock names a log that was not emptied since the change began, at any moment.
fn named_logs_count(world: &World, since: u64, what: &str) {
    for disk in (0..world.disks.len()).filter(|disk| world.disks[*disk].is_some()) {
        let superblock = world.superblock(disk);
        let is_new = superblock.events > since + 1 && superblock.role().active().is_some();
        if is_new && superblock.has(feature::ANY_PPL) {
            let log = log(world, disk);
            assert!(log.entries.is_empty() && !log.blank, "{what}: disk {disk}");
        }
    }
}

#[test]
fn the_power_goes_at_any_write_while_logs_are_off() {
    for (number, change) in CHANGES.into_iter().enumerate() {
        let mut most = 0;
        loop {
            let mut world = begin(change, feature::MULTIPLE_PPLS);
            let content = fill_kept(&mut world, change.1);
            world.run();
            let since = world.superblock(0).events;
            let seen = lose_after(&mut world, most);
            world.begin_command(Command::GrowSuspending(change.1));
            world.run_until_idle();
            let all = seen.get();
            let what = format!("{change:?}: {most} of {all} writes");
            world.disks.iter_mut().flatten().for_each(disk::Disk::cut_power);
            named_logs_count(&world, since, &what);
            world.cut_power_and_restart();
            assert_eq!(world.array.status().degraded, 0, "{what}");
            lose_once_more(&mut world, most, World::cut_power_and_restart);
            world.rule(|_, _| Fate::Serve);
            world.run();
            holds(&mut world, &content, &what);
            are_back(&world, feature::MULTIPLE_PPLS, &what);
            assert_eq!(world.check(), 0, "{what}");
            if most > all {
                break;
            }
            most = next_cut(most, all, 24, number);
        }
    }
}

#[test]
fn logs_are_on_again_when_data_have_moved_back() {
    let change = CHANGES[0];
    let mut world = begin(change, feature::PPL);
    let content = fill(&mut world);
    world.hold(|_, op| matches!(op, IoOp::Write { sector, .. } if sector >= AREA.sector));
    assert!(world.begin_command(Command::GrowSuspending(change.1)));
    world.tell(Command::Grow(Grow::Undo));
    world.hold_nothing();
    world.run();
    assert_eq!(world.array.status().superblock.raid_disks, 3);
    are_back(&world, feature::PPL, "back");
    holds(&mut world, &content, "back");
}

/// A log that is off keeps its room: data move towards it, and new members have it as well.
#[test]
fn data_do_not_move_into_a_log() {
    let world = begin(CHANGES[0], feature::PPL);
    let room = DATA_OFFSET - AREA.sector - AREA.sectors;
    let heads = |world: &World| -> Vec<u64> {
        world.array.status().members.iter().map(|member| member.head_sectors).collect()
    };
    assert_eq!(heads(&world), [room; 4]);
    let mut world = begin(CHANGES[0], feature::PPL);
    world.hold(|_, op| matches!(op, IoOp::Write { sector, .. } if sector >= AREA.sector));
    world.begin_command(Command::GrowSuspending(CHANGES[0].1));
    world.add_disk();
    assert!(is_suspended(&world.array.status().superblock));
    assert_eq!(heads(&world), [room; 5]);
}

#[test]
fn a_change_after_which_there_could_be_no_logs_is_refused() {
    let level = Grow::Level { level: 6, keep_layout: true };
    for (grow, reason) in [
        (level, "a raid6 cannot have the partial parity logs that it has"),
        (Grow::RaidDisks(65), "partial parity logs are for 64 members at most"),
        (Grow::Chunk(16), "the partial parity logs have too little room for such chunks"),
    ] {
        let mut world = begin(CHANGES[0], feature::PPL);
        world.writes = 0;
        for command in [Command::Grow(grow), Command::GrowSuspending(grow)] {
            assert_eq!(world.refused(command), reason);
        }
        assert_eq!(world.writes, 0);
    }
}

/// What a superblock keeps of a log that is off is not taken for that where another field is meant.
#[test]
fn the_place_of_a_bitmap_is_no_log_that_is_off() {
    let mut superblock = superblock(5, 2, 3, 16, 0);
    superblock.feature_map = feature::MULTIPLE_PPLS;
    superblock.bitmap_offset_sectors = place_code(-2056, 2048);
    let on = superblock.clone();
    ppl::suspend(&mut superblock);
    assert!(is_suspended(&superblock) && !superblock.has(feature::LOGS));
    let off = superblock.clone();
    ppl::resume(&mut superblock);
    assert_eq!(superblock, on);
    for code in [0, 8, 2, 1, 3, -16, -8, -2, i32::MIN, on.bitmap_offset_sectors] {
        let other = Superblock { bitmap_offset_sectors: code, ..off.clone() };
        assert!(!is_suspended(&other), "{code}");
    }
    for feature in [feature::BITMAP_OFFSET, feature::JOURNAL, feature::PPL] {
        assert!(!is_suspended(&Superblock { feature_map: feature, ..off.clone() }), "{feature}");
    }
    assert!(!is_suspended(&Superblock { level: 6, ..off }));
}
