//! Nodes that are lost and come back by themselves.

use braid_array::events::{ArrayEvent, SyncAction, SyncEnd};
use braid_array::format::superblock::feature;
use braid_array::format::{DevRole, Superblock};
use braid_array::{MemberId, Role};

use crate::members::array::Array;
use crate::members::lane::{Code, DATA_SECTOR, DATA_SECTORS, Lane, Setup};
use crate::members::nodes::{Nodes, codes};

const BITMAP: Setup = Setup { dirty: false, bitmap: true, spares: 0 };

/// A running array that has lost a node and goes on.
fn without(code: Code, setup: Setup, role: usize) -> Array<Nodes> {
    let mut array = Array::<Nodes>::start(code, setup);
    array.write(0, 1024);
    array.pass(60_000);
    array.lane.set_broken(role, true);
    array.until("the loss", |array| array.status().degraded == 1);
    array
}

/// Checks that the member comes back and the array is complete.
#[track_caller]
fn comes_back(array: &mut Array<Nodes>, role: usize) {
    array.lane.set_broken(role, false);
    assert_eq!(array.sync_ends(SyncAction::Recovery), (0, SyncEnd::Complete), "{:?}", array.code);
    assert!(array.events.contains(&ArrayEvent::MemberActive(MemberId(role as u16))));
    assert_eq!(array.status().degraded, 0);
    array.content_is_right();
    array.members_agree();
}

#[test]
fn a_node_that_comes_back_gets_what_it_missed_and_no_more() {
    for code in codes() {
        for role in [0, usize::from(code.members) - 1] {
            let mut array = without(code, BITMAP, role);
            array.write(64, 200);
            array.content_is_right();
            // Nothing that it missed lies here: what is not rebuilt stays as it is.
            let untouched = DATA_SECTOR + DATA_SECTORS - 8;
            array.lane.disk(role).put(untouched, &[0x77; 512]);
            array.lane.set_broken(role, false);
            assert_eq!(array.sync_ends(SyncAction::Recovery), (0, SyncEnd::Complete), "{code:?}");
            // Two regions at the most.
            let copied = array.status().sync.copied_sectors;
            assert!(copied > 0 && copied * 10 < DATA_SECTORS, "{code:?}: {copied} sectors");
            let image = array.lane.disk(role).image();
            assert_eq!(image[untouched as usize * 512..][..512], [0x77; 512], "{code:?}");
            array.lane.disk(role).put(untouched, &[0; 512]);
            assert_eq!(array.status().degraded, 0);
            array.content_is_right();
            array.members_agree();
            array.write(304, 296);
            array.members_agree();
        }
    }
}

/// Checks that a loss is recorded by the voters before any superblock, also when another member is
/// in sync again. A client with the lost member and a voter alone must not start from superblocks
/// that are behind.
#[test]
fn superblocks_tell_of_a_loss_after_the_voters_also_when_another_is_in_sync_again() {
    let mut named = 0;
    for code in codes().into_iter().filter(|code| code.members >= 4) {
        for steps in (0..40).step_by(3) {
            let mut array = without(code, BITMAP, 0);
            array.write(64, 200);
            array.lane.set_broken(0, false);
            let back = |array: &mut Array<Nodes>| {
                array.events.contains(&ArrayEvent::MemberActive(MemberId(0)))
            };
            array.until("the return", back);
            (0..steps).for_each(|_| _ = array.step());
            array.lane.set_broken(2, true);
            array.until("superblocks tell of the loss", |array| {
                let found = [0, 1, 3].map(|node| array.lane.superblock(node));
                let lacks = |sb: &Superblock| !sb.roles.contains(&DevRole::Active(Role(2)));
                let noted = array.lane.is_loss_noted(Role(2));
                assert!(noted || !found.iter().any(lacks), "{code:?}, {steps} steps");
                let lost = array.status().degraded == 1;
                named += u32::from(lost && !noted && !found[0].has(feature::RECOVERY_OFFSET));
                found.iter().all(lacks)
            });
            array.content_is_right();
            array.events.clear();
            comes_back(&mut array, 2);
        }
    }
    assert!(named > 0, "none was in sync before the loss was noted");
}

#[test]
fn without_a_bitmap_it_gets_everything() {
    for code in codes() {
        let mut array = without(code, Setup::default(), 1);
        array.write(64, 200);
        comes_back(&mut array, 1);
        assert_eq!(array.status().sync.copied_sectors, DATA_SECTORS, "{code:?}");
    }
}

#[test]
fn what_is_written_while_it_comes_back_is_there() {
    for code in codes() {
        let mut array = without(code, BITMAP, 1);
        array.write(0, 2048);
        array.lane.set_broken(1, false);
        let mut times = 0;
        while array.ended(SyncAction::Recovery).is_none() {
            let starts = [0, 1, 2, 3].map(|number| (number * 256 + times * 520) % 4000);
            array.write_together(&starts, [8, 64, 128][times as usize % 3]);
            times += 1;
            assert!(times < 10_000, "{code:?}: no end");
        }
        assert_eq!(array.ended(SyncAction::Recovery), Some((0, SyncEnd::Complete)), "{code:?}");
        array.content_is_right();
        array.members_agree();
    }
}

#[test]
fn lost_again_it_begins_again() {
    for code in codes() {
        let mut array = without(code, BITMAP, 1);
        array.write(0, 2048);
        array.limit(128 << 10);
        array.lane.set_broken(1, false);
        array.until("half of it", |array| array.status().sync.done_sectors >= 200);
        array.lane.set_broken(1, true);
        array.until("the loss", |array| array.ended(SyncAction::Recovery).is_some());
        array.events.clear();
        array.write(104, 96);
        array.unlimited();
        comes_back(&mut array, 1);
    }
}

#[test]
fn a_spare_that_cannot_be_had_keeps_nobody_from_coming_back() {
    for code in codes() {
        let mut array = Array::<Nodes>::start(code, Setup { spares: 1, ..BITMAP });
        array.write(0, 1024);
        array.lane.set_broken(usize::from(code.members), true);
        array.lane.set_broken(1, true);
        array.until("the loss", |array| array.status().degraded == 1);
        // Longer than either takes to be tried as rarely as it ever is.
        array.pass(120_000);
        array.write(64, 200);
        comes_back(&mut array, 1);
    }
}
