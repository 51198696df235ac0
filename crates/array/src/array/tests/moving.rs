//! More members for an array with parity, another layout, other chunks, and the way back, while it
//! serves: every byte is where the map says, at each moment, and after each cut.

mod clients;
mod degraded;
mod in_place;
mod spilled;
mod stripes;

use std::collections::BTreeMap;

use clients::{Clients, range};

use super::world::{Fate, holds, lose_after, lose_once_more, next_cut};
use super::*;
use crate::action::Command;
use crate::events::{SyncAction, SyncEnd};
use crate::format::superblock::feature;
use crate::grow::Grow;

/// Level, layout, members and chunk, and what is to change. Where there is room behind the data of
/// members, none is enough before them.
type Change = (i32, u32, u32, u32, Grow);

const CHANGES: &[Change] = &[
    (5, 2, 3, 16, Grow::RaidDisks(4)),
    (5, 0, 3, 16, Grow::RaidDisks(5)),
    (5, 3, 2, 16, Grow::RaidDisks(3)),
    (4, 0, 3, 16, Grow::RaidDisks(4)),
    (6, 2, 4, 16, Grow::RaidDisks(5)),
    (6, 8, 4, 16, Grow::RaidDisks(6)),
    (5, 2, 4, 32, Grow::RaidDisks(5)),
    (5, 2, 3, 16, Grow::Layout(0)),
    (6, 18, 5, 16, Grow::Layout(2)),
    (6, 2, 4, 16, Grow::Layout(10)),
    (5, 2, 3, 16, Grow::Chunk(8)),
    (4, 0, 4, 8, Grow::Chunk(32)),
    (6, 2, 4, 64, Grow::Layout(18)),
    (5, 3, 4, 16, Grow::Chunk(64)),
    (6, 8, 5, 64, Grow::Chunk(8)),
    (5, 2, 4, 16, Grow::RaidDisks(3)),
    (5, 0, 5, 16, Grow::RaidDisks(3)),
    (5, 3, 3, 16, Grow::RaidDisks(2)),
    (4, 0, 5, 8, Grow::RaidDisks(4)),
    (6, 2, 6, 16, Grow::RaidDisks(4)),
    (6, 8, 5, 64, Grow::RaidDisks(4)),
    (10, NEAR_2, 4, 16, Grow::RaidDisks(5)),
    (10, NEAR_2, 3, 16, Grow::RaidDisks(4)),
    (10, NEAR_2, 2, 16, Grow::RaidDisks(3)),
    (10, NEAR_3, 4, 8, Grow::RaidDisks(5)),
    (10, OFFSET_2, 3, 16, Grow::RaidDisks(5)),
    (10, NEAR_2, 4, 16, Grow::Chunk(32)),
    (10, NEAR_2, 4, 16, Grow::Layout(OFFSET_2)),
    (10, OFFSET_2, 4, 16, Grow::Layout(NEAR_2)),
    (10, NEAR_2, 4, 16, Grow::Chunk(64)),
    (10, NEAR_2, 3, 64, Grow::Chunk(32)),
    (10, OFFSET_2, 4, 64, Grow::Chunk(32)),
    (10, NEAR_2, 4, 16, Grow::RaidDisks(3)),
    (10, NEAR_2, 5, 64, Grow::RaidDisks(4)),
    (10, NEAR_3, 5, 64, Grow::RaidDisks(3)),
    (10, OFFSET_2, 5, 64, Grow::RaidDisks(3)),
];

const NEAR_2: u32 = 0x102;
const NEAR_3: u32 = 0x103;
const OFFSET_2: u32 = 0x1_0201;

/// Sectors of each member that are used where there is to be room behind them.
const LESS: u64 = MEMBER_SECTORS - 192;

const fn roles_after((_, _, from, _, grow): Change) -> u32 {
    if let Grow::RaidDisks(to) = grow { to } else { from }
}

/// Data disks before and after.
const fn data_disks(change: Change) -> (u64, u64) {
    let parity = match change.0 {
        0 | 10 => 0,
        6 => 2,
        _ => 1,
    };
    ((change.2 - parity) as u64, (roles_after(change) - parity) as u64)
}

/// Returns how many sectors the array has afterwards, where it has so many before. Without room
/// behind the data fewer members use a chunk less of each, or three where chunks have two copies
/// that may lie in two rows.
const fn sectors_after(change: Change, before: u64) -> u64 {
    let (old, new) = data_disks(change);
    let gives = new < old && change.3 != 64;
    let given = new * if change.0 == 10 { 3 } else { 2 } / 2;
    before * new / old - if gives { change.3 as u64 * given } else { 0 }
}

