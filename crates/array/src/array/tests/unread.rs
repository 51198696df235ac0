//! Background work over what cannot be read: it is counted, and what it means stays marked.

use super::resync::{resync_ended, scatter, unclean};
use super::*;
use crate::action::Command;
use crate::events::{SyncAction, SyncEnd};
use crate::status::ArrayState;

/// Level, layout, members and chunk.
type Shape = (i32, u32, u32, u32);

/// Shapes, and how many members at the same height are more than they do without.
const SHAPES: [(Shape, u16); 6] = [
    ((1, 0, 2, 0), 2),
    ((1, 0, 3, 0), 3),
    ((4, 0, 4, 32), 2),
    ((5, 2, 3, 16), 2),
    ((6, 2, 4, 16), 3),
    ((10, 0x102, 4, 16), 2),
];

/// A row of the members, within a unit.
const ROW: u64 = 43;

fn new((level, layout, disks, chunk): Shape) -> World {
    World::new(level, layout, disks, chunk)
}

/// The first members cannot read this row.
fn break_row(world: &mut World, members: u16, row: u64) {
    world.bad.extend((0..members).map(|member| (MemberId(member), DATA_OFFSET + row)));
}

/// The array sectors that cannot be read.
fn unreadable(world: &mut World) -> Vec<u64> {
    let sectors = 0..world.array.array_sectors();
    sectors.filter(|sector| world.read(*sector, 1).is_err()).collect()
}

fn listed(world: &World, sector: u64) -> bool {
    let places = world.array.status().unreadable;
    places.iter().any(|p| (p.array_sector..p.array_sector + p.sectors).contains(&sector))
}

#[test]
fn a_check_counts_what_it_cannot_read() {
    for (shape, too_many) in SHAPES {
        for repair in [false, true] {
            let what = format!("{shape:?}, repair {repair}");
            let action = if repair { SyncAction::Repair } else { SyncAction::Check };
            let mut world = new(shape);
            fill(&mut world);
            break_row(&mut world, too_many, ROW);
            world.command(Command::Scrub { repair });
            let status = world.array.status();
            let sectors = status.unreadable_sectors;
            assert_eq!(world.ended(action), Some(SyncEnd::Unread { sectors }), "{what}");
            let members = status
                .unreadable
                .iter()
                .all(|place| place.members == (0..too_many).map(MemberId).collect::<Vec<_>>());
            assert!(members, "{what}: {:?}", status.unreadable);
            assert_eq!(status.mismatch_sectors, Some(0), "{what}");
            let lost = unreadable(&mut world);
            assert!(!lost.is_empty() && sectors >= lost.len() as u64, "{what}");
            assert!(lost.iter().all(|sector| listed(&world, *sector)), "{what}: {lost:?}");
            world.bad.clear();
            world.command(Command::Scrub { repair });
            assert_eq!(world.ended(action), Some(SyncEnd::Complete), "{what}");
            assert_eq!(world.array.status().unreadable_sectors, 0, "{what}");
        }
    }
}

/// Sectors that one member cannot read at one place and another at another place of the same unit
/// are there.
#[test]
fn what_is_unreadable_in_one_block_does_not_count_in_the_next() {
    for ((level, layout, disks, _), too_many) in SHAPES {
        let shape = (level, layout, disks, if level == 1 { 0 } else { 128 });
        let mut world = new(shape);
        let content = fill(&mut world);
        for member in 0..too_many {
            world.bad.push((MemberId(member), DATA_OFFSET + u64::from(member) * 8));
        }
        assert_eq!(world.check(), 0, "{shape:?}");
        assert_eq!(world.ended(SyncAction::Check), Some(SyncEnd::Complete), "{shape:?}");
        assert!(world.bad.is_empty(), "{shape:?}: rewritten");
        compare(&mut world, &content, &format!("{shape:?}"));
    }
}

