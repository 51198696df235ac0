//! Clients with the key of one array.

use braid_array::fabric::PeerId;
use braid_array::{Machine, Role};
use braid_cluster::Family;
use braid_cluster::assemble::SUPERBLOCK_SECTOR;
use braid_cluster::ids::{Epoch, NodeId, Slot};
use braid_cluster::node::PARTING_TAG;
use braid_cluster::pipeline::Params;
use braid_cluster::view::View;
use braid_cluster::wire::{Message, PeerAddress};

use super::array::{ARRAY, Array, DATA_SECTOR, ENCODER, params};
use super::world::World;

const OTHER: [u8; 16] = [4; 16];
const VOLUME_BYTES: usize = 1 << 20;

/// A volume of this array; of none without one.
fn volume(array: Option<[u8; 16]>) -> Vec<u8> {
    let mut bytes = vec![0; VOLUME_BYTES];
    if let Some(array) = array {
        bytes[4096..4100].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
        bytes[4100..4104].copy_from_slice(&1_u32.to_le_bytes());
        bytes[4112..4128].copy_from_slice(&array);
    }
    bytes
}

/// Creates a node with volumes of two arrays, and volumes of none.
fn world(seed: u64) -> World {
    let mut world = World::new(1, 4 << 20, seed);
    let mut old = volume(Some(ARRAY));
    old[4100] = 0;
    let volumes = [
        ("own", volume(Some(ARRAY))),
        ("other", volume(Some(OTHER))),
        ("empty", volume(None)),
        ("old", old),
        ("tiny", vec![0; 4096]),
    ];
    for (name, bytes) in volumes {
        world.keep(0, name, &bytes);
    }
    world
}

fn ask(world: &mut World, peer: PeerId, message: &Message) -> Option<Message> {
    world.send(peer, message);
    world.run();
    let mut heard = std::mem::take(&mut world.heard);
    assert!(heard.len() <= 1, "{heard:?}");
    heard.pop().map(|(_, message)| message)
}

fn open(tag: u32, name: &str, write: bool) -> Message {
    Message::OpenVolume { tag, name: name.to_owned(), write }
}

#[track_caller]
fn refused(answer: Option<Message>, words: &str) {
    match answer {
        Some(Message::Refused { tag: 9, reason, advice, busy: false }) => {
            let said = format!("{reason}; {advice}");
            assert!(said.contains(words), "{said}");
        }
        other => panic!("{other:?}"),
    }
}

const LIMITED: &str =
    "this key is limited to array 03030303:03030303:03030303:03030303; use the cluster key";

/// Requests forbidden to clients with a limited key.
fn requests() -> Vec<Message> {
    let name = "own".to_owned();
    vec![
        Message::CreateVolume { tag: 9, name, bytes: 1 << 20 },
        Message::DeleteVolume { tag: 9 },
        Message::RemoveVolume { tag: 9 },
        Message::NodeStatus { tag: 9, after: String::new() },
        Message::Shutdown { tag: 9 },
        Message::Grant { tag: 9, array: OTHER, epoch: Epoch(1), client: 1 },
        Message::ReadVote { tag: 9, array: OTHER },
        Message::Forget { tag: 9, array: ARRAY },
    ]
}

#[test]
fn what_is_not_about_its_array_is_refused_first_and_later() {
    for message in requests() {
        let mut world = world(1);
        let peer = world.dial_limited(0, ARRAY);
        refused(ask(&mut world, peer, &message), LIMITED);
        world.grant(peer, ARRAY, 1);
        refused(ask(&mut world, peer, &message), LIMITED);
        let opened = ask(&mut world, peer, &open(1, "own", true));
        assert!(matches!(opened, Some(Message::Volume { .. })), "{opened:?}");
        refused(ask(&mut world, peer, &message), LIMITED);
        // It is there still, and so are all volumes; and nobody has a note of the other array.
        assert_eq!(ask(&mut world, peer, &Message::Flush { tag: 2 }), Some(Message::Ok { tag: 2 }));
        assert_eq!((world.volumes(0).len(), world.notes(0).len()), (5, 1));
        assert_eq!(world.lost, []);
    }
}

