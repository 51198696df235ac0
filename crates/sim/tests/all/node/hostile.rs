//! Actions of dishonest peers: such a peer loses its connection, and others are not affected.

use braid_array::fabric::PeerId;
use braid_array::{Machine, Role};
use braid_cluster::Family;
use braid_cluster::ids::{Generation, Position, Slot, StripeNo};
use braid_cluster::node::PARTING_TAG;
use braid_cluster::pipeline::Params;
use braid_cluster::schedule::Planner;
use braid_cluster::set::{Imm, Set, Touched, WriteStrategy};
use braid_cluster::wire::{Message, PeerAddress};
use braid_sim::world::process::POISON;

use super::array::{ARRAY, Array, ENCODER, params};

/// An array of five nodes.
fn array() -> Array {
    Array::connected(Family::Xor2d, 5, ENCODER, 11)
}

/// Runs `act` as a client of an array; node 0 must hang up, end the pipeline and report the reason.
pub(super) fn is_violation(act: impl FnOnce(&mut Array, PeerId)) {
    let mut array = array();
    let peer = array.peers[0];
    act(&mut array, peer);
    array.world.run();
    assert!(array.world.lost.contains(&peer));
    let parting = |(from, message): &(PeerId, Message)| {
        *from == peer && matches!(message, Message::Refused { tag: PARTING_TAG, .. })
    };
    assert!(array.world.heard.iter().any(parting), "{:?}", array.world.heard);
    assert_eq!((array.world.ring_used(0), array.world.open_volumes(0)), (0, 0));
    assert!(array.world.all_idle());
}

#[test]
fn clients_that_break_the_rules_are_hung_up() {
    is_violation(|array, peer| array.world.send_bytes(peer, vec![200, 1, 2]));
    is_violation(|array, peer| array.world.send_bytes(peer, Vec::new()));
    is_violation(|array, peer| array.world.send(peer, &Message::Ok { tag: 1 }));
    is_violation(|array, peer| array.world.send(peer, &Message::Missing { imm: 1 }));
    is_violation(|array, peer| {
        array.world.send(peer, &Message::Join { session: 77, role: Role(0), array: ARRAY });
    });
    is_violation(|array, peer| {
        let params = params(Family::Xor2d, 5, ENCODER);
        let message = Message::OpenPipeline { tag: 1, role: Role(0), data_sector: 16, params };
        array.world.send(peer, &message);
    });
    is_violation(|array, peer| {
        let name = "v".to_owned();
        array.world.send(peer, &Message::OpenVolume { tag: 1, name, write: true });
    });
    for roles in [&[5][..], &[1, 1]] {
        is_violation(|array, peer| {
            let peer_address = |role| PeerAddress { role, address: "1".into(), ring: 0 };
            let peers = roles.iter().copied().map(Role).map(peer_address).collect();
            array.world.send(peer, &Message::Connect { tag: 1, peers });
        });
    }
    let copy = Message::Copy { slot: Slot(0), sector: 16, bytes: 512, into: Slot(4096) };
    let take = |bytes| Message::StoreCopied { tag: 1, slot: Slot(0), sector: 16, bytes };
    for message in [copy, take(0), take(1 << 30), take(100)] {
        is_violation(|array, peer| array.world.send(peer, &message));
    }
    is_violation(|array, peer| {
        let far = PeerAddress { role: Role(1), address: "a".repeat(260), ring: 0 };
        array.world.send(peer, &Message::Connect { tag: 1, peers: vec![far] });
    });
    is_violation(|array, peer| {
        // Some are answered before the last one comes.
        (0..2000).for_each(|tag| array.world.send(peer, &Message::Flush { tag }));
    });
}

#[test]
fn who_only_reads_sends_nodes_nowhere() {
    let mut array = array();
    let reader = array.world.dial(0);
    let name = "v".to_owned();
    array.world.send(reader, &Message::OpenVolume { tag: 1, name, write: false });
    let params = Params { session: 78, stripes: 1, ..params(Family::Xor2d, 5, ENCODER) };
    let prepare = Message::OpenPipeline { tag: 2, role: Role(0), data_sector: 16, params };
    array.world.send(reader, &prepare);
    array.world.run();
    let prepared = |(peer, message): &(PeerId, Message)| {
        *peer == reader && matches!(message, Message::PipelineReady { .. })
    };
    assert!(array.world.heard.iter().any(prepared), "{:?}", array.world.heard);
    let peers = vec![PeerAddress { role: Role(1), address: "1".into(), ring: 0 }];
    array.world.send(reader, &Message::Connect { tag: 3, peers });
    array.world.run();
    assert_eq!(array.world.lost, [reader]);
}

