//! Nodes whose members have left the array are told to drop the slice-sets that they keep of it.

use braid_array::Instant;

use super::KeeperSide;
use crate::client::ownership::decision::Grant;
use crate::client::parts::Parts;
use crate::client::retry::pause_millis;
use crate::client::sessions::negotiation::{Purpose, Step};
use crate::client::sessions::session::Session;
use crate::member::VolumeAddress;

/// About ten minutes.
const MAX_TRIES: u32 = 60;

/// One of them.
#[derive(Debug)]
struct Node {
    address: String,
    /// Attempts that failed.
    tries: u32,
    due: Instant,
}

/// Nodes whose members were replaced, failed or removed. They may keep slice-sets prepared, with
/// their rings and volumes, until a client resolves these, and no takeover asks them any more. So
/// each is told to drop them, on a connection of its own, one node at a time, once no view that a
/// later client may take for the newest has its member in sync. A node that is away is tried again
/// later, and later, so many times; if it was away all that time it keeps them until it starts
/// again, or is added again.
#[derive(Debug, Default)]
pub(in crate::client) struct Departed {
    nodes: Vec<Node>,
    /// The address of the one that is being told.
    told: Option<String>,
    /// As which member of old views it has granted the array.
    granted: Option<u64>,
}

impl Departed {
    fn forget(&mut self, address: &str) {
        self.nodes.retain(|node| node.address != address);
    }

    fn postpone(&mut self, address: &str, now: Instant) {
        for node in self.nodes.iter_mut().filter(|node| node.address == address) {
            node.due = now.plus_millis(pause_millis(node.tries));
            node.tries += 1;
        }
        self.nodes.retain(|node| node.tries < MAX_TRIES);
    }

    /// The member on this node has left the array.
    pub(in crate::client) fn add(&mut self, address: String, now: Instant) {
        self.forget(&address);
        if !braid_array::broken("departed-told") {
            self.nodes.push(Node { address, tries: 0, due: now });
        }
    }

    /// When the next one is told.
    pub(in crate::client) fn deadline(&self) -> Option<Instant> {
        if self.told.is_some() {
            return None;
        }
        self.nodes.iter().map(|node| node.due).min()
    }

    /// The next one whose time has come, if none is being told.
    fn next(&self, now: Instant) -> Option<String> {
        if self.told.is_some() {
            return None;
        }
        let next = self.nodes.iter().find(|node| node.due <= now);
        next.map(|node| node.address.clone())
    }

    /// It needs to be told nothing more.
    pub(super) fn is_told(&mut self) {
        if let Some(address) = self.told.take() {
            self.forget(&address);
        }
    }

    /// It was not told; it is tried again later.
    pub(super) fn visit_over(&mut self, now: Instant) {
        if let Some(address) = self.told.take() {
            self.postpone(&address, now);
        }
    }
}

impl KeeperSide {
    /// Connects to the next one whose time has come.
    pub(super) fn look_for_departed(&mut self, parts: &mut Parts) {
        let now = parts.keeper.now();
        while let Some(address) = self.departed.next(now)
            && parts.may_return()
        {
            let is_there = |session: &Session| {
                session.member.as_ref().is_some_and(|member| member.address == address)
            };
            let members = parts.sessions.list.members();
            match (0..).zip(members).find(|(_, session)| is_there(session)) {
                Some((role, _)) if self.is_recovery_target(role) => {
                    self.departed.postpone(&address, now);
                }
                // It is told on its way back.
                Some((_, session)) if session.alive() || session.due.is_some() => {
                    self.departed.forget(&address);
                }
                _ => self.tell_departed(parts, address),
            }
        }
    }

    fn tell_departed(&mut self, parts: &mut Parts, address: String) {
        self.departed.told = Some(address.clone());
        self.departed.granted = None;
        let place = VolumeAddress { address, volume: String::new() };
        let (sessions, mut net) = parts.sessions();
        let visit = sessions.list.departed_visit();
        sessions.visit(&mut net, visit, Purpose::Departed, place);
    }

    /// The one that is being told is this node. If it is that of a member that is there or comes
    /// back, or of a witness, it has nothing to drop.
    pub(super) fn departed_is(&mut self, parts: &mut Parts, node: u64) {
        let list = &parts.sessions.list;
        let nodes = list.copy_target();
        let connected = |voter: u16| voter >= nodes || list.get(voter).is_connected();
        let has_part = parts.ownership.voters_on(node).any(connected);
        let (sessions, mut net) = parts.sessions();
        let visit = sessions.list.departed_visit();
        if has_part {
            sessions.end(&mut net, visit);
            self.departed.is_told();
        } else {
            sessions.go_on(&mut net, visit, Step::Granting);
        }
    }

    /// It has granted the array, and waits to be told.
    pub(super) fn departed_granted(&mut self, parts: &mut Parts, grant: &Grant) {
        self.departed.granted = Some(grant.incarnation);
        parts.sessions.hold(parts.sessions.list.departed_visit(), Step::Granted);
        self.resolve_departed(parts);
    }

    /// Has it drop what it keeps, once no takeover may ask it for that.
    pub(super) fn resolve_departed(&self, parts: &mut Parts) {
        let visit = parts.sessions.list.departed_visit();
        if parts.sessions.list.get(visit).is_coming_at(Step::Granted)
            && let Some(incarnation) = self.departed.granted
            && parts.is_out(incarnation)
        {
            let (sessions, mut net) = parts.sessions();
            sessions.go_on(&mut net, visit, Step::Resolving);
        }
    }
}
