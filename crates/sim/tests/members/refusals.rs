//! What is refused, and how: with a reason and a next step, and nothing changes.

use braid_array::MemberId;
use braid_array::action::Command;
use braid_array::events::{ArrayEvent, SyncAction};

use crate::array::Array;
use crate::lane::{Code, Lane, Setup};
use crate::nodes::Nodes;

crate::over_both_lanes! {
    a_second_stop_is_refused
}

/// Over nodes this command is not obeyed, and nothing changes.
pub(crate) fn is_refused(code: Code, command: impl FnOnce(&mut Array<Nodes>) -> Command) {
    let mut array = Array::<Nodes>::start(code, Setup::default());
    array.write(0, 128);
    let command = command(&mut array);
    let refusal = array.refused(command);
    assert!(refusal.reason.contains("over nodes"), "{code:?}: {refusal}");
    array.write(128, 128);
    array.content_is_right();
    array.members_agree();
}

fn a_second_stop_is_refused<L: Lane>(code: Code) {
    let mut array = Array::<L>::start(code, Setup { dirty: true, ..Setup::default() });
    array.write(0, 128);
    let (first, second) = (array.ask(Command::Stop), array.ask(Command::Stop));
    let refusal = array.answer(second).expect_err("a second stop");
    assert!(refusal.reason.contains("stop") && !refusal.next.is_empty(), "{refusal}");
    assert_eq!(array.answer(first), Ok(()), "{code:?}");
}

/// A write needs all nodes so far: it fails, and people are told why and what to do.
#[test]
fn without_a_node_nothing_is_written_yet() {
    for code in crate::nodes::codes() {
        let mut array = Array::<Nodes>::start(code, Setup::default());
        array.write(0, 128);
        array.lane.set_broken(1, true);
        array.until("the loss", |array| array.status().degraded == 1);
        array.try_write(128, 128).expect_err("a write without a node");
        array.content_is_right();
        let told = array.events.iter().any(|event| {
            matches!(event, ArrayEvent::MemberFailed { member: MemberId(1), reason, .. }
                if !reason.is_empty())
        });
        assert!(told, "{code:?}: {:?}", array.events);
        assert_eq!(array.begun(SyncAction::Recovery), 0);
    }
}
