//! Members whose nodes could not be reached when the array was assembled.

use std::collections::BTreeMap;

use braid_array::action::NewMember;
use braid_array::fabric::{FabricEvent, PeerId};
use braid_array::format::{BadBlocks, Role, Superblock, Version};
use braid_array::status::AbsentStatus;
use braid_array::{MemberId, Refusal, SECTOR_BYTES};

use super::recovery::Origin;
use super::refused::{ANOTHERS, is_of_another};
use super::returning::SUPERBLOCK_BYTES;
use super::setup::SessionState;
use crate::assemble::SUPERBLOCK_SECTOR;
use crate::client::out::Out;
use crate::client::retry::PATIENCE_MILLIS;
use crate::client::retry::pause_millis;
use crate::client::{Client, Instant, Message};
use crate::member::{VolumeAddress, member_name};

/// What helps when the member is not where it was.
const IN_ITS_PLACE: &str =
    "start the node on the store that it had, or add another node in its place";

/// One of them.
#[derive(Debug)]
struct Absent {
    address: String,
    volume: String,
    /// Attempts that failed.
    tries: u32,
    /// When it is tried again.
    due: Instant,
}

/// A connection over which one of them is looked at.
#[derive(Debug)]
struct Look {
    /// Which.
    number: usize,
    peer: PeerId,
    until: Instant,
    volume_bytes: u64,
}

/// Absent members, and the look at one of them that is under way. They come back by themselves as
/// those do that were lost (see [`returning`](super::returning)); but nothing is known of them save
/// where they are. So the client first connects to the node and reads the superblock: that tells
/// whose place the member has. Then it becomes a [`recovery target`](super::recovery). A node that
/// does not answer is tried again later, and later. `why` keeps the reasons that status tells.
#[derive(Debug)]
pub(in crate::client) struct Absents {
    list: Vec<Absent>,
    look: Option<Look>,
    /// Why these and others are not in, by name.
    why: BTreeMap<String, Refusal>,
}

impl Absents {
    /// Addresses of nodes, and the volumes there; and what is known of these and others.
    pub(in crate::client) fn new(
        places: Vec<(String, String)>,
        why: Vec<(String, Refusal)>,
    ) -> Self {
        let due = Instant(0).plus_millis(pause_millis(0));
        let absent = |(address, volume)| Absent { address, volume, tries: 0, due };
        Self {
            list: places.into_iter().map(absent).collect(),
            look: None,
            why: why.into_iter().collect(),
        }
    }

    pub(in crate::client) fn are_looked_at_by(&self, peer: PeerId) -> bool {
        self.look.as_ref().is_some_and(|look| look.peer == peer)
    }

    /// Where they are.
    pub(in crate::client) fn places(&self) -> impl Iterator<Item = VolumeAddress> {
        self.list.iter().map(|absent| VolumeAddress {
            address: absent.address.clone(),
            volume: absent.volume.clone(),
        })
    }

    fn position(&self, device: &str) -> Option<usize> {
        self.list.iter().position(|one| member_name(&one.address, &one.volume) == device)
    }

    /// Is nobody looked for?
    pub(in crate::client) const fn are_none(&self) -> bool {
        self.list.is_empty()
    }

    /// It is a member again.
    pub(in crate::client) fn forget(&mut self, device: &str) {
        self.why.remove(device);
        if let Some(number) = self.position(device) {
            self.list.remove(number);
        }
    }

    /// That is what stands against one that was looked at.
    pub(in crate::client) fn refuse(&mut self, number: usize, why: Refusal) {
        let Some(absent) = self.list.get(number) else { return };
        self.why.insert(member_name(&absent.address, &absent.volume), why);
    }

    /// Why these and others are not in.
    pub(in crate::client) fn status(&self) -> Vec<AbsentStatus> {
        let status = |(device, why): (&String, &Refusal)| AbsentStatus {
            device: device.clone(),
            why: why.clone(),
        };
        self.why.iter().map(status).collect()
    }

    /// `wanted`: another one may be looked for now.
    pub(in crate::client) fn deadline(&self, wanted: bool) -> Option<Instant> {
        match &self.look {
            Some(look) => Some(look.until),
            None if wanted => self.list.iter().map(|absent| absent.due).min(),
            None => None,
        }
    }

    /// Gives up what takes too long, and looks at the next one whose time has come.
    pub(in crate::client) fn tick(&mut self, wanted: bool, out: &mut Out, now: Instant) {
        if self.look.as_ref().is_some_and(|look| look.until <= now) {
            self.close(out, now);
        }
        if self.look.is_some() || !wanted {
            return;
        }
        let Some(number) = self.list.iter().position(|one| one.due <= now) else { return };
        let peer = out.connect(self.list[number].address.clone());
        let until = now.plus_millis(PATIENCE_MILLIS);
        self.look = Some(Look { number, peer, until, volume_bytes: 0 });
    }

