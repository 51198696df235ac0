//! Nodes that say nothing.

use super::*;
use braid_array::Role;

const SECOND: u64 = 1_000_000_000;

fn tick(client: &mut Client, millis: u64) {
    client.handle(Instant(millis * SECOND / 1000), Event::Tick);
}

/// The nodes that are asked whether they are there, with the tags.
fn pinged(actions: &[Action]) -> Vec<(u16, u32)> {
    let ping = |action: &Action| match action {
        Action::Fabric(FabricOp::Send { peer, bytes }) => match Message::decode(bytes) {
            Ok((_, Message::Ping { tag })) => Some((peer.0 as u16, tag)),
            _ => None,
        },
        _ => None,
    };
    actions.iter().filter_map(ping).collect()
}

/// The connections that are cut.
fn cut(actions: &[Action]) -> Vec<u32> {
    let cut = |action: &Action| match action {
        Action::Fabric(FabricOp::Cut { peer }) => Some(peer.0),
        _ => None,
    };
    actions.iter().filter_map(cut).collect()
}

fn pong(client: &mut Client, (role, tag): (u16, u32), storage_silent_ms: u32) {
    hear(client, Role(role), &Message::Pong { tag, storage_silent_ms });
}

fn stuck() -> Client {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    begin_write(&mut client);
    client
}

#[test]
fn of_nodes_that_owe_an_answer_only_the_one_that_hangs_is_lost() {
    let mut client = stuck();
    tick(&mut client, 1249);
    assert_eq!(pinged(&actions(&mut client)), []);
    tick(&mut client, 1251);
    let asked = pinged(&actions(&mut client));
    assert_eq!(asked.len(), 3, "all of them have a part in it");
    pong(&mut client, asked[0], 0);
    pong(&mut client, asked[2], 100);
    tick(&mut client, 4999);
    assert_eq!(cut(&actions(&mut client)), Vec::<u32>::new());
    tick(&mut client, 5001);
    assert_eq!(cut(&actions(&mut client)), [1]);
    assert!(
        client.parts.alive(Role(0)) && !client.parts.alive(Role(1)) && client.parts.alive(Role(2))
    );
}

#[test]
fn a_node_whose_storage_hangs_is_lost_although_it_answers() {
    let mut client = stuck();
    tick(&mut client, 1251);
    let asked = pinged(&actions(&mut client));
    pong(&mut client, asked[2], 4999);
    assert_eq!(cut(&actions(&mut client)), Vec::<u32>::new());
    pong(&mut client, asked[1], 5000);
    let after = actions(&mut client);
    assert_eq!(cut(&after), [1]);
    let told = after.iter().find_map(|action| match action {
        Action::Notify(ArrayEvent::MemberFailed { reason, .. }) => Some(reason.to_string()),
        _ => None,
    });
    assert_eq!(told.as_deref(), Some("its storage has not answered for 5 s"));
}

/// Advances the time to the next deadline, again and again, for 20 s. Nodes answer with the time of
/// their storage's last answer, or are silent. Returns the connections that are cut, each with the
/// time in milliseconds.
fn cuts(client: &mut Client, storage: impl Fn(u16) -> Option<u64>) -> Vec<(u64, u32)> {
    let mut now = 0_u64;
    let mut all = Vec::new();
    while now < 20_000 {
        loop {
            let after = actions(client);
            all.extend(cut(&after).into_iter().map(|peer| (now, peer)));
            for (role, tag) in pinged(&after) {
                if let Some(since) = storage(role) {
                    pong(client, (role, tag), now.saturating_sub(since) as u32);
                }
            }
            if after.is_empty() {
                break;
            }
        }
        let Some(due) = client.deadline() else { break };
        now = (due.0 / 1_000_000).max(now) + 1;
        tick(client, now);
    }
    all
}

#[test]
fn two_nodes_that_hang_are_lost_as_soon_as_one_though_only_one_owed_anything() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    submit(&mut client, Op::Read, 0, 8);
    actions(&mut client);
    let asked = client.parts.keeper.view().owing().count();
    let lost = cuts(&mut client, |role| (role == 0).then_some(u64::MAX));
    assert_eq!(asked, 1);
    assert_eq!(lost.iter().map(|(_, peer)| *peer).collect::<Vec<_>>(), [1, 2]);
    assert!(lost.iter().all(|(millis, _)| *millis <= 5_005), "{lost:?}");
}

#[test]
fn nodes_whose_storage_hangs_are_lost_when_their_time_is_up() {
    for begun in [0, 100, 1200] {
        let mut client = stuck();
        let hangs = |role| if role == 0 { u64::MAX } else { begun };
        let lost = cuts(&mut client, |role| Some(hangs(role)));
        assert_eq!(lost.iter().map(|(_, peer)| *peer).collect::<Vec<_>>(), [1, 2]);
        let times = lost.iter().map(|(millis, _)| millis - begun);
        assert!(times.clone().all(|millis| (5000..=5010).contains(&millis)), "{lost:?}");
    }
}

#[test]
fn a_node_that_hangs_while_the_array_is_set_up_is_not_waited_for() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |role, _| role == 1);
    for millis in [2501, 5001] {
        tick(&mut client, millis);
        run(&mut client, |role, _| role == 1);
    }
    assert!(client.parts.alive(Role(0)) && !client.parts.alive(Role(1)));
    submit(&mut client, Op::Read, 0, 8);
}

#[test]
fn two_nodes_that_do_not_see_each_other_hold_nothing_up() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    let wiring = |message: &Message| matches!(message, Message::Connect { .. });
    let asked = |actions: &[Action], role: u32| {
        actions.iter().find_map(|action| match action {
            Action::Fabric(FabricOp::Send { peer, bytes }) if peer.0 == role => {
                match Message::decode(bytes) {
                    Ok((_, Message::Connect { tag, .. })) => Some(tag),
                    _ => None,
                }
            }
            _ => None,
        })
    };
    let mut said = run(&mut client, |_, message| wiring(message));
    // The node that it cannot connect to waits to be connected to, and answers nothing.
    let waits = asked(&said, 1).expect("it is asked");
    let mut millis = 0;
    while let Some(tag) = asked(&said, 0) {
        assert!(
            client.parts.alive(Role(0))
                && matches!(client.parts.phase, ClientPhase::Setup)
                && millis < 10_000
        );
        hear(&mut client, Role(0), &refusal(tag, "cannot connect to node n1"));
        millis += 200;
        tick(&mut client, millis);
        said = run(&mut client, |_, message| wiring(message));
    }
    assert!(millis > 1000, "the other may turn out to be lost");
    hear(&mut client, Role(1), &Message::Ok { tag: waits });
    hear(&mut client, Role(2), &Message::Ok { tag: waits + 1 });
    assert!(matches!(client.parts.phase, ClientPhase::Running), "{:?}", client.parts.phase);
    assert!(
        !client.parts.alive(Role(0)) && client.parts.alive(Role(1)) && !client.parts.writes_over()
    );
}

#[test]
fn who_owes_nothing_may_say_nothing() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    for minute in 1..5 {
        tick(&mut client, minute * 60_000);
        let after = actions(&mut client);
        assert!(pinged(&after).is_empty() && cut(&after).is_empty());
    }
}
