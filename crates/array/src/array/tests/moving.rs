//! More members for an array with parity, while it serves: every byte is where the map says, at
//! each moment, and after each cut.

use super::world::Fate;
use super::*;
use crate::action::Command;
use crate::events::{SyncAction, SyncEnd};
use crate::grow::Grow;

/// Level, layout, members at first and at last, chunk.
type Change = (i32, u32, u32, u32, u32);

const CHANGES: &[Change] = &[
    (5, 2, 3, 4, 16),
    (5, 0, 3, 5, 16),
    (5, 3, 2, 3, 16),
    (4, 0, 3, 4, 16),
    (6, 2, 4, 5, 16),
    (6, 8, 4, 6, 16),
    (5, 2, 4, 5, 32),
];

fn begin(change: Change, bitmap: bool) -> World {
    let (level, layout, from, to, chunk) = change;
    let mut world = World::with(level, layout, from, chunk, |config| {
        if bitmap {
            add_bitmap(config);
        }
    });
    (from..to).for_each(|_| _ = world.add_disk());
    world
}

const fn grow(to: u32) -> Command {
    Command::Grow(Grow::RaidDisks(to))
}

fn has_ended(world: &World) -> bool {
    world.ended(SyncAction::Reshape) == Some(SyncEnd::Complete)
}

#[test]
fn data_move_to_more_members() {
    for &change in CHANGES {
        let mut world = begin(change, true);
        let before = world.array.array_sectors();
        let content = fill(&mut world);
        world.command(grow(change.3));
        world.run();
        assert!(has_ended(&world), "{change:?}: {:?}", world.events);
        let now = world.array.array_sectors();
        let parity = if change.0 == 6 { 2 } else { 1 };
        let data = |disks: u32| u64::from(disks - parity);
        assert_eq!(now, before / data(change.2) * data(change.3), "{change:?}");
        let bytes = content.len();
        let first = world.read(0, before.min(2048)).unwrap();
        assert!(first == content[..first.len()], "{change:?}");
        let last = world.read(before - 100, 100).unwrap();
        assert!(last == content[bytes - last.len()..], "{change:?}");
        assert_eq!(world.check(), 0, "{change:?}");
        let content = fill(&mut world);
        world.command(Command::Fail(MemberId(1)));
        compare(&mut world, &content, &format!("{change:?}"));
        world.cut_power_and_restart();
        assert_eq!(world.array.array_sectors(), now, "{change:?}");
        compare(&mut world, &content, &format!("{change:?} again"));
    }
}

/// Loses what is written after so many writes, as when the power goes. Returns the count of all.
fn lose_after(world: &mut World, most: usize) -> std::rc::Rc<std::cell::Cell<usize>> {
    let seen = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = seen.clone();
    world.rule(move |_, op| match op {
        IoOp::Write { .. } | IoOp::WriteZeroes { .. } | IoOp::Flush => {
            count.set(count.get() + 1);
            if count.get() > most { Fate::Lose } else { Fate::Serve }
        }
        _ => Fate::Serve,
    });
    seen
}

/// The power goes after each of the writes of a reshape, with volatile caches; and once more in
/// the middle of what follows.
#[test]
fn the_power_goes_at_any_write_of_a_reshape() {
    for &change in &[(5, 2, 3, 4, 16), (6, 2, 4, 6, 16)] {
        let mut step = 1;
        let mut most = 0;
        loop {
            let mut world = begin(change, most % 2 == 0);
            let content = fill(&mut world);
            world.run();
            let seen = lose_after(&mut world, most);
            world.begin_command(grow(change.3));
            let all = seen.get();
            world.cut_power_and_restart();
            let what = format!("{change:?}: {most} of {all} writes");
            assert_eq!(world.array.status().degraded, 0, "{what}");
            if most % 3 == 0 {
                lose_after(&mut world, most % 40);
                world.run_until_idle();
                world.cut_power_and_restart();
            }
            world.rule(|_, _| Fate::Serve);
            world.run();
            let sectors = content.len() as u64 / SECTOR_BYTES;
            assert!(world.array.array_sectors() >= sectors, "{what}");
            for sector in (0..sectors).step_by(1024) {
                let read = world.read(sector, (sectors - sector).min(1024)).unwrap();
                let start = (sector * SECTOR_BYTES) as usize;
                assert!(read == content[start..start + read.len()], "{what}: at {sector}");
            }
            assert_eq!(world.check(), 0, "{what}");
            if most > all {
                break;
            }
            // Each write at the begin and at the end, some in between.
            step = if most > 60 && most + 120 < all { 7 } else { step.min(1) };
            most += step;
        }
    }
}
