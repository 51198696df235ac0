//! Members whose nodes could not be reached when the array was assembled.

use std::collections::BTreeMap;

use braid_array::action::NewMember;
use braid_array::format::{BadBlocks, Role, Superblock, Version};
use braid_array::status::AbsentStatus;
use braid_array::{Instant, MemberId, Refusal, SECTOR_BYTES};

use super::KeeperSide;
use super::recovery::Origin;
use crate::assemble::SUPERBLOCK_SECTOR;
use crate::client::parts::Parts;
use crate::client::retry::pause_millis;
use crate::client::sessions::negotiation::Purpose;
use crate::client::sessions::refused::{ANOTHERS, IN_ITS_PLACE, is_of_another};
use crate::client::sessions::session::SessionState;
use crate::member::{VolumeAddress, member_name};

/// One of them.
#[derive(Debug)]
struct Absent {
    place: VolumeAddress,
    /// Attempts that failed.
    tries: u32,
    /// When it is tried again.
    due: Instant,
}

impl Absent {
    fn device(&self) -> String {
        member_name(&self.place.address, &self.place.volume)
    }
}

/// Absent members, and which of them is looked at. They come back by themselves as those do that
/// were lost; but nothing is known of them save where they are. So the client first connects to the
/// node and reads the superblock: that tells whose place the member has. Then it becomes a
/// [`recovery target`](super::recovery). A node that does not answer is tried again later, and
/// later. `why` keeps the reasons that status tells.
#[derive(Debug)]
pub(super) struct Absents {
    list: Vec<Absent>,
    looked_at: Option<usize>,
    /// Why these and others are not in, by name.
    why: BTreeMap<String, Refusal>,
}

impl Absents {
    /// Addresses of nodes, and the volumes there; and what is known of these and others.
    pub(super) fn new(places: Vec<(String, String)>, why: Vec<(String, Refusal)>) -> Self {
        let due = Instant(0).plus_millis(pause_millis(0));
        let absent = |(address, volume)| {
            let place = VolumeAddress { address, volume };
            Absent { place, tries: 0, due }
        };
        Self {
            list: places.into_iter().map(absent).collect(),
            looked_at: None,
            why: why.into_iter().collect(),
        }
    }

    /// Where they are.
    pub(super) fn places(&self) -> impl Iterator<Item = VolumeAddress> {
        self.list.iter().map(|absent| absent.place.clone())
    }

    fn position(&self, device: &str) -> Option<usize> {
        self.list.iter().position(|one| one.device() == device)
    }

    /// Is nobody looked for?
    pub(super) const fn are_none(&self) -> bool {
        self.list.is_empty()
    }

    /// It is a member again.
    pub(super) fn forget(&mut self, device: &str) {
        self.why.remove(device);
        if let Some(number) = self.position(device) {
            self.list.remove(number);
        }
    }

    /// That is what stands against one that was looked at.
    fn refuse(&mut self, number: usize, why: Refusal) {
        if let Some(absent) = self.list.get(number) {
            self.why.insert(absent.device(), why);
        }
    }

    /// Why these and others are not in.
    pub(super) fn status(&self) -> Vec<AbsentStatus> {
        let status = |(device, why): (&String, &Refusal)| AbsentStatus {
            device: device.clone(),
            why: why.clone(),
        };
        self.why.iter().map(status).collect()
    }

    /// When the next one is looked at.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.looked_at.is_some() {
            return None;
        }
        self.list.iter().map(|absent| absent.due).min()
    }

    /// The one that is looked at next, once its time has come.
    fn next(&mut self, now: Instant) -> Option<VolumeAddress> {
        if self.looked_at.is_some() {
            return None;
        }
        self.looked_at = self.list.iter().position(|one| one.due <= now);
        Some(self.list[self.looked_at?].place.clone())
    }

    /// The connection over which one was looked at is over; it is tried again later.
    pub(super) fn look_over(&mut self, why: Option<Refusal>, now: Instant) {
        let Some(number) = self.looked_at.take() else { return };
        if let Some(why) = why {
            self.refuse(number, why);
        }
        self.postpone(number, now);
    }

    fn postpone(&mut self, number: usize, now: Instant) {
        let Some(absent) = self.list.get_mut(number) else { return };
        absent.tries += 1;
        absent.due = now.plus_millis(pause_millis(absent.tries));
    }

    /// It did not become a member.
    pub(super) fn failed(&mut self, device: &str, now: Instant) {
        if let Some(number) = self.position(device) {
            self.postpone(number, now);
        }
    }

    /// The member that lies on a volume of this size, if its node may be taken in again.
    fn member(
        &self,
        number: usize,
        volume_bytes: u64,
        superblock: Superblock,
        member: MemberId,
    ) -> NewMember {
        NewMember {
            member,
            device: self.list[number].device(),
            device_sectors: volume_bytes / SECTOR_BYTES,
            device_uuid: superblock.device_uuid,
            superblock: Some(Box::new(superblock)),
            bad_blocks: BadBlocks::default(),
            readd: false,
        }
    }
}

/// Has a role nobody whom it waits for?
fn is_open(parts: &Parts, role: u16) -> bool {
    let nobody = parts.sessions.list.get(role).state == SessionState::Missing;
    nobody && parts.keeper.is_vacant(role)
}

pub(super) fn has_open_role(parts: &Parts) -> bool {
    parts.sessions.list.roles().any(|role| is_open(parts, role))
}

impl KeeperSide {
    pub(super) fn may_look_for_absent(&self, parts: &Parts) -> bool {
        let wanted = !self.absents.are_none() && self.recovery.is_none();
        wanted && parts.may_return() && has_open_role(parts)
    }

    /// Connects to the next one whose time has come.
    pub(super) fn look_for_absent(&mut self, parts: &mut Parts) {
        if !self.may_look_for_absent(parts) {
            return;
        }
        let Some(place) = self.absents.next(parts.keeper.now()) else { return };
        let (sessions, mut net) = parts.sessions();
        let visit = sessions.list.absent_visit();
        sessions.visit(&mut net, visit, Purpose::Absent, place);
    }

    /// What lies on the volume of one that is looked at. It has a superblock: is it a member, and
    /// nobody has its place?
    pub(super) fn absent_found(&mut self, parts: &mut Parts, bytes: &[u8]) {
        let Some(number) = self.absents.looked_at else { return };
        let (sessions, mut net) = parts.sessions();
        let visit = sessions.list.absent_visit();
        let volume_bytes = sessions.list.get(visit).volume_bytes;
        // A node grants nothing on a connection that has a volume already.
        sessions.end(&mut net, visit);
        self.absents.look_over(None, net.now());
        let decoded = Superblock::decode(Version::V1_2, SUPERBLOCK_SECTOR, bytes);
        if let Some(Refusal { reason, .. }) = is_of_another(parts.ownership.array(), &decoded) {
            return self.absents.refuse(number, Refusal::new(reason, IN_ITS_PLACE));
        }
        let Ok(found) = decoded else { return };
        let Role::Active(role) = found.role() else { return };
        let exists = parts.sessions.list.roles().any(|one| one == role);
        if exists && !is_open(parts, role) {
            return self.absents.refuse(number, Refusal::new(ANOTHERS, IN_ITS_PLACE));
        }
        let Some(member) = parts.keeper.free_id() else { return };
        if exists && self.may_look_for_absent(parts) {
            let new = self.absents.member(number, volume_bytes, found, member);
            // If it cannot now, it is looked at again later.
            let _ = self.begin_recovery(parts, Origin::Absent, new, role);
        }
    }
}
