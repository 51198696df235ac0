//! All sessions, by [`SessionKey`].

use braid_array::fabric::PeerId;
use braid_array::status::Status;
use braid_array::{Instant, MemberId, Role};

use super::negotiation::NegotiationStep;
use super::session::{Session, SessionState};
use crate::client::ClientMember;
use crate::client::session_key::SessionKey;

/// One session for each role, one with a node to which a member is copied, and two for visits.
#[derive(Debug)]
pub(in crate::client) struct List {
    /// By role; then the copy target and the visits.
    sessions: Vec<Session>,
    nodes: u16,
    /// Any session may have changed.
    changed: bool,
}

impl List {
    /// Creates the sessions of all members, by role.
    pub(super) fn new(members: Vec<Option<ClientMember>>) -> Self {
        let nodes = members.len() as u16;
        let mut ids = (0..).map(MemberId);
        let session = |member: Option<ClientMember>| {
            let id = member.as_ref().and_then(|_| ids.next());
            Session { member, id, ..Session::none() }
        };
        let mut sessions: Vec<Session> = members.into_iter().map(session).collect();
        sessions.extend(SessionKey::BESIDE.map(|_| Session::none()));
        Self { sessions, nodes, changed: true }
    }

    /// Returns the keys of all sessions.
    pub(super) fn keys(&self) -> impl Iterator<Item = SessionKey> + use<> {
        let nodes = self.nodes;
        (0..self.sessions.len()).map(move |index| SessionKey::at(index, nodes))
    }

    /// Returns the keys of members and of the copy target.
    pub(in crate::client) fn member_keys(&self) -> impl Iterator<Item = SessionKey> + use<> {
        SessionKey::of_members(self.nodes)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Session> {
        self.sessions.iter()
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.changed = true;
        self.sessions.iter_mut()
    }

    /// Returns the sessions of the roles, followed by that of the copy target.
    pub(in crate::client) fn members(&self) -> &[Session] {
        &self.sessions[..=SessionKey::CopyTarget.index(self.nodes)]
    }

    pub(in crate::client) fn get(&self, key: impl Into<SessionKey>) -> &Session {
        &self.sessions[key.into().index(self.nodes)]
    }

    pub(in crate::client) fn get_mut(&mut self, key: impl Into<SessionKey>) -> &mut Session {
        self.changed = true;
        &mut self.sessions[key.into().index(self.nodes)]
    }

    /// Returns and clears the mark that any session has changed, apart from the time of the last
    /// message.
    pub(in crate::client) const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }

    pub(in crate::client) fn roles(&self) -> impl Iterator<Item = Role> + use<> {
        Role::all(self.nodes)
    }

    pub(in crate::client) fn alive(&self, key: impl Into<SessionKey>) -> bool {
        self.get(key).alive()
    }

    /// Returns the role of a session whose member is there.
    pub(in crate::client) fn alive_role(&self, key: SessionKey) -> Option<Role> {
        key.role().filter(|&role| self.alive(role))
    }

    /// Returns the role that the node has, or is to have after a copy.
    pub(in crate::client) fn place(&self, key: SessionKey) -> Option<Role> {
        key.role().or(self.get(key).copy_of)
    }

    /// Returns the keeper's id for the member of a role, if it has one.
    pub(in crate::client) fn id(&self, key: impl Into<SessionKey>) -> Option<MemberId> {
        self.get(key).id
    }

    pub(in crate::client) fn role_of(&self, member: MemberId) -> Option<Role> {
        self.roles().find(|&role| self.get(role).id == Some(member))
    }

    /// Returns the session of a connection, and notes that the node was heard.
    pub(in crate::client) fn at(&mut self, peer: PeerId, now: Instant) -> Option<SessionKey> {
        let found = |session: &Session| session.peer == Some(peer) && session.is_connected();
        let index = self.sessions.iter().position(found)?;
        // That changes nothing that others see of it.
        self.sessions[index].presence.heard(now);
        Some(SessionKey::at(index, self.nodes))
    }

    /// Returns whether any session of a member or of the copy target is connected.
    pub(in crate::client) fn any_connected(&self) -> bool {
        self.members().iter().any(Session::is_connected)
    }

    pub(in crate::client) fn any_connecting(&self) -> bool {
        self.members()
            .iter()
            .any(|session| session.alive() && session.is_at(NegotiationStep::Connecting))
    }

    pub(in crate::client) fn any_alive(&self) -> bool {
        self.sessions.iter().any(Session::alive)
    }

    /// Returns whether all members that are there are at this step of the start.
    pub(in crate::client) fn all_at(&self, step: NegotiationStep) -> bool {
        self.sessions.iter().all(|session| !session.alive() || session.is_at(step))
    }

    pub(in crate::client) fn all_ready(&self) -> bool {
        let ready = |session: &Session| !session.alive() || session.state == SessionState::Ready;
        self.sessions.iter().all(ready)
    }

    /// Returns the latest version that was open at the loss of any node that is now prepared again.
    pub(in crate::client) fn prepared_since(&self) -> Option<u64> {
        let prepared =
            self.members().iter().filter(|one| one.is_coming_at(NegotiationStep::Prepared));
        prepared.map(|session| session.lost_at).max()
    }

    /// Marks the awaited and the refused members in a status.
    pub(in crate::client) fn mark_away(&self, status: &mut Status) {
        for session in self.members() {
            let member = status.members.iter_mut().find(|member| Some(member.member) == session.id);
            if let Some(member) = member {
                member.refused.clone_from(&session.refused);
                member.awaited = session.due.is_some() || session.is_coming();
            }
        }
    }
}
