use std::num::NonZeroU64;

use super::*;
use crate::family::Family;
use crate::ids::{Epoch, Generation, NodeId, Position, SetVersion, Slot, StripeNo};
use crate::pipeline::Params;
use crate::schedule::Planner;
use crate::set::{Roles, Touched, WriteStrategy};
use crate::view::{View, Witness};
use braid_array::Role;

/// Messages to and from administrators.
fn of_administrators() -> Vec<Message> {
    vec![
        Message::NodeStatus { tag: 10, after: "v".into() },
        Message::NodeInfo {
            tag: 10,
            version: "1.2.3".into(),
            node: NodeId(1 << 63),
            total_bytes: 1 << 50,
            free_bytes: 1 << 40,
            promised_bytes: 1 << 30,
            ring_bytes: 1 << 28,
            ring_used_bytes: 1 << 20,
            clients: 3,
            witness: true,
            volumes: vec![
                VolumeInfo { name: "n".repeat(64), bytes: 1 << 40, written: true };
                MAX_LISTED
            ],
            votes: Vec::new(),
            next: "n".repeat(255),
        },
        Message::ListSessions { tag: 10, from: 1 << 30 },
        Message::Sessions {
            tag: 10,
            sessions: vec![
                SessionInfo {
                    number: 7,
                    age_ms: 1 << 40,
                    connected: true,
                    volume: false,
                    grant: Some(([5; 16], Epoch(3))),
                    ring_bytes: 1 << 28,
                };
                MAX_LISTED
            ],
            next: 8,
        },
        Message::RemoveVolume { tag: 10 },
        Message::Identify { tag: 3 },
        Message::Identity { tag: 3, node: NodeId(1 << 60) },
        Message::Shutdown { tag: 10 },
    ]
}

fn params(slots: Slots) -> Params {
    Params {
        session: 0x1234_5678_9abc_def0,
        epoch: Epoch(3),
        family: Family::Xor2d,
        nodes: 5,
        chunk_bytes: 65536,
        stripes: 1000,
        planner: Planner::Encoder { node: Role(0) },
        wide: slots,
        narrow: Slots { count: 64, bytes: 16384 },
        reads: slots,
        silence_ms: 4000,
    }
}

fn view() -> View {
    let members = [5, 0, 7].map(NonZeroU64::new).to_vec();
    let voters = [1, 2, 3, 4].map(NodeId).to_vec();
    let voted = [9, 2, 3, 4].map(NodeId).to_vec();
    let witnesses = vec![Witness { node: NodeId(4), address: "[::1]:7000".into() }];
    View { epoch: Epoch(7), count: 2, torn: true, members, voters, voted, witnesses }
}