/// A scratch over two units costs two errors, not as many as blocks.
#[test]
fn a_member_is_not_failed_for_the_blocks_of_a_unit() {
    for (shape, _) in SHAPES {
        let mut world = new(shape);
        let content = fill(&mut world);
        let from = DATA_OFFSET - DATA_OFFSET % UNIT + UNIT;
        world.bad.extend((from..from + 2 * UNIT).map(|sector| (MemberId(0), sector)));
        assert_eq!(world.check(), 0, "{shape:?}");
        let status = world.array.status();
        assert_eq!((status.degraded, status.unreadable_sectors), (0, 0), "{shape:?}");
        assert_eq!(world.ended(SyncAction::Check), Some(SyncEnd::Complete), "{shape:?}");
        assert!(world.bad.is_empty(), "{shape:?}");
        compare(&mut world, &content, &format!("{shape:?}"));
    }
}

/// Sectors that were rewritten from the rest are compared all the same.
#[test]
fn a_check_compares_what_it_had_to_make_readable() {
    let mut world = World::new(6, 2, 4, 128);
    fill(&mut world);
    // Of the first stripe, member 1 has data and member 0 has Q.
    world.bad.push((MemberId(1), DATA_OFFSET));
    let image = &mut world.disks[0].as_mut().unwrap().image;
    image[(DATA_OFFSET * SECTOR_BYTES) as usize] ^= 1;
    assert_eq!(world.check(), 8);
    assert!(world.bad.is_empty());
}

/// With a bitmap, the range stays marked there; without, the mark of the resync stays before it.
#[test]
fn a_resync_that_cannot_read_leaves_the_range_out_of_sync() {
    for ((level, layout, disks, chunk), too_many) in SHAPES {
        for with_bitmap in [false, true] {
            let what = format!("level {level} of {disks}, bitmap {with_bitmap}");
            let mut world = World::with(level, layout, disks, chunk, |config| {
                unclean(config);
                if with_bitmap {
                    add_bitmap(config);
                    config.bitmap.as_mut().unwrap().set_all();
                }
            });
            scatter(&mut world);
            break_row(&mut world, too_many, ROW);
            world.run();
            let status = world.array.status();
            let sectors = status.unreadable_sectors;
            assert!(sectors > 0 && status.unsynced_sectors > 0, "{what}");
            assert_eq!(
                world.ended(SyncAction::Resync),
                Some(SyncEnd::Unread { sectors }),
                "{what}"
            );
            assert_eq!(status.state, ArrayState::Active, "{what}: not clean");
            assert!(status.held_up.is_some(), "{what}");
            // The third chunk of each member is the fifth of a raid10.
            let place = if level == 10 { ROW + 2 * 16 } else { ROW };
            assert!(world.superblock(0).resync_offset <= place, "{what}");
            // They can be read again, and differ.
            world.bad.clear();
            assert!(world.check() > 0, "{what}: it differs there");
            world.command(Command::Stop);
            let mark = world.superblock(0).resync_offset;
            assert!((place - place % 8..=place).contains(&mark), "{what}: marked from {mark}");
            if with_bitmap {
                let bitmap = world.candidate(0).bitmap.unwrap().unwrap();
                assert_eq!(bitmap.count(), 1, "{what}: bits");
            }
            world.cut_power_and_restart();
            world.run();
            assert!(resync_ended(&world), "{what}");
            assert_eq!(world.check(), 0, "{what}");
        }
    }
}

#[test]
fn what_a_resync_left_is_tried_again_on_resume() {
    for ((level, layout, disks, chunk), too_many) in SHAPES {
        let mut world = World::with(level, layout, disks, chunk, unclean);
        scatter(&mut world);
        break_row(&mut world, too_many, ROW);
        world.run();
        assert!(!resync_ended(&world), "level {level}");
        world.bad.clear();
        world.issued.clear();
        world.command(Command::Pause(false));
        assert!(resync_ended(&world), "level {level}");
        let outside = |range: &(u64, u64)| range.0 >= DATA_OFFSET + ROW - ROW % 128 + 128;
        assert!(
            !world.written().values().flatten().any(outside),
            "level {level}: only what was left"
        );
        assert_eq!(world.check(), 0, "level {level}");
        let status = world.array.status();
        assert_eq!((status.unsynced_sectors, status.held_up), (0, None), "level {level}");
    }
}

