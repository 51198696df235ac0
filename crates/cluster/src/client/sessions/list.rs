//! All sessions, by role.

use braid_array::fabric::PeerId;
use braid_array::status::Status;
use braid_array::{Instant, MemberId, Role};

use super::negotiation::Step;
use super::session::{Session, SessionState};
use crate::client::ClientMember;

/// One session for each role, one with a node to which a member is copied, and two for visits.
#[derive(Debug)]
pub(in crate::client) struct List {
    sessions: Vec<Session>,
    /// Any of them may be different from what it was.
    changed: bool,
}

impl List {
    /// With all members, by role.
    pub(super) fn new(members: Vec<Option<ClientMember>>) -> Self {
        let nodes = members.len() as u16;
        let mut ids = (0..).map(MemberId);
        let session = |(role, member): (Role, Option<ClientMember>)| {
            let id = member.as_ref().and_then(|_| ids.next());
            Session { member, id, ..Session::none(role) }
        };
        let mut list: Vec<Session> = (0..).map(Role).zip(members).map(session).collect();
        list.extend((nodes..nodes + 3).map(Role).map(Session::none));
        Self { sessions: list, changed: true }
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
        &self.sessions[..=self.copy_target().index()]
    }

    pub(in crate::client) fn get(&self, role: Role) -> &Session {
        &self.sessions[role.index()]
    }

    pub(in crate::client) fn get_mut(&mut self, role: Role) -> &mut Session {
        self.changed = true;
        &mut self.sessions[role.index()]
    }

    /// Have they changed, but for when anything was heard, since this was last asked?
    pub(in crate::client) const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }

    fn nodes(&self) -> u16 {
        self.sessions.len() as u16 - 3
    }

    pub(in crate::client) fn roles(&self) -> impl Iterator<Item = Role> + use<> {
        Role::all(self.nodes())
    }

    /// The session with a node to which a member is copied.
    pub(in crate::client) fn copy_target(&self) -> Role {
        Role(self.nodes())
    }

    /// That for a look at a member that was absent at the start.
    pub(in crate::client) fn absent_visit(&self) -> Role {
        Role(self.nodes() + 1)
    }

    /// That with a node whose member has left the array.
    pub(in crate::client) fn departed_visit(&self) -> Role {
        Role(self.nodes() + 2)
    }

    pub(in crate::client) fn is_visit(&self, role: Role) -> bool {
        role > self.copy_target()
    }

    pub(in crate::client) fn alive(&self, role: Role) -> bool {
        self.get(role).alive()
    }

    /// What the keeper calls the member of a role, if it has one.
    pub(in crate::client) fn id(&self, role: Role) -> Option<MemberId> {
        self.get(role).id
    }

    pub(in crate::client) fn role_of(&self, member: MemberId) -> Option<Role> {
        self.roles().find(|&role| self.get(role).id == Some(member))
    }

    /// The session over this connection, to which something has come.
    pub(in crate::client) fn at(&mut self, peer: PeerId, now: Instant) -> Option<Role> {
        let found = |session: &Session| session.peer == Some(peer) && session.is_connected();
        let role = self.sessions.iter().position(found)?;
        // That changes nothing that others see of it.
        self.sessions[role].presence.heard(now);
        Some(Role::at(role))
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

    /// The state of the array, with who is refused.
    pub(in crate::client) fn mark_refused(&self, status: &mut Status) {
        for session in self.members() {
            let member = status.members.iter_mut().find(|member| Some(member.member) == session.id);
            if let Some(member) = member {
                member.refused.clone_from(&session.refused);
            }
        }
    }
}