    /// Hangs up on one that is looked at; it is tried again later.
    pub(in crate::client) fn close(&mut self, out: &mut Out, now: Instant) {
        if let Some(look) = self.look.take() {
            out.hang_up(look.peer);
            self.postpone(look.number, now);
        }
    }

    fn postpone(&mut self, number: usize, now: Instant) {
        let Some(absent) = self.list.get_mut(number) else { return };
        absent.tries += 1;
        absent.due = now.plus_millis(pause_millis(absent.tries));
    }

    /// It did not become a member.
    pub(in crate::client) fn failed(&mut self, device: &str, now: Instant) {
        if let Some(number) = self.position(device) {
            self.postpone(number, now);
        }
    }

    /// What comes over the connection; what lies on the volume, when that is known.
    pub(in crate::client) fn event(
        &mut self,
        event: FabricEvent,
        out: &mut Out,
        now: Instant,
    ) -> Option<Volume> {
        let look = self.look.as_mut()?;
        let peer = look.peer;
        let number = look.number;
        let message = match event {
            FabricEvent::Connected { .. } => {
                let name = self.list[number].volume.clone();
                out.send(peer, &Message::OpenVolume { tag: 0, name, write: false });
                return None;
            }
            FabricEvent::Message { bytes, .. } => Message::decode(&bytes),
            FabricEvent::Lost { why, .. } => {
                self.look = None;
                self.refuse(number, why);
                self.postpone(number, now);
                return None;
            }
            FabricEvent::Accepted { .. } | FabricEvent::Placed { .. } => return None,
        };
        match message {
            Ok((_, Message::Volume { bytes, used: false, .. })) => {
                look.volume_bytes = bytes;
                let bytes = SUPERBLOCK_BYTES;
                out.send(peer, &Message::ReadMeta { tag: 0, sector: SUPERBLOCK_SECTOR, bytes });
            }
            Ok((_, Message::Meta { bytes, .. })) => {
                let volume_bytes = look.volume_bytes;
                // A node grants nothing on a connection that has a volume already.
                self.close(out, now);
                return Some(Volume { number, volume_bytes, superblock: bytes });
            }
            Ok((_, Message::Refused { reason, .. })) => {
                self.close(out, now);
                self.refuse(number, Refusal::new(reason, IN_ITS_PLACE));
            }
            _ => self.close(out, now),
        }
        None
    }

    /// The member that lies on a volume, if its node may be taken in again.
    fn member(&self, volume: &Volume, superblock: Superblock, member: MemberId) -> NewMember {
        let absent = &self.list[volume.number];
        NewMember {
            member,
            device: member_name(&absent.address, &absent.volume),
            device_sectors: volume.volume_bytes / SECTOR_BYTES,
            device_uuid: superblock.device_uuid,
            superblock: Some(Box::new(superblock)),
            bad_blocks: BadBlocks::default(),
            readd: false,
        }
    }
}

/// What lies on the volume of one that was looked at.
#[derive(Debug)]
pub(in crate::client) struct Volume {
    /// Which of those that are absent.
    number: usize,
    volume_bytes: u64,
    superblock: Vec<u8>,
}

impl Client {
    /// Has a role nobody whom it waits for?
    fn is_open(&self, role: u16) -> bool {
        let nobody = self.sessions[usize::from(role)].state == SessionState::Missing;
        nobody && self.keeper.view().is_vacant(role)
    }

    fn has_open_role(&self) -> bool {
        (0..self.shared.params().nodes).any(|role| self.is_open(role))
    }

    /// Who is not in, while anybody could be.
    pub(in crate::client) fn absent_status(&self) -> Vec<AbsentStatus> {
        if self.has_open_role() { self.absents.status() } else { Vec::new() }
    }

    pub(in crate::client) fn may_look_for_absent(&self) -> bool {
        let wanted = !self.absents.are_none() && self.recovery.is_none();
        wanted && self.may_return() && self.has_open_role()
    }

    /// What comes over the connection to one that is looked at. It has a superblock: is it a
    /// member, and nobody has its place?
    pub(in crate::client) fn absent_event(&mut self, event: FabricEvent) {
        let now = self.keeper.view().now();
        let Some(volume) = self.absents.event(event, &mut self.out, now) else { return };
        let decoded = Superblock::decode(Version::V1_2, SUPERBLOCK_SECTOR, &volume.superblock);
        if let Some(Refusal { reason, .. }) = is_of_another(self.ownership.array(), &decoded) {
            return self.absents.refuse(volume.number, Refusal::new(reason, IN_ITS_PLACE));
        }
        let Ok(found) = decoded else { return };
        let Role::Active(role) = found.role() else { return };
        let exists = role < self.shared.params().nodes;
        if exists && !self.is_open(role) {
            return self.absents.refuse(volume.number, Refusal::new(ANOTHERS, IN_ITS_PLACE));
        }
        let Some(member) = self.keeper.view().free_id() else { return };
        if exists && self.may_look_for_absent() {
            let new = self.absents.member(&volume, found, member);
            // If it cannot now, it is looked at again later.
            let _ = self.begin_recovery(Origin::Absent, new, role);
        }
    }
}