/// Where parity may not fit, it cannot tell what the strip held; asked to, a repair takes its word,
/// unless another one says something else.
#[test]
fn a_resync_does_not_invent_data() {
    for (level, layout, disks, chunk) in [(4, 0, 4, 32), (5, 2, 3, 16), (6, 2, 4, 16)] {
        let mut world = World::with(level, layout, disks, chunk, unclean);
        scatter(&mut world);
        // The first strip of the array.
        let member = MemberId(u16::from(level == 6));
        world.bad.push((member, DATA_OFFSET + 3));
        world.run();
        assert!(!resync_ended(&world), "level {level}");
        assert_eq!(world.array.status().unsynced_sectors, 8, "level {level}");
        let _ = world.read(0, 8);
        world.check();
        assert!(!world.bad.is_empty(), "level {level}: neither a read nor a check writes there");
        world.command(Command::Scrub { repair: true });
        let agree = level != 6;
        let end = if agree { SyncEnd::Complete } else { SyncEnd::Unread { sectors: 8 } };
        assert_eq!(world.ended(SyncAction::Repair), Some(end), "level {level}");
        assert_eq!(world.bad.is_empty(), agree, "level {level}");
        let status = world.array.status();
        assert_eq!(status.unsynced_sectors, if agree { 0 } else { 8 }, "level {level}");
        assert_eq!(status.held_up.is_none(), agree, "level {level}");
        world.command(Command::Stop);
        let marked = world.superblock(0).resync_offset;
        assert_eq!(marked, if agree { MAX_SECTOR } else { 0 }, "level {level}");
    }
}

/// Nor is data invented for who takes over from the member that cannot read.
#[test]
fn a_replacement_gets_no_data_that_a_resync_would_not_take() {
    let mut world = World::with(5, 2, 3, 16, unclean);
    scatter(&mut world);
    world.bad.push((MemberId(0), DATA_OFFSET + 3));
    world.run();
    let new = world.add_disk();
    world.command(Command::Replace(MemberId(0)));
    assert!(world.events.contains(&ArrayEvent::MemberActive(new)));
    assert_eq!(world.candidate(3).bad_blocks.unwrap().ranges(), [(DATA_OFFSET, 8)]);
    assert_eq!(world.ended(SyncAction::Recovery), Some(SyncEnd::Unread { sectors: 8 }));
}

#[test]
fn a_second_parity_vouches_for_what_the_first_says() {
    let mut before = World::new(6, 2, 4, 16);
    let content = fill(&mut before);
    let mut world = World::with(6, 2, 4, 16, unclean);
    world.disks = before.disks;
    // Of the first stripe, member 1 has data.
    world.bad.push((MemberId(1), DATA_OFFSET + 3));
    world.run();
    assert!(resync_ended(&world));
    assert!(world.bad.is_empty());
    compare(&mut world, &content, "restored");
}

#[test]
fn a_recovery_over_unreadable_sectors_is_not_complete() {
    for (shape, too_many) in SHAPES {
        let mut world = new(shape);
        fill(&mut world);
        let lost = MemberId(too_many - 1);
        world.command(Command::Fail(lost));
        world.command(Command::Remove(lost));
        break_row(&mut world, too_many - 1, ROW);
        world.add_disk();
        world.run();
        let status = world.array.status();
        let sectors = status.unreadable_sectors;
        assert!(sectors > 0, "{shape:?}");
        assert_eq!(
            world.ended(SyncAction::Recovery),
            Some(SyncEnd::Unread { sectors }),
            "{shape:?}"
        );
        let log = world.candidate(usize::from(shape.2 as u16)).bad_blocks.unwrap();
        let block = DATA_OFFSET + ROW - ROW % 8;
        assert_eq!(log.ranges(), [(block, 8)], "{shape:?}: a block, not a unit");
    }
}