/// Fills the array. Returns what is to stay of that.
fn fill_kept(world: &mut World, change: Change) -> Vec<u8> {
    let mut content = fill(world);
    let before = world.array.array_sectors();
    content.truncate((sectors_after(change, before).min(before) * SECTOR_BYTES) as usize);
    content
}

fn begin(change: Change, bitmap: bool) -> World {
    let mut world = before(change, bitmap);
    (change.2..roles_after(change)).for_each(|_| _ = world.add_disk());
    world
}

/// Without the disks that are new.
fn before((level, layout, from, chunk, grow): Change, bitmap: bool) -> World {
    let backwards = matches!((chunk, grow), (64, _) | (_, Grow::Chunk(64)));
    World::with(level, layout, from, chunk, |config| {
        if bitmap && level > 0 {
            add_bitmap(config);
        }
        let members = config.members.iter_mut().map(|member| &mut member.superblock);
        for superblock in members.chain([&mut config.superblock]) {
            superblock.size_sectors = match level {
                0 => 0,
                _ if backwards => LESS,
                _ => MEMBER_SECTORS,
            };
        }
        if level == 10 {
            // Its bitmap is for sectors of the array.
            let size = array_size(config).unwrap();
            let bitmap = config.bitmap.as_ref().and_then(|bitmap| bitmap.resized(size));
            config.bitmap = bitmap;
        }
    })
}

fn has_ended(world: &World) -> bool {
    world.ended(SyncAction::Reshape) == Some(SyncEnd::Complete)
}

#[test]
fn data_move_to_more_members() {
    for &change in CHANGES {
        let mut world = begin(change, true);
        let before = world.array.array_sectors();
        let content = fill_kept(&mut world, change);
        world.command(Command::Grow(change.4));
        world.run();
        assert!(has_ended(&world), "{change:?}: {:?}", world.events);
        let now = world.array.array_sectors();
        // What rounding leaves of copies.
        let rounded = if change.0 == 10 { 2 * u64::from(change.3) } else { 0 };
        assert!(now.abs_diff(sectors_after(change, before)) <= rounded, "{change:?}: {now}");
        holds(&mut world, &content, &format!("{change:?} moved"));
        assert_eq!(world.check(), 0, "{change:?}");
        let content = fill(&mut world);
        world.command(Command::Fail(MemberId(1)));
        compare(&mut world, &content, &format!("{change:?}"));
        world.cut_power_and_restart();
        assert_eq!(world.array.array_sectors(), now, "{change:?}");
        compare(&mut world, &content, &format!("{change:?} again"));
    }
}

#[test]
fn an_end_is_told_with_the_size_that_came_of_it() {
    for &change in CHANGES {
        let mut world = begin(change, true);
        fill_kept(&mut world, change);
        world.run();
        ends_with_its_size(world, change);
    }
}

/// Checks that whoever waits for the end of a move finds the size that came of it.
fn ends_with_its_size(mut world: World, change: Change) {
    world.hold(|_, op| matches!(op, IoOp::Write { .. } | IoOp::Flush));
    world.begin_command(Command::Grow(change.4));
    let idle = |world: &World| world.array.status().sync.is_idle();
    world.release_until(|world| !idle(world));
    world.release_until(idle);
    let size = world.array.array_sectors();
    world.hold_nothing();
    world.run();
    assert_eq!(size, world.array.array_sectors(), "{change:?}");
}

/// The power goes after many of the writes of a reshape, with volatile caches; and once more in
/// the middle of what follows.
#[test]
fn the_power_goes_at_any_write_of_a_reshape() {
    for (number, place) in [0, 5, 8, 13, 15, 20, 22, 27, 30, 32].into_iter().enumerate() {
        let change = CHANGES[place];
        let mut most = 0;
        loop {
            let mut world = begin(change, most % 2 == 0);
            let content = fill_kept(&mut world, change);
            world.run();
            let seen = lose_after(&mut world, most);
            world.begin_command(Command::Grow(change.4));
            let all = seen.get();
            world.cut_power_and_restart();
            let what = format!("{change:?}: {most} of {all} writes");
            assert_eq!(world.array.status().degraded, 0, "{what}");
            lose_once_more(&mut world, most, World::cut_power_and_restart);
            world.rule(|_, _| Fate::Serve);
            world.run();
            holds(&mut world, &content, &what);
            assert_eq!(world.check(), 0, "{what}");
            if most > all {
                break;
            }
            // More writes at the begin and at the end.
            let close = if number < 2 { 60 } else { 16 };
            most = next_cut(most, all, close, number);
        }
    }
}

