//! A change of the shape that a power cut prevented, and another one after it.

use super::*;
use crate::action::Command;
use crate::grow::Grow;
use world::{Fate, holds, lose_after};

/// Sectors of each member that are used at first.
const LESS: u64 = MEMBER_SECTORS - 192;
/// Writes and flushes of a change that does not move data.
const MOST: usize = 24;

/// An array whose first change the power cut short after so many writes.
fn cut_short(first: Grow, most: usize) -> (World, Vec<u8>) {
    let mut world = World::with(5, 2, 3, 8, |config| {
        let members = config.members.iter_mut().map(|member| &mut member.superblock);
        for superblock in members.chain([&mut config.superblock]) {
            superblock.size_sectors = LESS;
        }
    });
    world.run();
    let content = fill(&mut world);
    world.add_disk();
    world.run();
    lose_after(&mut world, most);
    world.begin_command(Command::Grow(first));
    world.run_until_idle();
    world.cut_power_and_restart();
    world.rule(|_, _| Fate::Serve);
    (world, content)
}

#[test]
fn another_change_follows_one_that_the_power_cut_short() {
    for first in [Grow::RaidDisks(4), Grow::Chunk(16), Grow::Layout(0)] {
        for most in (0..MOST).step_by(4) {
            for then in (0..MOST).step_by(7).chain([usize::MAX - 1]) {
                let (mut world, content) = cut_short(first, most);
                let what = format!("{first:?}: {most} writes, then {then}");
                lose_after(&mut world, then);
                world.begin_command(Command::Grow(Grow::Size(None)));
                world.run_until_idle();
                world.cut_power_and_restart();
                world.rule(|_, _| Fate::Serve);
                world.run();
                assert_eq!(world.array.status().degraded, 0, "{what}");
                holds(&mut world, &content, &what);
                assert_eq!(world.check(), 0, "{what}");
            }
        }
    }
}
