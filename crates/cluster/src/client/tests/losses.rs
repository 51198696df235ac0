//! Lost nodes, and the superblocks that record the losses.

use super::*;

#[test]
fn a_node_lost_while_they_are_wired_costs_no_other() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    let wiring = |message: &Message| match message {
        Message::Connect { tag, .. } => Some(*tag),
        _ => None,
    };
    let asked = run(&mut client, |_, message| wiring(message).is_some());
    let tag = |peer: u32| {
        asked.iter().find_map(|action| match action {
            Action::Fabric(FabricOp::Send { peer: to, bytes }) if to.0 == peer => {
                wiring(&Message::decode(bytes).expect("a message").1)
            }
            _ => None,
        })
    };
    lose(&mut client, Role(2));
    let refused = refusal(tag(0).expect("asked"), "cannot connect to node 2");
    hear(&mut client, Role(0), &refused);
    hear(&mut client, Role(1), &Message::Ok { tag: tag(1).expect("asked") });
    assert!(client.parts.alive(Role(0)) && client.parts.alive(Role(1)));
    // It is asked once more, now that it is known who is not there.
    let due = client.deadline().expect("a deadline");
    client.handle(due, Event::Tick);
    run(&mut client, |_, _| false);
    submit(&mut client, Op::Read, 0, 8);
    let reads = run(&mut client, |_, _| false);
    assert_eq!(completed(&reads), None, "it is on its way");
    submit(&mut client, Op::Write { fua: false }, STRIPE_SECTORS, 8);
    let writes = run(&mut client, |_, _| false);
    let without = |message: &Message| match message {
        Message::BeginSet { set } => set.missing == Roles(1 << 2),
        _ => false,
    };
    assert!(said(&writes, without) > 0, "{writes:?}");
}

#[test]
fn a_flush_is_answered_when_superblocks_tell_of_who_could_not_take_part() {
    let mark = |_, message: &Message| matches!(message, Message::WriteMeta { .. });
    let tag_of = |actions: &[Action], such: &dyn Fn(&Message) -> Option<u32>| {
        let sent = actions.iter().filter_map(|action| match action {
            Action::Fabric(FabricOp::Send { peer, bytes }) => {
                Some((peer.0 as u16, such(&Message::decode(bytes).ok()?.1)?))
            }
            _ => None,
        });
        sent.collect::<Vec<_>>()
    };
    let flush = |message: &Message| match message {
        Message::Flush { tag } => Some(*tag),
        _ => None,
    };
    let meta = |message: &Message| match message {
        Message::WriteMeta { tag, .. } => Some(*tag),
        _ => None,
    };
    for refuses in [false, true] {
        let mut client = written();
        submit(&mut client, Op::Flush, 0, 0);
        let asked = run(&mut client, |role, message| role == 1 && flush(message).is_some());
        let [(1, tag)] = tag_of(&asked, &flush)[..] else { panic!("{asked:?}") };
        if refuses {
            // The next might succeed without what this one should have made durable.
            hear(&mut client, Role(1), &refusal(tag, "no"));
        } else {
            lose(&mut client, Role(1));
        }
        let mut telling = run(&mut client, mark);
        assert_eq!(completed(&telling), None);
        while completed(&telling).is_none() {
            let marks = tag_of(&telling, &meta);
            assert!(!marks.is_empty(), "nothing is asked, and nothing answered");
            for (role, tag) in marks {
                assert_ne!(role, 1);
                hear(&mut client, Role(role), &Message::Ok { tag });
            }
            telling = run(&mut client, mark);
        }
        assert_eq!(completed(&telling), Some(Ok(())));
    }
}

/// A later client must find enough members when the nodes are back.
#[test]
fn superblocks_do_not_tell_of_a_loss_that_the_array_does_not_survive() {
    let mut client = written();
    let id = CommandId(1);
    let command = Command::Stop;
    client.handle(Instant(3), Event::Command { id, command });
    let flush = |message: &Message| matches!(message, Message::Flush { .. });
    let asked = run(&mut client, |_, message| flush(message));
    let tag = asked.iter().find_map(|action| match action {
        Action::Fabric(FabricOp::Send { peer: PeerId(0), bytes }) => {
            match Message::decode(bytes).expect("a message").1 {
                Message::Flush { tag } => Some(tag),
                _ => None,
            }
        }
        _ => None,
    });
    lose(&mut client, Role(1));
    lose(&mut client, Role(2));
    hear(
        &mut client,
        Role(0),
        &Message::Ok { tag: tag.expect("a clean stop begins with a flush") },
    );
    let meta = |message: &Message| matches!(message, Message::WriteMeta { .. });
    let after = run(&mut client, |_, message| meta(message));
    assert_eq!(said(&after, meta), 0, "{after:?}");
}
