//! The resync after an unclean stop: to its end, stopped, crashed, paused.

use braid_array::action::Command;
use braid_array::events::{SyncAction, SyncEnd};
use braid_array::status::ArrayState;

use crate::members::array::Array;
use crate::members::lane::{Code, DATA_SECTOR, DATA_SECTORS, Lane, Setup};

crate::members::over_both_lanes! {
    what_was_left_unclean_is_made_to_fit
    a_pause_holds_it_until_it_may_go_on
    writes_meanwhile_come_out_right
    it_is_stopped_with_the_array_and_goes_on_with_it
    stopped_it_goes_on_where_it_was
    crashed_it_goes_on_from_its_checkpoint
    with_a_bitmap_only_what_it_marks_is_made_to_fit
}

const UNCLEAN: Setup = Setup { dirty: true, bitmap: false, spares: 0 };
const SLOWLY: Command = Command::SpeedLimits { min_bytes_s: None, max_bytes_s: Some(128 << 10) };

/// In sync, and it is said so.
#[track_caller]
fn fits<L: Lane>(array: &mut Array<L>) {
    array.members_agree();
    array.content_is_right();
    array.pass(60_000);
    assert_eq!(array.status().state, ArrayState::Clean, "{:?}", array.code);
    assert_eq!(array.status().sync.action, SyncAction::Idle);
}

fn what_was_left_unclean_is_made_to_fit<L: Lane>(code: Code) {
    let mut array = Array::<L>::start(code, UNCLEAN);
    assert!(array.lane.misfit().is_some(), "{code:?}: it fits already");
    assert_eq!(array.sync_ends(SyncAction::Resync), (0, SyncEnd::Complete));
    assert_eq!(array.begun(SyncAction::Resync), 1);
    fits(&mut array);
    array.stop();
    array.assemble();
    array.pass(60_000);
    assert_eq!(array.begun(SyncAction::Resync), 0, "{code:?}: once more");
}

fn a_pause_holds_it_until_it_may_go_on<L: Lane>(code: Code) {
    let mut array = Array::<L>::start(code, UNCLEAN);
    array.order(Command::Pause(true));
    // What was under way comes to its end.
    array.pass(10_000);
    let held = array.status().sync;
    assert!(held.paused && held.held(), "{code:?}: {held:?}");
    assert_eq!((held.action, held.bytes_per_s), (SyncAction::Resync, 0), "{code:?}");
    assert!(held.done_sectors < held.total_sectors, "{code:?}: {held:?}");
    array.write(0, 256);
    array.pass(60_000);
    assert_eq!(array.status().sync.done_sectors, held.done_sectors, "{code:?}: it went on");
    assert_eq!(array.ended(SyncAction::Resync), None);
    array.order(Command::Pause(false));
    assert_eq!(array.sync_ends(SyncAction::Resync), (0, SyncEnd::Complete));
    fits(&mut array);
}

fn writes_meanwhile_come_out_right<L: Lane>(code: Code) {
    let mut array = Array::<L>::start(code, UNCLEAN);
    let mut times = 0;
    while array.ended(SyncAction::Resync).is_none() {
        let starts = [0, 1, 2, 3].map(|number| (number * 256 + times * 520) % 8000);
        array.write_together(&starts, [8, 64, 128][times as usize % 3]);
        times += 1;
        assert!(times < 10_000, "{code:?}: no end");
    }
    assert!(times > 0, "{code:?}: nothing was written while it ran");
    fits(&mut array);
}

fn it_is_stopped_with_the_array_and_goes_on_with_it<L: Lane>(code: Code) {
    let mut array = Array::<L>::start(code, UNCLEAN);
    array.order(Command::Pause(true));
    array.write(0, 64);
    array.stop();
    assert_ne!(array.ended(SyncAction::Resync), Some((0, SyncEnd::Complete)), "{code:?}");
    array.assemble();
    assert_eq!(array.sync_ends(SyncAction::Resync), (0, SyncEnd::Complete));
    fits(&mut array);
}

/// Starts an array with a slow resync, and runs it half-way. Returns the progress.
fn half_done<L: Lane>(code: Code) -> (Array<L>, u64) {
    let mut array = Array::<L>::start(code, UNCLEAN);
    array.order(SLOWLY);
    array.until("half of the resync", |array| {
        let sync = array.status().sync;
        sync.action == SyncAction::Resync && sync.done_sectors >= sync.total_sectors / 2
    });
    let sync = array.status().sync;
    // About the limit; what was under way before it was set counts, too.
    assert!((32 << 10..512 << 10).contains(&sync.bytes_per_s), "{code:?}: {sync:?}");
    (array, sync.done_sectors)
}

/// The resync goes on from `least` on at least, and comes to its end.
#[track_caller]
fn goes_on<L: Lane>(array: &mut Array<L>, least: u64) {
    array.assemble();
    array.until("the resync", |array| array.begun(SyncAction::Resync) == 1);
    let done = array.status().sync.done_sectors;
    assert!(done >= least, "{:?}: from {done} and not {least}", array.code);
    assert_eq!(array.sync_ends(SyncAction::Resync), (0, SyncEnd::Complete));
    fits(array);
}

fn stopped_it_goes_on_where_it_was<L: Lane>(code: Code) {
    let (mut array, done) = half_done::<L>(code);
    array.stop();
    let Some((0, SyncEnd::Interrupted { reason })) = array.ended(SyncAction::Resync) else {
        panic!("{code:?}: {:?}", array.events);
    };
    assert!(reason.contains("stopped"), "{reason}");
    goes_on(&mut array, done);
}

fn crashed_it_goes_on_from_its_checkpoint<L: Lane>(code: Code) {
    let (mut array, _) = half_done::<L>(code);
    // By then a checkpoint has come, and it was not that much earlier.
    let least = array.status().sync.total_sectors / 4;
    array.crash();
    goes_on(&mut array, least);
}

fn with_a_bitmap_only_what_it_marks_is_made_to_fit<L: Lane>(code: Code) {
    let mut array = Array::<L>::start(code, Setup { bitmap: true, ..Setup::default() });
    array.write(0, 128);
    // All of it is forgotten when it has been idle for long.
    array.pass(60_000);
    assert_eq!(array.status().bitmap.map(|bitmap| bitmap.dirty_bits), Some(0), "{code:?}");
    array.write(0, 128);
    let place = array.places(0)[0];
    let other = if code.copies() { array.places(0)[1] } else { array.parity_beside(place) };
    array.crash();
    // Nodes that start again have lost what was in their memory; nothing else needs a resync.
    (0..usize::from(code.members)).for_each(|role| array.lane.set_broken(role, true));
    (0..usize::from(code.members)).for_each(|role| array.lane.set_broken(role, false));
    array.flip(other);
    let unmarked = DATA_SECTOR + DATA_SECTORS - 8;
    array.lane.disk(1).put(unmarked, &[0x77; 512]);
    array.assemble();
    assert_eq!(array.sync_ends(SyncAction::Resync), (0, SyncEnd::Complete));
    let image = array.lane.disk(1).image();
    assert_eq!(image[unmarked as usize * 512..][..512], [0x77; 512], "{code:?}: all was resynced");
    array.lane.disk(1).put(unmarked, &[0; 512]);
    fits(&mut array);
}
