//! Slice-sets on their way: when a write is answered, read, tried again, gathered.

use super::*;

#[test]
fn a_parity_formed_after_its_node_was_lost_is_not_sent() {
    let mut client = client(Planner::Client);
    run(&mut client, |_, _| false);
    submit(&mut client, Op::Write { fua: false }, 0, STRIPE_SECTORS);
    let under_way = run(&mut client, |_, _| false);
    let mut sum = None;
    for action in under_way {
        match action {
            Action::Compute { io, .. } => sum = Some(io),
            Action::Fabric(FabricOp::Put { io, .. }) => {
                let result = Ok(Outcome::Done);
                client.handle(Instant(2), Event::Done { io, result });
            }
            _ => {}
        }
    }
    // The parity of stripe 0 lies on the last node.
    lose(&mut client, Role(2));
    let io = sum.expect("the client forms the parity");
    client.handle(Instant(3), Event::Done { io, result: Ok(Outcome::Done) });
    let after = run(&mut client, |_, _| false);
    let puts = |action: &&Action| matches!(action, Action::Fabric(FabricOp::Put { .. }));
    assert_eq!((after.iter().filter(puts).count(), completed(&after)), (0, None));
    let position = client.parts.engine.open_positions()[0];
    for role in [0, 1] {
        prepared(&mut client, Role(role), (position, Generation(0)), true);
    }
    // The others have all that is theirs: it goes without the parity.
    let goes = |message: &Message| matches!(message, Message::Commit { .. });
    let went = run(&mut client, |_, _| false);
    assert_eq!((said(&went, goes), completed(&went)), (2, Some(Ok(()))));
}

#[test]
fn a_write_is_answered_once_all_have_it_and_read_once_it_is_stored() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let (position, generation) = begin_write(&mut client);
    for role in 0..NODES {
        let so_far = run(&mut client, |_, _| false);
        assert_eq!((completed(&so_far), said(&so_far, |_| true)), (None, 0));
        prepared(&mut client, Role(role), (position, generation), true);
    }
    let answered = run(&mut client, |_, _| false);
    let goes = |message: &Message| matches!(message, Message::Commit { .. });
    assert_eq!((said(&answered, goes), completed(&answered)), (usize::from(NODES), Some(Ok(()))));
    read_block(&mut client, 0);
    submit(&mut client, Op::Flush, 0, 0);
    let waiting = run(&mut client, |_, _| false);
    assert_eq!((reads(&waiting), said(&waiting, |_| true)), (vec![], 0));
    for role in 0..NODES {
        hear(
            &mut client,
            Role(role),
            &Message::Finished { position, generation, ok: true, no_room: false },
        );
    }
    let after = run(&mut client, |_, _| false);
    assert_eq!(reads(&after).len(), 1);
    assert_eq!(completed(&after), Some(Ok(())), "the flush");

    // One that is to be durable is not answered before it is stored.
    let (position, generation) = begin(&mut client, true);
    for role in 0..NODES {
        prepared(&mut client, Role(role), (position, generation), true);
    }
    let gone = run(&mut client, |_, _| false);
    assert_eq!((said(&gone, goes), completed(&gone)), (usize::from(NODES), None));
    for role in 0..NODES {
        hear(
            &mut client,
            Role(role),
            &Message::Finished { position, generation, ok: true, no_room: false },
        );
    }
    assert_eq!(completed(&run(&mut client, |_, _| false)), Some(Ok(())));
}

