//! Blocks of a lost node, read by the others.

use super::*;

#[test]
fn with_a_node_lost_a_block_is_read_once_for_all_who_want_it() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    lose(&mut client, Role(0));
    read_block(&mut client, 0);
    let asked = reads(&run(&mut client, |_, _| false));
    assert_eq!(asked.len(), 2, "block 0 is the sum of block 1 and the parity");
    read_block(&mut client, 1);
    assert_eq!(reads(&run(&mut client, |_, _| false)), [], "it is on its way already");
    placed(&mut client, &asked);
    assert_eq!(compute(&mut client).0, [(0, Ok(())), (1, Ok(()))]);
    // Nothing is forgotten as long as there is room.
    for block in [1, 0] {
        read_block(&mut client, block);
        let (over, rest) = compute(&mut client);
        assert_eq!((over, reads(&rest)), (vec![(block, Ok(()))], vec![]));
    }
}

#[test]
fn what_cannot_be_read_fails_only_those_who_need_it() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    lose(&mut client, Role(0));
    read_block(&mut client, 0);
    read_block(&mut client, 1);
    let asked = reads(&run(&mut client, |_, _| false));
    let parity = PeerId(2);
    let (bad, good): (Vec<_>, Vec<_>) = asked.into_iter().partition(|&(peer, _)| peer == parity);
    placed(&mut client, &good);
    hear(&mut client, Role(2), &Message::ReadFailed { slot: bad[0].1 });
    // Each tries again on its own.
    let mut over = Vec::new();
    for _ in 0..3 {
        let (completed, rest) = compute(&mut client);
        over.extend(completed);
        for (peer, slot) in reads(&rest) {
            if peer == parity {
                hear(&mut client, Role(2), &Message::ReadFailed { slot });
            } else {
                placed(&mut client, &[(peer, slot)]);
            }
        }
    }
    over.sort_unstable_by_key(|&(id, _)| id);
    assert_eq!(over, [(0, Err(RequestError::Medium)), (1, Ok(()))]);
}

#[test]
fn what_is_kept_makes_room_for_what_is_read() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    lose(&mut client, Role(0));
    let room = 7;
    client.parts.shared.leave_buffers(room);
    for round in 0..2 {
        // Stripes of three blocks each, two of which have room.
        for block in 0..20 {
            read_block(&mut client, block);
            let (mut over, rest) = compute(&mut client);
            placed(&mut client, &reads(&rest));
            over.extend(compute(&mut client).0);
            assert_eq!(over, [(block, Ok(()))], "round {round}");
        }
    }
    let (engine, cx) = client.parts.engine();
    engine.forget_all_kept(cx.shared);
    assert_eq!(client.parts.shared.free_buffers(), room);
    assert!(client.parts.engine.has_no_decodings());
}
