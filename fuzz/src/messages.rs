//! Messages between clients and nodes: several in a row, each with two bytes of length in front,
//! and what they make of the node they are sent to.

use std::num::NonZeroU64;

use braid_array::Role;
use braid_cluster::ids::{Epoch, Generation, NodeId, Position, SetVersion, Slot, StripeNo};
use braid_cluster::pipeline::{Params, Pipeline};
use braid_cluster::view::{View, Witness};
use braid_cluster::wire::{JournalEntry, Leftover, Message, PeerAddress, SessionInfo, VolumeInfo};
use braid_cluster::{Family, Planner, Roles, Set, Touched, WriteStrategy};

use crate::mutate::{Random, mutate};

/// Messages of a good session and others, with a few bytes changed.
pub(crate) fn make(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut messages = session(random);
    // Some of all others, at any place.
    for message in others(random) {
        if random.below(8) == 0 {
            let at = random.below(messages.len() + 1);
            messages.insert(at, message);
        }
    }
    for message in messages {
        let mut encoded = message.encode(Epoch(random.below(3) as u32));
        if random.below(3) == 0 {
            let reach = encoded.len();
            mutate(random, &mut encoded, reach);
        }
        bytes.extend((encoded.len() as u16).to_le_bytes());
        bytes.extend(encoded);
    }
    bytes
}

fn params(random: &mut Random) -> Params {
    let nodes = 4 + random.below(4) as u16;
    let planner = Planner::Encoder { node: Role(0) };
    Params::for_array(Family::Xor2d, nodes, 4096 << random.below(6), 100, planner)
        .expect("4 to 7 nodes")
}

/// A slice-set of a pipeline.
fn set(random: &mut Random, params: Params) -> Set {
    let blocks = Pipeline::new(params).expect("a pipeline").data_blocks();
    let mut touched = Touched::none(blocks);
    (0..1 + random.below(3)).for_each(|_| touched.insert(random.below(blocks as usize) as u32));
    let position = Position(random.below(params.wide.count.into()) as u16);
    Set {
        position,
        generation: Generation(random.below(2) as u32),
        number: random.next(),
        stripe: StripeNo(random.below(100) as u64),
        offset: 0,
        len: 4096,
        strategy: [
            WriteStrategy::FullStripe,
            WriteStrategy::ReadModifyWrite,
            WriteStrategy::Reconstruct,
        ][random.below(3)],
        planner: Planner::Encoder { node: position.encoder(params.nodes) },
        fua: random.below(2) == 0,
        touched: if random.below(2) == 0 { Touched::all(blocks) } else { touched },
        missing: Roles([0, 0, 1, 1 << random.below(64)][random.below(4)]),
        log: random.below(2) == 0,
        relay: random.below(2) == 0,
    }
}

fn view(random: &mut Random) -> View {
    let members = vec![NonZeroU64::new(random.next()); random.below(8)];
    let voters = vec![NodeId(random.next()); 3];
    let witnesses =
        vec![Witness { node: NodeId(1), address: "10.0.0.9:7000".into() }; random.below(3)];
    View { epoch: Epoch(1), count: 1, members, voters, witnesses, ..View::default() }
}

/// What a client says, in order.
fn session(random: &mut Random) -> Vec<Message> {
    let params = params(random);
    let set = set(random, params);
    let view = view(random);
    let position = set.position;
    let peer = PeerAddress { role: Role(1), address: "10.0.0.2:7000".into(), ring: 0 };
    let tag = random.below(9) as u32;
    let name = "volume".to_owned();
    vec![
        Message::CreateVolume { tag, name: name.clone(), bytes: 1 << 20 },
        Message::Grant { tag, array: [1; 16], epoch: Epoch(random.below(3) as u32), client: 1 },
        Message::Commit { sets: vec![(position, Generation(random.below(2) as u32))] },
        Message::Abort { position, generation: Generation(random.below(2) as u32) },
        Message::Without { role: Role(random.below(8) as u16) },
        Message::Join {
            session: random.next(),
            role: Role(random.below(8) as u16),
            array: [1; 16],
        },
        Message::OpenVolume { tag, name, write: true },
        Message::StoreView { tag, view },
        Message::ReadMeta { tag, sector: 8, bytes: 4096 },
        Message::WriteMeta { tag, sector: 8, bytes: vec![1; 512] },
        Message::OpenPipeline { tag, role: Role(0), data_sector: 64, params },
        Message::Connect { tag, peers: vec![peer] },
        Message::BeginSet { set },
        Message::Read { slot: Slot(1), sector: 64, bytes: 4096, to: 0 },
        Message::Digest { slot: Slot(2), sector: 64, bytes: 4096, to: 0 },
        Message::Copy { slot: Slot(3), sector: 64, bytes: 4096, into: Slot(0) },
        Message::StoreCopied { tag, slot: Slot(0), sector: 64, bytes: 4096 },
        Message::Flush { tag },
        Message::LeaseRing { tag },
        Message::ReturnRing { tag, all: random.below(2) == 0 },
        Message::LengthenVolume { tag, data_bytes: random.next() >> random.below(64) & !4095 },
        Message::DeleteVolume { tag },
    ]
}

