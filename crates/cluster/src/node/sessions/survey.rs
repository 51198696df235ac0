//! Status of a node, for administrators.

use braid_array::fabric::Survey;

use crate::ids::NodeId;
use crate::node::RingUse;
use crate::node::ids::next_name;
use crate::node::notes::array_of_note;
use crate::wire::{Message, VolumeInfo};

/// The node's facts about itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeFacts {
    pub(crate) node: NodeId,
    pub(crate) witness: bool,
    pub(crate) rings: RingUse,
    /// Clients that have a volume open.
    pub(crate) clients: usize,
}

/// Returns the answer to `NodeStatus`: the facts, and the result of a survey of the store.
pub(crate) fn node_info(
    tag: u32,
    found: Survey,
    facts: NodeFacts,
    is_written: impl Fn(&str) -> bool,
) -> Message {
    let next = next_name(&found).unwrap_or_default().to_owned();
    let Survey { total_bytes, free_bytes, promised_bytes, volumes, notes, .. } = found;
    let info = |(name, bytes): (String, u64)| {
        let written = is_written(&name);
        VolumeInfo { name, bytes, written }
    };
    Message::NodeInfo {
        tag,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: facts.node,
        total_bytes,
        free_bytes,
        promised_bytes,
        ring_bytes: facts.rings.limit_bytes,
        ring_used_bytes: facts.rings.used_bytes,
        clients: u32::try_from(facts.clients).unwrap_or(u32::MAX),
        witness: facts.witness,
        volumes: volumes.into_iter().map(info).collect(),
        votes: notes.iter().filter_map(|note| array_of_note(note)).collect(),
        next,
    }
}
