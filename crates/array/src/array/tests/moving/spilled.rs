//! Moves in place, of what is saved beside the members before it is overwritten.

use super::super::disk::Disk;
use super::super::world::Fate;
use super::*;
use crate::action::{IoError, NewMember};
use crate::assemble::{Candidate, Options, SpillConfig, Start, decide, decide_saving};
use crate::format::backup::{BackupHeader, HEADER_SECTORS};
use crate::format::superblock::time_parts;

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
    with_spill_of(change, bitmap, Version::V1_2)
}

/// The same, with superblocks of this version.
fn with_spill_of(change: Change, bitmap: bool, version: Version) -> (World, usize) {
    let (level, layout, from, chunk, _) = change;
    let mut world = World::with(level, layout, from, chunk, |config| {
        if bitmap {
            add_bitmap(config);
        }
        if version == Version::V0_90 {
            make_old(config);
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

/// Moves where superblocks lie before the data, and where they lie behind them and tell less.
fn both_versions() -> impl Iterator<Item = (Change, Version)> {
    let versions = [Version::V1_2, Version::V0_90];
    IN_PLACE.iter().flat_map(move |change| versions.map(|version| (*change, version)))
}

#[test]
fn data_move_in_place() {
    for (change, version) in both_versions() {
        let (mut world, spill) = with_spill_of(change, true, version);
        let before = world.array.array_sectors();
        let content = fill_kept(&mut world, change);
        attach(&mut world, spill);
        world.command(Command::Grow(change.4));
        world.run();
        let begins = if version == Version::V0_90 { 0 } else { DATA_OFFSET };
        assert_eq!(world.superblock(0).data_offset, begins, "{change:?}");
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
    let changes = IN_PLACE.iter().map(|change| (*change, Version::V1_2));
    let old = IN_PLACE[1..3].iter().map(|change| (*change, Version::V0_90));
    for (number, (change, version)) in changes.chain(old).enumerate() {
        let mut most = 0;
        loop {
            let (mut world, spill) = with_spill_of(change, most % 2 == 0, version);
            let content = fill_kept(&mut world, change);
            attach(&mut world, spill);
            let seen = lose_after(&mut world, most);
            world.begin_command(Command::Grow(change.4));
            let all = seen.get();
            let what = format!("{change:?} {version:?}: {most} of {all} writes");
            if most % 5 == 4 {
                world.disks.iter_mut().flatten().for_each(Disk::flush);
            }
            restart(&mut world, spill);
            assert_eq!(world.array.status().degraded, 0, "{what}");
            lose_once_more(&mut world, most, |world| restart(world, spill));
            world.rule(|_, _| Fate::Serve);
            world.run();
            holds(&mut world, &content, &what);
            assert_eq!(world.check(), 0, "{what}");
            if most > all {
                break;
            }
            most = next_cut(most, all, 32, number);
        }
    }
}

/// Clients that read and write while data move in place. The program is killed, or the power goes,
/// in two of three.
fn clients(seed: u64, trouble: impl Fn(&mut Clients, u64)) {
    let change = IN_PLACE[(seed % IN_PLACE.len() as u64) as usize];
    let (mut world, spill) = with_spill(change, seed.is_multiple_of(2));
    let content = fill_kept(&mut world, change);
    attach(&mut world, spill);
    world.hold(|_, _| true);
    world.begin_command(Command::Grow(change.4));
    let mut clients = Clients::new(world, content, seed, format!("seed {seed}: {change:?}"));
    for step in 0..600 + clients.dice.below(3000) {
        clients.step();
        trouble(&mut clients, step);
    }
    end(&mut clients, seed, |world| restart(world, spill));
    let status = clients.world.array.status();
    assert_eq!(status.superblock.raid_disks, roles_after(change), "{}", clients.what);
    assert!(!status.superblock.has(feature::RESHAPE_ACTIVE), "{}", clients.what);
}

#[test]
fn requests_go_on_while_data_move_in_place() {
    for seed in 0..24 {
        clients(seed, |_, _| {});
    }
}

#[test]
fn a_member_fails_and_a_pause_comes_while_data_move_in_place() {
    for seed in 100..120 {
        clients(seed, |clients, step| {
            if step == 50 + 10 * (seed - 100) && seed.is_multiple_of(2) {
                clients.world.tell(Command::Fail(MemberId(1)));
                clients.take_answers();
            }
            if step % 150 == 149 {
                clients.world.tell(Command::Pause(step % 300 == 149));
                clients.take_answers();
            }
        });
    }
}

/// Begins a move whose device answers so, and runs until nothing goes on.
fn troubled(fails: impl Fn(IoOp) -> bool + 'static) -> (World, Vec<u8>) {
    troubled_in(IN_PLACE[0], Version::V1_2, fails)
}

/// Begins this one.
fn troubled_in(
    change: Change,
    version: Version,
    fails: impl Fn(IoOp) -> bool + 'static,
) -> (World, Vec<u8>) {
    let (mut world, spill) = with_spill_of(change, true, version);
    let content = fill_kept(&mut world, change);
    attach(&mut world, spill);
    let id = world.array.status().spill.unwrap().member;
    world.rule(
        move |member, op| {
            if member == id && fails(op) { Fate::Fail(IoError::MEDIUM) } else { Fate::Serve }
        },
    );
    world.begin_command(Command::Grow(change.4));
    let status = world.array.status();
    let why = status.held_up.unwrap_or_default();
    assert_eq!(why, "the reshape waits: spill cannot be written or read");
    assert_eq!(status.degraded, 0);
    (world, content)
}

fn goes_on_at_last(mut world: World, content: &[u8]) {
    world.rule(|_, _| Fate::Serve);
    world.begin_command(Command::Pause(false));
    world.run();
    assert!(has_ended(&world), "{:?}", world.events);
    holds(&mut world, content, "moved at last");
    assert_eq!(world.check(), 0);
}

#[test]
fn what_cannot_be_saved_is_not_moved() {
    let is_data = |op| matches!(op, IoOp::Write { sector: HEADER_SECTORS.., .. });
    let (mut world, content) = troubled(is_data);
    let buf = world.data_buf(4096);
    world.ask(Op::Read, 8, 8, buf);
    world.run_until_idle();
    assert_eq!(std::mem::take(&mut world.answers).len(), 1, "nothing has moved");
    assert!(*world.bytes(buf) == content[range(8, 8)]);
    goes_on_at_last(world, &content);
}

/// However long nothing moves: who finds a backup that is much younger does not believe it.
#[test]
fn a_header_is_of_the_time_of_the_superblocks() {
    let change = IN_PLACE[0];
    let (mut world, spill) = with_spill(change, false);
    fill_kept(&mut world, change);
    attach(&mut world, spill);
    let id = world.array.status().spill.unwrap().member;
    world.begin_command(Command::Pause(true));
    world.begin_command(Command::Grow(change.4));
    world.now = world.now.plus_millis(4 * 3_600_000);
    world.hold(move |member, op| {
        member != id && matches!(op, IoOp::Write { sector: DATA_OFFSET.., .. })
    });
    world.begin_command(Command::Pause(false));
    world.run_until_idle();
    let header = world.disks[spill].as_ref().unwrap().read(0, 512).to_vec();
    let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
    assert!(number(56) > 0, "a window is saved");
    let (told, _) = time_parts(world.superblock(0).utime);
    assert!(number(32).abs_diff(told) < 2, "{} and {told}", number(32));
}

/// Nobody is to find that a backup holds what was there before a write.
#[test]
fn nothing_is_written_while_a_header_may_tell_of_it() {
    let change = IN_PLACE[0];
    let (mut world, spill) = with_spill(change, true);
    let mut content = fill_kept(&mut world, change);
    attach(&mut world, spill);
    let id = world.array.status().spill.unwrap().member;
    world.rule(move |member, op| {
        let is_header = matches!(op, IoOp::Write { sector: 0, .. });
        if member == id && is_header { Fate::Fail(IoError::MEDIUM) } else { Fate::Serve }
    });
    world.begin_command(Command::Grow(change.4));
    let bytes = noise(3, 4096);
    assert!(!world.begin_write(8, &bytes), "it is answered");
    world.rule(|_, _| Fate::Serve);
    assert_eq!(world.run().len(), 1);
    content[range(8, 8)].copy_from_slice(&bytes);
    goes_on_at_last(world, &content);
}

#[test]
fn what_cannot_be_read_back_waits() {
    let (mut world, mut content) = troubled(|op| matches!(op, IoOp::Read { .. }));
    let bytes = noise(4, 4096);
    assert!(!world.begin_write(8, &bytes), "neither map holds there");
    world.rule(|_, _| Fate::Serve);
    // It is tried again after a while.
    assert_eq!(world.run().len(), 1);
    content[range(8, 8)].copy_from_slice(&bytes);
    goes_on_at_last(world, &content);
}

/// All of a window is moved once it can be read, also from the end of the array on.
#[test]
fn what_cannot_be_read_back_waits_where_data_move_backwards() {
    let change = (5, 2, 4, 64, Grow::RaidDisks(3));
    let (world, content) =
        troubled_in(change, Version::V0_90, |op| matches!(op, IoOp::Read { .. }));
    goes_on_at_last(world, &content);
}

#[test]
fn data_move_in_place_without_a_member() {
    // Of more members one would take its role.
    let as_many = |change: &&Change| roles_after(**change) == change.2;
    for &change in IN_PLACE.iter().filter(as_many) {
        let (mut world, spill) = with_spill(change, false);
        let content = fill_kept(&mut world, change);
        world.command(Command::Fail(MemberId(1)));
        world.command(Command::Remove(MemberId(1)));
        attach(&mut world, spill);
        world.command(Command::Grow(change.4));
        world.run();
        assert!(has_ended(&world), "{change:?}: {:?}", world.events);
        holds(&mut world, &content, &format!("{change:?}"));
    }
}

#[test]
fn a_move_in_place_asks_for_a_device() {
    let change = IN_PLACE[0];
    let (mut world, spill) = with_spill(change, false);
    let line = world.refused(Command::Grow(change.4));
    assert_eq!(
        line,
        "disk0 has 16 KiB before its data that are free, and 32 KiB are needed to begin"
    );
    let advice = world.advice.pop().unwrap();
    assert_eq!(advice, "add --spill PATH: a file of 3 MiB on another disk");
    world.disks[spill] = Some(Disk::filled(HEADER_SECTORS + unit(change) - 1, 0));
    attach(&mut world, spill);
    let line = world.refused(Command::Grow(change.4));
    assert_eq!(line, "spill has less than the 68 KiB that are needed");
    attach(&mut world, spill);
    let line = world.refused(Command::Grow(Grow::Size(Some(1024))));
    assert_eq!(line, "nothing is overwritten that is yet to be moved");
    let line = world.refused(Command::Grow(change.4));
    assert!(line.contains("before its data"), "{line}: the device is none any more");
}

/// From anywhere, and the power goes at some of the writes.
#[test]
fn what_has_moved_in_place_moves_back() {
    let mut went_back = 0;
    let can_turn =
        |one: &(Change, Version)| one.1 != Version::V0_90 || roles_after(one.0) > one.0.2;
    for (number, (change, version)) in both_versions().filter(can_turn).enumerate() {
        for turn in [1, 3, 4, 7, 11] {
            let what = format!("{change:?} {version:?}: turned at {turn}");
            let (mut world, spill) = with_spill_of(change, turn % 2 == 0, version);
            let content = fill_kept(&mut world, change);
            let before = world.array.status();
            attach(&mut world, spill);
            hold_after(&mut world, turn * turn * 9 + number);
            world.begin_command(Command::Grow(change.4));
            let moves = world.array.status().sync.action == SyncAction::Reshape;
            world.tell(Command::Grow(Grow::Undo));
            world.hold_nothing();
            if turn % 3 != 0 {
                lose_after(&mut world, turn * 40 + number * 7);
                world.run_until_idle();
                restart(&mut world, spill);
                world.rule(|_, _| Fate::Serve);
            }
            world.run();
            holds(&mut world, &content, &what);
            assert_eq!(world.check(), 0, "{what}");
            let after = world.array.status();
            assert_eq!(after.sync.action, SyncAction::Idle, "{what}");
            let too_late = |line: &String| line.contains("nothing to undo any more");
            if turn == 3 && moves && !world.refusals.iter().any(too_late) {
                assert_eq!(after.superblock.raid_disks, change.2, "{what}");
                assert_eq!(after.superblock.layout, before.superblock.layout, "{what}");
                assert_eq!(after.array_sectors, before.array_sectors, "{what}");
                went_back += 1;
            }
        }
    }
    assert!(went_back > 5, "{went_back} went back");
}

/// Superblocks 0.90 tell the direction by the number of members alone.
#[test]
fn what_cannot_be_told_to_move_back_moves_on() {
    for change in [IN_PLACE[0], IN_PLACE[2]] {
        let (mut world, spill) = with_spill_of(change, true, Version::V0_90);
        let content = fill_kept(&mut world, change);
        attach(&mut world, spill);
        hold_after(&mut world, 60);
        world.begin_command(Command::Grow(change.4));
        assert_eq!(world.array.status().sync.action, SyncAction::Reshape);
        let line = world.refused(Command::Grow(Grow::Undo));
        let reason = "superblocks 0.90 cannot tell that data of as many members move back";
        assert_eq!(line, reason);
        world.hold_nothing();
        world.run();
        assert!(has_ended(&world), "{change:?}: {:?}", world.events);
        holds(&mut world, &content, &format!("{change:?}"));
    }
}

/// The power goes at each write of the way back.
#[test]
fn the_power_goes_on_the_way_back() {
    for change in [IN_PLACE[1], IN_PLACE[2]] {
        let mut most = 0;
        loop {
            let (mut world, spill) = with_spill(change, most % 2 == 0);
            let content = fill_kept(&mut world, change);
            attach(&mut world, spill);
            hold_after(&mut world, 60);
            world.begin_command(Command::Grow(change.4));
            assert_eq!(world.array.status().sync.action, SyncAction::Reshape);
            world.tell(Command::Grow(Grow::Undo));
            let seen = lose_after(&mut world, most);
            world.release();
            let all = seen.get();
            let what = format!("{change:?}: {most} of {all} writes");
            restart(&mut world, spill);
            world.rule(|_, _| Fate::Serve);
            world.run();
            holds(&mut world, &content, &what);
            assert_eq!(world.check(), 0, "{what}");
            if most > all {
                break;
            }
            most = next_cut(most, all, 24, 0);
        }
    }
}

/// Superblocks behind the data leave no other way.
#[test]
fn fewer_members_in_place() {
    let old = Version::V0_90;
    for change in [(5, 2, 4, 64, Grow::RaidDisks(3)), (6, 2, 6, 16, Grow::RaidDisks(4))] {
        let mut most = 0;
        loop {
            let (mut world, spill) = with_spill_of(change, most % 2 == 0, old);
            let mut content = fill(&mut world);
            let (before, after) = data_disks(change);
            content.truncate(content.len() / before as usize * after as usize);
            let line = world.refused(Command::Grow(change.4));
            assert!(line.contains("cannot tell that data begin elsewhere"), "{line}");
            attach(&mut world, spill);
            let seen = lose_after(&mut world, most);
            world.begin_command(Command::Grow(change.4));
            let all = seen.get();
            let what = format!("{change:?}: {most} of {all} writes");
            restart(&mut world, spill);
            world.rule(|_, _| Fate::Serve);
            world.run();
            holds(&mut world, &content, &what);
            assert_eq!(world.check(), 0, "{what}");
            if most > all {
                assert_eq!(world.array.status().superblock.raid_disks, roles_after(change));
                break;
            }
            most = next_cut(most, all, 32, 1);
        }
    }
}

/// Nothing goes on there when too many members are gone, or the array is being stopped.
#[test]
fn what_waits_where_neither_map_holds_is_refused_in_the_end() {
    for fails in [true, false] {
        let (mut world, _) = troubled(|op| matches!(op, IoOp::Read { .. }));
        let buf = world.data_buf(4096);
        let asked = world.ask(Op::Write { fua: false }, 8, 8, buf);
        world.run_until_idle();
        if fails {
            world.tell(Command::Fail(MemberId(0)));
            world.tell(Command::ForceFail(MemberId(1)));
        } else {
            world.tell(Command::Stop);
        }
        assert!(world.run().contains(&(asked, Err(RequestError::Failed))), "{fails}");
    }
}