#[test]
fn a_write_whose_last_part_failed_is_written_without_that_node() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let (position, generation) = begin_write(&mut client);
    for (role, ok) in [(0, true), (1, true), (2, false)] {
        assert_eq!(completed(&run(&mut client, |_, _| false)), None);
        prepared(&mut client, Role(role), (position, generation), ok);
    }
    let after = run(&mut client, |_, _| false);
    let drops = |message: &Message| matches!(message, Message::Abort { .. });
    assert_eq!((said(&after, drops), completed(&after)), (2, None));
    // And it is told whose fault that was.
    let told = |action: &Action| match action {
        Action::Notify(ArrayEvent::MemberFailed { member, .. }) => Some(*member),
        _ => None,
    };
    assert_eq!(after.iter().find_map(told), Some(MemberId(2)));
    for role in [0, 1] {
        hear(
            &mut client,
            Role(role),
            &Message::Finished { position, generation, ok: true, no_room: false },
        );
    }
    let mut again = None;
    for action in run(&mut client, |_, _| false) {
        match action {
            Action::Fabric(FabricOp::Put { io, .. }) => {
                client.handle(Instant(4), Event::Done { io, result: Ok(Outcome::Done) });
            }
            Action::Fabric(FabricOp::Send { bytes, .. }) => {
                if let Ok((_, Message::BeginSet { set })) = Message::decode(&bytes) {
                    assert_eq!((set.missing, set.touched.is_all()), (Roles(1 << 2), true));
                    again = Some((set.position, set.generation));
                }
            }
            _ => {}
        }
    }
    let (position, generation) = again.expect("it is tried again");
    for role in [0, 1] {
        prepared(&mut client, Role(role), (position, generation), true);
    }
    assert_eq!(completed(&run(&mut client, |_, _| false)), Some(Ok(())));
    assert_eq!(client.status().members.iter().map(|m| m.errors).collect::<Vec<_>>(), [0, 0, 1]);
}

/// The stripes of which slice-sets are opened.
fn opened(actions: &[Action]) -> Vec<u64> {
    let opens = actions.iter().filter_map(|action| match action {
        Action::Fabric(FabricOp::Send { bytes, .. }) => match Message::decode(bytes) {
            Ok((_, Message::BeginSet { set })) => Some(set.stripe.0),
            _ => None,
        },
        _ => None,
    });
    opens.collect::<std::collections::BTreeSet<u64>>().into_iter().collect()
}

#[test]
fn a_part_of_the_stripe_after_a_whole_one_waits_for_the_rest() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let (position, generation) = begin_write(&mut client);
    let write = Op::Write { fua: false };
    submit_as(&mut client, RequestId(8), write, STRIPE_SECTORS, STRIPE_SECTORS / 2);
    // Not because of some time, but because the stripe before it is not answered yet.
    client.handle(Instant(900_000_000), Event::Tick);
    assert_eq!(opened(&run(&mut client, |_, _| false)), [0; 0]);
    for role in 0..NODES {
        let ok = true;
        let own_fault = false;
        let cut_off = Roles::NONE;
        let no_room = false;
        let received_bytes = 0;
        let message = Message::Prepared {
            position,
            generation,
            ok,
            own_fault,
            no_room,
            cut_off,
            received_bytes,
        };
        let peer = client.parts.sessions.list.get(Role(role)).peer.expect("a connection");
        let bytes = message.encode(Epoch(1));
        let event = Event::Fabric(FabricEvent::Message { peer, bytes });
        client.handle(Instant(900_000_001), event);
    }
    let answered = run(&mut client, |_, _| false);
    assert_eq!(completed(&answered), Some(Ok(())));
    assert_eq!(opened(&answered), [0; 0]);
    // Nothing more comes.
    let due = client.deadline().expect("it does not wait for ever");
    assert!(due <= Instant(902_000_000), "{due:?}");
    client.handle(due, Event::Tick);
    assert_eq!(opened(&run(&mut client, |_, _| false)), [1]);
    for role in 0..NODES {
        hear(
            &mut client,
            Role(role),
            &Message::Finished { position, generation, ok: true, no_room: false },
        );
    }

    // A stripe of which a part was written holds up nobody.
    submit(&mut client, Op::Write { fua: false }, 2 * STRIPE_SECTORS, STRIPE_SECTORS / 2);
    client.handle(due.plus_millis(60), Event::Tick);
    assert_eq!(opened(&run(&mut client, |_, _| false)), [2]);
}
