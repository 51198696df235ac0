//! Leftovers of a client that is gone, and the requests for its volume.
use braid_array::Role;
use braid_cluster::Family;
use braid_cluster::ids::{Epoch, SetVersion};
use braid_cluster::wire::Message;
use braid_sim::world::process::POISON;

use super::array::{ARRAY, Array, ENCODER};

#[test]
fn a_volume_with_leftovers_is_refused_until_they_are_resolved() {
    let mut array = Array::connected(Family::Xor2d, 5, ENCODER, 1);
    let set = array.set(0, 1);
    array.write(&set);
    array.world.run();
    let all_prepared = array.world.heard.iter().all(|(_, m)| matches!(m, Message::Prepared { .. }));
    assert!(all_prepared && array.world.heard.len() == 5, "{:?}", array.world.heard);
    for peer in array.peers.clone() {
        array.world.hang_up(peer);
    }
    array.world.run();
    array.world.heard.clear();

    let other = array.world.dial(0);
    let open = |write| Message::OpenVolume { tag: 1, name: "v".to_owned(), write };
    array.world.send(other, &open(true));
    array.world.run();
    let heard = std::mem::take(&mut array.world.heard);
    let [(_, Message::Refused { tag: 1, busy: true, reason, advice })] = &heard[..] else {
        panic!("{heard:?}")
    };
    assert!(reason.contains("volume v holds writes"), "{reason}");
    assert!(advice.contains("assemble its array"), "{advice}");
    // It may be looked at, and another one of its name is not made.
    array.world.send(other, &open(false));
    let third = array.world.dial(0);
    let create = Message::CreateVolume { tag: 2, name: "v".to_owned(), bytes: 1 << 20 };
    array.world.send(third, &create);
    array.world.run();
    let heard = std::mem::take(&mut array.world.heard);
    let opened = |(_, m): &(_, Message)| matches!(m, Message::Volume { used: false, .. });
    let exists = |(_, m): &(_, Message)| match m {
        Message::Refused { reason, .. } => reason.contains("exists"),
        _ => false,
    };
    assert!(heard.len() == 2 && heard.iter().any(opened) && heard.iter().any(exists), "{heard:?}");

    let next = array.world.dial(0);
    array.world.grant(next, ARRAY, 2);
    array.world.send(next, &Message::ResolveLeftovers { tag: 3, commit: Vec::new() });
    array.world.run();
    assert_eq!(array.world.heard.pop(), Some((next, Message::Ok { tag: 3 })));
    array.world.send(other, &open(true));
    array.world.run();
    let opened = array.world.heard.pop();
    assert!(matches!(opened, Some((_, Message::Volume { .. }))), "{opened:?}");
    assert_eq!(array.world.ring_used(0), 0);
}

#[test]
fn what_finds_no_room_is_kept_until_a_later_client_has_it_stored() {
    let mut array = Array::connected(Family::Xor2d, 5, ENCODER, 8);
    array.world.disk(1, "v").set_full(true);
    let set = array.set(0, 0);
    array.write(&set);
    array.run();
    let no_room = |message: &Message| matches!(message, Message::Finished { no_room: true, .. });
    let told = array.world.heard.iter().filter(|(_, message)| no_room(message));
    assert_eq!(told.map(|(peer, _)| *peer).collect::<Vec<_>>(), [array.peers[1]]);
    for peer in array.peers.clone() {
        array.world.hang_up(peer);
    }
    array.world.run();
    assert!(array.world.ring_used(1) > 0 && array.world.ring_used(0) == 0);

    let next = array.world.dial(1);
    array.world.grant(next, ARRAY, 2);
    let resolve = |tag| {
        let commit = vec![SetVersion::new(Epoch(1), set.number)];
        Message::ResolveLeftovers { tag, commit }
    };
    array.world.send(next, &resolve(3));
    array.world.run();
    let heard = array.world.heard.pop();
    let refused = matches!(
        &heard,
        Some((_, Message::Refused { tag: 3, reason, advice, .. }))
            if reason == "its store has no room" && advice == "make room there"
    );
    assert!(refused, "{heard:?}");
    array.world.disk(1, "v").set_full(false);
    array.world.send(next, &resolve(4));
    array.world.run();
    assert_eq!(array.world.heard.pop(), Some((next, Message::Ok { tag: 4 })));
    array.verify();
    assert_eq!(array.world.ring_used(1), 0);
}

#[test]
fn a_client_that_is_gone_keeps_no_more_memory_than_what_it_left() {
    let nodes = 5;
    let mut array = Array::lean(Family::Xor2d, nodes, 4 << 20);
    Role::all(nodes).for_each(|node| array.connect(node));
    array.world.run();
    for peer in array.peers.clone() {
        array.world.send(peer, &Message::LeaseRing { tag: 4 });
    }
    array.world.run();
    let whole = array.world.ring_used(0);
    assert_eq!(whole, array.pipeline.ring_bytes(Role(0)));
    // One slice-set in the base and one beyond it.
    for position in [0, array.pipeline.base().start.0] {
        let set = array.set(position, u64::from(position));
        array.write(&set);
    }
    array.world.run();
    for peer in array.peers.clone() {
        array.world.hang_up(peer);
    }
    array.world.run();
    let left = 2 * u64::from(array.pipeline.rows()) * 4096;
    assert!(4 * left < whole, "{left} of {whole}");
    for site in array.world.sites() {
        assert_eq!(array.world.ring_used(site), left, "at node {site}");
        let start = array.rings[site] as usize;
        let len = array.pipeline.ring_bytes(Role::at(site)) as usize;
        let ring = &array.world.process_mut(site).arena[start..start + len];
        let given_back = ring.chunks(4096).filter(|page| page.iter().all(|&byte| byte == POISON));
        assert_eq!(given_back.count() * 4096 + left as usize, len);
    }

    // What is left is whole, and the next client has it stored.
    let commit = vec![SetVersion::new(Epoch(1), 0)];
    for site in array.world.sites() {
        let next = array.world.dial(site);
        array.world.grant(next, ARRAY, 2);
        let commit = commit.clone();
        array.world.send(next, &Message::ResolveLeftovers { tag: 3, commit });
        array.world.run();
        assert_eq!(array.world.heard.pop(), Some((next, Message::Ok { tag: 3 })));
    }
    array.verify();
    assert!(array.world.sites().all(|site| array.world.ring_used(site) == 0));
}
