//! The session with one node.

use braid_array::assemble::bad_blocks_place;
use braid_array::fabric::PeerId;
use braid_array::format::Superblock;
use braid_array::{Instant, MemberId, Refusal, Role};

use super::negotiation::{Negotiation, Question, Step};
use super::presence::Presence;
use crate::client::ClientMember;
use crate::client::membership::Entry;
use crate::member::VolumeAddress;
use crate::wire::PeerAddress;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum SessionState {
    /// There is nobody.
    Missing,
    Negotiating(Negotiation),
    Ready,
    Lost,
}

/// The session with one node, whatever it is for.
///
/// ```text
/// Missing ─► Negotiating ─► Ready ─► Lost ─► Negotiating, as a node that returns
///                └──► Missing or Lost
/// ```
/// A member is *alive* until it is lost: one that is there at the start from then on, one that
/// comes later from when it is ready. All that is written is written with it. While it returns it
/// is connected, and has a part in nothing.
#[derive(Debug)]
pub(in crate::client) struct Session {
    pub(in crate::client) member: Option<ClientMember>,
    /// Where a node is that is visited.
    pub(super) visited: Option<VolumeAddress>,
    /// What the keeper calls it.
    pub(in crate::client) id: Option<MemberId>,
    /// The role of the member that is copied to it, and that it is to have then.
    pub(in crate::client) copy_of: Option<Role>,
    /// Its connection, once there was one.
    pub(in crate::client) peer: Option<PeerId>,
    pub(in crate::client) state: SessionState,
    pub(super) presence: Presence,
    /// Where the ring begins in the node's arena.
    pub(in crate::client) ring: u64,
    /// When it is tried again to get it back, or the attempt given up.
    pub(in crate::client) due: Option<Instant>,
    /// At the start: a refusal is final from here on.
    pub(super) patient_until: Instant,
    /// At the start: it has refused, and is asked again then.
    pub(super) retry_at: Option<Instant>,
    /// Since when it has been gone.
    pub(in crate::client) gone_at: Option<Instant>,
    /// No slice-set of a later version was opened before it was lost.
    pub(in crate::client) lost_at: u64,
    /// Attempts that failed.
    pub(super) tries: u32,
    /// Size and superblock of its volume, as found when it came back.
    pub(in crate::client) volume_bytes: u64,
    pub(in crate::client) returned: Option<Box<Superblock>>,
    /// Set when what the node had recorded is in place on it.
    pub(in crate::client) replayed: bool,
    /// Why it was not taken back the last time, though its node was there.
    pub(in crate::client) refused: Option<Refusal>,
}

impl Session {
    /// With nobody so far.
    pub(super) fn none() -> Self {
        Self {
            member: None,
            visited: None,
            id: None,
            copy_of: None,
            peer: None,
            state: SessionState::Missing,
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

    /// What is being negotiated.
    pub(in crate::client) const fn negotiation(&self) -> Option<Negotiation> {
        match self.state {
            SessionState::Negotiating(negotiation) => Some(negotiation),
            SessionState::Missing | SessionState::Ready | SessionState::Lost => None,
        }
    }

    /// A node that is no member now is being negotiated with.
    pub(in crate::client) fn is_coming(&self) -> bool {
        self.negotiation().is_some_and(|negotiation| !negotiation.purpose.is_start())
    }

    /// Is one that comes at this step?
    pub(in crate::client) fn is_coming_at(&self, step: Step) -> bool {
        self.is_coming() && self.is_at(step)
    }

    pub(super) fn is_at(&self, step: Step) -> bool {
        self.negotiation().is_some_and(|negotiation| negotiation.step == step)
    }

    pub(in crate::client) fn alive(&self) -> bool {
        match self.state {
            SessionState::Missing | SessionState::Lost => false,
            SessionState::Ready => true,
            SessionState::Negotiating(Negotiation { purpose, .. }) => purpose.is_start(),
        }
    }

    /// A member is at the other end.
    pub(super) fn can_be_asked(&self) -> bool {
        self.alive() && !self.is_at(Step::Connecting)
    }

    /// Somebody may be at the other end.
    pub(in crate::client) const fn is_connected(&self) -> bool {
        matches!(self.state, SessionState::Ready | SessionState::Negotiating(_))
    }

    /// The connection is new.
    pub(in crate::client) fn stands_anew(&mut self) {
        self.state = SessionState::Ready;
        self.due = None;
        self.gone_at = None;
        self.refused = None;
    }

    /// Its member was removed.
    pub(in crate::client) fn clear(&mut self) {
        self.state = SessionState::Missing;
        self.member = None;
        self.id = None;
        self.due = None;
        self.refused = None;
    }

    /// It is a member now, or again.
    pub(in crate::client) const fn is_back(&mut self) {
        self.tries = 0;
    }

    /// As the engine sees it.
    pub(in crate::client) fn entry(&self) -> Entry {
        Entry {
            peer: self.peer,
            id: self.id,
            alive: self.alive(),
            ready: self.state == SessionState::Ready,
            ring: self.ring,
            data_sector: self.data_sector(),
        }
    }

    /// First sector of the data on the member.
    fn data_sector(&self) -> u64 {
        self.member.as_ref().map_or(0, |member| member.superblock.data_offset)
    }

    /// The node's address.
    pub(in crate::client) fn address(&self) -> Option<&str> {
        let member = self.member.as_ref().map(|member| &member.address);
        member.or(self.visited.as_ref().map(|place| &place.address)).map(String::as_str)
    }

    fn volume(&self) -> String {
        let member = self.member.as_ref().map(|member| &member.volume);
        member.or(self.visited.as_ref().map(|place| &place.volume)).cloned().unwrap_or_default()
    }

    /// As others that are wired to it find it, by the role that they know it by.
    pub(super) fn peer_address(&self, role: Role) -> Option<PeerAddress> {
        let address = self.member.as_ref()?.address.clone();
        Some(PeerAddress { role, address, ring: self.ring })
    }

    pub(super) fn question(&self, place: Option<Role>, peers: Vec<PeerAddress>) -> Question {
        let listed = |superblock: &Superblock| bad_blocks_place(superblock).ok().flatten();
        Question {
            volume: self.volume(),
            place,
            data_sector: self.data_sector(),
            list: self.returned.as_deref().and_then(listed),
            peers,
        }
    }
}
