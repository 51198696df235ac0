//! Speed of background work, and the reports of it.

use braid_array::action::Command;
use braid_array::events::{SyncAction, SyncEnd};
use braid_array::status::SyncStatus;

use crate::members::array::Array;
use crate::members::lane::{Code, Lane, Setup};

crate::members::over_both_lanes! {
    the_upper_limit_holds
    work_keeps_up_the_lower_limit_beside_requests
    work_goes_fast_again_when_nobody_asks
    speed_and_finish_are_told
    nothing_at_all_holds_it
}

/// Bytes per second and member.
const RATE: u64 = 256 << 10;
/// Minimum speed, in bytes per second and member.
const LOWER: u64 = 2 << 20;
/// The greatest lot of work under way at once: 16 units of 64 KiB.
const LOT_BYTES: u64 = 1 << 20;

const fn limits(min_bytes_s: Option<u64>, max_bytes_s: Option<u64>) -> Command {
    Command::SpeedLimits { min_bytes_s, max_bytes_s }
}

/// Starts an array under resync with these limits, after the requests that began before them.
fn resyncing<L: Lane>(code: Code, command: Command) -> Array<L> {
    let mut array = Array::start(code, Setup { dirty: true, ..Setup::default() });
    array.order(command);
    array.until("a resync", |array| array.begun(SyncAction::Resync) == 1);
    array
}

/// Bytes done in so many seconds, of each member.
fn speed<L: Lane>(array: &mut Array<L>, seconds: u64) -> u64 {
    let before = array.status().sync.done_sectors;
    array.pass(seconds * 1000);
    let sync = array.status().sync;
    assert_eq!(sync.action, SyncAction::Resync, "{:?}: it has ended", array.code);
    (sync.done_sectors - before) * 512 / seconds
}

fn the_upper_limit_holds<L: Lane>(code: Code) {
    let mut array = resyncing::<L>(code, limits(None, Some(RATE)));
    array.pass(1000);
    let found = speed(&mut array, 8);
    assert!((RATE * 3 / 4..=RATE * 5 / 4).contains(&found), "{code:?}: {found}");
    let sync = array.status().sync;
    assert_eq!(sync.max_bytes_per_s, Some(RATE));
    array.unlimited();
    assert_eq!(array.status().sync.max_bytes_per_s, None);
    let before = array.now();
    assert_eq!(array.sync_ends(SyncAction::Resync), (0, SyncEnd::Complete));
    let took = array.now().0 - before.0;
    assert!(took < 1_000_000_000, "{code:?}: {took} ns without a limit");
}

fn work_keeps_up_the_lower_limit_beside_requests<L: Lane>(code: Code) {
    let mut array = resyncing::<L>(code, limits(Some(LOWER), None));
    assert_eq!(array.status().sync.min_bytes_per_s, LOWER);
    let before = array.status().sync.done_sectors;
    let end = array.now().plus_millis(1000);
    while array.now() < end {
        array.touch(0);
    }
    let sync = array.status().sync;
    assert_eq!(sync.action, SyncAction::Resync, "{code:?}: it has ended");
    let bytes = (sync.done_sectors - before) * 512;
    let range = LOWER * 3 / 4..=LOWER * 5 / 4 + LOT_BYTES;
    assert!(range.contains(&bytes), "{code:?}: {bytes} in a second");
}

fn work_goes_fast_again_when_nobody_asks<L: Lane>(code: Code) {
    let mut array = resyncing::<L>(code, limits(Some(LOWER), None));
    let end = array.now().plus_millis(200);
    while array.now() < end {
        array.touch(0);
    }
    assert_eq!(array.ended(SyncAction::Resync), None, "{code:?}: it has ended");
    assert_eq!(array.sync_ends(SyncAction::Resync), (0, SyncEnd::Complete));
    let took = array.now().0 - end.0;
    assert!(took < 500_000_000, "{code:?}: {took} ns when nobody asks");
}

fn speed_and_finish_are_told<L: Lane>(code: Code) {
    let mut array = resyncing::<L>(code, limits(None, Some(RATE)));
    array.pass(8000);
    let SyncStatus { action, done_sectors, total_sectors, bytes_per_s, finish_s, .. } =
        array.status().sync;
    assert_eq!(action, SyncAction::Resync);
    assert!((RATE / 2..=RATE * 3 / 2).contains(&bytes_per_s), "{code:?}: {bytes_per_s}");
    let left = (total_sectors - done_sectors) * 512 / bytes_per_s;
    assert_eq!(finish_s, Some(left), "{code:?}");
    assert!(left > 0, "{code:?}");
}

fn nothing_at_all_holds_it<L: Lane>(code: Code) {
    let mut array = resyncing::<L>(code, limits(None, Some(0)));
    array.pass(10_000);
    let held = array.status().sync;
    assert!(held.held() && !held.paused, "{code:?}: {held:?}");
    array.pass(60_000);
    assert_eq!(array.status().sync.done_sectors, held.done_sectors, "{code:?}: it went on");
    array.unlimited();
    assert_eq!(array.sync_ends(SyncAction::Resync), (0, SyncEnd::Complete));
    array.members_agree();
}