/// What else is said, by clients, nodes and administrators.
fn others(random: &mut Random) -> Vec<Message> {
    let tag = random.below(9) as u32;
    let few = random.below(2) as u32;
    let [node, number, bytes] = [(); 3].map(|()| random.next() >> random.below(64));
    let node = NodeId(node);
    let at = random.below(8) as u16;
    let position = Position(random.below(8) as u16);
    let version = SetVersion::new(Epoch(random.below(3) as u32), number);
    let array = [1; 16];
    let text = "text".repeat(random.below(20));
    let flag = random.below(2) == 0;
    let mut all = vec![
        Message::Volume { tag, bytes, node, used: flag },
        Message::Meta { tag, bytes: vec![1; 512] },
        Message::PipelineReady { tag, ring: number, journal_bytes: bytes, parts_only: flag },
        Message::Finished { position, generation: Generation(few), ok: flag, no_room: !flag },
        Message::Copied { slot: Slot(at) },
        Message::NeighbourLost { role: Role(at) },
        Message::ReadFailed { slot: Slot(at) },
        Message::Ok { tag },
        Message::Refused { tag, busy: flag, reason: text.clone(), advice: text.clone() },
        Message::Missing { imm: random.next() as u32 },
        Message::Granted { tag, view: view(random), incarnation: number, node },
        Message::Outvoted { tag, granted: Epoch(few) },
        Message::ReadVote { tag, array },
        Message::VoteIs { tag, granted: Epoch(few), view: view(random), incarnation: number, node },
        Message::Forget { tag, array },
        Message::ListLeftovers { tag, from: at },
        Message::ResolveLeftovers { tag, commit: vec![version; random.below(3)] },
        Message::ListJournal { tag, from: few },
        Message::ReplayJournal { tag, above: version, without: vec![version; random.below(3)] },
        Message::TrimJournal { tag, mark: version, all: flag },
        Message::Ping { tag },
        Message::Pong { tag, storage_silent_ms: few },
        Message::NodeStatus { tag, after: text },
        Message::ListSessions { tag, from: few },
        Message::RemoveVolume { tag },
        Message::Shutdown { tag },
        Message::Identify { tag },
        Message::Identity { tag, node },
    ];
    all.extend(with_lists(random, tag));
    all
}

fn with_lists(random: &mut Random, tag: u32) -> [Message; 5] {
    let params = params(random);
    let version = SetVersion::new(Epoch(1), random.next());
    let ok = random.below(2) == 0;
    let set = set(random, params);
    let prepared = ok.then_some(set);
    let roles = Roles(random.next());
    let session = SessionInfo {
        number: 1,
        age_ms: random.next(),
        connected: ok,
        volume: !ok,
        grant: ok.then_some(([7; 16], Epoch(3))),
        ring_bytes: random.next(),
    };
    let volume = VolumeInfo { name: "volume".into(), bytes: 1 << 20, written: ok };
    [
        Message::Prepared {
            position: Position(1),
            generation: Generation(1),
            ok,
            own_fault: !ok,
            no_room: ok,
            cut_off: roles,
            received_bytes: random.next(),
        },
        Message::Leftovers {
            tag,
            params: ok.then_some(params),
            items: vec![Leftover { version, prepared, ok }; random.below(3)],
            next: 1,
        },
        Message::JournalEntries {
            tag,
            mark: version,
            items: vec![JournalEntry { version, holders: roles, void: ok }; random.below(3)],
            next: 1,
        },
        Message::Sessions { tag, sessions: vec![session; random.below(3)], next: 1 },
        Message::NodeInfo {
            tag,
            version: "1.2.3".into(),
            node: NodeId(random.next()),
            total_bytes: random.next(),
            free_bytes: random.next(),
            promised_bytes: random.next(),
            ring_bytes: random.next(),
            ring_used_bytes: random.next(),
            clients: 1,
            witness: ok,
            volumes: vec![volume; random.below(3)],
            votes: vec![[7; 16]; random.below(3)],
            next: "volume".repeat(random.below(2)),
        },
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
            Message::OpenPipeline { params, .. } => pipeline = Pipeline::new(params).ok(),
            Message::BeginSet { set } => {
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
    for node in Role::all(pipeline.params().nodes) {
        let ring = pipeline.ring_bytes(node);
        let arriving = (0..transfers.len()).filter(|&t| transfers[t].to == node);
        let old = (0..pipeline.rows()).map(|row| pipeline.old(set, node, row));
        let slots = arriving.map(|t| pipeline.arrival(&plan, set, t)).chain(old);
        for slot in slots {
            assert!(slot.offset + u64::from(slot.len) <= ring, "{slot:?} of {ring}: {set:?}");
        }
        let _ = plan.part(node, set.strategy, &set.touched);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_message_that_there_is_is_among_them() {
        let random = &mut Random::new(1);
        let all = session(random).into_iter().chain(others(random));
        let made: BTreeSet<u8> = all.map(|message| message.encode(Epoch::BEFORE_ANY)[0]).collect();
        let known: BTreeSet<u8> = Message::KINDS.iter().copied().collect();
        assert_eq!(made, known, "kinds of messages");
    }
}
