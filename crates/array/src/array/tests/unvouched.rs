//! A member is lost while a resync is pending: what no parity vouches for is lost with it, and
//! nothing else. It is never made up.

use super::disk::Disk;
use super::resync::scatter;
use super::world::Fate;
use super::*;
use crate::action::{Command, IoError};
use crate::assemble::{Options, Start, decide};
use crate::events::{SyncAction, SyncEnd};

/// The size of one read: parts of a strip, a unit at most.
const PART: u64 = 8;

/// Not stopped cleanly, and all there.
fn dirty(config: &mut Config) {
    config.superblock.resync_offset = 0;
    for member in &mut config.members {
        member.superblock.resync_offset = 0;
    }
}

/// Returns the contents of the parts of the array, where they can be read.
fn parts(world: &mut World) -> Vec<Option<Vec<u8>>> {
    let starts = (0..world.array.array_sectors()).step_by(PART as usize);
    let starts: Vec<u64> = starts.collect();
    starts.into_iter().map(|sector| try_read(world, sector)).collect()
}

/// Reads with no time passing.
fn try_read(world: &mut World, sector: u64) -> Option<Vec<u8>> {
    let buf = world.data_buf((PART * SECTOR_BYTES) as usize);
    world.request(Op::Read, sector, PART, buf);
    world.run_until_idle();
    let answers = std::mem::take(&mut world.answers);
    answers[0].1.ok().map(|()| world.bytes(buf).to_vec())
}

/// Counts the parts that cannot be read. The others must hold what they held.
fn lost(before: &[Option<Vec<u8>>], now: &[Option<Vec<u8>>], what: &str) -> usize {
    let invented = before.iter().zip(now).position(|(old, new)| new.is_some() && old != new);
    assert_eq!(invented, None, "{what}: a part was made up");
    now.iter().filter(|part| part.is_none()).count()
}

/// An array on disks that say different things, which waits for a resync: that has done a few
/// units, and does no more before background work is resumed.
fn scattered(shape: (i32, u32, u32, u32), change: impl Fn(&mut Config)) -> World {
    waiting(shape, change, scatter)
}

fn waiting(
    shape: (i32, u32, u32, u32),
    change: impl Fn(&mut Config),
    prepare: impl FnOnce(&mut World),
) -> World {
    let (level, layout, disks, chunk) = shape;
    let mut world = World::with(level, layout, disks, chunk, |config| {
        dirty(config);
        change(config);
    });
    prepare(&mut world);
    world.begin_command(Command::Pause(true));
    world
}

fn start_without_force(world: &mut World, missing: usize) -> Start {
    let there = (0..world.disks.len()).filter(|disk| *disk != missing);
    let candidates = there.map(|disk| world.candidate(disk)).collect();
    decide(candidates, Options { run: true, ..Options::default() }).start
}

/// Level, layout, members and chunk.
type Shape = (i32, u32, u32, u32);

const SHAPES: [Shape; 3] = [(4, 0, 4, 32), (5, 2, 3, 16), (5, 0, 4, 32)];

#[test]
fn what_no_parity_vouches_for_is_lost_with_a_member_and_never_made_up() {
    for shape in SHAPES {
        for automatic in [false, true] {
            let what = format!("{shape:?}, automatic {automatic}");
            let mut world = scattered(shape, |_| {});
            let before = parts(&mut world);
            if automatic {
                world.rule(|member, op| match op {
                    IoOp::Flush if member == MemberId(0) => Fate::Fail(IoError::GONE),
                    _ => Fate::Serve,
                });
                let buf = Buf::default();
                world.request(Op::Flush, 0, 0, buf);
                world.run_until_idle();
                world.answers.clear();
            } else {
                let reason = world.refused(Command::Fail(MemberId(0)));
                assert!(reason.contains("a resync has yet to make parity fit"), "{reason}");
                assert!(reason.contains("disk0"), "{reason}");
                world.begin_command(Command::ForceFail(MemberId(0)));
            }
            let data_parts = before.len() / (shape.2 as usize - 1);
            let held = if shape.0 == 4 { data_parts } else { before.len() / shape.2 as usize };
            let now = lost(&before, &parts(&mut world), &what);
            assert!(
                (held / 2..=held).contains(&now),
                "{what}: {now} parts are lost, {held} were held"
            );
            // For good, and md sees it like that.
            world.begin_command(Command::Pause(false));
            world.run();
            assert_eq!(lost(&before, &parts(&mut world), &what), now, "{what}");
            world.command(Command::Stop);
            assert_eq!(world.superblock(1).resync_offset, MAX_SECTOR, "{what}");
            let start = start_without_force(&mut world, 0);
            assert!(matches!(start, Start::Ready { .. }), "{what}: {start:?}");
            world.disks[0] = None;
            world.cut_power_and_restart();
            assert_eq!(lost(&before, &parts(&mut world), &what), now, "{what}: started again");
            world.add_disk();
            world.run();
            assert_eq!(world.array.status().degraded, 0, "{what}");
            assert_eq!(lost(&before, &parts(&mut world), &what), now, "{what}: rebuilt");
            // What is written is there again.
            let all = noise(9, (world.array.array_sectors() * SECTOR_BYTES) as usize);
            world.write(0, &all[..1 << 20]).unwrap();
            compare_first(&mut world, &all[..1 << 20], &what);
        }
    }
}

