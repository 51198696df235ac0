//! Members whose nodes could not be reached when the array was assembled.

use std::collections::BTreeMap;

use braid_array::assemble::{bad_blocks_place, read_bad_blocks};
use braid_array::format::{BadBlocks, DevRole, Superblock, SuperblockError, Version};
use braid_array::keeper::MADE_FAULTY;
use braid_array::status::AbsentStatus;
use braid_array::{Instant, Refusal, Role, SECTOR_BYTES};

use super::KeeperSide;
use super::recovery::{Origin, new_member};
use super::visits::Visits;
use crate::assemble::SUPERBLOCK_SECTOR;
use crate::client::parts::Parts;
use crate::client::retry::pause_millis;
use crate::client::session_key::SessionKey;
use crate::client::sessions::negotiation::{NegotiationStep, Purpose};
use crate::client::sessions::refused::{ANOTHERS, IN_ITS_PLACE, is_of_another};
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
fn is_open(parts: &Parts, role: Role) -> bool {
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

    /// Takes the bytes that were read from a visited volume: the superblock, and then the bad-block
    /// log, if the superblock has one.
    pub(super) fn absent_read(&mut self, parts: &mut Parts, bytes: &[u8]) {
        let visit = parts.session_mut(SessionKey::AbsentVisit);
        let sectors = visit.volume_bytes / SECTOR_BYTES;
        if let Some(found) = visit.returned.take() {
            let list = read_bad_blocks(&found, sectors, &mut |_, _| Ok(bytes.to_owned()));
            return self.absent_found(parts, Ok(*found), list.ok());
        }
        let decoded = Superblock::decode(Version::V1_2, SUPERBLOCK_SECTOR, bytes);
        if let Ok(found) = &decoded
            && let Ok(Some(_)) = bad_blocks_place(found, sectors)
        {
            visit.returned = Some(Box::new(found.clone()));
            return parts.go_on(SessionKey::AbsentVisit, NegotiationStep::Listing);
        }
        self.absent_found(parts, decoded, None);
    }

    /// Judges the superblock of a visited absent member: whether it is a member, and its role is
    /// open.
    fn absent_found(
        &mut self,
        parts: &mut Parts,
        decoded: Result<Superblock, SuperblockError>,
        bad_blocks: Option<BadBlocks>,
    ) {
        let (sessions, mut net) = parts.sessions();
        let visit = SessionKey::AbsentVisit;
        let volume_bytes = sessions.list.get(visit).volume_bytes;
        // A node grants nothing on a connection that has a volume already.
        sessions.end(&mut net, visit);
        let Some(place) = self.absents.visits.failed(net.now()) else { return };
        let mut refuse = |reason: String, next: &'static str| {
            self.absents.why.insert(device(&place), Refusal::new(reason, next));
        };
        if let Some(Refusal { reason, .. }) = is_of_another(parts.ownership.array(), &decoded) {
            return refuse(reason, IN_ITS_PLACE);
        }
        let Ok(found) = decoded else { return };
        if parts.keeper.view().was_made_faulty(found.dev_number) {
            refuse(MADE_FAULTY.to_owned(), "take it back with braid re-add");
            return self.absents.visits.forget(&place);
        }
        let DevRole::Active(role) = found.role() else { return };
        let exists = parts.sessions.list.roles().any(|one| one == role);
        if exists && !is_open(parts, role) {
            refuse(ANOTHERS.to_owned(), IN_ITS_PLACE);
            return self.departed.add(place.address, parts.keeper.view().now());
        }
        let Some(member) = parts.keeper.view().free_id() else { return };
        if exists && self.may_look_for_absent(parts) {
            let name = device(&place);
            let new = new_member(member, name, volume_bytes, Box::new(found), bad_blocks);
            // If it cannot now, it is looked at again later.
            let _ = self.begin_recovery(parts, Origin::Absent, new, role);
        }
    }
}
