//! Members that fail, leave, come, come back, and are replaced.

use braid_array::action::Command;
use braid_array::events::{ArrayEvent, SyncAction, SyncEnd};
use braid_array::status::MemberState;
use braid_array::{MemberId, Role};

use crate::members::array::Array;
use crate::members::lane::{Code, DATA_SECTOR, DATA_SECTORS, Lane, Setup};

crate::members::over_both_lanes! {
    a_failed_member_is_done_without_and_can_be_removed
    what_the_array_needs_is_not_failed
    a_member_in_use_is_not_removed
    a_new_member_is_rebuilt
    a_spare_takes_the_place_of_a_member_that_fails
    a_member_that_returns_is_rebuilt_where_it_missed_writes
    a_member_that_lacks_little_goes_first
    without_a_bitmap_nothing_returns_to_its_role
    a_rebuild_that_was_stopped_goes_on_where_it_was
    a_rebuild_that_crashed_goes_on_from_its_checkpoint
    a_member_is_replaced_while_it_serves
    nothing_is_replaced_without_a_spare
}

/// The first member.
const FIRST: MemberId = MemberId(0);
/// Ranges that tests write.
const SOME: (u64, u64) = (0, 600);
const MORE: (u64, u64) = (2048, 256);

fn written<L: Lane>(code: Code, setup: Setup) -> Array<L> {
    let mut array = Array::start(code, setup);
    array.write(SOME.0, SOME.1);
    array
}

/// Returns the command that adds a device: a new one, or a former member.
fn added<L: Lane>(array: &mut Array<L>, device: Option<usize>, readd: bool) -> Command {
    let member = array.lane.machine().free_member().unwrap_or(MemberId(99));
    let new = array.lane.offer(member, device);
    Command::Add(Box::new(braid_array::action::NewMember { readd, ..new }))
}

/// The first member is failed and taken off.
fn without_first<L: Lane>(array: &mut Array<L>) {
    array.order(Command::Fail(FIRST));
    array.order(Command::Remove(FIRST));
}

/// The array has all its members, and they agree.
#[track_caller]
fn is_whole<L: Lane>(array: &mut Array<L>) {
    assert_eq!(array.status().degraded, 0, "{:?}", array.code);
    array.content_is_right();
    array.members_agree();
}

fn a_failed_member_is_done_without_and_can_be_removed<L: Lane>(code: Code) {
    let mut array = written::<L>(code, Setup::default());
    array.order(Command::Fail(FIRST));
    assert_eq!(array.member(FIRST).map(|member| member.state), Some(MemberState::Faulty));
    assert_eq!(array.status().degraded, 1);
    let failed = |event: &&ArrayEvent| matches!(event, ArrayEvent::MemberFailed { .. });
    let failed: Vec<&ArrayEvent> = array.events.iter().filter(failed).collect();
    let [ArrayEvent::MemberFailed { member: FIRST, reason, .. }] = failed[..] else {
        panic!("{code:?}: {failed:?}");
    };
    assert!(reason.contains("administrator"), "{reason}");
    array.write(MORE.0, MORE.1);
    array.content_is_right();
    let again = array.refused(Command::Fail(FIRST));
    assert!(again.reason.contains("faulty already"), "{again}");
    array.order(Command::Remove(FIRST));
    assert!(array.member(FIRST).is_none());
    array.refused(Command::Remove(FIRST));
    array.content_is_right();
}

fn what_the_array_needs_is_not_failed<L: Lane>(code: Code) {
    let mut array = written::<L>(code, Setup::default());
    // Neighbours hold the same in a raid10: no others need be tried.
    for member in 0..code.losses as u16 {
        array.order(Command::Fail(MemberId(member)));
    }
    let refusal = array.refused(Command::Fail(MemberId(code.losses as u16)));
    assert!(refusal.reason.contains("would fail without"), "{refusal}");
    array.content_is_right();
}

fn a_member_in_use_is_not_removed<L: Lane>(code: Code) {
    let mut array = written::<L>(code, Setup::default());
    let refusal = array.refused(Command::Remove(FIRST));
    assert!(refusal.reason.contains("in use"), "{refusal}");
    let refusal = array.refused(Command::Remove(MemberId(50)));
    assert!(refusal.reason.contains("no such member"), "{refusal}");
}

