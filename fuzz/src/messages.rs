//! Messages between clients and nodes: several in a row, each with two bytes of length in front,
//! and what they make of the node they are sent to.

use braid_cluster::pipeline::{Params, Pipeline};
use braid_cluster::view::{View, Witness};
use braid_cluster::wire::{Message, PeerAddress};
use braid_cluster::{Family, Mode, Planner, Roles, Set, Touched};

use crate::mutate::{Random, mutate};

/// Messages of a good session, with a few bytes changed.
pub(crate) fn make(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in session(random) {
        let mut encoded = message.encode(random.below(3) as u32);
        if random.below(3) == 0 {
            let reach = encoded.len();
            mutate(random, &mut encoded, reach);
        }
        bytes.extend((encoded.len() as u16).to_le_bytes());
        bytes.extend(encoded);
    }
    bytes
}

fn session(random: &mut Random) -> Vec<Message> {
    let nodes = 4 + random.below(4) as u16;
    let planner = Planner::Encoder { node: 0 };
    let params = Params::for_array(Family::Xor2d, nodes, 4096 << random.below(6), 100, planner)
        .expect("4 to 7 nodes");
    let blocks = Pipeline::new(params).expect("a pipeline").data_blocks();
    let mut touched = Touched::none(blocks);
    (0..1 + random.below(3)).for_each(|_| touched.insert(random.below(blocks as usize) as u32));
    let position = random.below(params.wide.count.into()) as u16;
    let set = Set {
        position,
        turn: random.below(2) as u32,
        version: random.next(),
        stripe: random.below(100) as u64,
        offset: 0,
        len: 4096,
        mode: [Mode::Full, Mode::Delta, Mode::Reconstruct][random.below(3)],
        planner: Planner::Encoder { node: position % nodes },
        fua: random.below(2) == 0,
        touched: if random.below(2) == 0 { Touched::all(blocks) } else { touched },
        missing: Roles([0, 0, 1, 1 << random.below(64)][random.below(4)]),
        log: random.below(2) == 0,
    };
    let peer = PeerAddress { role: 1, address: "10.0.0.2:7000".into(), ring: 0 };
    let (members, voters) = (vec![random.next(); nodes.into()], vec![random.next(); 3]);
    let witnesses = vec![Witness { node: 1, address: "10.0.0.9:7000".into() }; random.below(3)];
    let view = View { epoch: 1, count: 1, members, voters, witnesses, ..View::default() };
    let (tag, name) = (random.below(9) as u32, "volume".to_owned());
    vec![
        Message::CreateVolume { tag, name: name.clone(), bytes: 1 << 20 },
        Message::Grant { tag, array: [1; 16], epoch: random.below(3) as u32, client: 1 },
        Message::Go { sets: vec![(position, random.below(2) as u32)] },
        Message::Drop { position, turn: random.below(2) as u32 },
        Message::Without { role: random.below(8) as u16 },
        Message::Join { session: random.next(), role: random.below(8) as u16, array: [1; 16] },
        Message::OpenVolume { tag, name, write: true },
        Message::Record { tag, view },
        Message::ReadMeta { tag, sector: 8, bytes: 4096 },
        Message::WriteMeta { tag, sector: 8, bytes: vec![1; 512] },
        Message::Prepare { tag, role: 0, data_sector: 64, params },
        Message::Connect { tag, peers: vec![peer] },
        Message::Open { set },
        Message::Read { slot: 1, sector: 64, bytes: 4096, to: 0 },
        Message::Digest { slot: 2, sector: 64, bytes: 4096, to: 0 },
        Message::Copy { slot: 3, sector: 64, bytes: 4096, into: 0 },
        Message::Take { tag, slot: 0, sector: 64, bytes: 4096 },
        Message::Flush { tag },
        Message::UseAll { tag },
        Message::GiveBack { tag, all: random.below(2) == 0 },
        Message::DeleteVolume { tag },
    ]
}

/// What decodes is encoded as it was, and no parameters make a pipeline panic or grow without
/// bound.
pub(crate) fn run(mut bytes: &[u8]) {
    let mut pipeline = None;
    while let Some((len, rest)) = bytes.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
        let (message, rest) = rest.split_at(len);
        bytes = rest;
        let Ok((epoch, decoded)) = Message::decode(message) else { continue };
        assert_eq!(decoded.encode(epoch), message, "encoding changed {decoded:?}");
        match decoded {
            Message::Prepare { params, .. } => pipeline = Pipeline::new(params).ok(),
            Message::Open { set } => {
                if let Some(pipeline) = &mut pipeline {
                    look_at(pipeline, &set);
                }
            }
            _ => {}
        }
    }
}

/// Everything that a slice-set may use lies in the ring.
fn look_at(pipeline: &mut Pipeline, set: &Set) {
    let Some(plan) = pipeline.plan_of(set) else { return };
    let transfers = plan.schedule.transfers();
    for node in 0..pipeline.params().nodes {
        let ring = pipeline.ring_bytes(node);
        let arriving = (0..transfers.len()).filter(|&t| transfers[t].to == node);
        let old = (0..pipeline.rows()).map(|row| pipeline.old(set, node, row));
        let slots = arriving.map(|t| pipeline.arrival(&plan, set, t)).chain(old);
        for slot in slots {
            assert!(slot.offset + u64::from(slot.len) <= ring, "{slot:?} of {ring}: {set:?}");
        }
        let _ = plan.part(node, set.mode, &set.touched);
    }
}
