//! Nodes that are replaced while they serve.

use braid_array::action::Command;
use braid_array::events::{ArrayEvent, SyncAction};
use braid_array::status::MemberState;
use braid_array::{MemberId, Role};

use crate::members::array::Array;
use crate::members::lane::{Code, DATA_SECTORS, Lane, Setup};
use crate::members::nodes::{Nodes, codes};

const OLD: MemberId = MemberId(1);
const SETUP: Setup = Setup { dirty: false, bitmap: true, spares: 1 };

/// A running array with a spare.
fn whole(code: Code) -> (Array<Nodes>, MemberId) {
    let mut array = Array::<Nodes>::start(code, SETUP);
    array.write(0, 1024);
    array.pass(60_000);
    (array, MemberId(code.members))
}

/// Waits until the spare has a role, and all that belongs to it.
#[track_caller]
fn in_its_place(array: &mut Array<Nodes>, spare: MemberId) {
    array.until("the spare in its place", |array| {
        state(array, spare) == Some(MemberState::InSync) && array.status().degraded == 0
    });
}

/// A member is being copied to the spare, and half of that is done.
fn half_copied(code: Code) -> (Array<Nodes>, MemberId) {
    let (mut array, spare) = whole(code);
    array.limit(128 << 10);
    array.order(Command::Replace(OLD));
    array.until("half of it", |array| array.status().sync.done_sectors >= DATA_SECTORS / 2);
    (array, spare)
}

fn state(array: &mut Array<Nodes>, id: MemberId) -> Option<MemberState> {
    array.member(id).map(|member| member.state)
}

/// The spare has the role of the old one, and everything that belongs to it.
#[track_caller]
fn is_replaced(array: &mut Array<Nodes>, spare: MemberId) {
    let code = array.code;
    in_its_place(array, spare);
    assert_eq!(array.member(spare).and_then(|member| member.role), Some(Role(OLD.0)), "{code:?}");
    assert_eq!(state(array, OLD), Some(MemberState::Faulty), "{code:?}");
    array.lane.set_broken(usize::from(OLD.0), true);
    array.content_is_right();
    array.members_agree();
    array.order(Command::Remove(OLD));
}

/// All is as before: why.
#[track_caller]
fn is_not_replaced(array: &mut Array<Nodes>) -> String {
    let reason = |event: &ArrayEvent| match event {
        ArrayEvent::NotReplaced { member: OLD, reason, .. } => Some(reason.to_string()),
        _ => None,
    };
    let mut why = None;
    array.until("the end of the copy", |array| {
        why = array.events.iter().find_map(reason);
        why.is_some()
    });
    array.until("rest", |array| array.status().sync.action == SyncAction::Idle);
    why.expect("a reason")
}

#[test]
fn a_member_is_copied_to_a_spare_that_takes_its_place() {
    for code in codes() {
        let (mut array, spare) = whole(code);
        array.order(Command::Replace(OLD));
        array.until("the copy", |array| array.begun(SyncAction::Recovery) == 1);
        let old = array.member(OLD).expect("it");
        assert!(old.state == MemberState::InSync && old.want_replacement, "{code:?}: {old:?}");
        assert_eq!(state(&mut array, spare), Some(MemberState::Spare), "{code:?}");
        let mut served = true;
        array.until("the exchange", |array| {
            let copied = array.ended(SyncAction::Recovery).is_some();
            served &= copied || array.status().degraded == 0;
            copied
        });
        assert!(served, "{code:?}: it did not serve all the time");
        assert_eq!(array.status().sync.copied_sectors, DATA_SECTORS, "{code:?}");
        is_replaced(&mut array, spare);
        array.stop();
        array.assemble();
        assert_eq!(array.status().degraded, 0, "{code:?}");
        array.content_is_right();
    }
}

#[test]
fn what_is_written_while_it_is_copied_is_there() {
    for code in codes() {
        let (mut array, spare) = whole(code);
        array.limit(4 << 20);
        array.order(Command::ReplaceWith { old: OLD, spare });
        let mut times = 0;
        while state(&mut array, OLD) == Some(MemberState::InSync) {
            let starts = [0, 1, 2, 3].map(|number| (number * 256 + times * 520) % 4000);
            array.write_together(&starts, [8, 64, 128][times as usize % 3]);
            times += 1;
            array.pass(20);
            assert!(times < 10_000, "{code:?}: no end");
        }
        assert!(times > 10, "{code:?}");
        is_replaced(&mut array, spare);
    }
}

#[test]
fn a_spare_that_dies_before_it_has_everything_changes_nothing() {
    for code in codes() {
        let (mut array, spare) = half_copied(code);
        array.lane.set_broken(usize::from(spare.0), true);
        is_not_replaced(&mut array);
        assert_eq!(state(&mut array, OLD), Some(MemberState::InSync), "{code:?}");
        assert_eq!(array.status().degraded, 0, "{code:?}");
        array.unlimited();
        array.write(304, 296);
        array.content_is_right();
        array.members_agree();
        // It is back, and the copy begins anew.
        array.lane.set_broken(usize::from(spare.0), false);
        array.order(Command::Replace(OLD));
        is_replaced(&mut array, spare);
    }
}

