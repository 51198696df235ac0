//! Departed nodes: nodes whose members have left the array are told to drop its slice-sets.

use braid_array::Instant;

use super::KeeperSide;
use super::visits::Visits;
use crate::client::parts::Parts;
use crate::client::session_key::SessionKey;
use crate::client::sessions::negotiation::{NegotiationStep, Purpose};
use crate::client::sessions::session::Session;
use crate::member::VolumeAddress;

/// Number of tries, about ten minutes.
const MAX_TRIES: u32 = 60;

/// Nodes whose members were replaced, failed or removed. Such a node may keep prepared slice-sets,
/// with their rings and volumes, until a client resolves these, and no takeover asks it any more.
/// So each is told to drop them, on a connection of its own, one node at a time. The order waits
/// until no view that a later client may take for the newest has its member in sync. An absent node
/// is tried again a limited number of times. After that it keeps the slice-sets until it restarts
/// or is added again.
#[derive(Debug)]
pub(in crate::client) struct Departed {
    pub(in crate::client) visits: Visits,
    /// Incarnation by which old views may list the visited node.
    pub(super) granted: Option<u64>,
}

fn place(address: String) -> VolumeAddress {
    VolumeAddress { address, volume: String::new() }
}

impl Departed {
    pub(super) const fn new() -> Self {
        Self { visits: Visits::new(Some(MAX_TRIES)), granted: None }
    }

    /// Adds the node of a member that has left the array.
    pub(in crate::client) fn add(&mut self, address: String, now: Instant) {
        let place = place(address);
        self.visits.forget(&place);
        if !braid_array::broken("departed-told") {
            self.visits.add(place, 0, now);
        }
    }
}

impl KeeperSide {
    /// Connects to the next departed node whose time has come.
    pub(super) fn look_for_departed(&mut self, parts: &mut Parts) {
        let now = parts.keeper.view().now();
        while let Some(place) = self.departed.visits.next(now)
            && parts.may_return()
        {
            let is_there = |session: &Session| {
                session.member.as_ref().is_some_and(|member| member.address == place.address)
            };
            let list = &parts.sessions.list;
            let mut members = list.member_keys().map(|key| (key, list.get(key)));
            match members.find(|(_, session)| is_there(session)) {
                Some((key, _)) if self.is_recovery_target(key) => {
                    self.departed.visits.postpone(&place, now);
                }
                // It is told on its way back.
                Some((_, session)) if session.alive() || session.due.is_some() => {
                    self.departed.visits.forget(&place);
                }
                _ => self.visit_departed(parts, place),
            }
        }
    }

    fn visit_departed(&mut self, parts: &mut Parts, place: VolumeAddress) {
        self.departed.visits.begin(place.clone());
        self.departed.granted = None;
        let (sessions, mut net) = parts.sessions();
        sessions.visit(&mut net, SessionKey::DepartedVisit, Purpose::Departed, place);
    }

    /// Orders the visited node to drop its slice-sets, once no takeover may ask for them.
    pub(super) fn resolve_departed(&self, parts: &mut Parts) {
        let visit = SessionKey::DepartedVisit;
        if parts.session(visit).is_coming_at(NegotiationStep::Granted)
            && let Some(incarnation) = self.departed.granted
            && parts.is_out(incarnation)
        {
            parts.go_on(visit, NegotiationStep::Resolving);
        }
    }
}