#[test]
fn what_is_written_beside_what_is_lost_is_stored() {
    let raid6 = (6, 2, 5, 16);
    for (shape, gone) in SHAPES.map(|shape| (shape, 1)).into_iter().chain([(raid6, 2)]) {
        let what = format!("{shape:?}");
        let mut world = scattered(shape, |_| {});
        for member in 0..gone {
            world.begin_command(Command::ForceFail(MemberId(member)));
        }
        world.begin_command(Command::Pause(false));
        world.run();
        let mut expected = parts(&mut world);
        let lost_parts = expected.iter().filter(|part| part.is_none()).count();
        assert!(lost_parts > 0, "{what}");
        for (at, part) in expected.iter_mut().enumerate().filter(|(_, part)| part.is_some()) {
            let new = noise(at as u64, (PART * SECTOR_BYTES) as usize);
            world.write(at as u64 * PART, &new).unwrap_or_else(|e| panic!("{what}: {at}: {e:?}"));
            *part = Some(new);
        }
        assert_eq!(lost(&expected, &parts(&mut world), &what), lost_parts, "{what}");
        world.command(Command::Stop);
        (0..gone).for_each(|disk| world.disks[usize::from(disk)] = None);
        world.cut_power_and_restart();
        assert_eq!(lost(&expected, &parts(&mut world), &what), lost_parts, "{what}: again");
        if gone > 1 {
            continue;
        }
        // One that is written is known again, and so is its parity.
        for (at, part) in expected.iter_mut().enumerate().filter(|(_, part)| part.is_none()) {
            let new = noise(at as u64, (PART * SECTOR_BYTES) as usize);
            world.write(at as u64 * PART, &new).unwrap_or_else(|e| panic!("{what}: {at}: {e:?}"));
            *part = Some(new);
        }
        assert_eq!(lost(&expected, &parts(&mut world), &what), 0, "{what}: all is known");
    }
}

fn compare_first(world: &mut World, content: &[u8], what: &str) {
    let read = world.read(0, content.len() as u64 / SECTOR_BYTES).unwrap();
    assert!(read == content, "{what}: not what was written");
}

#[test]
fn what_was_written_while_a_resync_was_pending_outlives_the_loss_of_a_member() {
    for shape in SHAPES {
        for bitmap in [false, true] {
            let what = format!("{shape:?}, bitmap {bitmap}");
            let mut world = scattered(shape, |config| {
                if bitmap {
                    add_bitmap(config);
                    config.bitmap.as_mut().unwrap().set_all();
                }
            });
            let middle = world.array.array_sectors() / 2;
            let data = noise(5, 100 << 10);
            assert!(world.begin_write(middle, &data), "{what}");
            world.begin_command(Command::ForceFail(MemberId(0)));
            let later = noise(6, 512);
            assert!(world.begin_write(middle, &later), "{what}: its parity fits");
            world.begin_command(Command::Pause(false));
            world.run();
            let read = world.read(middle, 200).unwrap();
            assert!(read[..512] == later && read[512..] == data[512..], "{what}");
        }
    }
}

