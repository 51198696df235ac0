//! Reading, writing and zeroing on every level, whole, degraded and recovered.

use super::disk::Disk;
use super::*;
use crate::action::Command;
use crate::events::{SyncAction, SyncEnd};

#[test]
fn what_is_written_is_read_and_parity_fits() {
    for &(level, layout, disks, chunk) in SHAPES {
        let what = format!("level {level} layout {layout:#x} disks {disks} chunk {chunk}");
        let mut world = World::new(level, layout, disks, chunk);
        let content = fill(&mut world);
        compare(&mut world, &content, &what);
        if level > 0 {
            assert_eq!(world.check(), 0, "{what}");
        }
    }
}

#[test]
fn every_loss_the_level_survives_is_survived_and_rebuilt() {
    for &(level, layout, disks, chunk) in SHAPES.iter().filter(|shape| shape.0 > 0) {
        for lost in 0..disks as u16 {
            let what = format!("level {level} layout {layout:#x} disks {disks} lost {lost}");
            let mut world = World::new(level, layout, disks, chunk);
            let mut content = fill(&mut world);
            world.command(Command::Fail(MemberId(lost)));
            compare(&mut world, &content, &what);
            // Degraded writes, scattered.
            for step in 0..40u64 {
                let sectors = world.array.array_sectors();
                let sector = step * 7919 % (sectors - 64);
                let bytes = noise(step, ((1 + step % 64) * SECTOR_BYTES) as usize);
                world.write(sector, &bytes).unwrap();
                content[(sector * SECTOR_BYTES) as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            compare(&mut world, &content, &format!("{what}, written degraded"));
            world.command(Command::Remove(MemberId(lost)));
            let disk = Disk::filled(DATA_OFFSET + MEMBER_SECTORS, 0x55);
            world.disks[usize::from(lost)] = Some(disk);
            world.command(Command::Add(Box::new(crate::action::NewMember {
                member: MemberId(lost),
                device: "new".into(),
                device_sectors: DATA_OFFSET + MEMBER_SECTORS,
                superblock: None,
                bad_blocks: None,
                readd: false,
                device_uuid: [9; 16],
            })));
            world.run();
            assert_eq!(world.array.status().degraded, 0, "{what}");
            compare(&mut world, &content, &format!("{what}, recovered"));
            assert_eq!(world.check(), 0, "{what}");
        }
    }
}

#[test]
fn a_read_error_is_answered_from_redundancy_and_rewritten() {
    for &(level, layout, disks, chunk) in SHAPES.iter().filter(|shape| shape.0 > 0) {
        let what = format!("level {level} layout {layout:#x} disks {disks}");
        let mut world = World::new(level, layout, disks, chunk);
        let content = fill(&mut world);
        world.bad.extend((0..disks as u16).map(|d| (MemberId(d), 100 + u64::from(d) * 256)));
        compare(&mut world, &content, &what);
        compare(&mut world, &content, &what);
        assert_eq!(world.check(), 0, "{what}");
        assert!(world.bad.is_empty(), "{what}: {:?} not rewritten", world.bad);
        assert_eq!(world.array.status().degraded, 0, "{what}");
    }
}

#[test]
fn adjacent_writes_handed_in_together_are_one_full_stripe() {
    let mut world = World::new(5, 2, 3, 128);
    world.write(0, &noise(1, 512)).unwrap();
    world.reads = 0;
    world.writes = 0;
    for piece in 0..32 {
        let buf = Buf { len: 4096, ..world.data_buf(0) };
        let buf = Buf { offset: buf.offset + piece * 4096, ..buf };
        world.request(Op::Write { fua: false }, 256 + piece * 8, 8, buf);
    }
    let answered = world.run().len();
    assert_eq!((answered, world.reads), (32, 0), "a full stripe needs no reads");
}

#[test]
fn a_sequential_stream_fills_stripes_while_other_io_is_on_its_way() {
    let mut world = World::new(5, 2, 3, 128);
    world.write(0, &noise(1, 256 * 512)).unwrap();
    world.hold(|_, op| matches!(op, IoOp::Read { .. }));
    let buf = world.data_buf(4096);
    world.request(Op::Read, 1024, 8, buf);
    world.run_until_idle();
    world.issued.clear();
    assert!(!world.begin_write(256, &noise(2, 128 * 512)), "half a stripe waits for the rest");
    assert!(world.begin_write(384, &noise(3, 128 * 512)), "the rest makes it whole");
    let reads = |issued: &[(MemberId, IoOp)]| {
        issued.iter().filter(|(_, op)| matches!(op, IoOp::Read { .. })).count()
    };
    assert_eq!(reads(&world.issued), 0, "a full stripe needs no reads");
    assert!(!world.begin_write(512, &noise(4, 128 * 512)), "half a stripe again");
    world.hold_nothing();
    assert_eq!(world.run().len(), 2, "what is not filled is written all the same");
    assert_eq!(world.check(), 0);
}

/// Members that answer at once never have I/O on its way, so what is known of the client counts.
#[test]
fn a_sequential_stream_fills_stripes_while_its_next_write_comes_in() {
    let mut world = World::new(5, 2, 3, 128);
    world.write(0, &noise(1, 256 * 512)).unwrap();
    world.array.expect_writes(true);
    world.issued.clear();
    assert!(!world.begin_write(256, &noise(2, 128 * 512)), "half a stripe waits for the rest");
    assert!(world.begin_write(384, &noise(3, 128 * 512)), "the rest makes it whole");
    let reads = world.issued.iter().filter(|(_, op)| matches!(op, IoOp::Read { .. })).count();
    assert_eq!(reads, 0, "a full stripe needs no reads");
    assert!(!world.begin_write(512, &noise(4, 128 * 512)), "half a stripe again");
    assert!(world.pass_time(), "it does not wait for long");
    assert_eq!(std::mem::take(&mut world.answers).len(), 1);
    assert!(!world.begin_write(640, &noise(5, 64 * 512)), "a quarter");
    world.array.expect_writes(false);
    world.run_until_idle();
    assert_eq!(world.answers.len(), 1, "nothing more comes, nothing is waited for");
    world.answers.clear();
    assert_eq!(world.check(), 0);
}

#[test]
fn one_member_too_many_stops_writes_with_an_error() {
    let mut world = World::new(5, 2, 3, 16);
    let content = fill(&mut world);
    world.disks[0] = None;
    world.write(0, &content[..65536]).unwrap();
    world.disks[1] = None;
    assert_eq!(world.write(0, &content[..65536]), Err(RequestError::Failed));
    assert!(world.events.contains(&ArrayEvent::ArrayFailed));
}

#[test]
fn zeroes_read_as_zeroes_and_keep_parity() {
    for &(level, layout, disks, chunk) in SHAPES {
        let mut world = World::new(level, layout, disks, chunk);
        let mut content = fill(&mut world);
        let from = 13;
        let to = world.array.array_sectors() - 29;
        world.request(Op::WriteZeroes { fua: true, unmap: true }, from, to - from, Buf::default());
        assert_eq!(world.run().len(), 1);
        content[(from * SECTOR_BYTES) as usize..(to * SECTOR_BYTES) as usize].fill(0);
        compare(&mut world, &content, &format!("level {level} layout {layout:#x}"));
        if level > 0 {
            assert_eq!(world.check(), 0, "level {level} layout {layout:#x}");
        }
    }
}

#[test]
fn a_lost_member_ends_a_check() {
    let mut world = World::new(5, 2, 3, 16);
    fill(&mut world);
    world.command(Command::Pause(true));
    world.command(Command::Scrub { repair: false });
    assert_eq!(world.array.status().sync.action, SyncAction::Check);
    world.command(Command::Fail(MemberId(0)));
    let status = world.array.status();
    assert_eq!(status.sync.action, SyncAction::Idle);
    assert_eq!(status.mismatch_sectors, None, "it has not looked at everything");
    let end = world.ended(SyncAction::Check);
    assert!(matches!(end, Some(SyncEnd::Interrupted { .. })), "{end:?}");
}

#[test]
fn arrays_of_arrays_lose_one_member_each_and_recover() {
    for (outer, inner) in [
        ((0, 2, 2, 16), (1, 0, 2, 0)),
        ((0, 2, 2, 16), (5, 2, 3, 16)),
        ((0, 2, 2, 32), (6, 2, 4, 16)),
        ((-1, 0, 2, 16), (10, 0x102, 3, 16)),
    ] {
        let what = format!("{outer:?} over {inner:?}");
        let mut world = World::stack(outer, inner);
        let content = fill(&mut world);
        compare(&mut world, &content, &what);
        for array in 0..outer.2 as u16 {
            let leaf = crate::stack::Stack::leaf(array, MemberId(1));
            world.command(Command::Fail(leaf));
            world.command(Command::Remove(leaf));
        }
        assert_eq!(world.array.status().degraded, outer.2 as u16, "{what}: the whole is degraded");
        compare(&mut world, &content, &format!("{what}, degraded"));
        for number in 0..outer.2 {
            let member = world.array.free_member().unwrap();
            world.command(Command::Add(Box::new(crate::action::NewMember {
                member,
                device: format!("new{number}"),
                device_sectors: DATA_OFFSET + MEMBER_SECTORS,
                superblock: None,
                bad_blocks: None,
                readd: false,
                device_uuid: [9; 16],
            })));
            world.run();
        }
        let status = world.array.status();
        assert!(status.children.iter().all(|child| child.degraded == 0), "{what}");
        compare(&mut world, &content, &format!("{what}, recovered"));
        world.command(Command::Scrub { repair: false });
        assert_eq!(world.array.status().mismatch_sectors, Some(0), "{what}");
        for child in world.array.status().children {
            assert_eq!(child.mismatch_sectors, Some(0), "{what}");
        }
        world.command(Command::Stop);
    }
}

#[test]
fn one_unreadable_sector_costs_one_rewritten_block() {
    for (level, layout, disks, chunk) in [(1, 0, 2, 0), (5, 2, 3, 128), (10, 0x102, 4, 128)] {
        let mut world = World::new(level, layout, disks, chunk);
        let content = fill(&mut world);
        world.bad.push((MemberId(0), DATA_OFFSET + 21));
        world.writes = 0;
        let read = world.read(0, 128).unwrap();
        assert!(read == content[..read.len()], "level {level}");
        let corrected = |event: &ArrayEvent| matches!(event, ArrayEvent::ReadCorrected { .. });
        let count = world.events.iter().filter(|event| corrected(event)).count();
        assert_eq!((world.writes, count), (1, 1), "level {level}: {:?}", world.events);
    }
}

#[test]
fn an_update_keeps_the_block_size_and_makes_it_that_of_the_members() {
    for (kept, blocks, expected) in [(0, 4096, 0), (4096, 4096, 4096), (512, 4096, 4096)] {
        let mut world = World::with(1, 0, 2, 0, |config| {
            config.block_bytes = blocks;
            config.superblock.logical_block_bytes = kept;
            config.members.iter_mut().for_each(|m| m.superblock.logical_block_bytes = kept);
        });
        world.write(0, &noise(1, 4096)).unwrap();
        world.run();
        let events = world.superblock(0).events;
        assert!(events > 10, "the superblocks were written");
        for disk in [0, 1] {
            assert_eq!(world.superblock(disk).logical_block_bytes, expected, "{kept} {blocks}");
        }
    }
}

#[test]
fn an_update_says_the_size_that_is_used() {
    // Two far copies of an odd number of chunks: md rounds when it starts such an array.
    let mut world = World::with(10, 0x201, 3, 16, |config| {
        let members = config.members.iter_mut().map(|member| &mut member.superblock);
        members
            .chain([&mut config.superblock])
            .for_each(|sb| sb.size_sectors = MEMBER_SECTORS - 16);
    });
    world.write(0, &noise(1, 4096)).unwrap();
    world.run();
    for disk in 0..3 {
        assert_eq!(world.superblock(disk).size_sectors, MEMBER_SECTORS - 32);
    }
}

/// Small reads of a lost member take as much as they read, so many go on at once.
#[test]
fn many_small_reads_of_what_is_lost_go_on_at_once() {
    let mut world = World::new(5, 2, 4, 128);
    let content = fill(&mut world);
    world.command(Command::Fail(MemberId(1)));
    world.hold(|_, op| matches!(op, IoOp::Read { .. }));
    let geometry = geometry_of(&config(5, 2, 4, 128)).unwrap();
    let lost = |sector: &u64| geometry.copy(*sector, 0).role == Role(1);
    let sectors: Vec<u64> = (0..content.len() as u64 / SECTOR_BYTES).step_by(8).collect();
    let sectors: Vec<u64> = sectors.into_iter().filter(lost).take(128).collect();
    assert_eq!(sectors.len(), 128);
    for (number, sector) in (0..).zip(&sectors) {
        let buf = world.data_buf(128 * 4096);
        world.request(Op::Read, *sector, 8, buf.slice(number * 4096, 4096));
    }
    world.run_until_idle();
    assert_eq!(world.held.len(), 3 * sectors.len(), "all are being read");
    world.hold_nothing();
    let buf = world.data_buf(128 * 4096);
    let read = world.bytes(buf).to_vec();
    for (number, sector) in sectors.iter().enumerate() {
        let at = (sector * SECTOR_BYTES) as usize;
        assert!(read[number * 4096..][..4096] == content[at..at + 4096], "sector {sector}");
    }
}