/// Full, or not there: the reason is told, and after a change it is tried again.
#[test]
fn a_recovery_that_cannot_note_a_bad_block_says_so_and_tries_again_on_resume() {
    let mut world = World::with(1, 0, 2, 0, |config| {
        for member in &mut config.members {
            member.superblock.bblog_size_sectors = 0;
        }
    });
    fill(&mut world);
    world.command(Command::Fail(MemberId(1)));
    world.command(Command::Remove(MemberId(1)));
    break_row(&mut world, 1, ROW);
    world.add_disk();
    world.run();
    let Some(SyncEnd::Interrupted { reason }) = world.ended(SyncAction::Recovery) else {
        panic!("{:?}", world.ended(SyncAction::Recovery));
    };
    assert!(reason.contains("no bad-block log") && reason.contains("disk2"), "{reason}");
    assert_eq!(world.array.status().held_up.as_deref(), Some(&*reason));
    world.bad.clear();
    world.command(Command::Pause(false));
    assert_eq!(world.ended(SyncAction::Recovery), Some(SyncEnd::Complete));
    assert_eq!(world.array.status().held_up, None);
    assert_eq!(world.check(), 0);
}

/// The two of three copies that agree are right, also where the first is the odd one.
#[test]
fn a_repair_follows_the_majority() {
    for (shape, at) in [((1, 0, 3, 0), 100), ((10, 0x103, 3, 16), 0)] {
        for odd in 0..3 {
            let mut world = new(shape);
            let content = fill(&mut world);
            let byte = ((DATA_OFFSET + at) * SECTOR_BYTES) as usize;
            world.disks[odd].as_mut().unwrap().image[byte] ^= 1;
            world.command(Command::Scrub { repair: true });
            let member = Some(MemberId(odd as u16));
            let array_sector = at - at % 8;
            let block = None;
            let found = ArrayEvent::Mismatch { array_sector, sectors: 8, member, block };
            assert!(world.events.contains(&found), "{shape:?}, {odd}: {:?}", world.events);
            assert_eq!(world.check(), 0, "{shape:?}, {odd}");
            compare(&mut world, &content, &format!("{shape:?}, {odd}"));
        }
    }
}

/// A check that could compare nothing, or only a part, would find nothing.
#[test]
fn a_check_without_anything_to_compare_with_is_refused() {
    // The shape, who fails, and of how many parts how many have a second copy, or a parity to
    // spare.
    let cases: [(Shape, &[u16], (u64, u64)); 9] = [
        ((1, 0, 2, 0), &[0], (0, 1)),
        ((1, 0, 3, 0), &[1], (1, 1)),
        ((1, 0, 3, 0), &[0, 1], (0, 1)),
        ((10, 0x102, 4, 16), &[3], (1, 2)),
        ((10, 0x102, 4, 16), &[0, 3], (0, 1)),
        ((10, 0x103, 3, 16), &[0], (1, 1)),
        ((5, 2, 3, 16), &[0], (0, 1)),
        ((6, 2, 4, 16), &[0], (1, 1)),
        ((6, 2, 4, 16), &[0, 1], (0, 1)),
    ];
    for (shape, failed, (some, of)) in cases {
        let comparable = some > 0;
        let mut world = new(shape);
        fill(&mut world);
        for member in failed {
            world.command(Command::Fail(MemberId(*member)));
        }
        if comparable {
            assert_eq!(world.check(), 0, "{shape:?}");
            let alone = world.array.status().uncompared_sectors;
            assert_eq!(alone * of, world.array.array_sectors() * (of - some), "{shape:?}");
        } else {
            let reason = world.refused(Command::Scrub { repair: false });
            assert!(reason.contains("nothing to compare with"), "{shape:?}: {reason}");
        }
    }
    let reason = World::new(0, 2, 3, 16).refused(Command::Scrub { repair: false });
    assert_eq!(reason, "raid0 has no redundancy to check");
}

/// Parts of an array of arrays that have nothing left to be compared with are counted, the rest
/// checked.
#[test]
fn an_array_of_arrays_is_checked_as_far_as_it_can_be() {
    let mut world = World::stack((0, 2, 2, 16), (1, 0, 2, 0));
    let leaf = |array| crate::stack::Stack::leaf(array, MemberId(0));
    world.command(Command::Fail(leaf(0)));
    let half = world.array.status().children[0].array_sectors;
    damage(&mut world, 3, 100);
    assert_eq!(world.check(), 8);
    assert_eq!(world.array.status().uncompared_sectors, half);
    world.command(Command::Scrub { repair: true });
    assert_eq!(world.check(), 0);
    world.command(Command::Fail(leaf(1)));
    let reason = world.refused(Command::Scrub { repair: false });
    assert!(reason.contains("nothing to compare with"), "{reason}");
}