fn clients_over(seed: u64, trouble: impl Fn(&mut Clients, u64)) -> Clients {
    clients_of(CHANGES[(seed % CHANGES.len() as u64) as usize], seed, trouble)
}

fn clients_of(change: Change, seed: u64, trouble: impl Fn(&mut Clients, u64)) -> Clients {
    let mut world = begin(change, seed.is_multiple_of(2));
    let content = fill_kept(&mut world, change);
    world.run();
    world.hold(|_, _| true);
    world.begin_command(Command::Grow(change.4));
    let mut clients = Clients::new(world, content, seed, format!("seed {seed}: {change:?}"));
    for step in 0..600 + clients.dice.below(3000) {
        clients.step();
        trouble(&mut clients, step);
    }
    end(&mut clients, seed, World::cut_power_and_restart);
    assert!(
        clients.world.array.array_sectors() >= clients.content.len() as u64 / SECTOR_BYTES
            || clients.world.array.status().superblock.raid_disks == change.2
    );
    clients
}

/// At times has the program killed or the power cut, and started again by `restart`; then lets the
/// move end, and compares.
fn end(clients: &mut Clients, seed: u64, restart: impl FnOnce(&mut World)) {
    // Parity need not fit what was being written when the power went.
    let closed = clients.world.array.status().degraded == 0;
    if !seed.is_multiple_of(3) && closed {
        if seed % 3 == 1 {
            // The program is killed: disks keep what they were given.
            clients.world.disks.iter_mut().flatten().for_each(super::disk::Disk::flush);
            clients.before.clear();
        }
        restart(&mut clients.world);
        clients.compare();
        clients.asked.clear();
    }
    if seed % 3 != 2 {
        clients.before.clear();
    }
    clients.world.hold_nothing();
    clients.world.tell(Command::Pause(false));
    clients.take_answers();
    while clients.world.pass_time() {
        clients.take_answers();
    }
    assert_eq!(clients.asked.len(), 0, "{}: requests are not answered", clients.what);
    clients.compare();
}

#[test]
fn requests_go_on_while_data_move() {
    for seed in 0..60 {
        clients_over(seed, |_, _| {});
    }
}

#[test]
fn a_member_fails_while_data_move() {
    for seed in 100..160 {
        clients_over(seed, |clients, step| {
            if step == 200 + seed {
                clients.fail_one();
            }
        });
    }
}

#[test]
fn a_spare_that_comes_while_data_move_takes_a_role_over_afterwards() {
    for seed in 300..340 {
        let fails = seed % 2 == 0;
        let clients = clients_over(seed, |clients, step| {
            if step == 100 {
                clients.world.add_disk();
            }
            if step == 250 && fails {
                clients.world.tell(Command::Fail(MemberId(0)));
                clients.take_answers();
            }
        });
        let Clients { mut world, content, what, .. } = clients;
        if !fails {
            world.command(Command::Fail(MemberId(0)));
            world.run();
        }
        let status = world.array.status();
        assert_eq!(status.degraded, 0, "{what}: {:?}", status.members);
        for sector in (0..content.len() as u64 / SECTOR_BYTES).step_by(512) {
            let sectors = (content.len() as u64 / SECTOR_BYTES - sector).min(512);
            let read = world.read(sector, sectors).unwrap();
            assert!(read == content[range(sector, sectors)], "{what}: at {sector}");
        }
        assert_eq!(world.check(), 0, "{what}");
    }
}

#[test]
fn a_pause_holds_no_writes() {
    for seed in 200..230 {
        clients_over(seed, |clients, step| {
            if step % 150 == 149 {
                let paused = step % 300 == 149;
                clients.world.tell(Command::Pause(paused));
                clients.take_answers();
            }
            if step == 400 {
                clients.world.tell(Command::Pause(false));
            }
        });
    }
}

#[test]
fn a_reshape_that_begins_paused_waits() {
    for &change in &CHANGES[..4] {
        let mut world = begin(change, false);
        let content = fill(&mut world);
        world.command(Command::Pause(true));
        world.command(Command::Grow(change.4));
        while world.pass_time() {}
        let sync = world.array.status().sync;
        assert_eq!((sync.action, sync.done_sectors), (SyncAction::Reshape, 0), "{change:?}");
        assert!(sync.paused, "{change:?}");
        world.command(Command::Pause(false));
        world.run();
        assert_eq!(world.array.status().sync.action, SyncAction::Idle, "{change:?}");
        assert!(world.read(0, 64).unwrap() == content[range(0, 64)], "{change:?}");
    }
}

