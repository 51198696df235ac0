//! Wiring of nodes to each other: at the start all at once, and later each joining node.

use braid_array::Role;
use std::collections::BTreeSet;

use super::list::List;
use crate::client::session_key::SessionKey;
use crate::wire::PeerAddress;

/// A joining node that is being wired to the others, and they to it; one at a time.
#[derive(Debug)]
pub(in crate::client) struct Wiring {
    /// Its session.
    pub(super) key: SessionKey,
    /// Nodes that have not answered, itself among them.
    left: BTreeSet<SessionKey>,
    ok: bool,
}

impl Wiring {
    pub(super) fn new(key: SessionKey, others: impl Iterator<Item = Role>) -> Self {
        Self { key, left: others.map(SessionKey::Member).chain([key]).collect(), ok: true }
    }

    /// Notes that a node has answered, or is lost, or both. Returns whether the wiring has failed
    /// while others still owe an answer.
    pub(super) fn answered(&mut self, one: SessionKey, ok: bool) -> bool {
        self.ok &= ok;
        self.left.remove(&one);
        !self.ok && !self.left.is_empty()
    }

    /// Returns the result once all have answered.
    pub(super) fn result(&self) -> Option<bool> {
        self.left.is_empty().then_some(self.ok)
    }
}

/// Returns the addresses of the members that are there, for a joining one to connect to.
pub(super) fn others(list: &List, one: Role) -> Vec<PeerAddress> {
    let others = list.roles().filter(|&role| role != one && list.alive(role));
    others.filter_map(|role| list.get(role).peer_address(role)).collect()
}
