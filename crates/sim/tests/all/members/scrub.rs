//! Check and repair.

use braid_array::MemberId;
use braid_array::action::Command;
use braid_array::events::{ArrayEvent, SyncAction, SyncEnd};
use braid_array::level::Level;
use braid_cluster::Family;

use crate::members::array::Array;
use crate::members::lane::{Code, Lane, Setup};

const CHECK: Command = Command::Scrub { repair: false };
const REPAIR: Command = Command::Scrub { repair: true };

crate::members::over_both_lanes! {
    a_check_of_what_fits_finds_nothing
    a_check_finds_a_flipped_byte_of_data_and_leaves_it
    a_check_finds_a_flipped_byte_of_redundancy
    a_repair_mends_a_flipped_byte_of_data
    a_repair_mends_a_flipped_byte_of_redundancy
    a_check_looks_at_all_of_every_member
    a_check_under_way_is_not_misled_by_writes
    a_check_can_be_ended
    one_at_a_time
    what_is_degraded_is_not_compared
    what_is_read_only_is_not_scrubbed
}

/// The sector in whose block a byte flips: at no edge of anything.
const AT: u64 = 171;

fn written<L: Lane>(code: Code) -> Array<L> {
    let mut array = Array::start(code, Setup::default());
    array.write(0, 1024);
    array.pass(60_000);
    array
}

/// A check or repair from its beginning to its end: how many sectors differed.
#[track_caller]
fn scrub<L: Lane>(array: &mut Array<L>, command: Command) -> u64 {
    let repair = matches!(command, Command::Scrub { repair: true });
    let action = if repair { SyncAction::Repair } else { SyncAction::Check };
    array.events.clear();
    array.order(command);
    let (mismatch_sectors, end) = array.sync_ends(action);
    assert_eq!(end, SyncEnd::Complete, "{:?}", array.code);
    assert_eq!(array.status().mismatch_sectors, Some(mismatch_sectors));
    assert_eq!(array.begun(action), 1);
    mismatch_sectors
}

/// Returns the report of the one mismatch.
#[track_caller]
fn told<L: Lane>(array: &Array<L>) -> (u64, u32, Option<MemberId>) {
    let mut all = array.events.iter().filter_map(|event| match event {
        ArrayEvent::Mismatch { array_sector, sectors, member, .. } => {
            Some((*array_sector, *sectors, *member))
        }
        _ => None,
    });
    let first = all.next().expect("a mismatch that was told of");
    assert_eq!(all.next(), None, "{:?}: told more than once", array.code);
    first
}

/// Checks that the report fits a flip at this place, in the block of [`AT`].
#[track_caller]
fn is_told_right<L: Lane>(array: &mut Array<L>, (device, _): (usize, u64)) {
    let (array_sector, sectors, member) = told(array);
    let reach = array.reach();
    assert!((array_sector..array_sector + reach).contains(&AT), "{:?}: {array_sector}", array.code);
    assert_eq!(sectors, 8, "{:?}", array.code);
    let right = array.code.tells.then_some(MemberId(device as u16));
    assert_eq!(member, right, "{:?}", array.code);
}

/// Where the data is, or the copy of it that is believed in first.
fn data<L: Lane>(array: &mut Array<L>) -> (usize, u64) {
    array.places(AT)[0]
}

/// Where a parity over it is, or its last copy.
fn redundancy<L: Lane>(array: &mut Array<L>) -> (usize, u64) {
    let places = array.places(AT);
    if array.code.copies() { places[places.len() - 1] } else { array.parity_beside(places[0]) }
}

fn a_check_of_what_fits_finds_nothing<L: Lane>(code: Code) {
    let mut array = written::<L>(code);
    assert_eq!(array.status().mismatch_sectors, None);
    assert_eq!(scrub(&mut array, CHECK), 0);
    assert_eq!(scrub(&mut array, REPAIR), 0);
    array.content_is_right();
}

fn a_check_finds_a_flipped_byte_of_data_and_leaves_it<L: Lane>(code: Code) {
    let mut array = written::<L>(code);
    let place = data(&mut array);
    array.flip(place);
    for _ in 0..2 {
        assert_eq!(scrub(&mut array, CHECK), 8, "{code:?}");
        is_told_right(&mut array, place);
    }
    assert!(array.lane.misfit().is_some(), "{code:?}: a check has written");
    array.flip(place);
    assert_eq!(scrub(&mut array, CHECK), 0, "{code:?}");
    array.content_is_right();
}

fn a_check_finds_a_flipped_byte_of_redundancy<L: Lane>(code: Code) {
    let mut array = written::<L>(code);
    let place = redundancy(&mut array);
    array.flip(place);
    assert_eq!(scrub(&mut array, CHECK), 8, "{code:?}");
    is_told_right(&mut array, place);
    assert!(array.lane.misfit().is_some(), "{code:?}: a check has written");
}

