//! More members for an array with parity, while it serves: every byte is where the map says, at
//! each moment, and after each cut.

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