fn a_new_member_is_rebuilt<L: Lane>(code: Code) {
    let mut array = written::<L>(code, Setup::default());
    without_first(&mut array);
    array.write(MORE.0, MORE.1);
    let add = added(&mut array, None, false);
    let Command::Add(new) = &add else { unreachable!() };
    let id = new.member;
    array.order(add);
    assert_eq!(array.sync_ends(SyncAction::Recovery), (0, SyncEnd::Complete));
    assert!(array.events.contains(&ArrayEvent::MemberActive(id)));
    let member = array.member(id).expect("the member");
    assert_eq!((member.state, member.role), (MemberState::InSync, Some(Role(0))));
    is_whole(&mut array);
    array.stop();
    array.assemble();
    is_whole(&mut array);
}

fn a_member_that_returns_is_rebuilt_where_it_missed_writes<L: Lane>(code: Code) {
    let mut array = written::<L>(code, Setup { bitmap: true, ..Setup::default() });
    array.pass(60_000);
    without_first(&mut array);
    array.write(SOME.0, 128);
    // Nothing that it missed lies here: what is not rebuilt stays as it is.
    let untouched = DATA_SECTOR + DATA_SECTORS - 8;
    let right = array.lane.disk(0).image()[untouched as usize * 512..][..512].to_vec();
    array.lane.disk(0).put(untouched, &[0x77; 512]);
    let add = added(&mut array, Some(0), true);
    array.order(add);
    assert_eq!(array.sync_ends(SyncAction::Recovery), (0, SyncEnd::Complete));
    assert_eq!(array.lane.disk(0).image()[untouched as usize * 512..][..512], [0x77; 512]);
    array.lane.disk(0).put(untouched, &right);
    is_whole(&mut array);
}

fn without_a_bitmap_nothing_returns_to_its_role<L: Lane>(code: Code) {
    let mut array = written::<L>(code, Setup::default());
    without_first(&mut array);
    array.write(SOME.0, 128);
    let add = added(&mut array, Some(0), true);
    let refusal = array.refused(add);
    assert!(refusal.reason.contains("cannot take its old role back"), "{refusal}");
}

fn a_spare_takes_the_place_of_a_member_that_fails<L: Lane>(code: Code) {
    let mut array = written::<L>(code, Setup { spares: 1, ..Setup::default() });
    let spare = MemberId(code.members);
    assert_eq!(array.member(spare).map(|member| member.state), Some(MemberState::Spare));
    array.lane.set_broken(0, true);
    // Which of the members is read from is the array's own business; all are written to.
    array.write(SOME.0, SOME.1);
    assert_eq!(array.sync_ends(SyncAction::Recovery), (0, SyncEnd::Complete));
    let member = array.member(spare).expect("the spare");
    assert_eq!((member.state, member.role), (MemberState::InSync, Some(Role(0))));
    assert_eq!(array.member(FIRST).map(|member| member.state), Some(MemberState::Faulty));
    is_whole(&mut array);
}

fn a_member_is_replaced_while_it_serves<L: Lane>(code: Code) {
    let mut array = written::<L>(code, Setup { spares: 1, bitmap: true, dirty: false });
    let spare = MemberId(code.members);
    array.limit(1 << 20);
    array.order(Command::Replace(FIRST));
    array.until("the copy", |array| array.begun(SyncAction::Recovery) == 1);
    let old = array.member(FIRST).expect("it");
    let new = array.member(spare).expect("the spare");
    assert!(old.state == MemberState::InSync && old.want_replacement, "{old:?}");
    assert_ne!(new.state, MemberState::InSync, "{new:?}");
    array.write(MORE.0, MORE.1);
    let mut served = true;
    array.until("the end of the copy", |array| {
        let ended = array.ended(SyncAction::Recovery).is_some();
        served &= ended || array.status().degraded == 0;
        ended
    });
    assert!(served, "{code:?}: the member did not serve all the time");
    assert_eq!(array.ended(SyncAction::Recovery), Some((0, SyncEnd::Complete)));
    array.until("the exchange", |array| {
        array.member(spare).map(|member| member.state) == Some(MemberState::InSync)
    });
    assert_eq!(array.member(FIRST).map(|member| member.state), Some(MemberState::Faulty));
    assert_eq!(array.member(spare).and_then(|member| member.role), Some(Role(0)));
    is_whole(&mut array);
    array.order(Command::Remove(FIRST));
}

