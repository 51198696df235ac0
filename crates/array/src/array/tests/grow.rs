//! Another shape for an array that serves: the bytes stay, and whichever members were told when the
//! power went, the array is there with all that it held.

use super::restart::is_superblock;
use super::world::{Fate, next_cut};
use super::*;
use crate::action::{Command, IoError};
use crate::events::SyncAction;
use crate::grow::Grow;

/// Used sectors of each member at first.
const SMALL: u64 = 1024;

fn level(level: i32) -> Command {
    Command::Grow(Grow::Level { level, keep_layout: true })
}

const MAX: Command = Command::Grow(Grow::Size(None));

/// Less than all of each member is used; with a bitmap where the level has one.
fn small(level: i32, layout: u32, disks: u32, chunk: u32) -> World {
    World::with(level, layout, disks, chunk, |config| {
        let members = config.members.iter_mut().map(|member| &mut member.superblock);
        members.chain([&mut config.superblock]).for_each(|sb| sb.size_sectors = SMALL);
        with_bitmap(config, if level == 10 { SMALL * u64::from(disks) / 2 } else { SMALL });
    })
}

fn with_bitmap(config: &mut Config, sync_sectors: u64) {
    add_bitmap(config);
    let bitmap = config.bitmap.as_ref().and_then(|bitmap| bitmap.resized(sync_sectors));
    config.bitmap = bitmap.map(|mut bitmap| {
        (0..bitmap.bits()).for_each(|bit| _ = bitmap.clear(bit));
        bitmap
    });
}

/// Level, layout, members and chunk.
type Shape = (i32, u32, u32, u32);

/// A change, and the array that it leads to: level, layout, members, and spares that it takes.
type Step = (Shape, Command, (i32, u32, u32), usize);

fn takeovers() -> Vec<Step> {
    let disks = |count| Command::Grow(Grow::RaidDisks(count));
    vec![
        ((5, 2, 3, 16), level(6), (6, 18, 4), 1),
        ((5, 0, 4, 32), level(6), (6, 16, 5), 1),
        ((5, 1, 3, 16), level(6), (6, 17, 4), 1),
        ((5, 3, 3, 16), level(6), (6, 19, 4), 1),
        ((5, 4, 3, 16), level(6), (6, 20, 4), 1),
        ((5, 5, 3, 16), level(6), (6, 5, 4), 1),
        ((6, 18, 5, 16), level(5), (5, 2, 4), 0),
        ((6, 16, 4, 16), level(5), (5, 0, 3), 0),
        ((6, 20, 4, 16), level(5), (5, 4, 3), 0),
        ((6, 5, 4, 16), level(5), (5, 5, 3), 0),
        ((4, 0, 3, 16), level(5), (5, 5, 3), 0),
        ((5, 5, 3, 16), level(4), (4, 0, 3), 0),
        ((1, 0, 2, 0), level(5), (5, 2, 2), 0),
        ((5, 2, 2, 16), level(1), (1, 0, 2), 0),
        ((1, 0, 2, 0), disks(3), (1, 0, 3), 1),
        ((1, 0, 2, 0), disks(4), (1, 0, 4), 2),
    ]
}

fn stripes() -> Vec<Step> {
    vec![
        ((0, 2, 3, 16), level(4), (4, 0, 4), 1),
        ((0, 2, 3, 16), level(5), (5, 5, 4), 1),
        ((0, 2, 2, 16), level(10), (10, 0x102, 4), 2),
    ]
}

fn is_shape(world: &World, (level, layout, disks): (i32, u32, u32), what: &str) {
    let Superblock { level: has, layout: lies, raid_disks, .. } = world.array.status().superblock;
    assert_eq!((has, lies, raid_disks), (level, layout, disks), "{what}");
}

#[test]
fn a_level_changes_and_every_byte_stays() {
    for (shape, change, to, spares) in takeovers().into_iter().chain(stripes()) {
        let what = format!("{shape:?} to {to:?}");
        let mut world = World::new(shape.0, shape.1, shape.2, shape.3);
        let content = fill(&mut world);
        let striped = shape.0 == 0;
        if !striped {
            (0..spares).for_each(|_| _ = world.add_disk());
        }
        world.command(change);
        if striped {
            compare(&mut world, &content, &what);
            (0..spares).for_each(|_| _ = world.add_disk());
        }
        world.run();
        is_shape(&world, to, &what);
        let status = world.array.status();
        assert_eq!((status.degraded, status.sync.action), (0, SyncAction::Idle), "{what}");
        compare(&mut world, &content, &what);
        assert_eq!(world.check(), 0, "{what}");
        let content = fill(&mut world);
        world.command(Command::Fail(MemberId(0)));
        compare(&mut world, &content, &what);
        world.cut_power_and_restart();
        is_shape(&world, to, &what);
        compare(&mut world, &content, &what);
    }
}

