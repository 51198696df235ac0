//! The session with one node.

use braid_array::action::NewMember;
use braid_array::assemble::bad_blocks_place;
use braid_array::fabric::PeerId;
use braid_array::format::{BadBlocks, Superblock};
use braid_array::{Instant, MemberId, Refusal, Role, SECTOR_BYTES};

use super::negotiation::{Negotiation, NegotiationStep, Question};
use super::presence::Presence;
use crate::client::ClientMember;
use crate::client::membership::MembershipEntry;
use crate::client::ownership::decision::NodeGrant;
use crate::member::{VolumeAddress, member_name};
use crate::wire::PeerAddress;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum SessionState {
    /// No node.
    Missing,
    Negotiating(Negotiation),
    Ready,
    Lost,
}

/// The former member of a role, and the time of its next attempt.
#[derive(Debug)]
pub(in crate::client) struct Before {
    pub(in crate::client) member: ClientMember,
    pub(super) id: Option<MemberId>,
    pub(super) due: Option<Instant>,
}

/// The session with one node, for any purpose.
///
/// ```text
/// Missing ─► Negotiating ─► Ready ─► Lost ─► Negotiating, as a node that returns
///                └──► Missing or Lost
/// ```
/// A member is *alive* until it is lost. A member that is there at the start is alive from then on,
/// one that comes later from when it is ready. All writes include it. A returning member is
/// connected, but has no part in writes.
#[derive(Debug)]
pub(in crate::client) struct Session {
    pub(in crate::client) member: Option<ClientMember>,
    /// Address and volume of a visited node.
    pub(super) visited: Option<VolumeAddress>,
    /// The keeper's id for the member.
    pub(in crate::client) id: Option<MemberId>,
    /// The former member of the role, while a node is being added in its place.
    pub(in crate::client) before: Option<Before>,
    /// Role of the member that is copied to this node, and its own role after the copy.
    pub(in crate::client) copy_of: Option<Role>,
    /// Its connection, once there was one.
    pub(in crate::client) peer: Option<PeerId>,
    pub(in crate::client) state: SessionState,
    /// The vote of a node that is no member now.
    pub(in crate::client) grant: Option<NodeGrant>,
    pub(super) presence: Presence,
    /// Where the ring begins in the node's arena.
    pub(in crate::client) ring: u64,
    /// Time of the next attempt, or at which the present attempt is abandoned.
    pub(in crate::client) due: Option<Instant>,
    /// At the start: time from which a refusal is final.
    pub(in crate::client) patient_until: Instant,
    /// At the start: time at which a refused request is repeated.
    pub(super) retry_at: Option<Instant>,
    /// Time of the loss.
    pub(in crate::client) gone_at: Option<Instant>,
    /// Latest version of a slice-set when the member was lost.
    pub(in crate::client) lost_at: u64,
    /// Attempts that failed.
    pub(super) tries: u32,
    /// Size and superblock of its volume, as found when it came back.
    pub(in crate::client) volume_bytes: u64,
    pub(in crate::client) returned: Option<Box<Superblock>>,
    /// Set when the node's journal records are stored on it.
    pub(in crate::client) replayed: bool,
    /// Reason why the member was not taken back the last time, though its node was there.
    pub(in crate::client) refused: Option<Refusal>,
}

impl Session {
    /// Creates a session without a node.
    pub(super) fn none() -> Self {
        Self {
            member: None,
            visited: None,
            id: None,
            before: None,
            copy_of: None,
            peer: None,
            state: SessionState::Missing,
            grant: None,
            presence: Presence::default(),
            ring: 0,
            due: None,
            patient_until: Instant(0),
            retry_at: None,
            gone_at: None,
            lost_at: 0,
            tries: 0,
            volume_bytes: 0,
            returned: None,
            replayed: false,
            refused: None,
        }
    }

    /// Returns the negotiation under way.
    pub(in crate::client) const fn negotiation(&self) -> Option<Negotiation> {
        match self.state {
            SessionState::Negotiating(negotiation) => Some(negotiation),
            SessionState::Missing | SessionState::Ready | SessionState::Lost => None,
        }
    }

    /// Returns whether a negotiation with a node that is no member now is under way.
    pub(in crate::client) fn is_coming(&self) -> bool {
        self.negotiation().is_some_and(|negotiation| !negotiation.purpose.is_start())
    }