/// Also where writes are known not to wait for it.
#[test]
fn what_a_resync_has_brought_in_line_outlives_the_loss_of_a_member() {
    for shape in SHAPES {
        let mut world = scattered(shape, |_| {});
        let sectors = world.array.array_sectors();
        assert!(world.begin_write(sectors - 8, &noise(5, 8 * 512)), "{shape:?}");
        let half = DATA_OFFSET + MEMBER_SECTORS / 2;
        world.hold(move |_, op| matches!(op, IoOp::Read { sector, .. } if sector >= half));
        world.begin_command(Command::Pause(false));
        world.run();
        world.begin_command(Command::ForceFail(MemberId(0)));
        world.hold_nothing();
        world.run();
        let parts = parts(&mut world);
        assert!(parts[..parts.len() / 4].iter().all(Option::is_some), "{shape:?}");
        assert!(parts.iter().any(Option::is_none), "{shape:?}");
    }
}

/// Two sums that agree on what a strip held vouch for it.
#[test]
fn a_resync_of_raid6_without_a_member_loses_only_what_is_torn() {
    for (layout, disks, chunk) in [(2, 4, 16), (8, 6, 128)] {
        let mut world = World::new(6, layout, disks, chunk);
        let content = fill(&mut world);
        world.command(Command::Stop);
        let full = world;
        let mut world = waiting(
            (6, layout, disks, chunk),
            |_| {},
            |world| {
                world.take_disks_of(full);
                // The parities are about something else.
                let torn = world.disks[2].as_mut().unwrap();
                torn.write(DATA_OFFSET + MEMBER_SECTORS / 2, &noise(77, 512), true);
            },
        );
        let torn = parts(&mut world);
        world.begin_command(Command::ForceFail(MemberId(1)));
        world.begin_command(Command::Pause(false));
        world.run();
        let what = format!("layout {layout}");
        assert!(lost(&torn, &parts(&mut world), &what) <= 1, "{what}");
        assert_eq!(parts(&mut world).len() * 8 * 512, content.len());
        assert_eq!(world.array.status().state, crate::status::ArrayState::Clean, "{what}");
    }
}

#[test]
fn without_a_log_to_note_it_in_the_resync_stays_pending() {
    let mut world = scattered((5, 2, 3, 16), |config| {
        let members = config.members.iter_mut().map(|member| &mut member.superblock);
        for superblock in members.chain([&mut config.superblock]) {
            superblock.bblog_size_sectors = 0;
            superblock.bblog_offset_sectors = 0;
        }
    });
    let before = parts(&mut world);
    world.begin_command(Command::ForceFail(MemberId(0)));
    world.begin_command(Command::Pause(false));
    world.run();
    let now = lost(&before, &parts(&mut world), "degraded");
    assert!(now > before.len() / 4, "{now} parts are lost");
    let held_up = world.array.status().held_up.unwrap();
    assert!(held_up.contains("bad-block log"), "{held_up}");
    world.command(Command::Stop);
    let Start::Refused { reason, could_force, .. } = start_without_force(&mut world, 0) else {
        panic!("nobody vouches for it");
    };
    assert!(could_force && reason.contains("parity"), "{reason}");
    // By force, parity counts.
    world.disks[0] = None;
    world.disks.iter_mut().flatten().for_each(Disk::flush);
    world.cut_power_and_restart();
    assert!(parts(&mut world).iter().all(Option::is_some));
}

/// With two parities of which one says something else; half of the array is as it was written.
fn torn_raid6(change: impl Fn(&mut Config)) -> World {
    let mut full = World::new(6, 2, 4, 16);
    fill(&mut full);
    full.command(Command::Stop);
    let tear = |world: &mut World| {
        world.take_disks_of(full);
        let torn = world.disks[2].as_mut().unwrap();
        torn.write(DATA_OFFSET, &noise(77, (MEMBER_SECTORS / 2 * SECTOR_BYTES) as usize), true);
    };
    waiting((6, 2, 4, 16), change, tear)
}

/// Nor does a repair make it up, or a disk in its place, wherever it is noted that it is lost.
#[test]
fn a_repair_of_raid6_without_a_member_takes_no_parity_for_data() {
    for with_log in [true, false] {
        for missing in [0, 1, 3] {
            let what = format!("disk {missing}, log {with_log}");
            let mut world = torn_raid6(|config| {
                let members = config.members.iter_mut().map(|member| &mut member.superblock);
                for superblock in members.chain([&mut config.superblock]) {
                    if !with_log {
                        superblock.bblog_size_sectors = 0;
                    }
                }
            });
            let before = parts(&mut world);
            world.begin_command(Command::ForceFail(MemberId(missing)));
            world.begin_command(Command::Pause(false));
            world.run();
            let now = lost(&before, &parts(&mut world), &what);
            assert!(now > 0, "{what}: nothing is torn");
            world.command(Command::Scrub { repair: true });
            assert_eq!(lost(&before, &parts(&mut world), &what), now, "{what}: repaired");
            let status = world.array.status();
            assert_eq!((status.mismatch_sectors, status.trusted_sectors), (Some(0), 0), "{what}");
            assert!(status.unreadable_sectors > 0, "{what}");
            world.command(Command::Remove(MemberId(missing)));
            world.add_disk();
            world.run();
            world.command(Command::Scrub { repair: true });
            let rebuilt = lost(&before, &parts(&mut world), &what);
            assert!(rebuilt >= now, "{what}: {rebuilt} of {now} parts");
        }
    }
}