/// A shape, members that leave it, and the number of stripes then. The first with less than all of
/// each member in use, and a bitmap where the level has one.
const GIVEN_UP: [(Shape, &[u16], u32); 6] = [
    ((10, 0x102, 4, 16), &[1, 2], 2),
    ((10, 0x102, 6, 16), &[0, 2, 5], 3),
    ((1, 0, 2, 0), &[0], 1),
    ((1, 0, 3, 0), &[1, 2], 1),
    ((4, 0, 3, 16), &[2], 2),
    ((5, 5, 4, 16), &[3], 3),
];

fn without((level, layout, disks, chunk): Shape, leave: &[u16]) -> World {
    let mut world = small(level, layout, disks, chunk);
    for member in leave {
        world.command(Command::Fail(MemberId(*member)));
        world.command(Command::Remove(MemberId(*member)));
        world.disks[usize::from(*member)] = None;
    }
    world
}

#[test]
fn redundancy_is_given_up_and_every_byte_stays() {
    for (shape, leave, stripes) in GIVEN_UP {
        let what = format!("{shape:?} without {leave:?}");
        let mut world = without(shape, leave);
        let content = fill(&mut world);
        let before = world.array.array_sectors();
        world.command(level(0));
        for _ in 0..2 {
            is_shape(&world, (0, 0, stripes), &what);
            let status = world.array.status();
            assert_eq!((status.degraded, status.array_sectors), (0, before), "{what}");
            assert!(status.bitmap.is_none(), "{what}");
            compare(&mut world, &content, &what);
            world.cut_power_and_restart();
        }
        let content = fill(&mut world);
        world.command(level(if stripes == 1 { 1 } else { 10 }));
        (0..stripes).for_each(|_| _ = world.add_disk());
        world.run();
        assert_eq!(world.array.status().degraded, 0, "{what}");
        compare(&mut world, &content, &what);
        assert_eq!(world.check(), 0, "{what}");
    }
}

#[test]
fn the_power_goes_at_any_write_while_redundancy_is_given_up() {
    for (shape, leave, _) in GIVEN_UP {
        let begin = || without(shape, leave);
        let what = format!("{shape:?} without {leave:?}");
        cut_at_each_write(begin, &level(0), leave.len() as u16, &what);
    }
}

/// A linear array of two, and so many more disks.
fn appended(disks: u32) -> World {
    let mut world = World::new(-1, 0, 2, 16);
    (0..disks).for_each(|_| _ = world.add_disk());
    world
}

#[test]
fn a_linear_array_gets_longer_and_every_byte_stays() {
    let mut world = appended(3);
    let content = fill(&mut world);
    let before = world.array.array_sectors();
    world.command(Command::Remove(MemberId(3)));
    world.disks[3] = None;
    let change = Command::Grow(Grow::RaidDisks(4));
    let reason = "a linear array gets its members one after the other";
    assert_eq!(world.refused(change.clone()), reason);
    world.command(Command::Grow(Grow::RaidDisks(3)));
    world.command(change.clone());
    assert_eq!(world.refused(change), "it has 4 members already");
    for _ in 0..2 {
        is_shape(&world, (-1, 0, 4), "longer");
        assert_eq!(world.array.array_sectors(), 2 * before);
        for sector in (0..before).step_by(1024) {
            let read = world.read(sector, 1024).unwrap();
            let start = (sector * SECTOR_BYTES) as usize;
            assert!(read == content[start..start + read.len()], "at {sector}");
        }
        world.cut_power_and_restart();
    }
    let content = fill(&mut world);
    compare(&mut world, &content, "all of it written anew");
}

#[test]
fn the_power_goes_at_any_write_while_a_linear_array_gets_longer() {
    cut_at_each_write(|| appended(1), &Command::Grow(Grow::RaidDisks(3)), 0, "linear");
}

