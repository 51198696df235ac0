//! A journal goes off while an array gets another shape, and comes back afterwards, whatever
//! happens meanwhile.

use super::*;
use crate::action::Command;
use crate::format::suspended::journal_number;
use crate::grow::Grow;
use crate::log::journal::JournalScan;
use crate::status::JournalMode;
use logs::add_journal;
use world::{Fate, holds, lose_after, lose_once_more, next_cut};

const CHUNK: u32 = 8;
/// Sectors of each member that are used where there is to be room behind them.
const LESS: u64 = MEMBER_SECTORS - 192;

/// Level and members before, what is to change, and how the journal writes.
type Change = (i32, u32, Grow, JournalMode);

const CHANGES: [Change; 7] = [
    (5, 3, Grow::RaidDisks(4), JournalMode::WriteBack),
    (5, 3, Grow::Layout(0), JournalMode::WriteThrough),
    (6, 5, Grow::RaidDisks(4), JournalMode::WriteBack),
    (4, 3, Grow::RaidDisks(5), JournalMode::WriteThrough),
    (5, 3, Grow::Size(None), JournalMode::WriteBack),
    (6, 4, Grow::Size(Some(LESS - 64)), JournalMode::WriteThrough),
    (5, 3, Grow::Level { level: 6, keep_layout: true }, JournalMode::WriteBack),
];

fn begin((level, disks, grow, mode): Change) -> World {
    let layout = if level == 4 { 0 } else { 2 };
    let mut world = World::with(level, layout, disks, CHUNK, |config| {
        add_journal(config);
        let members = config.members.iter_mut().map(|member| &mut member.superblock);
        for superblock in members.chain([&mut config.superblock]) {
            if matches!(grow, Grow::Size(_)) {
                superblock.size_sectors = LESS;
            }
        }
    });
    let more = match grow {
        Grow::RaidDisks(to) => to.saturating_sub(disks),
        Grow::Level { .. } => 1,
        _ => 0,
    };
    (0..more).for_each(|_| _ = world.add_disk());
    world.run();
    world.command(Command::JournalMode(mode));
    world
}

/// Fills the array, the last bytes so that the journal alone may have them. Returns what is to stay
/// of that.
fn fill_kept(world: &mut World, (_, disks, grow, _): Change) -> Vec<u8> {
    let mut content = fill(world);
    let is_smaller = match grow {
        Grow::RaidDisks(to) => to < disks,
        grow => matches!(grow, Grow::Size(Some(_))),
    };
    if is_smaller {
        content.truncate(content.len() / 2);
    }
    for number in 0..6 {
        let sector = number * 40;
        let bytes = noise(100 + number, 4096);
        let buf = world.data_buf(4096);
        world.bytes(buf).copy_from_slice(&bytes);
        world.request(Op::Write { fua: false }, sector, 8, buf);
        world.run_until_idle();
        assert_eq!(std::mem::take(&mut world.answers).len(), 1);
        content[(sector * SECTOR_BYTES) as usize..][..4096].copy_from_slice(&bytes);
    }
    content
}

/// The disk that holds the journal: the one behind the first members.
const fn journal_disk((_, disks, ..): Change) -> usize {
    disks as usize
}

fn scan(world: &World, disk: usize) -> JournalScan {
    match world.candidate(disk).log {
        Some(Ok(crate::assemble::FoundLog::Journal(scan))) => scan,
        other => panic!("no journal: {other:?}"),
    }
}

/// Checks that all superblocks tell of the journal, which writes go by.
fn is_back(world: &mut World, change: Change, what: &str) {
    let disk = journal_disk(change);
    for index in 0..world.disks.len() {
        let superblock = world.superblock(index);
        assert!(superblock.has(feature::JOURNAL), "{what}: disk {index} {superblock:?}");
        assert_eq!(superblock.bitmap_offset_sectors, 0, "{what}: disk {index}");
        assert_eq!(superblock.role_of(change.1), DevRole::Journal, "{what}: disk {index}");
    }
    assert_eq!(world.superblock(disk).role(), DevRole::Journal, "{what}");
    assert!(world.array.status().journal.is_some(), "{what}");
    world.command(Command::JournalMode(JournalMode::WriteThrough));
    let bytes = noise(77, 4096);
    let before = world.read(8, 8).unwrap();
    for bytes in [bytes, before] {
        let buf = world.data_buf(4096);
        world.bytes(buf).copy_from_slice(&bytes);
        world.request(Op::Write { fua: false }, 8, 8, buf);
        world.run_until_idle();
        assert_eq!(std::mem::take(&mut world.answers).len(), 1, "{what}");
        assert!(!scan(world, disk).is_empty(), "{what}: a write is recorded");
    }
    world.run();
}

