//! More members for stripes without redundancy, while they serve: every byte is where the map says,
//! at each moment, and after each cut; and superblocks are those of md's level 4 meanwhile.

use super::super::disk::Disk;
use super::*;
use crate::action::{IoError, IoErrorKind};
use crate::status::{ArrayState, MemberState};

const CHANGES: &[Change] = &[
    (0, 0, 2, 16, Grow::RaidDisks(3)),
    (0, 0, 3, 8, Grow::RaidDisks(5)),
    (0, 0, 1, 32, Grow::RaidDisks(2)),
    (0, 0, 4, 16, Grow::RaidDisks(5)),
];

/// Makes what was written durable, and lets a while pass.
fn flush(world: &mut World) {
    world.now = world.now.plus_millis(1000);
    world.disks.iter_mut().flatten().for_each(Disk::flush);
}

/// Takes disks away that are no members when the power goes.
fn forget_unknown(world: &mut World) {
    world.disks.iter_mut().flatten().for_each(Disk::cut_power);
    let unknown = |index: &usize| world.candidate(*index).superblock.is_err();
    let unknown: Vec<usize> = (0..world.disks.len()).filter(unknown).collect();
    unknown.into_iter().for_each(|index| world.disks[index] = None);
}

#[test]
fn stripes_move_to_more_members() {
    for &change in CHANGES {
        let mut world = begin(change, false);
        let before = world.array.array_sectors();
        let content = fill_kept(&mut world, change);
        world.command(Command::Grow(change.4));
        world.run();
        assert!(has_ended(&world), "{change:?}: {:?}", world.events);
        let Grow::RaidDisks(disks) = change.4 else { unreachable!() };
        let now = world.array.array_sectors();
        assert_eq!(now, before / u64::from(change.2) * u64::from(disks), "{change:?}");
        holds(&mut world, &content, &format!("{change:?} moved"));
        let content = fill(&mut world);
        flush(&mut world);
        world.cut_power_and_restart();
        let status = world.array.status();
        let superblock = &status.superblock;
        assert_eq!((superblock.level, superblock.raid_disks), (0, disks), "{change:?}");
        assert_eq!(world.array.array_sectors(), now, "{change:?}");
        compare(&mut world, &content, &format!("{change:?} again"));
    }
}

#[test]
fn the_end_of_stripes_is_told_with_the_size_that_came_of_it() {
    for &change in CHANGES {
        let mut world = begin(change, false);
        fill_kept(&mut world, change);
        flush(&mut world);
        ends_with_its_size(world, change);
    }
}

/// And again from there.
#[test]
fn stripes_move_more_than_once() {
    let change = (0, 0, 2, 8, Grow::RaidDisks(3));
    let mut world = begin(change, false);
    let content = fill_kept(&mut world, change);
    for disks in [3, 4, 6] {
        let there = world.array.status().members.len() as u32;
        (there..disks).for_each(|_| _ = world.add_disk());
        world.command(Command::Grow(Grow::RaidDisks(disks)));
        world.run();
        assert_eq!(world.array.array_sectors(), MEMBER_SECTORS * u64::from(disks));
        holds(&mut world, &content, &format!("{disks} members"));
    }
    world.cut_power_and_restart();
    holds(&mut world, &content, "again");
}

/// The power goes after each of the writes, with volatile caches; and once more in the middle of
/// what follows.
#[test]
fn the_power_goes_at_any_write_while_stripes_move() {
    for (number, &change) in CHANGES.iter().enumerate() {
        let mut most = 0;
        loop {
            let mut world = begin(change, false);
            let content = fill_kept(&mut world, change);
            flush(&mut world);
            let seen = lose_after(&mut world, most);
            world.begin_command(Command::Grow(change.4));
            let all = seen.get();
            forget_unknown(&mut world);
            world.cut_power_and_restart();
            let what = format!("{change:?}: {most} of {all} writes");
            holds(&mut world, &content, &what);
            lose_once_more(&mut world, most, World::cut_power_and_restart);
            world.rule(|_, _| Fate::Serve);
            world.run();
            holds(&mut world, &content, &what);
            let status = world.array.status();
            assert_eq!(status.superblock.level, 0, "{what}");
            let disks = status.superblock.raid_disks;
            assert_eq!(world.array.array_sectors(), MEMBER_SECTORS * u64::from(disks), "{what}");
            if most > all {
                assert_eq!(Grow::RaidDisks(disks), change.4, "{what}");
                break;
            }
            most = next_cut(most, all, 40, number);
        }
    }
}