/// Asked to, a repair takes the word of the only parity there is, and says of how much. Of two that
/// say different things it takes none.
#[test]
fn a_repair_tells_what_it_took_on_trust() {
    // Left-symmetric: of level 6, P of such a stripe is on disk 3, Q on disk 0. No resync has been
    // there when it is paused.
    let row = MEMBER_SECTORS / 4 * 3;
    let cases: [(Shape, &[u16], u64); 6] = [
        ((4, 0, 4, 32), &[0], 8),
        ((5, 2, 3, 16), &[0], 8),
        ((5, 2, 3, 16), &[2], 0),
        ((6, 2, 4, 16), &[1], 0),
        ((6, 2, 4, 16), &[1, 3], 8),
        ((6, 2, 4, 16), &[1, 2], 16),
    ];
    for (shape, broken, trusted) in cases {
        let what = format!("{shape:?}, {broken:?} broken");
        let mut world = scattered(shape, |_| {});
        let before = parts(&mut world);
        world.bad.extend(broken.iter().map(|disk| (MemberId(*disk), DATA_OFFSET + row + 3)));
        world.begin_command(Command::Pause(false));
        world.run();
        world.command(Command::Scrub { repair: true });
        let parity_alone = shape.0 == 5 && broken == [2];
        let known = trusted > 0 || parity_alone;
        assert_eq!(world.bad.is_empty(), known, "{what}");
        let end = world.ended(SyncAction::Repair).unwrap();
        assert_eq!(end == SyncEnd::Complete, known, "{what}: {end:?}");
        let told = world.events.iter().any(
            |event| matches!(event, ArrayEvent::ParityTrusted { sectors } if *sectors == trusted),
        );
        assert_eq!(told, trusted > 0, "{what}: {:?}", world.events);
        let status = world.array.status();
        assert_eq!(status.trusted_sectors, trusted, "{what}");
        let listed: u64 = status.trusted.iter().map(|place| place.sectors).sum();
        assert_eq!(listed, trusted, "{what}: {:?}", status.trusted);
        let members = |place: &crate::status::Unreadable| place.members.len() == broken.len();
        assert!(status.trusted.iter().all(members), "{what}: {:?}", status.trusted);
        let now = parts(&mut world);
        let changed = (0..now.len()).filter(|part| now[*part] != before[*part]).count() as u64;
        assert_eq!(changed * PART, if known { trusted } else { 8 }, "{what}: what was told");
        assert_eq!(now.contains(&None), !known, "{what}");
        // A check afterwards takes nothing, and does not hide it; the next repair has none.
        world.check();
        assert_eq!(world.array.status().trusted_sectors, trusted, "{what}: after a check");
        world.command(Command::Scrub { repair: true });
        assert_eq!(world.array.status().trusted_sectors, 0, "{what}: the next repair");
    }
}

/// Contents on which two parities agree are not taken on trust.
#[test]
fn a_repair_restores_what_two_parities_agree_on() {
    let mut world = torn_raid6(|_| {});
    let before = parts(&mut world);
    // Behind what is torn; the resync does not come that far before.
    world.begin_command(Command::Pause(false));
    let row = MEMBER_SECTORS / 2;
    world.bad.push((MemberId(1), DATA_OFFSET + row + 3));
    world.bad.push((MemberId(2), DATA_OFFSET + row + 3));
    world.run();
    assert_eq!(world.array.status().unsynced_sectors, 8);
    world.bad.retain(|(member, _)| *member == MemberId(1));
    world.command(Command::Scrub { repair: true });
    let status = world.array.status();
    assert_eq!((status.trusted_sectors, status.unsynced_sectors), (0, 0));
    assert!(world.bad.is_empty() && parts(&mut world) == before);
}