#[test]
fn a_mirror_of_striped_arrays_is_checked_and_repaired() {
    let mut world = World::stack((1, 0, 2, 0), (0, 2, 2, 16));
    fill(&mut world);
    damage(&mut world, 0, DATA_OFFSET + 100);
    assert!(world.check() > 0);
    world.command(Command::Scrub { repair: true });
    assert_eq!(world.check(), 0);
}

/// Changes a sector of the data of a disk.
fn damage(world: &mut World, disk: usize, row: u64) {
    world.disks[disk].as_mut().unwrap().write(DATA_OFFSET + row, &noise(row, 512), true);
}

/// A wrong strip is found without the member, and put right where all data is there. A repair
/// changes nothing where the parities say different things of data that nobody holds.
#[test]
fn raid6_without_a_member_is_checked_and_repaired_as_far_as_it_is_known() {
    // Left-symmetric: parity of the first stripe on disks 3 and 0, of the second on 2 and 3.
    for (wrong, row, known) in [(3, 3, false), (3, 19, true), (2, 35, true)] {
        let what = format!("disk {wrong}, row {row}");
        let mut world = World::new(6, 2, 4, 16);
        fill(&mut world);
        let missing = if known { role_of_parity(row, wrong) } else { 1 };
        world.command(Command::Fail(MemberId(missing)));
        damage(&mut world, wrong, row);
        assert_eq!(world.check(), 8, "{what}");
        let disks: Vec<_> = world.disks.iter().flatten().map(|disk| disk.image.clone()).collect();
        world.command(Command::Scrub { repair: true });
        let changed = (0..4).filter(|at| {
            let range = (DATA_OFFSET * 512) as usize..;
            world.disks[*at].as_ref().unwrap().image[range.clone()] != disks[*at][range]
        });
        assert_eq!(changed.count(), usize::from(known), "{what}");
        let end = world.ended(SyncAction::Repair).unwrap();
        let complete = end == SyncEnd::Complete;
        assert_eq!(complete, known, "{what}: {end:?}");
        assert_eq!(world.check(), if known { 0 } else { 8 }, "{what}");
    }
}

/// A member other than this disk that holds parity at a row of four disks.
fn role_of_parity(row: u64, not: usize) -> u16 {
    let p = (3 - row / 16 % 4) as u16;
    let q = (p + 1) % 4;
    if usize::from(p) == not { q } else { p }
}

#[test]
fn the_advice_against_failing_a_member_suits_what_goes_on() {
    let mut world = World::new(5, 2, 3, 16);
    world.command(Command::Fail(MemberId(0)));
    let advice = |world: &mut World| {
        world.refused(Command::Fail(MemberId(1)));
        world.advice.pop().unwrap()
    };
    let first = "add a spare first, and wait until it is rebuilt; or use --force, and assemble the \
                 array again after that";
    assert_eq!(advice(&mut world), first);
    world.command(Command::Pause(true));
    world.add_disk();
    assert_eq!(advice(&mut world), "let recovery go on and wait until it is complete");
    world.hold(|member, _| member == MemberId(3));
    world.begin_command(Command::Pause(false));
    assert_eq!(advice(&mut world), "wait until recovery is complete, or stop the array");
}

/// By force, parity counts where it may not fit. That of a write is about what it took a strip for
/// that could not be read: that is not what the strip holds, should it be read after all.
#[test]
fn a_write_beside_an_unreadable_strip_outlives_its_coming_back() {
    let mut world = World::with(6, 2, 4, 16, |config| {
        unclean(config);
        config.members.remove(1);
    });
    scatter(&mut world);
    world.begin_command(Command::Pause(true));
    // Of every fourth stripe, the missing member and the one after it have data; no resync has come
    // to the twentieth.
    let sector = 20 * 2 * 16;
    let row = 20 * 16;
    world.bad.push((MemberId(1), DATA_OFFSET + row + 3));
    let data = noise(77, 8 * 512);
    assert!(world.begin_write(sector, &data));
    world.bad.clear();
    assert!(world.read(sector, 8).unwrap() == data);
}
