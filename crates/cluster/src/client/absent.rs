//! Members whose nodes could not be reached when the array was assembled.

use std::collections::BTreeMap;

use braid_array::action::NewMember;
use braid_array::fabric::{FabricEvent, PeerId};
use braid_array::format::{BadBlocks, Role, Superblock, Version};
use braid_array::status::AbsentStatus;
use braid_array::{Refusal, SECTOR_BYTES};

use super::newcomer::Origin;
use super::refused::{ANOTHERS, is_of_another};
use super::rejoin::{SUPERBLOCK_BYTES, pause_millis};
use super::setup::SessionState;
use super::{Client, Instant, Message, PATIENCE_MILLIS};
use crate::assemble::SUPERBLOCK_SECTOR;
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
/// those do that were lost (see [`rejoin`](super::rejoin)); but nothing is known of them save where
/// they are. So the client first connects to the node and reads the superblock: that tells whose
/// place the member has. Then it becomes a [`newcomer`](super::newcomer). A node that does not
/// answer is tried again later, and later. `why` keeps the reasons that status tells.
#[derive(Debug)]
pub(super) struct Absents {
    list: Vec<Absent>,
    look: Option<Look>,
    /// Why these and others are not in, by name.
    why: BTreeMap<String, Refusal>,
}

impl Absents {
    /// Addresses of nodes, and the volumes there; and what is known of these and others.
    pub(super) fn new(places: Vec<(String, String)>, why: Vec<(String, Refusal)>) -> Self {
        let due = Instant(0).plus_millis(pause_millis(0));
        let absent = |(address, volume)| Absent { address, volume, tries: 0, due };
        Self {
            list: places.into_iter().map(absent).collect(),
            look: None,
            why: why.into_iter().collect(),
        }
    }

    pub(super) fn are_looked_at_by(&self, peer: PeerId) -> bool {
        self.look.as_ref().is_some_and(|look| look.peer == peer)
    }

    /// Where they are.
    pub(super) fn places(&self) -> impl Iterator<Item = VolumeAddress> {
        self.list.iter().map(|absent| VolumeAddress {
            address: absent.address.clone(),
            volume: absent.volume.clone(),
        })
    }

    fn position(&self, device: &str) -> Option<usize> {
        self.list.iter().position(|one| member_name(&one.address, &one.volume) == device)
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
}

impl Client {
    /// Has a role nobody whom it waits for?
    fn is_open(&self, role: u16) -> bool {
        let nobody = self.sessions[usize::from(role)].state == SessionState::Missing;
        nobody && self.keeper.is_vacant(role)
    }

    /// Who is not in, while anybody could be.
    pub(super) fn absent_status(&self) -> Vec<AbsentStatus> {
        let vacant = (0..self.shared.params().nodes).any(|role| self.is_open(role));
        let absent = self.absents.why.iter().filter(|_| vacant);
        absent
            .map(|(device, why)| AbsentStatus { device: device.clone(), why: why.clone() })
            .collect()
    }

    /// That is what stands against one that was looked at.
    fn absent_since(&mut self, number: usize, why: Refusal) {
        let Some(absent) = self.absents.list.get(number) else { return };
        let device = member_name(&absent.address, &absent.volume);
        self.absents.why.insert(device, why);
    }

    fn may_look_for_absent(&self) -> bool {
        let wanted = !self.absents.list.is_empty() && self.newcomer.is_none();
        wanted
            && self.may_return()
            && (0..self.shared.params().nodes).any(|role| self.is_open(role))
    }

    pub(super) fn absent_deadline(&self) -> Option<Instant> {
        let due = || self.absents.list.iter().map(|absent| absent.due).min();
        let next = self.absents.look.as_ref().map(|look| look.until);
        next.or_else(|| due().filter(|_| self.may_look_for_absent()))
    }