#[test]
fn what_is_read_meanwhile_is_not_taken_for_the_superblock() {
    for seed in 0..20 {
        let mut world = world(seed);
        let peer = world.dial_limited(0, ARRAY);
        let opened = ask(&mut world, peer, &open(1, "own", false));
        assert!(matches!(opened, Some(Message::Volume { .. })), "{opened:?}");
        world.send(peer, &Message::ReadMeta { tag: 2, sector: 0, bytes: 512 });
        world.send(peer, &open(3, "own", true));
        world.run();
        let read = |(_, said): &(_, Message)| matches!(said, Message::Meta { tag: 2, .. });
        let opened = |(_, said): &(_, Message)| matches!(said, Message::Volume { tag: 3, .. });
        let heard = &world.heard;
        assert!(heard.iter().any(read) && heard.iter().any(opened), "seed {seed}: {heard:?}");
    }
}

#[test]
fn what_no_client_says_ends_the_connection() {
    let join = Message::Join { session: 77, role: Role(0), array: ARRAY };
    let answers = [
        join,
        Message::Missing { imm: 1 },
        Message::Ok { tag: 9 },
        Message::Pong { tag: 9, storage_silent_ms: 0 },
        Message::Outvoted { tag: 9, granted: Epoch(1) },
        Message::Granted { tag: 9, view: View::default(), incarnation: 1, node: NodeId(1) },
        Message::ReadFailed { slot: Slot(0) },
    ];
    for message in answers {
        for first in [true, false] {
            let mut world = world(1);
            let peer = world.dial_limited(0, ARRAY);
            if !first {
                world.grant(peer, ARRAY, 1);
            }
            world.send(peer, &message);
            world.run();
            assert_eq!(world.lost, [peer], "{message:?}");
            let parting = |(_, said): &(PeerId, Message)| {
                matches!(said, Message::Refused { tag: PARTING_TAG, .. })
            };
            assert!(world.heard.iter().any(parting), "{message:?}: {:?}", world.heard);
        }
    }
}

#[test]
fn volumes_of_others_are_as_if_they_were_not_there() {
    for write in [true, false] {
        let mut world = world(1);
        let peer = world.dial_limited(0, ARRAY);
        let mut said = |name: &str| match ask(&mut world, peer, &open(9, name, write)) {
            Some(Message::Refused { tag: 9, busy: false, reason, advice }) => {
                format!("{reason}; {advice}").replace(name, "NAME")
            }
            other => panic!("{other:?}"),
        };
        let absent = said("nowhere");
        assert!(absent.starts_with("there is no volume NAME of array 03030303:"), "{absent}");
        for name in ["other", "empty", "old", "tiny"] {
            assert_eq!(said(name), absent);
        }
        let opened = ask(&mut world, peer, &open(2, "own", write));
        let bytes = VOLUME_BYTES as u64;
        assert_eq!(opened, Some(Message::Volume { tag: 2, bytes, node: NodeId(0), used: false }));
        assert_eq!(world.open_volumes(0), 1, "nothing else stays open");
        world.hang_up(peer);
        world.run();
        assert_eq!(world.open_volumes(0), 0);
        assert!(world.node(0, Machine::idle));
    }
}

#[test]
fn a_volume_that_cannot_be_read_is_nobodys() {
    let mut world = world(1);
    world.disk(0, "own").lose_sector(9);
    let peer = world.dial_limited(0, ARRAY);
    refused(ask(&mut world, peer, &open(9, "own", true)), "there is no volume own of array ");
    assert_eq!(world.open_volumes(0), 0);
    world.disk(0, "own").read_again();
    assert!(matches!(ask(&mut world, peer, &open(9, "own", true)), Some(Message::Volume { .. })));
}

#[test]
fn whoever_looks_at_a_volume_keeps_nobody_out() {
    for seed in 0..60 {
        let mut world = world(seed);
        let limited = world.dial_limited(0, ARRAY);
        let owner = world.dial(0);
        world.run();
        world.send(limited, &open(9, "other", true));
        for _ in 0..world.random(6) {
            world.step();
        }
        world.send(owner, &open(1, "other", true));
        if seed % 2 == 0 {
            world.hang_up(limited);
        }
        world.run();
        let of = |peer| world.heard.iter().filter(move |(of, _)| *of == peer).map(|(_, m)| m);
        let got: Vec<&Message> = of(owner).collect();
        assert!(matches!(got[..], [Message::Volume { tag: 1, used: false, .. }]), "{got:?}");
        let told: Vec<&Message> = of(limited).collect();
        assert!(
            matches!(told[..], [] | [Message::Refused { tag: 9, busy: false, .. }]),
            "{told:?}"
        );
        assert!(seed % 2 == 0 || !told.is_empty(), "seed {seed}");
        world.hang_up(owner);
        world.hang_up(limited);
        world.run();
        assert_eq!(world.open_volumes(0), 0, "seed {seed}");
        assert!(world.node(0, Machine::idle));
    }
}

