//! Members whose nodes could not be reached when the array was assembled.

use std::collections::BTreeMap;

use braid_array::action::NewMember;
use braid_array::status::AbsentStatus;
use braid_array::{Instant, Refusal};

use super::KeeperSide;
use super::command::{JoinCommand, JoinFacts, Origin, Recovery};
use super::recovery::own_role;
use super::visits::Visits;
use crate::client::retry::pause_millis;
use crate::client::session_key::SessionKey;
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

impl KeeperSide {
    /// Notes that a role is taken. Once no role is open, the absent members have left the array.
    pub(super) fn absent_depart(&mut self, facts: &JoinFacts) {
        if facts.open_roles().is_empty() {
            let places: Vec<VolumeAddress> = self.absent_places().collect();
            places.into_iter().for_each(|place| self.departs(place.address));
        }
    }

    pub(super) fn may_look_for_absent(&self, facts: &JoinFacts) -> bool {
        let wanted = !self.absents.are_none() && self.recovery.is_none();
        wanted && facts.may_return && !facts.open_roles().is_empty()
    }

    /// Connects to the next absent member whose time has come.
    pub(super) fn look_for_absent(&mut self, facts: &JoinFacts) {
        if !self.may_look_for_absent(facts) {
            return;
        }
        let Some(place) = self.absents.visits.next(self.now) else { return };
        self.absents.visits.begin(place.clone());
        self.commands.push_back(JoinCommand::Visit(SessionKey::AbsentVisit, place));
    }

    /// Ends the visit of an absent member that is in its place, and begins to add it, unless there
    /// are too many members.
    pub(in crate::client) fn absent_found(&mut self, facts: &JoinFacts, new: Option<NewMember>) {
        // A node grants nothing on a connection that has a volume already.
        self.fail(SessionKey::AbsentVisit, None);
        if let Some(new) = new.map(Box::new)
            && let Some(place) = own_role(&new)
            && self.may_look_for_absent(facts)
        {
            let origin = Origin::Absent;
            self.commands.push_back(JoinCommand::Recover(Recovery { origin, new, place }));
        }
    }

    /// Notes that the visited member stays away until the operator takes it back.
    pub(in crate::client) fn absent_kept_away(&mut self) {
        if let Some(place) = self.absents.visits.visited() {
            self.absents.visits.forget(&place);
        }
    }

    /// Notes that another member has the role of the visited one.
    pub(in crate::client) fn absent_replaced(&mut self) {
        if let Some(place) = self.absents.visits.visited() {
            self.departs(place.address);
        }
    }

    /// Returns the addresses of members that were not found so far.
    pub(in crate::client) fn absent_places(&self) -> impl Iterator<Item = VolumeAddress> {
        self.absents.visits.places().cloned()
    }

    /// Returns the members that are not in, while a role is open.
    pub(in crate::client) fn absent_status(&self, facts: &JoinFacts) -> Vec<AbsentStatus> {
        if facts.open_roles().is_empty() { Vec::new() } else { self.absents.status() }
    }
}