/// What has moved moves back, from anywhere, and the power goes at some of its writes. Those that
/// were to be members are none.
#[test]
fn stripes_move_back() {
    for (number, &change) in CHANGES.iter().enumerate() {
        for turn in 1..24 {
            let what = format!("{change:?}: turned at {turn}");
            let mut world = begin(change, false);
            let content = fill_kept(&mut world, change);
            flush(&mut world);
            hold_after(&mut world, turn * turn * 5 + number);
            world.begin_command(Command::Grow(change.4));
            let moves = world.array.status().sync.action == SyncAction::Reshape;
            world.tell(Command::Grow(Grow::Undo));
            world.hold_nothing();
            let cut = turn % 4 != 0;
            if cut {
                lose_after(&mut world, turn * 37 + number * 7);
                world.run_until_idle();
                forget_unknown(&mut world);
                world.cut_power_and_restart();
                holds(&mut world, &content, &what);
                world.rule(|_, _| Fate::Serve);
            }
            world.run();
            holds(&mut world, &content, &what);
            let after = world.array.status();
            assert_eq!(after.sync.action, SyncAction::Idle, "{what}");
            assert_eq!(after.superblock.level, 0, "{what}");
            if moves && !cut && world.refusals.is_empty() {
                assert_eq!(after.superblock.raid_disks, change.2, "{what}");
                let left = after.members.iter().skip(change.2 as usize);
                left.for_each(|left| assert_eq!(left.state, MemberState::Spare, "{what}"));
                // And again, with the same.
                world.command(Command::Grow(change.4));
                world.run();
                assert!(has_ended(&world), "{what}: {:?}", world.events);
                holds(&mut world, &content, &what);
            }
            let after = world.array.status();
            flush(&mut world);
            world.cut_power_and_restart();
            let again = world.array.status();
            assert_eq!(again.superblock.raid_disks, after.superblock.raid_disks, "{what}");
            holds(&mut world, &content, &format!("{what}, again"));
        }
    }
}

/// The power goes after each of the writes of a way back, with volatile caches.
#[test]
fn the_power_goes_at_any_write_of_a_way_back_of_stripes() {
    let change = CHANGES[1];
    let mut most = 0;
    loop {
        let mut world = begin(change, false);
        let content = fill_kept(&mut world, change);
        flush(&mut world);
        hold_after(&mut world, 100);
        world.begin_command(Command::Grow(change.4));
        world.tell(Command::Grow(Grow::Undo));
        world.hold_nothing();
        let seen = lose_after(&mut world, most);
        world.run_until_idle();
        let all = seen.get();
        world.cut_power_and_restart();
        let what = format!("{most} of {all} writes");
        holds(&mut world, &content, &what);
        world.rule(|_, _| Fate::Serve);
        world.run();
        holds(&mut world, &content, &what);
        if most > all {
            assert_eq!(world.array.status().superblock.raid_disks, change.2, "{what}");
            break;
        }
        most = next_cut(most, all, 20, 0);
    }
}

#[test]
fn requests_go_on_while_stripes_move() {
    for seed in 0..40 {
        let change = CHANGES[seed as usize % CHANGES.len()];
        clients_of(change, seed, |clients, step| {
            if step % 300 == 199 {
                let paused = step % 600 == 199;
                clients.world.tell(Command::Pause(paused));
                clients.take_answers();
            }
            if seed % 2 == 0 && (step == 60 + seed % 7 * 40 || step == 700 + seed) {
                clients.world.tell(Command::Grow(Grow::Undo));
                clients.take_answers();
            }
        });
    }
}