fn a_repair_mends_a_flipped_byte_of_data<L: Lane>(code: Code) {
    let mut array = written::<L>(code);
    let place = data(&mut array);
    array.flip(place);
    assert_eq!(scrub(&mut array, REPAIR), 8, "{code:?}");
    is_told_right(&mut array, place);
    array.members_agree();
    assert_eq!(scrub(&mut array, CHECK), 0, "{code:?}");
    if code.tells {
        array.content_is_right();
        assert_eq!(array.places(AT)[0], place, "{code:?}: not mended where it was");
    }
}

fn a_repair_mends_a_flipped_byte_of_redundancy<L: Lane>(code: Code) {
    let mut array = written::<L>(code);
    let place = redundancy(&mut array);
    array.flip(place);
    assert_eq!(scrub(&mut array, REPAIR), 8, "{code:?}");
    is_told_right(&mut array, place);
    array.members_agree();
    array.content_is_right();
    assert_eq!(scrub(&mut array, CHECK), 0, "{code:?}");
}

fn a_check_looks_at_all_of_every_member<L: Lane>(code: Code) {
    let mut array = written::<L>(code);
    let ends = [0, crate::members::lane::DATA_SECTORS - 1];
    for device in 0..usize::from(code.members) {
        for at in ends {
            array.flip((device, at));
            assert_eq!(scrub(&mut array, CHECK), 8, "{code:?}: member {device}, sector {at}");
            array.flip((device, at));
        }
    }
}

fn a_check_under_way_is_not_misled_by_writes<L: Lane>(code: Code) {
    let mut array = written::<L>(code);
    array.order(Command::SpeedLimits { min_bytes_s: Some(1 << 30), max_bytes_s: None });
    array.order(CHECK);
    let mut times = 0;
    while array.ended(SyncAction::Check).is_none() {
        let starts = [0, 1, 2, 3].map(|number| (number * 256 + times * 520) % 8000);
        array.write_together(&starts, [8, 64, 128][times as usize % 3]);
        times += 1;
        assert!(times < 10_000, "{code:?}: no end");
    }
    assert_eq!(array.ended(SyncAction::Check), Some((0, SyncEnd::Complete)));
    assert!(times > 0, "{code:?}: nothing was written while it ran");
    array.content_is_right();
    array.members_agree();
}

fn a_check_can_be_ended<L: Lane>(code: Code) {
    let mut array = written::<L>(code);
    array.limit(256 << 10);
    array.order(CHECK);
    array.until("some of the check", |array| array.status().sync.done_sectors >= 1024);
    array.order(Command::StopScrub);
    let (_, end) = array.sync_ends(SyncAction::Check);
    assert!(matches!(end, SyncEnd::Interrupted { .. }), "{code:?}: {end:?}");
    // What was not looked at is not known to be right.
    assert_eq!(array.status().mismatch_sectors, None);
    array.unlimited();
    assert_eq!(scrub(&mut array, CHECK), 0, "{code:?}");
}

fn one_at_a_time<L: Lane>(code: Code) {
    let mut array = written::<L>(code);
    array.limit(256 << 10);
    array.order(CHECK);
    array.until("some of the check", |array| array.status().sync.done_sectors >= 1024);
    array.order(Command::Pause(true));
    let refusal = array.command(REPAIR).expect_err("a repair beside a check");
    assert!(refusal.reason.contains("check") && !refusal.next.is_empty(), "{refusal}");
    assert_eq!(array.status().sync.action, SyncAction::Check);
}

fn what_is_degraded_is_not_compared<L: Lane>(code: Code) {
    let mut array = written::<L>(code);
    for member in 0..code.losses {
        array.lane.set_broken(member, true);
    }
    array.content_is_right();
    array.until("the loss", |array| {
        array.try_write(0, 64).ok();
        usize::from(array.status().degraded) == code.losses
    });
    let Err(refusal) = array.command(CHECK) else {
        // Here, other pairs are whole; what has lost its pair is counted.
        assert!(matches!(code.family, Family::Md { level: Level::Raid10, .. }), "{code:?}");
        array.sync_ends(SyncAction::Check);
        assert!(array.status().uncompared_sectors > 0, "{code:?}");
        return;
    };
    assert!(refusal.reason.contains("compare with") && !refusal.next.is_empty(), "{refusal}");
    assert_eq!(array.begun(SyncAction::Check), 0);
}

fn what_is_read_only_is_not_scrubbed<L: Lane>(code: Code) {
    let mut array = written::<L>(code);
    array.stop();
    array.assemble_read_only();
    array.content_is_right();
    for command in [CHECK, REPAIR] {
        let refusal = array.refused(command);
        assert!(refusal.reason.contains("read-only"), "{refusal}");
    }
}
