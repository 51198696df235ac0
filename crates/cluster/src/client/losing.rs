//! Loss of nodes: pending requests to a lost node are dropped or rerouted.

use braid_array::keeper::LaneReport;
use braid_array::{Refusal, Role};

use super::ClientPhase;
use super::out::RequestKind;
use super::parts::Parts;

impl Parts {
    /// Handles a lost connection to a node, which may return.
    pub(super) fn lose(&mut self, role: Role, why: Refusal) {
        let running = matches!(self.phase, ClientPhase::Running);
        let id = self.sessions.list.id(role);
        let (sessions, mut net) = self.sessions();
        let unanswered = sessions.lost(&mut net, role);
        if !(braid_array::broken("reconnect") && running) {
            self.lose_member(id, why);
        }
        self.goes_without(role, unanswered);
        let (sessions, net) = self.sessions();
        sessions.await_return(&net, role);
    }

    /// Notes that the member of a role has left the array, or is abandoned.
    pub(super) fn departs(&mut self, role: Role) {
        if let Some(address) = self.session(role).address().map(str::to_owned) {
            self.join(|side| side.departs(address));
        }
    }

    /// Abandons an unresponsive node: data sent to it is not waited for.
    pub(super) fn cut(&mut self, role: Role) {
        let (sessions, mut net) = self.sessions();
        net.out.cut(sessions.list.get(role).peer);
        let unanswered = sessions.lost(&mut net, role);
        self.goes_without(role, unanswered);
        self.departs(role);
    }

    /// Drops or reroutes the pending requests to a node.
    fn goes_without(&mut self, role: Role, unanswered: Vec<RequestKind>) {
        let (engine, mut cx) = self.engine();
        engine.without(&mut cx, role);
        let (sessions, mut net) = self.sessions();
        sessions.tell_without(&mut net, role);
        for kind in unanswered {
            match kind {
                RequestKind::Flush(_) => {
                    let (engine, mut cx) = self.engine();
                    engine.answered(&mut cx, role.into(), kind, true);
                }
                RequestKind::Meta => self.keeper_mut().hear(LaneReport::UpdateDone),
                RequestKind::Rewire => {
                    let (sessions, mut net) = self.sessions();
                    sessions.rewired(&mut net, role, false);
                }
                _ => {}
            }
        }
        let (ownership, mut cx, facts) = self.ownership();
        ownership.without(&mut cx, facts, role);
        self.engine.journals.without(role);
        self.start_journals();
        self.start_goes_on();
        let (engine, mut cx) = self.engine();
        engine.reads_without(&mut cx, role);
    }
}
