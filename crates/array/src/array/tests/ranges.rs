//! Discard, zeroing, bad blocks and the limits of requests.

use super::requests::MAX_REQUESTS;
use super::restart::is_data_write;
use super::*;

fn discard(world: &mut World, sector: u64, sectors: u64) -> Vec<world::Answer> {
    world.request(Op::Discard, sector, sectors, Buf::default());
    world.run()
}

#[test]
fn a_discard_reaches_the_members_of_a_striped_array_once_each_and_whole() {
    for (level, layout) in [(-1, 0), (0, 2)] {
        let mut world = World::new(level, layout, 2, 16);
        let sectors = world.array.array_sectors();
        assert_eq!(discard(&mut world, 0, sectors).len(), 1);
        for member in [MemberId(0), MemberId(1)] {
            let mut ranges: Vec<(u64, u64)> = world
                .issued
                .iter()
                .filter_map(|(id, op)| match *op {
                    IoOp::Discard { sector, sectors } if *id == member => Some((sector, sectors)),
                    _ => None,
                })
                .collect();
            ranges.sort_unstable();
            let mut end = DATA_OFFSET;
            for (sector, sectors) in ranges {
                assert_eq!(sector, end, "level {level}: a gap or an overlap");
                end += sectors;
            }
            assert_eq!(end, DATA_OFFSET + MEMBER_SECTORS, "level {level}");
        }
    }
}

/// Copies and parity must fit afterwards, whatever the members do with a discard.
#[test]
fn a_discard_reads_as_zeroes_where_there_is_redundancy() {
    for &(level, layout, disks, chunk) in SHAPES.iter().filter(|shape| shape.0 > 0) {
        let what = format!("level {level} layout {layout:#x} disks {disks}");
        let mut world = World::new(level, layout, disks, chunk);
        let mut content = fill(&mut world);
        let from = 7;
        let to = world.array.array_sectors() - 9;
        assert_eq!(discard(&mut world, from, to - from)[0].1, Ok(()), "{what}");
        content[(from * SECTOR_BYTES) as usize..(to * SECTOR_BYTES) as usize].fill(0);
        compare(&mut world, &content, &what);
        assert_eq!(world.check(), 0, "{what}");
    }
}

#[test]
fn whole_stripes_are_zeroed_without_sending_zeroes() {
    for (level, layout, disks, chunk) in [(1, 0, 2, 0), (5, 2, 3, 16), (6, 2, 4, 16)] {
        let mut world = World::new(level, layout, disks, chunk);
        fill(&mut world);
        let sectors = world.array.array_sectors();
        world.issued.clear();
        world.request(Op::WriteZeroes { fua: false, unmap: true }, 0, sectors, Buf::default());
        assert_eq!(world.run().len(), 1);
        let writes = world.issued.iter().filter(|(_, op)| is_data_write(*op));
        let sent = writes.filter(|(_, op)| !matches!(op, IoOp::WriteZeroes { unmap: true, .. }));
        assert_eq!(sent.count(), 0, "level {level}");
        assert!(
            (0..disks as usize)
                .all(|disk| { world.data(disk, 0, MEMBER_SECTORS).iter().all(|byte| *byte == 0) })
        );
    }
}

