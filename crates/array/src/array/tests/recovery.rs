//! Recovery: how far it has come, over what it cannot read, and after a restart.

use std::collections::BTreeSet;

use super::restart::is_data_write;
use super::*;
use crate::action::Command;

const LOSABLE: [(i32, u32, u32, u32); 4] =
    [(1, 0, 2, 0), (5, 2, 3, 16), (6, 2, 4, 16), (10, 0x102, 4, 16)];

/// Fills the array and takes a member away; what the array holds.
fn lose(world: &mut World, lost: u16) -> Vec<u8> {
    let content = fill(world);
    world.command(Command::Fail(MemberId(lost)));
    world.command(Command::Remove(MemberId(lost)));
    world.disks[usize::from(lost)] = None;
    content
}

fn rebuilt(world: &World, member: MemberId) -> Option<u64> {
    let members = world.array.status().members;
    members.iter().find(|m| m.member == member).unwrap().recovery_offset_sectors
}

/// The new member has no log to note a bad block in, so recovery ends at what it cannot rebuild,
/// and what nobody has written to the new member is not read from it.
#[test]
fn a_unit_that_could_not_be_rebuilt_is_not_counted_as_rebuilt() {
    for (level, layout, disks, chunk) in [(5, 2, 3, 16), (4, 0, 4, 32), (10, 0x102, 4, 16)] {
        let what = format!("level {level}");
        let mut world = World::with(level, layout, disks, chunk, |config| {
            for member in &mut config.members {
                member.superblock.bblog_size_sectors = 0;
            }
        });
        let content = lose(&mut world, 0);
        let unreadable = 5 * UNIT + 3;
        world.bad.push((MemberId(1), DATA_OFFSET + unreadable));
        let new = world.add_disk();
        world.run();
        assert_eq!(world.array.status().degraded, 1, "{what}");
        let offset = rebuilt(&world, new).unwrap();
        assert!(offset <= 5 * UNIT, "{what}: {offset} sectors counted as rebuilt");
        let recorded = world.superblock(disks as usize).recovery_offset;
        assert!(recorded <= 5 * UNIT, "{what}: {recorded} sectors recorded as rebuilt");
        for sector in 0..world.array.array_sectors() {
            let start = (sector * SECTOR_BYTES) as usize;
            match world.read(sector, 1) {
                Ok(read) => assert!(read == content[start..start + 512], "{what}: at {sector}"),
                Err(error) => assert_eq!(error, RequestError::Medium, "{what}: at {sector}"),
            }
        }
    }
}

/// With a log, the unit is noted as bad, and recovery goes on behind it.
#[test]
fn a_unit_that_could_not_be_rebuilt_is_a_bad_block_of_the_new_member() {
    for (level, layout, disks, chunk) in [(5, 2, 3, 16), (4, 0, 4, 32), (10, 0x102, 4, 16)] {
        let what = format!("level {level}");
        let mut world = World::new(level, layout, disks, chunk);
        let mut content = lose(&mut world, 0);
        world.bad.push((MemberId(1), DATA_OFFSET + 5 * UNIT + 3));
        world.add_disk();
        world.run();
        assert_eq!(world.array.status().degraded, 0, "{what}");
        let log = |world: &World| world.candidate(disks as usize).bad_blocks.unwrap();
        assert!(log(&world).overlaps(DATA_OFFSET + 5 * UNIT + 3, 1), "{what}");
        assert!(!log(&world).overlaps(DATA_OFFSET, 5 * UNIT), "{what}");
        let mut unreadable = 0;
        for sector in 0..world.array.array_sectors() {
            let start = (sector * SECTOR_BYTES) as usize;
            match world.read(sector, 1) {
                Ok(read) => assert!(read == content[start..start + 512], "{what}: at {sector}"),
                Err(_) => unreadable += 1,
            }
        }
        assert!(unreadable > 0, "{what}");
        content = fill(&mut world);
        compare(&mut world, &content, "rewritten");
        assert!(log(&world).is_empty(), "{what}: rewritten, so not bad any more");
        assert_eq!(world.check(), 0, "{what}");
    }
}

#[test]
fn recovery_goes_on_after_a_power_cut_where_the_superblocks_say() {
    for (level, layout, disks, chunk) in LOSABLE {
        let what = format!("level {level}");
        let mut world = World::new(level, layout, disks, chunk);
        let content = lose(&mut world, 0);
        let middle = DATA_OFFSET + MEMBER_SECTORS / 2;
        // Nothing arrives on the new member's second half, but time passes.
        let new = MemberId(0);
        world.hold(move |member, op| {
            member == new && matches!(op, IoOp::Write { sector, .. } if sector >= middle)
        });
        assert_eq!(world.add_disk(), new);
        world.run();
        let mark = world.superblock(disks as usize).recovery_offset;
        assert_eq!(mark, MEMBER_SECTORS / 2, "{what}: the checkpoint");
        world.cut_power_and_restart();
        world.run();
        assert_eq!(world.array.status().degraded, 0, "{what}");
        let again = world.written().remove(&(disks as usize)).unwrap();
        let first = again.iter().map(|(sector, _)| *sector).min().unwrap();
        assert_eq!(first, middle, "{what}: what was rebuilt stays rebuilt");
        compare(&mut world, &content, &what);
        assert_eq!(world.check(), 0, "{what}");
    }
}

/// The mark is never ahead of what the new member's cache has given to the medium.
#[test]
fn a_checkpoint_of_recovery_follows_a_flush() {
    let mut world = World::new(1, 0, 2, 0);
    let content = lose(&mut world, 0);
    let new = MemberId(0);
    world.hold(move |member, op| {
        let late = matches!(op, IoOp::Write { sector, .. } if sector >= DATA_OFFSET + 1024);
        member == new && (op == IoOp::Flush || late && is_data_write(op))
    });
    world.add_disk();
    world.run();
    assert!(world.held.iter().any(|(_, _, op)| *op == IoOp::Flush), "a checkpoint is due");
    assert_eq!(world.superblock(2).recovery_offset, 0, "recorded before it was durable");
    world.cut_power_and_restart();
    world.run();
    compare(&mut world, &content, "recovered");
    assert_eq!(world.check(), 0);
}

/// What is copied to one member is what another one is computed from.
#[test]
fn a_member_that_is_replaced_while_another_is_rebuilt_is_read_once() {
    let mut world = World::with(6, 2, 5, 16, |config| {
        let mut heir = config.members[1].clone();
        heir.superblock.dev_number = 5;
        heir.superblock.device_uuid = [99; 16];
        config.members.push(heir);
        let all = config.members.iter_mut().map(|member| &mut member.superblock);
        for superblock in all.chain([&mut config.superblock]) {
            superblock.roles.push(DevRole::Active(Role(1)));
        }
        for (index, role) in [(0, Role(0)), (5, Role(1))] {
            let replacement = index == 5;
            config.members[index].standing =
                Standing::Rebuilding { role, offset: 0, replacement, had: Had::NOTHING };
        }
    });
    world.hold(|_, op| matches!(op, IoOp::Write { fill: true, .. }));
    world.run_until_idle();
    let targets: BTreeSet<MemberId> = world.held.iter().map(|(_, member, _)| *member).collect();
    assert_eq!(targets, [MemberId(0), MemberId(5)].into(), "one recovery for both");
    assert!(each_is_read_once(&world.issued), "{:?}", world.issued);
    world.hold_nothing();
    world.run();
    assert_eq!(world.array.status().degraded, 0);
    assert_eq!(world.check(), 0);
}
