//! Stores of nodes that have no room.

use super::*;
use braid_array::Role;

/// A node of an array that could not do without it cannot have its part of a write.
fn fails_a_write(no_room: bool) -> (Client, Vec<Action>) {
    let mut client = client(Planner::Client);
    run(&mut client, |_, _| false);
    lose(&mut client, Role(2));
    run(&mut client, |_, _| false);
    let (position, generation) = begin_write(&mut client);
    let cut_off = Roles::NONE;
    let received_bytes = 0;
    let ok = false;
    let own_fault = true;
    prepared(&mut client, Role(1), (position, generation), true);
    let prepared =
        Message::Prepared { position, generation, ok, own_fault, no_room, cut_off, received_bytes };
    hear(&mut client, Role(0), &prepared);
    let after = run(&mut client, |_, _| false);
    (client, after)
}

#[test]
fn a_store_without_room_that_the_array_needs_is_waited_for() {
    let (client, _) = fails_a_write(true);
    assert!(client.has_too_few(), "another client takes it over when there is room");
    let why = client.refused().expect("a reason").to_string();
    assert_eq!(why, "node://n0/v: its store has no room; make room there");
}

#[test]
fn what_was_committed_and_finds_no_room_is_waited_for() {
    let mut client = client(Planner::Client);
    run(&mut client, |_, _| false);
    lose(&mut client, Role(2));
    run(&mut client, |_, _| false);
    let (position, generation) = begin_write(&mut client);
    for role in [0, 1] {
        prepared(&mut client, Role(role), (position, generation), true);
    }
    let commits = |message: &Message| matches!(message, Message::Commit { .. });
    assert_eq!(said(&run(&mut client, |_, _| false), commits), 2);
    let finished = Message::Finished { position, generation, ok: false, no_room: true };
    hear(&mut client, Role(0), &finished);
    run(&mut client, |_, _| false);
    assert!(client.has_too_few(), "another client takes it over when there is room");
    let why = client.refused().expect("a reason").to_string();
    assert_eq!(why, "node://n0/v: its store has no room; make room there");
}

#[test]
fn what_a_store_cannot_read_fails_that_write_alone() {
    let (client, after) = fails_a_write(false);
    assert!(!client.has_too_few() && client.parts.alive(Role(0)));
    let dropped = |message: &Message| matches!(message, Message::Abort { .. });
    assert!(said(&after, dropped) > 0, "{after:?}");
}