#[test]
fn slice_sets_that_make_no_sense_end_the_pipeline() {
    let changes: [fn(&mut Set); 5] = [
        |set| set.position = Position(1000),
        |set| set.stripe = StripeNo(1 << 40),
        |set| set.len = 8192,
        |set| set.planner = Planner::Chain,
        |set| set.touched = Touched::all(5),
    ];
    for change in changes {
        is_violation(|array, peer| {
            let mut set = array.set(0, 0);
            change(&mut set);
            array.world.send(peer, &Message::BeginSet { set });
        });
    }
    // At a position that is not free, and in a generation that is over.
    is_violation(|array, peer| {
        let set = array.set(0, 0);
        array.world.send(peer, &Message::BeginSet { set: set.clone() });
        array.world.send(
            peer,
            &Message::BeginSet { set: Set { generation: set.generation.next(), ..set } },
        );
    });
    is_violation(|array, peer| {
        let set = array.set(0, 0);
        array.write(&set);
        array.run();
        array.world.send(peer, &Message::BeginSet { set });
    });
}

#[test]
fn decisions_on_what_is_not_staged_end_the_pipeline() {
    let go = |position, generation| Message::Commit {
        sets: vec![(Position(position), Generation(generation))],
    };
    is_violation(|array, peer| array.world.send(peer, &go(0, 1)));
    is_violation(|array, peer| array.world.send(peer, &go(u16::MAX, 0)));
    is_violation(|array, peer| array.world.send(peer, &Message::Without { role: Role(5) }));
    for again in
        [go(0, 1), go(0, 2), Message::Abort { position: Position(0), generation: Generation(1) }]
    {
        is_violation(|array, peer| {
            let set = array.set(0, 0);
            array.world.send(peer, &Message::BeginSet { set });
            array.world.run();
            // Its slices have not come.
            array.world.send(peer, &again);
        });
        is_violation(|array, peer| {
            let set = array.set(0, 0);
            array.write(&set);
            array.run();
            array.world.send(peer, &again);
        });
    }
}

#[test]
fn slices_that_nobody_waits_for_end_the_pipeline() {
    let imm = |position, transfer, generation| {
        Imm { position: Position(position), transfer, generation }.encode()
    };
    let some = |array: &mut Array, peer, imms: &[u32]| {
        let to = array.rings[0];
        imms.iter().for_each(|&imm| array.world.put(peer, to, imm, vec![0; 512]));
    };
    is_violation(|array, peer| some(array, peer, &[imm(1000, 0, 1)]));
    is_violation(|array, peer| some(array, peer, &[imm(0, 0, 1), imm(0, 0, 1)]));
    // More than can arrive.
    is_violation(|array, peer| {
        let many: Vec<u32> = (0..50).map(|transfer| imm(1, transfer, 1)).collect();
        some(array, peer, &many);
    });
    // Of another generation, before and after the slice-set is open; from nobody of it; twice.
    is_violation(|array, peer| {
        some(array, peer, &[imm(0, 0, 9)]);
        array.world.run();
        let set = array.set(0, 0);
        array.world.send(peer, &Message::BeginSet { set });
    });
    for transfers in [&[4000][..], &[20], &[0, 0]] {
        is_violation(|array, peer| {
            let set = array.set(0, 0);
            array.world.send(peer, &Message::BeginSet { set });
            array.world.run();
            let imms: Vec<u32> = transfers.iter().map(|&transfer| imm(0, transfer, 1)).collect();
            some(array, peer, &imms);
        });
    }
}

