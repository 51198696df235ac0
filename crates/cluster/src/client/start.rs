//! Start of an array, from the first connection until it can serve.
//!
//! ```text
//! connected ─► taken over ─► volumes open, prepared ─► journals are read ─► wired ─► running
//! ```
//! Nodes are wired to each other when all are prepared. A client that only inspects asks for no
//! votes, and needs no wires for reads.

use braid_array::{Action, Refusal};

use super::ClientPhase;
use super::parts::Parts;
use super::session_key::SessionKey;
use super::sessions::negotiation::NegotiationStep;

impl Parts {
    /// Connects to every node.
    pub(super) fn begin_start(&mut self, looks: bool) {
        let buf = self.shared.zeroes();
        self.out.push(Action::Store { buf, bytes: vec![0; buf.len as usize] });
        let (sessions, mut net) = self.sessions();
        sessions.begin(&mut net);
        if !looks {
            let (ownership, mut cx, _) = self.ownership();
            ownership.begin(&mut cx);
        }
        self.start_goes_on();
    }

    /// Opens the volumes once the array is taken over.
    pub(super) fn open_volumes(&mut self) {
        let (sessions, mut net) = self.sessions();
        for key in sessions.list.roles().map(SessionKey::Member) {
            if sessions.list.alive(key) {
                sessions.go_on(&mut net, key, NegotiationStep::Opening);
            }
        }
    }

    /// Wires the nodes when all are prepared; serves when all are ready. When too many are lost the
    /// others are abandoned, whatever is pending; each of these losses calls this again.
    pub(super) fn start_goes_on(&mut self) {
        if !self.is_starting() {
            return;
        }
        let ends = self.has_too_few() && !braid_array::broken("start-ends");
        if ends && self.sessions.list.any_alive() {
            self.keeper_mut().give_up();
        } else if self.sessions.list.all_ready() {
            self.phase = ClientPhase::Running;
            self.keeper_mut().begin();
        } else if self.sessions.list.all_at(NegotiationStep::Prepared) && self.may_be_wired() {
            let (sessions, mut net) = self.sessions();
            sessions.wire_all(&mut net);
        }
    }

    /// Returns whether the nodes may be wired: the journals are resolved, or an inspection needs
    /// none.
    fn may_be_wired(&mut self) -> bool {
        if self.sessions.looks() {
            return true;
        }
        let (engine, mut cx) = self.engine();
        engine.journals.are_ready(&mut cx)
    }

    /// Advances the replay of journals once no answer is awaited and views exclude the lost nodes.
    pub(super) fn start_journals(&mut self) {
        if !self.is_starting() {
            return;
        }
        while self.engine.journals.wants_views() {
            let (ownership, mut cx, _) = self.ownership();
            if !ownership.lost_are_recorded(&mut cx) {
                return;
            }
            let Some(view) = self.ownership.view().cloned() else { return };
            let (engine, mut cx) = self.engine();
            if engine.journals.views_told(&mut cx, &view) {
                return self.start_goes_on();
            }
        }
    }

    /// Gives up the start: the node is there, but another client has the volume, or the node has no
    /// room. The array must not continue as if the node were dead.
    pub(super) fn give_up(&mut self, key: SessionKey, why: Refusal) {
        let (ownership, mut cx, _) = self.ownership();
        ownership.give_up(&mut cx, key, why);
    }
}
