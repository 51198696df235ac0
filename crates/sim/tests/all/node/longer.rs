//! Volumes that become longer under a pipeline.

use braid_array::fabric::PeerId;
use braid_array::level::Level;
use braid_cluster::wire::Message;

use super::array::{ARRAY, Array, DATA_SECTOR, ENCODER, md};
use super::hostile::is_violation;

/// Bytes of data on each member, and of the same with a stripe more.
fn sizes(array: &Array) -> (u64, u64) {
    let used = array.pipeline.member_bytes();
    (used, used + used / array.pipeline.params().stripes)
}

fn answers(array: &mut Array, from: PeerId) -> Vec<Message> {
    array.world.run();
    let heard = std::mem::take(&mut array.world.heard);
    heard.into_iter().filter(|(peer, _)| *peer == from).map(|(_, message)| message).collect()
}

#[test]
fn a_pipeline_at_rest_lets_its_volume_become_longer_and_stores_nothing_more() {
    let mut array = Array::connected(md(Level::Raid5), 3, ENCODER, 5);
    let set = array.set(0, 0);
    array.write(&set);
    array.run();
    array.world.heard.clear();
    let peer = array.peers[1];
    let (used, longer) = sizes(&array);
    for data_bytes in [used - 4096, longer + 512, 1 << 62, u64::MAX] {
        array.world.send(peer, &Message::LengthenVolume { tag: 9, data_bytes });
        let said = answers(&mut array, peer);
        assert!(matches!(said[..], [Message::Refused { tag: 9, .. }]), "{said:?}");
    }
    array.world.send(peer, &Message::LengthenVolume { tag: 10, data_bytes: longer });
    assert_eq!(answers(&mut array, peer), [Message::Ok { tag: 10 }]);
    let set = array.set(1, 1);
    array.world.send(peer, &Message::BeginSet { set });
    array.world.run();
    assert!(array.world.lost.contains(&peer));
    // The next client finds it as long as it is.
    let next = array.world.dial(1);
    array.world.grant(next, ARRAY, 2);
    let name = "v".to_owned();
    array.world.send(next, &Message::OpenVolume { tag: 1, name, write: true });
    let bytes = DATA_SECTOR * 512 + longer;
    let said = answers(&mut array, next);
    let found = said.iter().find_map(|message| match message {
        Message::Volume { bytes, .. } => Some(*bytes),
        _ => None,
    });
    assert_eq!(found, Some(bytes), "{said:?}");
}

#[test]
fn a_pipeline_that_is_not_at_rest_is_ended() {
    is_violation(|array, peer| {
        let set = array.set(0, 0);
        array.world.send(peer, &Message::BeginSet { set });
        let (_, data_bytes) = sizes(array);
        array.world.send(peer, &Message::LengthenVolume { tag: 1, data_bytes });
    });
    is_violation(|array, peer| {
        let (_, data_bytes) = sizes(array);
        array.world.send(peer, &Message::LengthenVolume { tag: 1, data_bytes });
        array.world.send(peer, &Message::LengthenVolume { tag: 2, data_bytes });
    });
}