fn nothing_is_replaced_without_a_spare<L: Lane>(code: Code) {
    let mut array = written::<L>(code, Setup { bitmap: true, ..Setup::default() });
    let refusal = array.refused(Command::Replace(FIRST));
    assert!(refusal.reason.contains("no spare"), "{refusal}");
}

/// Starts a slow rebuild, and runs it until superblocks record it. Returns the member and the
/// progress.
fn half_rebuilt<L: Lane>(array: &mut Array<L>) -> (MemberId, u64) {
    without_first(array);
    array.limit(128 << 10);
    let add = added(array, None, false);
    let Command::Add(new) = &add else { unreachable!() };
    let id = new.member;
    array.order(add);
    array
        .until("half of the rebuild", |array| array.status().sync.done_sectors >= DATA_SECTORS / 2);
    assert_eq!(array.status().sync.action, SyncAction::Recovery);
    (id, array.status().sync.done_sectors)
}

fn a_member_that_lacks_little_goes_first<L: Lane>(code: Code) {
    if code.losses < 2 {
        return;
    }
    let mut array = written::<L>(code, Setup { bitmap: true, ..Setup::default() });
    array.pass(60_000);
    let second = MemberId(1);
    array.order(Command::Fail(second));
    array.order(Command::Remove(second));
    let (new, _) = half_rebuilt(&mut array);
    let add = added(&mut array, Some(1), true);
    let Command::Add(offer) = &add else { unreachable!() };
    let back = offer.member;
    array.order(add);
    let state = |array: &mut Array<L>, id| array.member(id).expect("the member").state;
    array.until("the one that was away", |array| state(array, back) == MemberState::InSync);
    assert_ne!(state(&mut array, new), MemberState::InSync);
    array.until("the rebuild", |array| state(array, new) == MemberState::InSync);
    is_whole(&mut array);
}

/// The rebuild goes on from `least` on at least, and comes to its end.
#[track_caller]
fn goes_on<L: Lane>(array: &mut Array<L>, least: u64) {
    array.assemble();
    array.until("the rebuild", |array| array.begun(SyncAction::Recovery) == 1);
    let sync = array.status().sync;
    assert!(sync.done_sectors >= least, "from {} and not {least}", sync.done_sectors);
    assert_eq!(array.sync_ends(SyncAction::Recovery), (0, SyncEnd::Complete));
    is_whole(array);
}

fn a_rebuild_that_was_stopped_goes_on_where_it_was<L: Lane>(code: Code) {
    let mut array = written::<L>(code, Setup::default());
    let (_, done) = half_rebuilt(&mut array);
    array.stop();
    let Some((0, SyncEnd::Interrupted { reason })) = array.ended(SyncAction::Recovery) else {
        panic!("{:?}", array.events);
    };
    assert!(reason.contains("stopped"), "{reason}");
    goes_on(&mut array, done);
}

fn a_rebuild_that_crashed_goes_on_from_its_checkpoint<L: Lane>(code: Code) {
    let mut array = written::<L>(code, Setup::default());
    // Writes that end in a crash would make a degraded array ask for force.
    array.pass(60_000);
    let (id, _) = half_rebuilt(&mut array);
    array.crash();
    let on_disk = rebuilt_on_disk(&mut array, id);
    assert!(on_disk > DATA_SECTORS / 8, "no checkpoint: {on_disk}");
    goes_on(&mut array, on_disk);
}

/// Returns the recovery offset in the superblock of the added member.
fn rebuilt_on_disk<L: Lane>(array: &mut Array<L>, _: MemberId) -> u64 {
    let device = usize::from(array.code.members);
    let mut bytes = vec![0; 4096];
    array.lane.disk(device).read(8, &mut bytes).expect("a superblock");
    let version = braid_array::format::Version::V1_2;
    let superblock = braid_array::format::Superblock::decode(version, 8, &bytes);
    superblock.expect("a superblock").recovery_offset
}