/// Returns whether data move before where they began.
fn is_first_move(op: IoOp) -> bool {
    matches!(op, IoOp::Write { sector, .. } if (LOG_SECTOR + 8..DATA_OFFSET).contains(&sector))
}

fn is_off(world: &World) -> bool {
    journal_number(&world.array.status().superblock).is_some()
}

/// Another program that goes on with the array is told by the one before it.
#[test]
fn a_journal_that_is_off_takes_a_mode() {
    for mode in [JournalMode::WriteThrough, JournalMode::WriteBack] {
        let change = CHANGES[0];
        let mut world = begin(change);
        world.hold(|_, op| is_first_move(op));
        world.begin_command(Command::GrowSuspending(change.2));
        assert!(is_off(&world));
        assert_eq!(world.array.status().journal_mode, JournalMode::WriteBack);
        assert!(world.begin_command(Command::JournalMode(mode)));
        assert_eq!(world.array.status().journal_mode, mode);
        world.hold_nothing();
        world.run();
        assert!(!is_off(&world));
        assert_eq!(world.array.status().journal.map(|journal| journal.mode), Some(mode));
    }
}

#[test]
fn a_journal_is_off_while_the_shape_changes_and_on_again_afterwards() {
    for change in CHANGES {
        let what = format!("{change:?}");
        let mut world = begin(change);
        let content = fill_kept(&mut world, change);
        let reason = "the array has a journal, which cannot change with its shape";
        assert_eq!(world.refused(Command::Grow(change.2)), reason, "{what}");
        // As soon as superblocks say so, all is in place.
        world.hold(|_, op| matches!(op, IoOp::Write { .. } | IoOp::WriteZeroes { .. }));
        assert!(!world.begin_command(Command::GrowSuspending(change.2)), "{what}");
        world.release_until(|world| journal_number(&world.superblock(0)).is_some());
        assert!(is_off(&world) && world.array.status().journal.is_none(), "{what}");
        assert!(!world.superblock(0).has(feature::LOGS), "{what}");
        assert!(scan(&world, journal_disk(change)).is_empty(), "{what}");
        world.hold_nothing();
        world.run();
        holds(&mut world, &content, &what);
        assert_eq!(world.check(), 0, "{what}");
        is_back(&mut world, change, &what);
        world.cut_power_and_restart();
        world.run();
        is_back(&mut world, change, &what);
        holds(&mut world, &content, &what);
        assert_eq!(world.check(), 0, "{what}");
    }
}

/// Begins the change, and loses what is written after so many writes: the array, what it is to
/// hold, and the writes of all.
fn cut_after(change: Change, most: usize) -> (World, Vec<u8>, usize) {
    let mut world = begin(change);
    let content = fill_kept(&mut world, change);
    let seen = lose_after(&mut world, most);
    world.begin_command(Command::GrowSuspending(change.2));
    while seen.get() <= most && world.pass_time() {}
    let all = seen.get();
    (world, content, all)
}

#[test]
fn the_power_goes_at_any_write_while_a_journal_is_off() {
    for (number, change) in CHANGES.into_iter().enumerate() {
        let (.., all) = cut_after(change, usize::MAX - 1);
        let mut most = 0;
        while most <= all {
            let (mut world, content, _) = cut_after(change, most);
            let what = format!("{change:?}: {most} of {all} writes");
            world.cut_power_and_restart();
            assert!(world.array.status().degraded <= 1, "{what}");
            lose_once_more(&mut world, most, World::cut_power_and_restart);
            world.rule(|_, _| Fate::Serve);
            world.run();
            holds(&mut world, &content, &what);
            is_back(&mut world, change, &what);
            assert_eq!(world.check(), 0, "{what}");
            most = next_cut(most, all, 32, number);
        }
    }
}

