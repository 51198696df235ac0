//! All sessions, by [`SessionKey`].

use braid_array::fabric::PeerId;
use braid_array::status::Status;
use braid_array::{Instant, MemberId, Role};

use super::negotiation::Step;
use super::session::{Session, SessionState};
use crate::client::ClientMember;
use crate::client::session_key::SessionKey;

/// One session for each role, one with a node to which a member is copied, and two for visits.
#[derive(Debug)]
pub(in crate::client) struct List {
    /// By role; then come the copy target, and the visits.
    sessions: Vec<Session>,
    nodes: u16,
    /// Any of them may be different from what it was.
    changed: bool,
}

impl List {
    /// With all members, by role.
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

    /// Those of all.
    pub(super) fn keys(&self) -> impl Iterator<Item = SessionKey> + use<> {
        let nodes = self.nodes;
        (0..self.sessions.len()).map(move |index| SessionKey::at(index, nodes))
    }

    /// Those of members, and of the copy target.
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

    /// Those of the roles, and behind them that of the copy target.
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

    /// Have they changed, but for when anything was heard, since this was last asked?
    pub(in crate::client) const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }

    pub(in crate::client) fn roles(&self) -> impl Iterator<Item = Role> + use<> {
        Role::all(self.nodes)
    }

    pub(in crate::client) fn alive(&self, key: impl Into<SessionKey>) -> bool {
        self.get(key).alive()
    }

    /// The role of a member that is there.
    pub(in crate::client) fn alive_role(&self, key: SessionKey) -> Option<Role> {
        key.role().filter(|&role| self.alive(role))
    }

    /// The role that its node has or is to have, also when it has another session until then.
    pub(in crate::client) fn place(&self, key: SessionKey) -> Option<Role> {
        key.role().or(self.get(key).copy_of)
    }

    /// What the keeper calls the member of a role, if it has one.
    pub(in crate::client) fn id(&self, key: impl Into<SessionKey>) -> Option<MemberId> {
        self.get(key).id
    }

    pub(in crate::client) fn role_of(&self, member: MemberId) -> Option<Role> {
        self.roles().find(|&role| self.get(role).id == Some(member))
    }

    /// The session over this connection, to which something has come.
    pub(in crate::client) fn at(&mut self, peer: PeerId, now: Instant) -> Option<SessionKey> {
        let found = |session: &Session| session.peer == Some(peer) && session.is_connected();
        let index = self.sessions.iter().position(found)?;
        // That changes nothing that others see of it.
        self.sessions[index].presence.heard(now);
        Some(SessionKey::at(index, self.nodes))
    }

    /// Is somebody at the other end of any of the connections?
    pub(in crate::client) fn any_connected(&self) -> bool {
        self.members().iter().any(Session::is_connected)
    }

    pub(in crate::client) fn any_connecting(&self) -> bool {
        self.members().iter().any(|session| session.alive() && session.is_at(Step::Connecting))
    }

    pub(in crate::client) fn any_alive(&self) -> bool {
        self.sessions.iter().any(Session::alive)
    }

    /// Are all members that are there at this step of the start?
    pub(in crate::client) fn all_at(&self, step: Step) -> bool {
        self.sessions.iter().all(|session| !session.alive() || session.is_at(step))
    }

    pub(in crate::client) fn all_ready(&self) -> bool {
        let ready = |session: &Session| !session.alive() || session.state == SessionState::Ready;
        self.sessions.iter().all(ready)
    }

    /// The latest version that was open when one of those was lost that are prepared again.
    pub(in crate::client) fn prepared_since(&self) -> Option<u64> {
        let prepared = self.members().iter().filter(|one| one.is_coming_at(Step::Prepared));
        prepared.map(|session| session.lost_at).max()
    }

    /// The state of the array, with who is awaited and who is refused.
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