    /// Looks at the next one whose time has come, and gives up what takes too long.
    pub(super) fn look_for_absent(&mut self) {
        let now = self.keeper.now();
        if self.absents.look.as_ref().is_some_and(|look| look.until <= now) {
            self.leave_absent();
        }
        if self.absents.look.is_some() || !self.may_look_for_absent() {
            return;
        }
        let Some(number) = self.absents.list.iter().position(|one| one.due <= now) else { return };
        let peer = self.out.connect(self.absents.list[number].address.clone());
        let until = now.plus_millis(PATIENCE_MILLIS);
        self.absents.look = Some(Look { number, peer, until, volume_bytes: 0 });
    }

    /// Hangs up on one that is looked at; it is tried again later.
    pub(super) fn leave_absent(&mut self) {
        if let Some(look) = self.absents.look.take() {
            self.out.hang_up(look.peer);
            self.absent_again(look.number);
        }
    }

    fn absent_again(&mut self, number: usize) {
        let now = self.keeper.now();
        let Some(absent) = self.absents.list.get_mut(number) else { return };
        absent.tries += 1;
        absent.due = now.plus_millis(pause_millis(absent.tries));
    }

    /// It did not become a member.
    pub(super) fn absent_fails(&mut self, device: &str) {
        if let Some(number) = self.absents.position(device) {
            self.absent_again(number);
        }
    }

    /// What comes over the connection.
    pub(super) fn absent_event(&mut self, event: FabricEvent) {
        let Some(look) = &mut self.absents.look else { return };
        let (peer, number) = (look.peer, look.number);
        let message = match event {
            FabricEvent::Connected { .. } => {
                let name = self.absents.list[number].volume.clone();
                return self.out.send(peer, &Message::OpenVolume { tag: 0, name, write: false });
            }
            FabricEvent::Message { bytes, .. } => Message::decode(&bytes),
            FabricEvent::Lost { why, .. } => {
                self.absents.look = None;
                self.absent_since(number, why);
                return self.absent_again(number);
            }
            FabricEvent::Accepted { .. } | FabricEvent::Placed { .. } => return,
        };
        match message {
            Ok((_, Message::Volume { bytes, used: false, .. })) => {
                look.volume_bytes = bytes;
                let (sector, bytes) = (SUPERBLOCK_SECTOR, SUPERBLOCK_BYTES);
                self.out.send(peer, &Message::ReadMeta { tag: 0, sector, bytes });
            }
            Ok((_, Message::Meta { bytes, .. })) => {
                let volume_bytes = look.volume_bytes;
                // A node grants nothing on a connection that has a volume already.
                self.leave_absent();
                self.absent_is(number, volume_bytes, &bytes);
            }
            Ok((_, Message::Refused { reason, .. })) => {
                self.leave_absent();
                self.absent_since(number, Refusal::new(reason, IN_ITS_PLACE));
            }
            _ => self.leave_absent(),
        }
    }

    /// It has this superblock: is it a member, and nobody has its place?
    fn absent_is(&mut self, number: usize, volume_bytes: u64, superblock: &[u8]) {
        let decoded = Superblock::decode(Version::V1_2, SUPERBLOCK_SECTOR, superblock);
        if let Some(Refusal { reason, .. }) = is_of_another(self.array_id(), &decoded) {
            return self.absent_since(number, Refusal::new(reason, IN_ITS_PLACE));
        }
        let Ok(found) = decoded else { return };
        let Role::Active(role) = found.role() else { return };
        if role < self.shared.params().nodes && !self.is_open(role) {
            return self.absent_since(number, Refusal::new(ANOTHERS, IN_ITS_PLACE));
        }
        let Some(member) = self.keeper.free_id() else { return };
        if role >= self.shared.params().nodes || !self.is_open(role) || !self.may_look_for_absent()
        {
            return;
        }
        let absent = &self.absents.list[number];
        let new = NewMember {
            member,
            device: member_name(&absent.address, &absent.volume),
            device_sectors: volume_bytes / SECTOR_BYTES,
            device_uuid: found.device_uuid,
            superblock: Some(Box::new(found)),
            bad_blocks: BadBlocks::default(),
            readd: false,
        };
        // It cannot now, and is looked at again later.
        let _ = self.begin_newcomer(Origin::Absent, new, role);
    }
}