/// Sectors that the log names are not read, and are cleared when they have been written.
#[test]
fn bad_blocks_are_not_read_and_rewriting_clears_them() {
    for (level, layout, disks, chunk) in
        [(1, 0, 2, 0), (5, 2, 3, 16), (6, 2, 4, 16), (10, 0x102, 4, 16)]
    {
        let what = format!("level {level}");
        let start = DATA_OFFSET + 32;
        let sectors = 16;
        let mut world = World::with(level, layout, disks, chunk, |config| {
            assert!(config.members[0].bad_blocks.insert(start, sectors));
            config.members[0].superblock.feature_map |= feature::BAD_BLOCKS;
        });
        // Not known to be bad but by the log: a read that ignores it gets these.
        let garbage = vec![0x55; (sectors * SECTOR_BYTES) as usize];
        world.disks[0].as_mut().unwrap().write(start, &garbage, true);
        let zeroes = vec![0; (world.array.array_sectors() * SECTOR_BYTES) as usize];
        compare(&mut world, &zeroes, &what);
        compare(&mut world, &zeroes, &what);
        let content = fill(&mut world);
        compare(&mut world, &content, &what);
        let found = world.candidate(0);
        assert!(found.bad_blocks.unwrap().is_empty(), "{what}: the log on the disk");
        assert!(!found.superblock.unwrap().has(feature::BAD_BLOCKS), "{what}");
        world.issued.clear();
        assert_eq!(world.check(), 0, "{what}");
        let read = world.issued.iter().any(|(member, op)| {
            *member == MemberId(0)
                && matches!(op, IoOp::Read { sector, buf } if *sector < start + sectors
                    && sector + u64::from(buf.len) / SECTOR_BYTES > start)
        });
        assert!(read, "{what}: the rewritten sectors are read again");
    }
}

#[test]
fn zeroing_whole_stripes_clears_their_bad_blocks() {
    for (level, layout, disks, chunk) in [(1, 0, 2, 0), (5, 2, 3, 16), (6, 2, 4, 16)] {
        let mut world = World::with(level, layout, disks, chunk, |config| {
            assert!(config.members[1].bad_blocks.insert(DATA_OFFSET + 100, 200));
            config.members[1].superblock.feature_map |= feature::BAD_BLOCKS;
        });
        let sectors = world.array.array_sectors();
        world.request(Op::WriteZeroes { fua: false, unmap: false }, 0, sectors, Buf::default());
        assert_eq!(world.run().len(), 1);
        assert!(world.candidate(1).bad_blocks.unwrap().is_empty(), "level {level}");
        assert_eq!(world.check(), 0, "level {level}");
    }
}

#[test]
fn a_full_table_takes_requests_again_when_one_is_done() {
    for (level, layout, disks, chunk) in [(0, 2, 3, 16), (1, 0, 2, 0), (5, 2, 3, 16)] {
        let mut world = World::new(level, layout, disks, chunk);
        world.hold(|_, op| matches!(op, IoOp::Read { .. }));
        let buf = world.data_buf(512);
        for _ in 0..MAX_REQUESTS {
            world.request(Op::Read, 0, 1, buf);
        }
        let late =
            Request { id: crate::RequestId(u64::MAX), op: Op::Read, sector: 0, sectors: 1, buf };
        assert_eq!(world.array.submit(world.now, late), Err(Full), "level {level}");
        world.run_until_idle();
        assert_eq!(world.array.submit(world.now, late), Err(Full), "level {level}");
        world.release();
        assert_eq!(world.answers.len(), MAX_REQUESTS, "level {level}: the one refused is not in");
        assert_eq!(world.array.submit(world.now, late), Ok(()), "level {level}");
        world.hold_nothing();
        assert_eq!(world.answers.last(), Some(&(late.id, Ok(()))), "level {level}");
    }
}

#[test]
fn requests_beyond_the_end_or_malformed_are_answered_with_an_error() {
    let mut world = World::new(5, 2, 3, 16);
    let end = world.array.array_sectors();
    let buf = world.data_buf(1024);
    for (op, sector, sectors, error) in [
        (Op::Read, end - 1, 2, RequestError::OutOfRange),
        (Op::Discard, end, 1, RequestError::OutOfRange),
        (Op::WriteZeroes { fua: false, unmap: false }, 1, u64::MAX, RequestError::OutOfRange),
        (Op::Read, 0, 0, RequestError::Malformed),
        (Op::Read, 0, 1, RequestError::Malformed),
        (Op::Write { fua: true }, 0, 3, RequestError::Malformed),
    ] {
        world.request(op, sector, sectors, buf);
        let answers = world.run();
        assert_eq!(answers.len(), 1, "{op:?} {sector} {sectors}");
        assert_eq!(answers[0].1, Err(error), "{op:?} {sector} {sectors}");
    }
    assert!(world.issued.is_empty());
}
