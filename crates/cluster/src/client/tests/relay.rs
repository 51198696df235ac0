//! Slice-sets that one node tells the others of, and commits that wait for the next.

use super::*;

/// A mirror of three: all content of a slice-set goes to one node, from there to the others.
fn mirror() -> Client {
    let mut config = config(Planner::Encoder { node: Role(0) });
    let level = Level::Raid1;
    config.params.family = Family::Md { level, layout: Layout::default_for(level) };
    let mut client = made(config);
    run(&mut client, |_, _| false);
    client
}

/// Writes a block of a stripe. Returns the messages to nodes.
fn begin(client: &mut Client, stripe: u64) -> Vec<(Role, Message)> {
    let buf = Buf { offset: 0, len: 4096 };
    let op = Op::Write { fua: false };
    let request = Request { id: RequestId(stripe), op, sector: 8 * stripe, sectors: 8, buf };
    client.submit(Instant(2), request).expect("the array runs");
    let actions = run(client, |_, _| false);
    for action in &actions {
        if let Action::Fabric(FabricOp::Put { io, .. }) = action {
            client.handle(Instant(2), Event::Done { io: *io, result: Ok(Outcome::Done) });
        }
    }
    heard(&actions)
}

/// Returns the messages on slice-sets that nodes receive.
fn heard(actions: &[Action]) -> Vec<(Role, Message)> {
    let heard = actions.iter().filter_map(|action| match action {
        Action::Fabric(FabricOp::Send { peer, bytes }) => {
            let (_, message) = Message::decode(bytes).expect("a message");
            let of_sets = matches!(message, Message::BeginSet { .. } | Message::Commit { .. });
            of_sets.then_some((Role(peer.0 as u16), message))
        }
        _ => None,
    });
    heard.collect()
}

/// The one node that is told, and the slice-set.
fn relay_of(heard: &[(Role, Message)]) -> (Role, Set) {
    match heard {
        [(relay, Message::BeginSet { set })] if set.relay => (*relay, set.clone()),
        _ => panic!("{heard:?}"),
    }
}

fn others(relay: Role) -> Vec<Role> {
    Role::all(NODES).filter(|&role| role != relay).collect()
}

/// Returns the nodes that are told of this slice-set directly.
fn told(actions: &[Action], set: &Set) -> Vec<Role> {
    let begin = Message::BeginSet { set: Set { relay: false, ..set.clone() } };
    let same = |message: &Message| *message == begin;
    heard(actions).iter().filter(|(_, message)| same(message)).map(|(role, _)| *role).collect()
}

#[test]
fn who_is_not_reached_through_another_node_is_told_directly() {
    for trouble in 0..4 {
        let mut client = mirror();
        let (relay, set) = relay_of(&begin(&mut client, 0));
        let [one, other] = others(relay)[..] else { panic!("three nodes") };
        let place = (set.position, set.generation);
        let expected = match trouble {
            0 => {
                lose(&mut client, relay);
                vec![one, other]
            }
            1 => {
                prepared(&mut client, relay, place, false);
                vec![one, other]
            }
            // Whichever of the two notices first; the relay may not have yet, or long ago.
            2 => {
                prepared(&mut client, one, place, true);
                hear(&mut client, other, &Message::NeighbourLost { role: relay });
                vec![other]
            }
            _ => {
                prepared(&mut client, relay, place, true);
                hear(&mut client, relay, &Message::NeighbourLost { role: other });
                vec![one, other]
            }
        };
        let after = run(&mut client, |_, _| false);
        assert_eq!(told(&after, &set), expected, "{trouble}");
        // Once is enough.
        hear(&mut client, one, &Message::NeighbourLost { role: relay });
        assert_eq!(told(&run(&mut client, |_, _| false), &set), []);
    }
}

#[test]
fn a_connection_that_nothing_is_relayed_on_is_no_trouble() {
    let mut client = mirror();
    let (relay, set) = relay_of(&begin(&mut client, 0));
    let [one, other] = others(relay)[..] else { panic!("three nodes") };
    hear(&mut client, one, &Message::NeighbourLost { role: other });
    assert_eq!(told(&run(&mut client, |_, _| false), &set), []);
}

#[test]
fn a_commit_goes_with_the_next_slice_set_or_after_a_moment() {
    let mut client = mirror();
    let (relay, set) = relay_of(&begin(&mut client, 0));
    let place = (set.position, set.generation);
    Role::all(NODES).for_each(|role| prepared(&mut client, role, place, true));
    let answered = run(&mut client, |_, _| false);
    assert_eq!(completed(&answered), Some(Ok(())));
    assert_eq!(heard(&answered), [], "nobody waits for it to be stored");
    let commit = Message::Commit { sets: vec![place] };
    let next = begin(&mut client, 1);
    let with = next.iter().find(|(_, message)| *message == commit).expect("it goes with that");
    let opened = next.iter().find(|(_, message)| *message != commit).expect("it is opened");
    assert_eq!((with.0, opened.0, next.len()), (relay, relay, 2));
    // The others hear of nothing else.
    let due = client.deadline().expect("it does not wait for ever");
    assert!(due <= Instant(2).plus_millis(5), "{due:?}");
    client.handle(due, Event::Tick);
    let late = heard(&run(&mut client, |_, _| false));
    let expected: Vec<_> = others(relay).into_iter().map(|role| (role, commit.clone())).collect();
    assert_eq!(late, expected);
}

#[test]
fn who_waits_for_a_commit_gets_it_at_once() {
    for waits in 0..3 {
        let mut client = mirror();
        let (_, set) = relay_of(&begin(&mut client, 0));
        let place = (set.position, set.generation);
        Role::all(NODES).for_each(|role| prepared(&mut client, role, place, true));
        assert_eq!(heard(&run(&mut client, |_, _| false)), []);
        match waits {
            0 => read_block(&mut client, 0),
            1 => submit(&mut client, Op::Write { fua: false }, 0, 8),
            _ => submit(&mut client, Op::Flush, 0, 0),
        }
        let commit = Message::Commit { sets: vec![place] };
        let sent = heard(&run(&mut client, |_, _| false));
        let commits = sent.iter().filter(|(_, message)| *message == commit).count();
        assert_eq!(commits, usize::from(NODES), "{waits}");
    }
}