#[test]
fn reads_that_do_not_fit_end_the_pipeline() {
    let read = |slot, sector, bytes| Message::Read { slot: Slot(slot), sector, bytes, to: 0 };
    let bad =
        [read(3, 0, 512), read(0, 0, 0), read(0, 0, 100), read(0, 0, 16384), read(0, 1 << 60, 512)];
    let digest = |slot, sector, bytes| Message::Digest { slot: Slot(slot), sector, bytes, to: 0 };
    let no_digests = [
        digest(3, 0, 4096),
        digest(0, 0, 0),
        digest(0, 0, 512),
        digest(0, 0, 16384),
        digest(0, 1 << 60, 4096),
    ];
    for message in bad.iter().chain(&no_digests) {
        is_violation(|array, peer| array.world.send(peer, message));
    }
    for message in [read(0, 0, 512), digest(0, 0, 4096)] {
        is_violation(|array, peer| (0..3).for_each(|_| array.world.send(peer, &message)));
    }
}

#[test]
fn strangers_are_hung_up() {
    let join = |session, role| Message::Join { session, role, array: ARRAY };
    let not_first = [
        Message::Flush { tag: 1 },
        Message::Ok { tag: 1 },
        join(78, Role(0)),
        // Not below the role of node 2, not yet there twice.
        join(77, Role(2)),
        join(77, Role(4)),
        join(77, Role(1)),
    ];
    for message in not_first {
        let mut array = array();
        let peer = array.world.dial(2);
        array.world.send(peer, &message);
        array.world.run();
        assert_eq!(array.world.lost, [peer]);
        let set = array.set(0, 0);
        array.world.heard.clear();
        array.write(&set);
        array.run();
        array.expect_closed(&[set]);
    }
    let mut array = array();
    let peer = array.world.dial(2);
    array.world.run();
    array.world.put(peer, 0, 0, vec![0; 16]);
    array.world.run();
    assert_eq!(array.world.lost, [peer]);
}

#[test]
fn nobody_puts_over_the_ring_of_another() {
    let mut array = array();
    let stranger = array.world.dial(2);
    // Another client, with a ring of its own.
    let other = array.world.dial(2);
    array.world.keep(2, "other", &vec![0; 1 << 20]);
    let name = "other".to_owned();
    array.world.grant(other, [9; 16], 1);
    array.world.send(other, &Message::OpenVolume { tag: 1, name, write: true });
    array.world.run();
    let params = Params { session: 78, stripes: 1, ..params(Family::Xor2d, 5, ENCODER) };
    let prepare = Message::OpenPipeline { tag: 2, role: Role(0), data_sector: 0, params };
    array.world.send(other, &prepare);
    array.world.run();
    let prepared = |(peer, message): &(PeerId, Message)| {
        *peer == other && matches!(message, Message::PipelineReady { .. })
    };
    assert!(array.world.heard.iter().any(prepared), "{:?}", array.world.heard);
    for peer in [stranger, other] {
        array.world.put(peer, array.rings[2], 0, vec![0xee; 512]);
        array.world.run();
        assert!(array.world.lost.contains(&peer));
    }
    assert_eq!(array.world.process_mut(2).arena[array.rings[2] as usize..][..512], [POISON; 512]);
}

#[test]
fn a_false_node_is_found_out() {
    // Node 1 has not connected yet; somebody takes its place.
    for message in [Message::Flush { tag: 1 }, Message::Missing { imm: 5 << 12 }] {
        let mut array = Array::new(Family::Xor2d, 5, ENCODER, 12);
        let liar = array.world.dial(2);
        array.world.send(liar, &Message::Join { session: 77, role: Role(1), array: ARRAY });
        array.world.run();
        array.world.send(liar, &message);
        let set = array.set(5, 0);
        array.world.run();
        array.world.send(array.peers[2], &Message::BeginSet { set });
        array.world.run();
        assert!(array.world.lost.contains(&liar) || array.world.lost.contains(&array.peers[2]));
    }
}

#[test]
fn a_client_that_vanishes_leaves_nothing_but_what_the_next_decides_on() {
    for seed in 0..60 {
        let mut array = Array::writing(1, 200, seed);
        for peer in array.peers.clone() {
            array.world.hang_up(peer);
        }
        let mut waited = false;
        while array.world.step() {
            for site in array.world.sites() {
                let held = array.world.ring_used(site) > 0;
                assert!(held || !array.world.uses_memory(site), "seed {seed}");
                waited |= held;
            }
        }
        assert!(waited, "seed {seed}");
        for site in 0..5 {
            assert!(array.world.node(site, Machine::idle));
            let next = array.world.dial(site);
            array.world.grant(next, ARRAY, 2);
            array.world.send(next, &Message::ResolveLeftovers { tag: 1, commit: Vec::new() });
            array.world.run();
        }
        assert!(array.world.all_idle());
        for site in array.world.sites() {
            assert_eq!((array.world.ring_used(site), array.world.open_volumes(site)), (0, 0));
        }
    }
}