#[test]
fn one_at_a_time_writes_whatever_their_keys() {
    let mut world = world(1);
    let a = world.dial_limited(0, ARRAY);
    let b = world.dial_limited(0, ARRAY);
    let all = world.dial(0);
    assert!(matches!(ask(&mut world, a, &open(1, "own", true)), Some(Message::Volume { .. })));
    for other in [b, all] {
        let answer = ask(&mut world, other, &open(2, "own", true));
        assert!(matches!(answer, Some(Message::Refused { tag: 2, busy: true, .. })), "{answer:?}");
        let answer = ask(&mut world, other, &open(2, "own", false));
        assert!(matches!(answer, Some(Message::Volume { used: true, .. })), "{answer:?}");
    }
    world.send(a, &open(3, "own", true));
    world.run();
    assert_eq!(world.lost, [a], "a second volume on one connection");
}

/// Opens the volumes of an array for writing, by clients with its key.
fn limited(seed: u64) -> (Array, Vec<PeerId>) {
    let mut array = Array::new(Family::Xor2d, 5, ENCODER, seed);
    array.peers.clone().into_iter().for_each(|peer| array.world.hang_up(peer));
    array.world.run();
    let head = volume(Some(ARRAY))[4096..4608].to_vec();
    let mut peers = Vec::new();
    for site in 0..5 {
        array.world.disk(site, "v").put(SUPERBLOCK_SECTOR, &head);
        let peer = array.world.dial_limited(site, ARRAY);
        array.world.grant(peer, ARRAY, 2);
        array.world.send(peer, &open(1, "v", true));
        let params = Params { epoch: Epoch(2), ..params(Family::Xor2d, 5, ENCODER) };
        array.world.run();
        let role = site as u16;
        let prepare =
            Message::OpenPipeline { tag: 2, role: Role(role), data_sector: DATA_SECTOR, params };
        array.world.send(peer, &prepare);
        array.world.run();
        match array.world.heard.pop() {
            Some((_, Message::PipelineReady { tag: 2, ring, .. })) => array.rings[site] = ring,
            other => panic!("{other:?}"),
        }
        peers.push(peer);
    }
    array.world.heard.clear();
    array.peers.clone_from(&peers);
    (array, peers)
}

#[test]
fn an_array_is_written_with_its_own_key() {
    let (mut array, _) = limited(7);
    for node in 0..5 {
        array.connect(Role(node));
    }
    array.world.run();
    let heard = std::mem::take(&mut array.world.heard);
    assert_eq!(heard.len(), 5);
    assert!(heard.iter().all(|(_, message)| *message == Message::Ok { tag: 3 }), "{heard:?}");
    let set = array.set(0, 0);
    array.write(&set);
    array.run();
    array.expect_closed(&[set]);
}

#[test]
fn a_limited_client_is_not_told_what_listens_elsewhere() {
    let (mut array, peers) = limited(7);
    array.world.process_mut(4).address = None;
    let far = PeerAddress { role: Role(4), address: "4".into(), ring: 0 };
    let answer = ask(&mut array.world, peers[0], &Message::Connect { tag: 9, peers: vec![far] });
    let Some(Message::Refused { tag: 9, reason, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(reason, "cannot connect to node 4");
}

#[test]
fn nodes_join_pipelines_of_their_own_array_alone() {
    // A client of another array knows the session, and has node 1 sent to node 2, in its own name.
    let mut array = Array::new(Family::Xor2d, 5, ENCODER, 12);
    for (joins, array_named) in [(false, OTHER), (true, ARRAY)] {
        let node = array.world.dial(2);
        array.world.send(node, &Message::Join { session: 77, role: Role(1), array: array_named });
        array.world.run();
        assert_eq!(!array.world.lost.contains(&node), joins);
    }
}
