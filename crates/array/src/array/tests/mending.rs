//! Members that cannot read, or not what was written to them.

use super::world::Fate;
use super::*;
use crate::action::{Command, IoError};

const REDUNDANT: [(i32, u32, u32, u32); 4] =
    [(1, 0, 3, 0), (5, 2, 3, 16), (6, 2, 4, 16), (10, 0x102, 4, 16)];

fn is_data_read(op: IoOp) -> bool {
    matches!(op, IoOp::Read { sector, .. } if sector >= DATA_OFFSET)
}

fn failed(world: &World, id: u16) -> bool {
    world.events.iter().any(|event| match event {
        ArrayEvent::MemberFailed { member, .. } => *member == MemberId(id),
        _ => false,
    })
}

#[test]
fn a_member_that_reads_nothing_of_what_it_was_given_is_out() {
    for (level, layout, disks, chunk) in REDUNDANT {
        let mut world = World::new(level, layout, disks, chunk);
        let content = fill(&mut world);
        world.rule(|member, op| match op {
            _ if member == MemberId(0) && is_data_read(op) => Fate::Fail(IoError::MEDIUM),
            _ => Fate::Serve,
        });
        compare(&mut world, &content, &format!("level {level}"));
        assert!(failed(&world, 0), "level {level}: {:?}", world.events);
        let corrected = |event: &ArrayEvent| matches!(event, ArrayEvent::ReadCorrected { .. });
        assert!(!world.events.iter().any(corrected), "level {level}: nothing was");
        assert_eq!(world.array.status().degraded, 1, "level {level}");
    }
}

/// Writing there would make a file grow again, with a hole below that reads as zeroes.
#[test]
fn a_member_that_has_become_smaller_is_out_and_not_written_to() {
    for (level, layout, disks, chunk) in REDUNDANT {
        let mut world = World::new(level, layout, disks, chunk);
        let content = fill(&mut world);
        let end = DATA_OFFSET + 256;
        world.rule(move |member, op| match op {
            IoOp::Read { sector, .. } if member == MemberId(0) && sector >= end => {
                Fate::Fail(IoError::SHRUNK)
            }
            _ => Fate::Serve,
        });
        world.issued.clear();
        compare(&mut world, &content, &format!("level {level}"));
        assert!(failed(&world, 0), "level {level}: {:?}", world.events);
        let written = |(member, op): &(MemberId, IoOp)| {
            *member == MemberId(0)
                && matches!(op, IoOp::Write { sector, .. } if *sector >= DATA_OFFSET)
        };
        assert!(!world.issued.iter().any(written), "level {level}: it would grow");
    }
}

/// Data that this member still has nobody else has.
#[test]
fn the_last_copy_stays_when_it_becomes_smaller() {
    let mut world = World::new(1, 0, 2, 0);
    let content = fill(&mut world);
    world.command(Command::Fail(MemberId(1)));
    let end = DATA_OFFSET + 256;
    world.rule(move |_, op| match op {
        IoOp::Read { sector, .. } if sector >= end => Fate::Fail(IoError::SHRUNK),
        _ => Fate::Serve,
    });
    assert_eq!(world.read(512, 8), Err(RequestError::Medium));
    assert_eq!(world.read(0, 128).unwrap(), content[..65536]);
}

#[test]
fn a_member_with_more_read_errors_than_is_plausible_is_out() {
    for (level, layout, disks, chunk) in REDUNDANT {
        for (errors, out) in [(20, false), (21, true)] {
            let what = format!("level {level}, {errors} errors");
            let mut world = World::new(level, layout, disks, chunk);
            let content = fill(&mut world);
            world.bad.extend((0..errors).map(|n| (MemberId(0), DATA_OFFSET + n * 64)));
            compare(&mut world, &content, &what);
            if !failed(&world, 0) {
                world.command(Command::Scrub { repair: false });
            }
            assert_eq!(failed(&world, 0), out, "{what}");
        }
    }
}

#[test]
fn read_errors_of_long_ago_count_less() {
    let mut world = World::new(5, 2, 3, 16);
    let content = fill(&mut world);
    let mut next = 0;
    for _ in 0..4 {
        world.bad.extend((0..15).map(|n| (MemberId(0), DATA_OFFSET + (next + n) * 8)));
        next += 15;
        compare(&mut world, &content, "errors");
        world.now = world.now.plus_millis(2 * 3_600_000);
    }
    let corrected = |event: &&ArrayEvent| matches!(event, ArrayEvent::ReadCorrected { .. });
    let count = world.events.iter().filter(corrected).count();
    assert!(count > 30, "{count} errors");
    assert!(!failed(&world, 0), "at most 15 + 15 / 4 + ... of late");
}

/// Both copies, or two strips of a stripe: no member is failed, and the array says what it has.
#[test]
fn members_that_make_up_for_one_another_stay() {
    let mut world = World::new(5, 2, 4, 16);
    let content = fill(&mut world);
    world.rule(|member, op| match op {
        IoOp::Read { sector, .. } if member.0 < 2 && (DATA_OFFSET..400).contains(&sector) => {
            Fate::Fail(IoError::MEDIUM)
        }
        _ => Fate::Serve,
    });
    for sector in (0..900).step_by(8) {
        let _ = world.read(sector, 8);
    }
    let sectors = world.array.array_sectors();
    assert_eq!(world.read(sectors - 64, 64).unwrap()[..], content[content.len() - 64 * 512..]);
    let status = world.array.status();
    assert_eq!(status.degraded, 0, "{:?}", world.events);
    assert_eq!(
        status.members.iter().map(|m| m.unreliable).collect::<Vec<_>>(),
        [true, true, false, false]
    );
    let reason = world.refused(Command::Fail(MemberId(2)));
    assert_eq!(reason, "disk0 has sectors that only disk2 makes up for");
}

#[test]
fn nobody_goes_who_makes_up_for_sectors_that_cannot_be_read() {
    let mut world = World::with(5, 2, 3, 16, |config| {
        assert!(config.members[1].bad_blocks.insert(DATA_OFFSET + 64, 8));
    });
    let reason = world.refused(Command::Fail(MemberId(0)));
    assert_eq!(reason, "disk1 has sectors that only disk0 makes up for");
    world.command(Command::Fail(MemberId(1)));
    // With a second parity there is enough left.
    let mut world = World::with(6, 2, 4, 16, |config| {
        assert!(config.members[1].bad_blocks.insert(DATA_OFFSET + 64, 8));
    });
    world.command(Command::Fail(MemberId(0)));
}

#[test]
fn a_sector_asked_for_by_many_is_one_error() {
    let mut world = World::new(1, 0, 2, 0);
    let content = fill(&mut world);
    world.bad.push((MemberId(0), DATA_OFFSET + 3));
    world.hold(|_, op| matches!(op, IoOp::Write { .. }));
    for _ in 0..60 {
        let buf = world.data_buf(8 * 512);
        world.request(Op::Read, 0, 8, buf);
        world.run_until_idle();
    }
    world.hold_nothing();
    world.run();
    assert!(!failed(&world, 0), "{:?}", world.events);
    assert!(world.bad.is_empty());
    compare(&mut world, &content, "after it");
}
