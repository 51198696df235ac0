//! Nodes are wired to each other: at the start all at once, and later each that comes.

use braid_array::Role;
use std::collections::BTreeSet;

use super::session::Session;
use crate::wire::PeerAddress;

/// A node that comes is being wired to the others, and they to it; one at a time.
#[derive(Debug)]
pub(in crate::client) struct Wiring {
    /// Its session.
    pub(super) role: Role,
    /// Nodes that have not answered, itself among them.
    left: BTreeSet<Role>,
    ok: bool,
}

impl Wiring {
    pub(super) fn new(role: Role, others: impl Iterator<Item = Role>) -> Self {
        Self { role, left: others.chain([role]).collect(), ok: true }
    }

    /// One of them has answered, or is lost, or both. Did it fail while others still answer?
    pub(super) fn answered(&mut self, one: Role, ok: bool) -> bool {
        self.ok &= ok;
        self.left.remove(&one);
        !self.ok && !self.left.is_empty()
    }

    /// Whether it came about, once all have answered.
    pub(super) fn result(&self) -> Option<bool> {
        self.left.is_empty().then_some(self.ok)
    }
}

/// The members that are there, save one, as that one is to connect to them.
pub(super) fn others(members: &[Session], one: Role) -> Vec<PeerAddress> {
    let others =
        (0..).map(Role).zip(members).filter(|&(role, session)| role != one && session.alive());
    others.filter_map(|(role, session)| session.peer_address(role)).collect()
}
