//! What is refused, and how: with a reason and a next step, and nothing changes.

use braid_array::action::Command;

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