#[test]
fn a_journal_is_on_again_when_data_have_moved_back() {
    let change = CHANGES[0];
    let mut world = begin(change);
    let content = fill_kept(&mut world, change);
    world.hold(|_, op| is_first_move(op));
    world.begin_command(Command::GrowSuspending(change.2));
    world.hold_nothing();
    world.tell(Command::Grow(Grow::Undo));
    world.run();
    is_back(&mut world, change, "back");
    holds(&mut world, &content, "back");
}

/// The array serves without a journal whose device is not there at the end, and begins with it when
/// it is assembled with the device; also where another disk was added meanwhile.
#[test]
fn a_journal_whose_device_is_away_comes_back_with_it() {
    for add in [false, true] {
        let change = CHANGES[0];
        let journal = journal_disk(change);
        let mut world = begin(change);
        let mut content = fill_kept(&mut world, change);
        world.hold(|_, op| is_first_move(op));
        world.begin_command(Command::GrowSuspending(change.2));
        let away = world.disks[journal].take();
        world.cut_power_and_restart();
        if add {
            world.add_disk();
        }
        world.run();
        let status = world.array.status();
        assert_eq!(status.degraded, 0);
        assert!(is_off(&world) && !status.superblock.has(feature::RESHAPE_ACTIVE));
        let bytes = noise(5, 4096);
        world.write(16, &bytes).unwrap();
        content[16 * 512..][..4096].copy_from_slice(&bytes);
        world.cut_power_and_restart();
        world.run();
        assert!(is_off(&world));
        world.disks[journal] = away;
        world.cut_power_and_restart();
        world.run();
        is_back(&mut world, change, "back");
        holds(&mut world, &content, "back");
        assert_eq!(world.check(), 0);
    }
}

/// Superblocks may have heard of a journal whose device fails at the end, or not: writes that were
/// answered are there afterwards.
#[test]
fn the_device_of_a_journal_fails_as_it_comes_back() {
    let change = CHANGES[1];
    let journal = journal_disk(change);
    let device = MemberId(journal as u16);
    let mut went_on = 0;
    for most in 0..12 {
        let mut world = begin(change);
        let mut content = fill_kept(&mut world, change);
        let seen = std::rc::Rc::new(std::cell::Cell::new(0));
        let count = seen.clone();
        let broken = std::rc::Rc::new(std::cell::Cell::new(false));
        let is_broken = broken.clone();
        world.begin_command(Command::GrowSuspending(change.2));
        world.rule(move |member, op| {
            let is_write = matches!(op, IoOp::Write { .. } | IoOp::Flush);
            if member != device || !is_write || !is_broken.get() {
                return Fate::Serve;
            }
            count.set(count.get() + 1);
            if count.get() > most { Fate::Fail(crate::IoError::GONE) } else { Fate::Serve }
        });
        broken.set(true);
        world.run();
        let what = format!("{most} of {}", seen.get());
        let goes_on = !world.array.status().writes_over;
        went_on += usize::from(goes_on && seen.get() > most);
        if goes_on {
            let bytes = noise(5, 4096);
            world.write(16, &bytes).unwrap();
            content[16 * 512..][..4096].copy_from_slice(&bytes);
        }
        world.rule(|_, _| Fate::Serve);
        world.cut_power_and_restart();
        world.run();
        holds(&mut world, &content, &what);
        is_back(&mut world, change, &what);
        assert_eq!(world.check(), 0, "{what}");
    }
    assert!(went_on > 1, "{went_on}");
}

#[test]
fn a_change_after_which_there_could_be_no_journal_is_refused() {
    let level = Grow::Level { level: 0, keep_layout: true };
    let mut world = begin(CHANGES[0]);
    world.writes = 0;
    for command in [Command::Grow(level), Command::GrowSuspending(level)] {
        assert_eq!(world.refused(command), "a raid0 cannot have the journal that it has");
    }
    assert_eq!(world.writes, 0);
}