    /// Returns whether a joining node is at this step.
    pub(in crate::client) fn is_coming_at(&self, step: NegotiationStep) -> bool {
        self.is_coming() && self.is_at(step)
    }

    pub(super) fn is_at(&self, step: NegotiationStep) -> bool {
        self.negotiation().is_some_and(|negotiation| negotiation.step == step)
    }

    pub(in crate::client) fn alive(&self) -> bool {
        match self.state {
            SessionState::Missing | SessionState::Lost => false,
            SessionState::Ready => true,
            SessionState::Negotiating(Negotiation { purpose, .. }) => purpose.is_start(),
        }
    }

    /// Returns whether a member is at the other end.
    pub(super) fn can_be_asked(&self) -> bool {
        self.alive() && !self.is_at(NegotiationStep::Connecting)
    }

    /// Returns whether a node may be at the other end.
    pub(in crate::client) const fn is_connected(&self) -> bool {
        matches!(self.state, SessionState::Ready | SessionState::Negotiating(_))
    }

    /// Resets the state for a new connection.
    pub(in crate::client) fn stands_anew(&mut self) {
        self.state = SessionState::Ready;
        self.due = None;
        self.gone_at = None;
        self.refused = None;
    }

    /// Gives the session back to the former member.
    pub(in crate::client) fn restore(&mut self) {
        self.copy_of = None;
        let Some(Before { member, id, due }) = self.before.take() else { return self.clear() };
        // Who was failed by the administrator stays away; who is to be tried again has his turn
        // next, however often others are tried in his place.
        self.member = Some(member);
        self.id = id;
        self.due = due;
    }

    /// Clears the session of a removed member.
    pub(in crate::client) fn clear(&mut self) {
        self.state = SessionState::Missing;
        self.member = None;
        self.id = None;
        self.due = None;
        self.refused = None;
    }

    /// Notes that the node is a member now, or again.
    pub(in crate::client) const fn is_back(&mut self) {
        self.tries = 0;
    }

    /// Returns the session in the engine's form.
    pub(in crate::client) fn entry(&self) -> MembershipEntry {
        MembershipEntry {
            peer: self.peer,
            id: self.id,
            alive: self.alive(),
            ready: self.state == SessionState::Ready,
            ring: self.ring,
            data_sector: self.data_sector(),
        }
    }

    /// Returns the first sector of the data on the member.
    fn data_sector(&self) -> u64 {
        self.member.as_ref().map_or(0, |member| member.superblock.data_offset)
    }

    /// Returns the node's address.
    pub(in crate::client) fn address(&self) -> Option<&str> {
        let member = self.member.as_ref().map(|member| &member.address);
        member.or(self.visited.as_ref().map(|place| &place.address)).map(String::as_str)
    }

    /// Returns the member on the node's volume, in the keeper's form.
    pub(in crate::client) fn new_member(
        &self,
        member: MemberId,
        superblock: Box<Superblock>,
        bad_blocks: Option<BadBlocks>,
    ) -> Option<NewMember> {
        Some(NewMember {
            member,
            device: member_name(self.address()?, &self.volume()),
            device_sectors: self.volume_bytes / SECTOR_BYTES,
            device_uuid: superblock.device_uuid,
            superblock: Some(superblock),
            bad_blocks,
            readd: false,
        })
    }

    fn volume(&self) -> String {
        let member = self.member.as_ref().map(|member| &member.volume);
        member.or(self.visited.as_ref().map(|place| &place.volume)).cloned().unwrap_or_default()
    }

    /// Returns the address under which other nodes are wired to it, with this role.
    pub(super) fn peer_address(&self, role: Role) -> Option<PeerAddress> {
        let address = self.member.as_ref()?.address.clone();
        Some(PeerAddress { role, address, ring: self.ring })
    }

    pub(super) fn question(&self, place: Option<Role>, peers: Vec<PeerAddress>) -> Question {
        let sectors = self.volume_bytes / SECTOR_BYTES;
        let listed = |found: &Superblock| bad_blocks_place(found, sectors).ok().flatten();
        Question {
            volume: self.volume(),
            place,
            data_sector: self.data_sector(),
            list: self.returned.as_deref().and_then(listed),
            peers,
        }
    }
}
