//! Refusals: with a reason and a next step, and without any change.

use braid_array::action::Command;

use crate::members::array::Array;
use crate::members::lane::{Code, Lane, Setup};

crate::members::over_both_lanes! {
    a_second_stop_is_refused
}

fn a_second_stop_is_refused<L: Lane>(code: Code) {
    let mut array = Array::<L>::start(code, Setup { dirty: true, ..Setup::default() });
    array.write(0, 128);
    let first = array.ask(Command::Stop);
    let second = array.ask(Command::Stop);
    let refusal = array.answer(second).expect_err("a second stop");
    assert!(refusal.reason.contains("stop") && !refusal.next.is_empty(), "{refusal}");
    assert_eq!(array.answer(first), Ok(()), "{code:?}");
}