#[test]
fn a_member_that_dies_while_it_is_copied_is_rebuilt_from_the_rest() {
    for code in codes() {
        let (mut array, spare) = half_copied(code);
        array.unlimited();
        array.lane.set_broken(usize::from(OLD.0), true);
        assert_eq!(is_not_replaced(&mut array), "it has failed", "{code:?}");
        array.lane.set_broken(usize::from(OLD.0), true);
        in_its_place(&mut array, spare);
        array.content_is_right();
        array.members_agree();
    }
}

#[test]
fn a_member_that_is_lost_goes_before_one_that_is_copied() {
    for code in codes() {
        let (mut array, spare) = half_copied(code);
        array.unlimited();
        array.lane.set_broken(0, true);
        is_not_replaced(&mut array);
        in_its_place(&mut array, spare);
        assert_eq!(array.member(spare).and_then(|member| member.role), Some(Role(0)), "{code:?}");
        assert_eq!(state(&mut array, OLD), Some(MemberState::InSync), "{code:?}");
        array.content_is_right();
        array.members_agree();
    }
}

#[test]
fn what_cannot_be_read_of_it_comes_from_the_others() {
    for code in codes() {
        let (mut array, spare) = whole(code);
        let place = array.places(0)[0];
        let device = place.0;
        let at = crate::members::lane::DATA_SECTOR + place.1;
        array.lane.disk(device).lose_sector(at);
        array.order(Command::Replace(MemberId(device as u16)));
        in_its_place(&mut array, spare);
        array.content_is_right();
        array.members_agree();
    }
}

/// Checks that a member stays in service after its copy has become useless, and returns the reason.
#[track_caller]
fn stays_as_the_copy_is_of_no_use(array: &mut Array<Nodes>, spare: MemberId) -> String {
    let code = array.code;
    let why = is_not_replaced(array);
    assert_eq!(state(array, OLD), Some(MemberState::InSync), "{code:?}");
    assert_eq!(state(array, spare), Some(MemberState::Faulty), "{code:?}");
    let told = |event: &ArrayEvent| match event {
        ArrayEvent::MemberFailed { member, reason, .. } => *member == spare && *reason == *why,
        _ => false,
    };
    assert!(array.events.iter().any(told), "{code:?}");
    assert_eq!(array.status().degraded, 0, "{code:?}");
    array.content_is_right();
    array.members_agree();
    why
}

#[test]
fn a_copy_that_was_not_stored_takes_nothing_over() {
    for code in codes() {
        let (mut array, spare) = whole(code);
        array.lane.disk(usize::from(spare.0)).go_forgetful();
        array.order(Command::Replace(OLD));
        let why = stays_as_the_copy_is_of_no_use(&mut array, spare);
        assert_eq!(why, "it does not hold what was copied to it", "{code:?}");
    }
}

#[test]
fn a_copy_that_cannot_be_read_takes_nothing_over() {
    for code in codes() {
        let (mut array, spare) = half_copied(code);
        array.lane.disk(usize::from(spare.0)).go_blind();
        array.unlimited();
        let why = stays_as_the_copy_is_of_no_use(&mut array, spare);
        assert_eq!(why, "what was copied to it cannot be read back", "{code:?}");
    }
}

#[test]
fn it_is_refused_and_ended_with_reasons() {
    for code in codes() {
        let mut array = Array::<Nodes>::start(code, Setup { spares: 1, ..Setup::default() });
        array.write(0, 64);
        let refused = |array: &mut Array<Nodes>, command, said: &str| {
            let refusal = array.refused(command);
            assert!(refusal.reason.contains(said), "{code:?}: {refusal}");
        };
        refused(&mut array, Command::Replace(OLD), "no bitmap");
        let (mut array, spare) = whole(code);
        refused(&mut array, Command::Replace(MemberId(99)), "no such member");
        refused(&mut array, Command::Replace(spare), "not in sync");
        let other = Command::ReplaceWith { old: OLD, spare: MemberId(0) };
        refused(&mut array, other, "no spare");
        array.limit(128 << 10);
        array.order(Command::Replace(OLD));
        refused(&mut array, Command::Replace(MemberId(0)), "another member is being replaced");
        array.order(Command::Remove(spare));
        assert_eq!(is_not_replaced(&mut array), "the spare is gone", "{code:?}");
        refused(&mut array, Command::Replace(OLD), "no spare");
        array.content_is_right();
        array.stop();
    }
}

#[test]
fn a_client_that_dies_leaves_nothing_of_a_copy() {
    for code in codes() {
        let (mut array, spare) = half_copied(code);
        array.crash();
        array.assemble();
        array.pass(30_000);
        assert_eq!(array.status().degraded, 0, "{code:?}");
        assert_eq!(state(&mut array, spare), Some(MemberState::Spare), "{code:?}");
        array.order(Command::Replace(OLD));
        is_replaced(&mut array, spare);
    }
}