#[test]
fn more_of_each_member_is_used_and_only_that_is_brought_in_line() {
    for shape in [
        (1, 0, 2, 0),
        (4, 0, 3, 16),
        (5, 2, 4, 16),
        (6, 2, 5, 32),
        (10, 0x102, 4, 16),
        (10, 0x102, 3, 16),
        (10, 0x10201, 4, 16),
    ] {
        let mut world = small(shape.0, shape.1, shape.2, shape.3);
        super::resync::scatter(&mut world);
        let content = fill(&mut world);
        let before = world.array.array_sectors();
        world.issued.clear();
        world.command(MAX);
        world.run();
        assert_eq!(world.array.array_sectors(), 2 * before, "{shape:?}");
        assert!(super::resync::resync_ended(&world), "{shape:?}");
        for (disk, ranges) in world.written() {
            let first = ranges.iter().map(|(sector, _)| *sector).min().unwrap();
            assert!(first >= DATA_OFFSET + SMALL, "{shape:?}: disk {disk} at {first}");
        }
        assert_eq!(world.check(), 0, "{shape:?}");
        let bytes = (before * SECTOR_BYTES) as usize;
        let end = world.read(before - 8, 16).unwrap();
        assert!(end[..4096] == content[bytes - 4096..], "{shape:?}");
        let content = fill(&mut world);
        world.command(Command::Fail(MemberId(1)));
        world.cut_power_and_restart();
        assert_eq!(world.array.array_sectors(), 2 * before, "{shape:?}");
        compare(&mut world, &content, "degraded");
    }
}

/// Loses all metadata writes of a change but the first so many. Returns how many there were.
fn lose_metadata_after(world: &mut World, most: usize) -> std::rc::Rc<std::cell::Cell<usize>> {
    let seen = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = seen.clone();
    world.rule(move |_, op| match op {
        IoOp::Write { sector, .. } if sector < DATA_OFFSET => {
            count.set(count.get() + 1);
            if count.get() > most { Fate::Lose } else { Fate::Serve }
        }
        _ => Fate::Serve,
    });
    seen
}

fn cut_at_each_write(begin: impl Fn() -> World, change: &Command, degraded: u16, what: &str) {
    let mut whole = begin();
    whole.command(change.clone());
    let after = (whole.array.array_sectors() * SECTOR_BYTES) as usize;
    let mut most = 0;
    loop {
        let mut world = begin();
        let mut content = fill(&mut world);
        content.truncate(after);
        world.run();
        let seen = lose_metadata_after(&mut world, most);
        world.begin_command(change.clone());
        let all = seen.get();
        for index in 0..world.disks.len() {
            // Added, and not told of it.
            let blank = world.disks[index].is_some() && world.candidate(index).superblock.is_err();
            if blank {
                world.disks[index] = None;
            }
        }
        world.cut_power_and_restart();
        let status = world.array.status();
        let missing = if status.degraded > degraded { status.degraded } else { 0 };
        assert_eq!(missing, 0, "{what}: {most} of {all} writes");
        world.run();
        let sectors = content.len() as u64 / SECTOR_BYTES;
        assert!(world.array.array_sectors() >= sectors, "{what}: {most} of {all} writes");
        let read = world.read(0, sectors.min(2048)).unwrap();
        assert!(read == content[..read.len()], "{what}: {most} of {all} writes");
        if world.array.status().degraded == 0 && world.array.status().superblock.level > 0 {
            assert_eq!(world.check(), 0, "{what}: {most} of {all} writes");
        }
        if most > all {
            return;
        }
        most = next_cut(most, all, all, what.len());
    }
}

#[test]
fn the_power_goes_at_any_write_of_a_takeover() {
    for (shape, change, to, spares) in takeovers() {
        let begin = || {
            let mut world = World::with(shape.0, shape.1, shape.2, shape.3, |config| {
                with_bitmap(config, MEMBER_SECTORS);
            });
            (0..spares).for_each(|_| _ = world.add_disk());
            world
        };
        cut_at_each_write(begin, &change, spares as u16, &format!("{shape:?} to {to:?}"));
    }
    for (shape, change, to, spares) in stripes() {
        let begin = || World::new(shape.0, shape.1, shape.2, shape.3);
        cut_at_each_write(begin, &change, spares as u16, &format!("{shape:?} to {to:?}"));
    }
}

#[test]
fn the_power_goes_at_any_write_of_a_larger_size() {
    for shape in [(1, 0, 2, 0), (5, 2, 3, 16), (10, 0x102, 4, 16)] {
        let begin = || small(shape.0, shape.1, shape.2, shape.3);
        cut_at_each_write(begin, &MAX, 0, &format!("{shape:?}"));
    }
}

