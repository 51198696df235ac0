//! Nodes that are visited one after the other, and again later when they are away.

use braid_array::Instant;

use crate::client::retry::pause_millis;
use crate::member::VolumeAddress;

#[derive(Debug)]
struct VisitedNode {
    place: VolumeAddress,
    /// Attempts that failed.
    tries: u32,
    /// When it is tried again.
    due: Instant,
}

/// Nodes to be visited, and the one being visited.
#[derive(Debug)]
pub(in crate::client) struct Visits {
    nodes: Vec<VisitedNode>,
    visited: Option<VolumeAddress>,
    /// Number of attempts that may fail; `None`: any number.
    most: Option<u32>,
}

impl Visits {
    pub(super) const fn new(most: Option<u32>) -> Self {
        Self { nodes: Vec::new(), visited: None, most }
    }

    /// Adds a node, after this many attempts.
    pub(super) fn add(&mut self, place: VolumeAddress, tries: u32, due: Instant) {
        self.nodes.push(VisitedNode { place, tries, due });
    }

    pub(super) fn forget(&mut self, place: &VolumeAddress) {
        self.nodes.retain(|node| node.place != *place);
    }

    pub(super) fn postpone(&mut self, place: &VolumeAddress, now: Instant) {
        for node in self.nodes.iter_mut().filter(|node| node.place == *place) {
            node.due = now.plus_millis(pause_millis(node.tries));
            node.tries += 1;
        }
        self.nodes.retain(|node| self.most.is_none_or(|most| node.tries < most));
    }

    pub(super) fn places(&self) -> impl Iterator<Item = &VolumeAddress> {
        self.nodes.iter().map(|node| &node.place)
    }

    /// Returns the time of the next visit.
    pub(in crate::client) fn deadline(&self) -> Option<Instant> {
        if self.visited.is_some() {
            return None;
        }
        self.nodes.iter().map(|node| node.due).min()
    }

    /// Returns the next node whose time has come, if none is being visited.
    pub(super) fn next(&self, now: Instant) -> Option<VolumeAddress> {
        if self.visited.is_some() {
            return None;
        }
        let next = self.nodes.iter().find(|node| node.due <= now);
        next.map(|node| node.place.clone())
    }

    /// Notes that this node is being visited.
    pub(super) fn begin(&mut self, place: VolumeAddress) {
        self.visited = Some(place);
    }

    /// Returns the node that is being visited.
    pub(super) fn visited(&self) -> Option<VolumeAddress> {
        self.visited.clone()
    }

    /// Ends a visit without a result; the node is tried again later.
    pub(super) fn failed(&mut self, now: Instant) -> Option<VolumeAddress> {
        let place = self.visited.take()?;
        self.postpone(&place, now);
        Some(place)
    }

    /// Ends the visit for good.
    pub(in crate::client) fn done(&mut self) {
        if let Some(place) = self.visited.take() {
            self.forget(&place);
        }
    }
}