fn some() -> Vec<Message> {
    let slots = Slots { count: 10, bytes: 65536 };
    let position = Position(7);
    let generation = Generation(5);
    let mut touched = Touched::none(12);
    [3, 11].into_iter().for_each(|index| touched.insert(index));
    let set = Set {
        position,
        generation,
        number: 1 << 40,
        stripe: StripeNo(99),
        offset: 4096,
        len: 8192,
        strategy: WriteStrategy::ReadModifyWrite,
        planner: Planner::Encoder { node: Role(2) },
        fua: true,
        touched,
        missing: Roles(1 << 63 | 5),
        log: true,
        relay: false,
    };
    let whole = Set {
        strategy: WriteStrategy::FullStripe,
        touched: Touched::all(12),
        missing: Roles::NONE,
        ..set.clone()
    };
    let params = params(slots);
    let address = PeerAddress { role: Role(4), address: "10.0.0.4:7000".into(), ring: 4096 };
    vec![
        Message::CreateVolume { tag: 1, name: "v".into(), bytes: 1 << 30 },
        Message::OpenVolume { tag: 1, name: "v".into(), write: true },
        Message::Volume { tag: 1, bytes: 1 << 30, node: NodeId(1 << 60), used: true },
        Message::WriteMeta { tag: 2, sector: 8, bytes: vec![7; 4096] },
        Message::LengthenVolume { tag: 3, data_bytes: 1 << 40 },
        Message::OpenPipeline { tag: 3, role: Role(1), data_sector: 2048, params },
        Message::Connect { tag: 4, peers: vec![address.clone(), address] },
        Message::Join { session: 1, role: Role(2), array: [3; 16] },
        Message::BeginSet { set: set.clone() },
        Message::BeginSet { set: whole },
        Message::BeginSet { set: Set { relay: true, ..set.clone() } },
        Message::NeighbourLost { role: Role(4) },
        Message::BeginSet {
            set: Set { strategy: WriteStrategy::Restore(Role(300)), ..set.clone() },
        },
        Message::Finished { position, generation, ok: false, no_room: true },
        Message::Prepared {
            position,
            generation,
            ok: false,
            own_fault: true,
            no_room: true,
            cut_off: Roles(1 << 63),
            received_bytes: 1 << 50,
        },
        Message::Commit {
            sets: vec![(position, generation), (Position(1023), Generation(u32::MAX))],
        },
        Message::Abort { position, generation },
        Message::Without { role: Role(3) },
        Message::Read { slot: Slot(3), sector: 4096, bytes: 65536, to: 1 << 33 },
        Message::Digest { slot: Slot(3), sector: 4096, bytes: 65536, to: 1 << 33 },
        Message::Refused { tag: 9, busy: true, reason: "no".into(), advice: "wait".into() },
        Message::Missing { imm: 0x1234_5678 },
        Message::Ping { tag: 10 },
        Message::Pong { tag: 10, storage_silent_ms: 7000 },
        leftovers(set, params),
    ]
}

fn takeover() -> Vec<Message> {
    vec![
        Message::Grant { tag: 1, array: [9; 16], epoch: Epoch(7), client: 8 },
        Message::Granted { tag: 1, view: view(), incarnation: 1 << 63, node: NodeId(3) },
        Message::StoreView { tag: 2, view: view() },
        Message::Outvoted { tag: 1, granted: Epoch(8) },
        Message::ReadVote { tag: 1, array: [9; 16] },
        Message::VoteIs {
            tag: 1,
            granted: Epoch(8),
            view: View::default(),
            incarnation: 9,
            node: NodeId(3),
        },
        Message::ListLeftovers { tag: 3, from: 9 },
        Message::Leftovers { tag: 3, params: None, items: Vec::new(), next: 0 },
        Message::ResolveLeftovers {
            tag: 4,
            commit: vec![SetVersion::new(Epoch(7), 1 << 40), SetVersion::new(Epoch(8), 1)],
        },
    ]
}

fn leftovers(set: Set, params: Params) -> Message {
    let items = vec![
        Leftover { version: SetVersion::new(Epoch(7), 1 << 40), prepared: Some(set), ok: true },
        Leftover { version: SetVersion::new(Epoch(7), 3), prepared: None, ok: false },
    ];
    Message::Leftovers { tag: 3, params: Some(params), items, next: 1 }
}

#[test]
fn messages_come_back() {
    for message in some().into_iter().chain(of_administrators()) {
        let bytes = message.encode(Epoch(17));
        assert!(bytes.len() <= braid_array::fabric::MAX_MESSAGE_BYTES);
        assert_eq!(Message::decode(&bytes), Ok((Epoch(17), message)));
    }
}

#[test]
fn every_cut_and_every_addition_is_noticed() {
    for message in some().into_iter().chain(takeover()) {
        let mut bytes = message.encode(Epoch::BEFORE_ANY);
        for len in 0..bytes.len() {
            assert!(Message::decode(&bytes[..len]).is_err(), "{message:?} cut at {len}");
        }
        bytes.push(0);
        assert_eq!(Message::decode(&bytes), Err(WireError::Long));
    }
    assert_eq!(Message::decode(&[200, 0, 0, 0, 0]), Err(WireError::Kind(200)));
}

#[test]
fn names_of_volumes_are_names_of_files() {
    for good in ["a", "md-1_x.img", "9"] {
        assert!(valid_volume_name(good), "{good}");
    }
    for bad in ["", ".", "..", ".x", "a/b", "a b", "ä", &"x".repeat(65)] {
        assert!(!valid_volume_name(bad), "{bad}");
    }
}
