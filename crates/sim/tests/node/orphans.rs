//! What a client that is gone left prepared, and who asks for its volume.
use braid_cluster::Family;
use braid_cluster::wire::Message;

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