#[test]
fn requests_wait_for_the_change_and_the_change_for_requests() {
    let mut world = small(5, 2, 3, 16);
    let content = noise(3, 4096);
    world.hold(|_, op| super::restart::is_data_write(op));
    assert!(!world.begin_write(0, &content));
    assert!(!world.begin_command(MAX));
    let before = world.array.array_sectors();
    let buf = world.data_buf(4096);
    world.request(Op::Read, 8, 8, buf);
    world.run_until_idle();
    assert!(world.answers.is_empty(), "it came after the command");
    assert_eq!(world.array.array_sectors(), before);
    world.hold_nothing();
    let answers = world.run();
    assert_eq!(answers.len(), 3);
    assert!(answers.iter().all(|(_, result)| result.is_ok()));
    assert_eq!(world.array.array_sectors(), 2 * before);
    assert!(world.read(0, 8).unwrap() == content);
}

#[test]
fn a_member_that_hangs_ends_the_change_and_not_the_requests() {
    let mut world = small(5, 2, 3, 16);
    let before = world.array.array_sectors();
    world.hold(|member, op| member == MemberId(1) && super::restart::is_data_write(op));
    assert!(!world.begin_write(0, &noise(1, 16384)));
    assert!(!world.begin_command(MAX));
    let buf = world.data_buf(4096);
    world.request(Op::Read, 400, 8, buf);
    world.run();
    assert_eq!(world.refusals.pop().unwrap(), "disk1 has not answered for 10 s");
    assert_eq!(world.array.array_sectors(), before);
    world.hold_nothing();
    world.run();
    assert!(world.read(0, 32).unwrap() == noise(1, 16384));
}

#[test]
fn a_member_that_fails_before_all_are_told_ends_the_change() {
    for (writes, size) in [(true, SMALL), (false, 2 * SMALL)] {
        let mut world = small(1, 0, 3, 0);
        if writes {
            assert!(world.begin_write(0, &noise(1, 4096)));
        }
        world.rule(|member, op| {
            if member == MemberId(2) && is_superblock(op) {
                Fate::Fail(IoError::GONE)
            } else {
                Fate::Serve
            }
        });
        world.begin_command(MAX);
        world.run();
        // After writes it failed at the checkpoint before: nothing was told of another size.
        assert_eq!(world.refusals.len(), usize::from(writes));
        assert_eq!(world.superblock(0).size_sectors, size);
        assert_eq!(world.array.status().degraded, 1);
    }
}

#[test]
fn copies_leave_only_after_their_members() {
    let mut world = World::new(1, 0, 3, 0);
    let content = fill(&mut world);
    let two = Command::Grow(Grow::RaidDisks(2));
    let reason = world.refused(two.clone());
    assert_eq!(reason, "3 members hold the data, and 2 are to stay");
    world.command(Command::Fail(MemberId(0)));
    assert_eq!(world.refused(two.clone()), "disk0 is faulty");
    world.command(Command::Remove(MemberId(0)));
    world.command(two);
    is_shape(&world, (1, 0, 2), "two copies");
    assert_eq!(world.array.status().degraded, 0);
    compare(&mut world, &content, "two copies");
    assert_eq!(world.check(), 0);
    // The one that left before is not taken for one that is there.
    world.cut_power_and_restart();
    is_shape(&world, (1, 0, 2), "two copies again");
    assert_eq!(world.array.status().degraded, 0);
    compare(&mut world, &content, "two copies again");
}

#[test]
fn a_mirror_that_lost_a_copy_for_good_becomes_whole() {
    let mut world = World::new(1, 0, 3, 0);
    let content = fill(&mut world);
    world.command(Command::Fail(MemberId(1)));
    world.command(Command::Remove(MemberId(1)));
    world.command(Command::Grow(Grow::RaidDisks(2)));
    world.disks[1] = None;
    world.disks[0] = None;
    world.cut_power_and_restart();
    compare(&mut world, &content, "the last copy");
}