/// Superblocks of members while data move, as md reads them.
#[test]
fn superblocks_are_those_of_a_level_4_without_parity() {
    let change = CHANGES[1];
    let stopped = |most| {
        let mut world = begin(change, false);
        fill_kept(&mut world, change);
        flush(&mut world);
        lose_after(&mut world, most);
        world.begin_command(Command::Grow(change.4));
        world
    };
    let has_moved = |world: &World| {
        let superblock = world.superblock(0);
        superblock.has(feature::RESHAPE_ACTIVE) && superblock.reshape.position > 40
    };
    let world = (0..).step_by(10).map(stopped).find(has_moved).expect("a move");
    let position = world.superblock(0).reshape.position;
    assert!(position.is_multiple_of(8 * 5), "a whole stripe: {position}");
    for number in 0..5 {
        let superblock = world.superblock(number);
        assert!(superblock.has(feature::RESHAPE_ACTIVE), "{superblock:?}");
        assert_eq!((superblock.level, superblock.reshape.new_level), (4, 4));
        assert_eq!((superblock.layout, superblock.reshape.new_layout), (5, 5));
        assert_eq!((superblock.raid_disks, superblock.reshape.delta_disks), (6, 2));
        assert_eq!(superblock.size_sectors, MEMBER_SECTORS);
        assert_eq!(superblock.resync_offset, MAX_SECTOR);
        // The role of parity before is that of data afterwards.
        let rebuilt = superblock.has(feature::RECOVERY_OFFSET);
        assert_eq!(rebuilt, superblock.role() == DevRole::Active(Role(3)));
        let rows = superblock.reshape.position / 5;
        assert_eq!(superblock.recovery_offset, if rebuilt { rows } else { 0 });
    }
}

/// Nothing makes up for a member: the array fails with it, and goes on once it is back.
#[test]
fn stripes_that_move_fail_with_a_member() {
    let change = CHANGES[0];
    for member in 0..3 {
        let mut world = begin(change, false);
        let content = fill_kept(&mut world, change);
        flush(&mut world);
        let mut seen = 0;
        world.rule(move |id, _| {
            seen += 1;
            let fails = seen > 500 && id == MemberId(member);
            if fails { Fate::Fail(IoError::GONE) } else { Fate::Serve }
        });
        world.begin_command(Command::Grow(change.4));
        world.run();
        let failed = world.array.status().state == ArrayState::Failed;
        assert!(failed, "{member}: {:?}", world.array.status().sync);
        world.cut_power_and_restart();
        world.rule(|_, _| Fate::Serve);
        world.run();
        holds(&mut world, &content, &format!("{member}"));
        assert_eq!(world.array.status().superblock.raid_disks, 3, "{member}");
    }
}

/// A write that fails meanwhile leaves nothing that would have to be resynced.
#[test]
fn stripes_that_moved_are_clean_after_a_write_that_failed() {
    let change = CHANGES[0];
    let mut world = begin(change, false);
    fill_kept(&mut world, change);
    flush(&mut world);
    world.command(Command::Pause(true));
    world.command(Command::Grow(change.4));
    world.rule(|_, op| match op {
        IoOp::Write { sector, .. } if sector >= DATA_OFFSET => {
            Fate::Fail(IoError { kind: IoErrorKind::Full, errno: None })
        }
        _ => Fate::Serve,
    });
    let buf = world.data_buf(8 * 512);
    let write = world.ask(Op::Write { fua: false }, 64, 8, buf);
    world.run_until_idle();
    let answers: BTreeMap<_, _> = std::mem::take(&mut world.answers).into_iter().collect();
    assert_eq!(answers[&write], Err(RequestError::NoSpace));
    world.rule(|_, _| Fate::Serve);
    world.command(Command::Pause(false));
    world.run();
    assert!(has_ended(&world), "{:?}", world.events);
    let superblock = world.superblock(0);
    assert_eq!((superblock.level, superblock.resync_offset), (0, MAX_SECTOR));
}

#[test]
fn what_stripes_have_no_place_for_is_refused() {
    let change = CHANGES[0];
    let mut world = begin(change, false);
    world.add_disk();
    let line = world.refused(Command::Grow(change.4));
    assert!(line.contains("would be a spare, which raid0 has not"), "{line}");
    world.command(Command::Remove(MemberId(3)));
    for grow in [Grow::RaidDisks(1), Grow::Chunk(32), Grow::Size(None)] {
        world.refused(Command::Grow(grow));
    }
    world.hold(|_, op| matches!(op, IoOp::Write { sector, .. } if sector >= DATA_OFFSET));
    world.begin_command(Command::Grow(change.4));
    world.refused(Command::Fail(MemberId(0)));
    let refused = world.refusals.len();
    world.add_disk();
    assert_eq!(world.refusals.len(), refused + 1, "no spare may come: {:?}", world.refusals);
    world.hold_nothing();
    world.run();
    assert_eq!(world.array.status().superblock.raid_disks, 3);
}