/// Lets so many writes happen, and holds all others.
fn hold_after(world: &mut World, most: usize) {
    let seen = std::cell::Cell::new(0);
    world.hold(move |_, op| {
        seen.set(seen.get() + usize::from(matches!(op, IoOp::Write { .. })));
        seen.get() > most
    });
}

/// What has moved moves back, from anywhere, and the power goes at some of its writes.
#[test]
fn a_reshape_is_turned_round() {
    for (number, &change) in CHANGES.iter().enumerate() {
        for turn in [1, 3, 4, 7] {
            let what = format!("{change:?}: turned at {turn}");
            let mut world = begin(change, turn % 2 == 0);
            let content = fill_kept(&mut world, change);
            world.run();
            let before = world.array.status();
            hold_after(&mut world, turn * turn * 20 + number);
            world.begin_command(Command::Grow(change.4));
            let moves = world.array.status().sync.action == SyncAction::Reshape;
            world.tell(Command::Grow(Grow::Undo));
            world.hold_nothing();
            if turn % 3 != 0 {
                lose_after(&mut world, turn * 150 + number * 37);
                world.run_until_idle();
                world.cut_power_and_restart();
                world.rule(|_, _| Fate::Serve);
            }
            world.run();
            holds(&mut world, &content, &what);
            assert_eq!(world.check(), 0, "{what}");
            let after = world.array.status();
            assert_eq!(after.sync.action, SyncAction::Idle, "{what}");
            if turn == 3 && moves {
                let now = &after.superblock;
                assert_eq!(now.raid_disks, change.2, "{what}");
                assert_eq!(now.layout, before.superblock.layout, "{what}");
                assert_eq!(now.chunk_sectors, before.superblock.chunk_sectors, "{what}");
                let heads = |status: &Status| status.members[0].head_sectors;
                assert_eq!(heads(&after), heads(&before), "{what}");
            }
        }
    }
}

#[test]
fn requests_go_on_while_data_move_back_and_forth() {
    for seed in 300..345 {
        clients_over(seed, |clients, step| {
            if step == 60 + seed % 7 * 40 || step == 700 + seed || step == 1500 {
                clients.world.tell(Command::Grow(Grow::Undo));
                clients.take_answers();
            }
            if seed % 5 == 0 && step == 150 + seed {
                clients.fail_one();
            }
        });
    }
}

/// Rows of a move are those that it writes to: what it could not read is not there.
#[test]
fn a_move_rewrites_nothing_where_it_could_not_read() {
    let mut world = begin(CHANGES[0], false);
    let content = fill(&mut world);
    world.bad.push((MemberId(1), DATA_OFFSET + 100));
    world.command(Command::Grow(CHANGES[0].4));
    world.run();
    assert!(has_ended(&world));
    let corrected = |event: &ArrayEvent| matches!(event, ArrayEvent::ReadCorrected { .. });
    assert!(!world.events.iter().any(corrected), "{:?}", world.events);
    let first = world.read(0, 2048).unwrap();
    assert!(first == content[..first.len()]);
}

/// The array has its smaller size before anything is overwritten, and requests that were held
/// meanwhile learn it.
#[test]
fn what_lies_beyond_a_smaller_end_is_refused_from_the_begin() {
    for grow in [Grow::RaidDisks(3), Grow::Size(Some(MEMBER_SECTORS / 2))] {
        let mut world = begin((5, 2, 4, 16, grow), true);
        let before = world.array.array_sectors();
        world.hold(|_, op| !matches!(op, IoOp::Read { .. }));
        world.begin_command(Command::Grow(grow));
        let last = world.data_buf(8 * 512);
        let last = world.ask(Op::Read, before - 8, 8, last);
        let buf = world.data_buf(8 * 512);
        let first = world.ask(Op::Read, 0, 8, buf);
        world.run_until_idle();
        assert_eq!(world.answers, [], "{grow:?}: they wait");
        world.release_until(|world| !world.answers.is_empty());
        assert!(world.array.array_sectors() < before);
        let answers: BTreeMap<_, _> = std::mem::take(&mut world.answers).into_iter().collect();
        assert_eq!(answers[&last], Err(RequestError::OutOfRange), "{grow:?}");
        assert_eq!(answers[&first], Ok(()), "{grow:?}");
        let is_data =
            |op: &IoOp| matches!(op, IoOp::Write { sector, .. } if *sector >= DATA_OFFSET);
        let asked = world.issued.iter().filter(|(_, op)| is_data(op)).count();
        let held = world.held.iter().filter(|(_, _, op)| is_data(op)).count();
        assert_eq!(asked, held, "{grow:?}: something was overwritten");
        world.hold_nothing();
        world.run();
        assert_eq!(world.check(), 0, "{grow:?}");
    }
}
