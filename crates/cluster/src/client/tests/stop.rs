//! A stop in the middle of something.

use super::*;

#[test]
fn a_stop_while_nodes_are_asked_leaves_nothing_to_wait_for() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |role, _| role == 1);
    let id = CommandId(1);
    let command = Command::Stop;
    client.handle(Instant(3), Event::Command { id, command });
    let after = run(&mut client, |_, _| false);
    assert!(after.iter().any(|action| matches!(action, Action::Reply { result: Ok(()), .. })));
    assert!(client.idle());
}

#[test]
fn a_stop_does_not_wait_for_a_node_that_says_nothing() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let place = begin_write(&mut client);
    let id = CommandId(1);
    let command = Command::Stop;
    client.handle(Instant(3), Event::Command { id, command });
    for role in [0, 2] {
        prepared(&mut client, Role(role), place, true);
    }
    assert_eq!(completed(&run(&mut client, |_, _| false)), None);
    let mut due = Instant(3);
    let mut answer = None;
    while answer.is_none() {
        due = client.deadline().expect("a deadline");
        client.handle(due, Event::Tick);
        answer = completed(&run(&mut client, |role, _| role == 1));
    }
    assert_eq!(answer, Some(Ok(())));
    assert!(due >= Instant(2).plus_millis(5000), "a slow node gets its time");
    for role in [0, 2] {
        let (position, generation) = place;
        hear(
            &mut client,
            Role(role),
            &Message::Finished { position, generation, ok: true, no_room: false },
        );
    }
    let after = run(&mut client, |_, _| false);
    assert!(after.iter().any(|action| matches!(action, Action::Reply { result: Ok(()), .. })));
    assert!(client.idle());
}
