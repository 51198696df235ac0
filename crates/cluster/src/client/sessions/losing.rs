//! Nodes that are lost, or given up: what was asked of one, or was to be, goes without it.

use braid_array::Refusal;
use braid_array::keeper::LaneReport;

use super::presence::Presence;
use super::setup::SessionState;
use crate::client::{Client, Message, RequestKind};

impl Client {
    /// Whoever does not answer may not take what was sent either: nobody waits for that.
    pub(in crate::client) fn hang_up_on(&mut self, role: u16) {
        self.out.cut(self.sessions[usize::from(role)].peer);
        self.gone(role);
        if let Some(member) = &self.sessions[usize::from(role)].member {
            self.departs(member.address.clone());
        }
    }

    /// The connection to a node is over.
    pub(in crate::client) fn lose(&mut self, role: u16, why: Refusal) {
        self.sessions[usize::from(role)].state = SessionState::Lost;
        if !(braid_array::broken("reconnect")
            && matches!(self.phase, crate::client::Phase::Running))
        {
            self.keeper.lose_member(self.member_id(role), why);
        }
        self.gone(role);
        self.await_return(role);
    }

    /// What was asked of a node, or was to be, goes without it.
    fn gone(&mut self, role: u16) {
        let now = self.keeper.view().now();
        let session = &mut self.sessions[usize::from(role)];
        session.state = SessionState::Lost;
        session.gone_at.get_or_insert(now);
        session.presence = Presence::default();
        let unanswered = self.out.forget(role);
        let (engine, mut cx) = self.engine();
        engine.without(&mut cx, role);
        self.others_without(role);
        for kind in unanswered {
            match kind {
                RequestKind::Flush(_) => {
                    let (engine, mut cx) = self.engine();
                    engine.answered(&mut cx, role, kind, true);
                }
                RequestKind::Meta => self.keeper.hear(LaneReport::UpdateDone),
                RequestKind::Rewire => self.rewired(role, false),
                _ => {}
            }
        }
        let (ownership, mut cx, facts) = self.ownership();
        ownership.without(&mut cx, facts, role);
        self.engine.journals.without(role);
        self.start_journals();
        self.setup_goes_on();
        let (engine, mut cx) = self.engine();
        engine.reads_without(&mut cx, role);
    }

    /// The nodes hang up on one that is lost, so that nothing of it comes any more.
    pub(in crate::client) fn others_without(&mut self, lost: u16) {
        if lost == self.copy_target() {
            // Only the one that is copied is connected to it, and is told by itself.
            return;
        }
        for role in 0..self.shared.params().nodes {
            let state = self.sessions[usize::from(role)].state;
            if matches!(state, SessionState::Wiring { .. } | SessionState::Ready) {
                self.send(role, &Message::Without { role: lost });
            }
        }
    }
}
