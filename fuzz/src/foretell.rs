//! What nodes say of their votes to who only asks whether an array starts: of views that no array
//! has, by nodes that mean no good. Whatever they are there is an answer.
//!
//! The first byte has options, the second the members that are there; then come messages, each with
//! two bytes of length in front: of those members, then of witnesses.

use std::num::NonZeroU64;

use braid_array::Role;
use braid_array::format::{BadBlocks, Bitmap, MoveNote, Superblock, Version};
use braid_cluster::assemble::{Candidate, Options, SUPERBLOCK_SECTOR, Start, decide};
use braid_cluster::client::{Voter, foretell, witnesses_of};
use braid_cluster::create::{NewArray, NewBitmap};
use braid_cluster::ids::{Epoch, NodeId};
use braid_cluster::pipeline::Params;
use braid_cluster::view::{View, Witness};
use braid_cluster::wire::Message;
use braid_cluster::{ClientConfig, Family, Planner};

use crate::mutate::{Random, mutate};

const NODES: u8 = 5;

/// Votes that may fit together.
pub(crate) fn make(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![random.next() as u8, random.next() as u8 | random.next() as u8];
    for number in 0..NODES as usize + random.below(3) {
        let mut encoded = vote(random, number as u64).encode(Epoch::BEFORE_ANY);
        if random.below(4) == 0 {
            let reach = encoded.len();
            mutate(random, &mut encoded, reach);
        }
        bytes.extend((encoded.len() as u16).to_le_bytes());
        bytes.extend(encoded);
    }
    bytes
}

fn vote(random: &mut Random, node: u64) -> Message {
    let few = |random: &mut Random| [0, 1, 2, 3, u64::MAX][random.below(5)];
    let list = |random: &mut Random, usual: usize| -> Vec<u64> {
        let count = if random.below(2) == 0 { usual } else { random.below(12) };
        (0..count).map(|n| if random.below(4) == 0 { few(random) } else { n as u64 + 1 }).collect()
    };
    let address = ["[::1]:7000", "", "\n\x1b[31m", "10.0.0.9:99999"][random.below(4)].to_owned();
    let view = View {
        epoch: Epoch(few(random) as u32),
        count: few(random) as u32,
        torn: random.below(2) == 0,
        members: list(random, NODES.into()).into_iter().map(NonZeroU64::new).collect(),
        voters: list(random, NODES.into()).into_iter().map(NodeId).collect(),
        voted: list(random, 0).into_iter().map(NodeId).collect(),
        witnesses: vec![Witness { node: NodeId(few(random)), address }; random.below(3)],
    };
    let granted = Epoch(few(random) as u32);
    let incarnation = node + 1;
    let node = if random.below(4) == 0 { few(random) } else { node + 1 };
    Message::VoteIs { tag: 1, granted, view, incarnation, node: NodeId(node) }
}

pub(crate) fn run(bytes: &[u8]) {
    let [options, there, bytes @ ..] = bytes else { return };
    let votes: Vec<Voter> = votes(bytes).collect();
    let (config, addresses) = array(options & 1 == 1, *there);
    let (members, witnesses) = votes.split_at(addresses.len().min(votes.len()));
    assert!(witnesses_of(&votes).iter().all(|witness| witness.address.len() <= 300));
    let members: Vec<(String, Voter)> =
        addresses.into_iter().zip(members.iter().cloned()).collect();
    assert!(config.is_some() || *there & 0x1f != 0x1f, "all members are there");
    if let Some(config) = config
        && let Err(why) = foretell(config, &members, witnesses)
    {
        assert!(!why.reason.is_empty(), "a refusal says why");
    }
}

fn votes(mut bytes: &[u8]) -> impl Iterator<Item = Voter> {
    let next = move || {
        let (len, rest) = bytes.split_first_chunk::<2>()?;
        let (message, rest) = rest.split_at(usize::from(u16::from_le_bytes(*len)).min(rest.len()));
        bytes = rest;
        Some(message)
    };
    std::iter::from_fn(next).filter_map(|message| match Message::decode(message).ok()?.1 {
        Message::VoteIs { granted, view, incarnation, node, .. } => {
            Some(Voter { granted, view: view.told(), incarnation, node })
        }
        _ => None,
    })
}

/// An array of which these members are there, if it starts without the others; and where they are.
fn array(force: bool, there: u8) -> (Option<ClientConfig>, Vec<String>) {
    let array = NewArray {
        name: "host:a".into(),
        set_uuid: [7; 16],
        ctime: 1,
        family: Family::Xor2d,
        chunk_bytes: Some(4096),
        size_bytes: 8 << 20,
        bitmap: NewBitmap::Default,
        journal_bytes: 0,
        parts_only: false,
        note: MoveNote::Apart,
    };
    let uuids: Vec<[u8; 16]> = (1..=NODES).map(|number| [number; 16]).collect();
    let blueprint = array.plan(&uuids, &[]).expect("a good array");
    let candidate = |(number, writes): (usize, &Vec<(u64, Vec<u8>)>)| {
        let (_, superblock) = writes.last().expect("a superblock");
        let superblock = Superblock::decode(Version::V1_2, SUPERBLOCK_SECTOR, superblock);
        let place = superblock.as_ref().ok().and_then(Superblock::bitmap_sector);
        let bitmap = place.and_then(|place| writes.iter().find(|(sector, _)| *sector == place));
        Candidate {
            address: format!("h{number}:7000"),
            volume: "a".into(),
            bytes: blueprint.volume_bytes,
            superblock,
            bitmap: bitmap.map(|(_, bytes)| Bitmap::decode(bytes)),
            bad_blocks: Ok(BadBlocks::default()),
        }
    };
    let candidates = blueprint.writes.iter().enumerate().map(candidate);
    let candidates: Vec<Candidate> = candidates
        .enumerate()
        .filter(|(number, _)| there >> number & 1 == 1)
        .map(|(_, candidate)| candidate)
        .collect();
    let addresses = candidates.iter().map(|candidate| candidate.address.clone()).collect();
    let options = Options { force, unclean: true, ..Options::default() };
    let Start::Ready(plan) = decide(&candidates, options).start else { return (None, addresses) };
    let planner = Planner::Encoder { node: Role(0) };
    let params =
        Params::for_array(plan.family, NODES.into(), plan.chunk_bytes, plan.stripes, planner);
    let config = ClientConfig::new(params.expect("a pipeline"), plan.members);
    (Some(ClientConfig { bitmap: plan.bitmap, found: plan.found, force, ..config }), addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_that_no_array_has_are_answered() {
        for seed in 0..3000 {
            run(&make(&mut Random::new(seed)));
        }
    }
}