#[test]
fn what_cannot_be_is_refused_with_nothing_written() {
    let cases: [(Shape, Command, &str); 14] = [
        (
            (10, 0x102, 4, 16),
            level(0),
            "disk1 holds a copy or parity, and raid0 has no place for that",
        ),
        ((4, 0, 3, 16), level(0), "disk2 holds a copy or parity, and raid0 has no place for that"),
        (
            (5, 2, 3, 16),
            level(0),
            "raid5, left-symmetric, 3 members: stripes lie otherwise, and data would have to move",
        ),
        (
            (10, 0x102, 3, 16),
            level(0),
            "raid10, near=2, 3 members: stripes lie otherwise, and data would have to move",
        ),
        ((6, 5, 4, 16), level(0), "raid6 has two members of parity"),
        ((0, 2, 3, 16), level(1), "the data are striped over 3 members"),
        ((5, 2, 3, 16), level(6), "1 role is new, and there is no spare"),
        ((5, 2, 3, 16), level(5), "it is a raid5 already"),
        (
            (6, 2, 4, 16),
            level(5),
            "left-symmetric spreads Q over all members: data would have to move",
        ),
        ((1, 0, 3, 0), level(5), "a mirror of 3 cannot become a raid5, only one of 2"),
        ((5, 2, 3, 16), MAX, "1024 KiB of each member are used, which is all that disk0 has"),
        (
            (5, 2, 3, 16),
            Command::Grow(Grow::Size(Some(4096))),
            "disk0 has room for 1024 KiB, not for 2048 KiB",
        ),
        ((0, 2, 3, 16), MAX, "raid0 uses all of its members"),
        ((5, 2, 3, 16), Command::Grow(Grow::RaidDisks(4)), "1 role is new, and there is no spare"),
    ];
    for (shape, change, reason) in cases {
        let mut world = World::new(shape.0, shape.1, shape.2, shape.3);
        world.run();
        world.writes = 0;
        assert_eq!(world.refused(change), reason, "{shape:?}");
        world.run();
        assert_eq!(world.writes, 0, "{reason}");
    }
}

/// A chunk of the bitmap is new in part: the part is brought in line.
#[test]
fn what_is_new_in_a_chunk_of_the_bitmap_is_brought_in_line() {
    let mut world = World::with(5, 2, 3, 16, |config| {
        let members = config.members.iter_mut().map(|member| &mut member.superblock);
        members.chain([&mut config.superblock]).for_each(|sb| sb.size_sectors = SMALL - 16);
        with_bitmap(config, SMALL - 16);
    });
    for (disk, byte) in world.disks.iter_mut().flatten().zip(1..) {
        disk.write(DATA_OFFSET + SMALL - 16, &noise(byte, 16 * 512), true);
    }
    world.command(Command::Grow(Grow::Size(Some(SMALL))));
    assert_eq!(world.check(), 0);
}

/// As many rows as there are far copies go together.
#[test]
fn rows_that_no_copy_has_room_in_are_not_added() {
    let mut world = small(10, 0x1_0201, 4, 16);
    let why = world.refused(Command::Grow(Grow::Size(Some(SMALL + 16))));
    assert!(why.contains("of each member are used"), "{why}");
    world.command(Command::Grow(Grow::Size(Some(SMALL + 32))));
    assert_eq!(world.array.status().used_member_sectors, SMALL + 32);
}

/// A stop is asked for while members are told and a write waits for that: the write is durable
/// when the array has stopped.
#[test]
fn a_stop_waits_for_requests_that_wait_for_the_change() {
    let mut world = small(5, 2, 3, 16);
    world.hold(|_, op| is_superblock(op));
    assert!(!world.begin_command(MAX));
    let content = noise(3, 4096);
    assert!(!world.begin_write(0, &content));
    assert!(!world.begin_command(Command::Stop));
    world.hold_nothing();
    world.run();
    world.cut_power_and_restart();
    assert!(world.read(0, 8).unwrap() == content);
}

/// Less of each member is used, with power cuts at each write, and the rest again.
#[test]
fn less_of_each_member_is_used_and_every_byte_that_is_left_stays() {
    let less = Command::Grow(Grow::Size(Some(SMALL - 200)));
    for (shape, rows) in [
        ((1, 0, 2, 0), SMALL - 200),
        ((4, 0, 3, 16), SMALL - 208),
        ((5, 2, 3, 16), SMALL - 208),
        ((6, 2, 4, 32), SMALL - 224),
        ((10, 0x102, 4, 16), SMALL - 208),
        ((10, 0x1_0201, 4, 16), SMALL - 224),
    ] {
        let what = format!("{shape:?}");
        let start = || small(shape.0, shape.1, shape.2, shape.3);
        let mut world = start();
        let content = fill(&mut world);
        let data = world.array.array_sectors() / SMALL;
        world.command(less.clone());
        world.run();
        assert_eq!(world.array.array_sectors(), rows * data, "{what}");
        compare(&mut world, &content, &what);
        assert_eq!(world.check(), 0, "{what}");
        world.cut_power_and_restart();
        assert_eq!(world.array.array_sectors(), rows * data, "{what} again");
        compare(&mut world, &content, &format!("{what} again"));
        world.command(MAX);
        world.run();
        assert_eq!(world.array.array_sectors(), MEMBER_SECTORS * data, "{what}");
        assert_eq!(world.check(), 0, "{what}: all of it");
        cut_at_each_write(start, &less, 0, &what);
    }
}