/// A message of any kind with fields that are often good.
fn any_message(array: &mut Array) -> Message {
    let tag = 0;
    let name = ["v", "w", "x"][array.world.random(3) as usize].to_owned();
    let number = array.world.random(6) as u16;
    let sector = array.world.random(40);
    match array.world.random(13) {
        0 => Message::CreateVolume { tag, name, bytes: 1 << 20 },
        1 => Message::OpenVolume { tag, name, write: number < 4 },
        2 => Message::DeleteVolume { tag },
        3 => Message::ReadMeta { tag, sector, bytes: 512 },
        4 => Message::WriteMeta { tag, sector, bytes: vec![1; 512] },
        5 | 6 => {
            let session = u64::from(number / 2);
            let params = Params { session, ..params(Family::Xor2d, 5, ENCODER) };
            Message::OpenPipeline { tag, role: Role(number), data_sector: 16, params }
        }
        7 | 8 => {
            let mut peer = |role: Role| PeerAddress {
                role,
                address: array.world.random(6).to_string(),
                ring: array.world.random(1 << 23),
            };
            Message::Connect { tag, peers: vec![peer(Role(number)), peer(Role((number + 2) % 5))] }
        }
        9 => Message::Join { session: u64::from(number / 2), role: Role(number % 3), array: ARRAY },
        10 => {
            let set = array.set(number, 1);
            let touched = array.some();
            let strategy = [WriteStrategy::ReadModifyWrite, WriteStrategy::Reconstruct]
                [usize::from(number % 2)];
            Message::BeginSet { set: Set { strategy, touched, ..set } }
        }
        11 if number.is_multiple_of(2) => {
            Message::Digest { slot: Slot(number), sector, bytes: 4096, to: 0 }
        }
        11 => Message::Read { slot: Slot(number), sector, bytes: 512, to: 0 },
        _ => Message::Missing { imm: u32::from(number) << 12 | sector as u32 },
    }
}

#[test]
fn whatever_is_said_others_go_on() {
    let mut parted = 0;
    for seed in 0..150 {
        let mut array = Array::connected(Family::Xor2d, 5, ENCODER, seed);
        let mut strangers = Vec::new();
        for _ in 0..60 {
            if strangers.is_empty() || array.world.random(4) == 0 {
                let site = array.world.random(5) as usize;
                strangers.push(array.world.dial(site));
                array.world.run();
            }
            let some = array.world.random(strangers.len() as u64) as usize;
            if array.world.random(4) == 0 {
                let imm = array.world.random(6) as u32 * 4096 + array.world.random(30) as u32;
                let to = array.rings[array.world.random(5) as usize];
                array.world.put(strangers[some], to, imm, vec![0; 512]);
            } else {
                let message = any_message(&mut array);
                array.world.send(strangers[some], &message);
            }
            if array.world.random(2) == 0 {
                array.world.run();
            }
        }
        // Then the honest one writes, while the others are still there.
        array.world.run();
        let own = array.peers.clone();
        parted += array.world.lost.len();
        assert!(!array.world.lost.iter().any(|peer| own.contains(peer)), "seed {seed}");
        array.world.heard.clear();
        let sets: Vec<Set> = (0..5).map(|position| array.set(position + 5, 3)).collect();
        for (set, offset) in sets.iter().zip([0, 512, 1024, 1536, 2048]) {
            array.write(&Set { offset, len: 512, ..set.clone() });
        }
        array.run();
        array.world.heard.retain(|(peer, _)| own.contains(peer));
        assert_eq!(array.world.heard.len(), 25, "seed {seed}");
        for peer in strangers {
            array.world.hang_up(peer);
        }
        array.world.run();
        array.verify();
        assert!(array.world.all_idle());
        assert!(array.world.sites().all(|site| array.world.open_volumes(site) == 1));
    }
    assert!(parted > 1000, "{parted}");
}
