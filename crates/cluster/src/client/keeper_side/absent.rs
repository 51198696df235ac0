//! Members whose nodes could not be reached when the array was assembled.

use std::collections::BTreeMap;

use braid_array::format::{BadBlocks, DevRole, Superblock};
use braid_array::status::AbsentStatus;
use braid_array::{Instant, Refusal, Role};

use super::KeeperSide;
use super::recovery::{Origin, new_member};
use super::visits::Visits;
use crate::client::parts::Parts;
use crate::client::retry::pause_millis;
use crate::client::session_key::SessionKey;
use crate::client::sessions::negotiation::Purpose;
use crate::client::sessions::session::SessionState;
use crate::member::{VolumeAddress, member_name};

/// Absent members. Like lost ones, these members return by themselves, but only their addresses are
/// known. So the client first connects to the node and reads the superblock, which names the
/// member's role. The member then becomes a [`recovery target`](super::recovery).
#[derive(Debug)]
pub(super) struct Absents {
    pub(super) visits: Visits,
    /// By name, the reasons why these and other members are not in; status shows them.
    why: BTreeMap<String, Refusal>,
}

fn device(place: &VolumeAddress) -> String {
    member_name(&place.address, &place.volume)
}

impl Absents {
    /// Creates the list from addresses of nodes with their volumes, and the known reasons.
    pub(super) fn new(places: Vec<(String, String)>, why: Vec<(String, Refusal)>) -> Self {
        let due = Instant(0).plus_millis(pause_millis(0));
        let mut visits = Visits::new(None);
        for (address, volume) in places {
            visits.add(VolumeAddress { address, volume }, 1, due);
        }
        Self { visits, why: why.into_iter().collect() }
    }

    fn place(&self, name: &str) -> Option<VolumeAddress> {
        self.visits.places().find(|place| device(place) == name).cloned()
    }

    /// Returns whether no absent member is looked for.
    pub(super) fn are_none(&self) -> bool {
        self.visits.places().next().is_none()
    }

    /// Forgets an absent member that is a member again.
    pub(super) fn forget(&mut self, name: &str) {
        self.why.remove(name);
        if let Some(place) = self.place(name) {
            self.visits.forget(&place);
        }
    }

    /// Returns the names and reasons of members that are not in.
    pub(super) fn status(&self) -> Vec<AbsentStatus> {
        let status = |(device, why): (&String, &Refusal)| AbsentStatus {
            device: device.clone(),
            why: why.clone(),
        };
        self.why.iter().map(status).collect()
    }

    /// Ends a visit of an absent member; it is tried again later.
    pub(super) fn look_over(&mut self, why: Option<Refusal>, now: Instant) {
        if let (Some(place), Some(why)) = (self.visits.failed(now), why) {
            self.why.insert(device(&place), why);
        }
    }

    /// Postpones an absent member that did not become a member.
    pub(super) fn failed(&mut self, name: &str, now: Instant) {
        if let Some(place) = self.place(name) {
            self.visits.postpone(&place, now);
        }
    }
}

/// Returns whether a role is vacant and waits for no known member.
pub(super) fn is_open(parts: &Parts, role: Role) -> bool {
    let nobody = parts.session(role).state == SessionState::Missing;
    nobody && parts.keeper.view().is_vacant(role)
}

pub(super) fn has_open_role(parts: &Parts) -> bool {
    parts.sessions.list.roles().any(|role| is_open(parts, role))
}

impl KeeperSide {
    /// Notes that a role is taken. Once no role is open, the absent members have left the array.
    pub(in crate::client) fn absent_depart(&mut self, parts: &Parts) {
        if has_open_role(parts) {
            return;
        }
        for place in self.absents.visits.places() {
            self.departed.add(place.address.clone(), parts.keeper.view().now());
        }
    }

    pub(super) fn may_look_for_absent(&self, parts: &Parts) -> bool {
        let wanted = !self.absents.are_none() && self.recovery.is_none();
        wanted && parts.may_return() && has_open_role(parts)
    }

    /// Connects to the next absent member whose time has come.
    pub(super) fn look_for_absent(&mut self, parts: &mut Parts) {
        if !self.may_look_for_absent(parts) {
            return;
        }
        let Some(place) = self.absents.visits.next(parts.keeper.view().now()) else { return };
        self.absents.visits.begin(place.clone());
        let (sessions, mut net) = parts.sessions();
        sessions.visit(&mut net, SessionKey::AbsentVisit, Purpose::Absent, place);
    }

    /// Ends the visit of an absent member that is in its place, and begins to add it.
    pub(super) fn absent_found(
        &mut self,
        parts: &mut Parts,
        found: Box<Superblock>,
        bad_blocks: Option<BadBlocks>,
    ) {
        let place = self.absents.visits.visited();
        let volume_bytes = parts.session(SessionKey::AbsentVisit).volume_bytes;
        // A node grants nothing on a connection that has a volume already.
        self.fail(parts, SessionKey::AbsentVisit, None);
        let (Some(place), DevRole::Active(role)) = (place, found.role()) else { return };
        let Some(member) = parts.keeper.view().free_id() else { return };
        if self.may_look_for_absent(parts) {
            let new = new_member(member, device(&place), volume_bytes, found, bad_blocks);
            // If it cannot now, it is looked at again later.
            let _ = self.begin_recovery(parts, Origin::Absent, new, role);
        }
    }
}
