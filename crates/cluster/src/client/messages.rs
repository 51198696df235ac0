//! Dispatch of messages from nodes.

use braid_array::fabric::FabricEvent;
use braid_array::keeper::LaneReport;
use braid_array::{Refusal, Role};

use super::Client;
use super::engine::{Prepared, StoreFault};
use super::out::{LossKind, RequestKind};
use super::session_key::SessionKey;
use super::sessions::negotiation::NegotiationStep;
use super::sessions::{Answer, SessionEvent};
use crate::wire::Message;

impl Client {
    pub(super) fn fabric(&mut self, event: FabricEvent) {
        let peer = match &event {
            FabricEvent::Accepted { peer, .. }
            | FabricEvent::Connected { peer }
            | FabricEvent::Lost { peer, .. }
            | FabricEvent::Placed { peer, .. }
            | FabricEvent::Message { peer, .. } => *peer,
        };
        let parts = &mut self.parts;
        let Some(key) = parts.sessions.list.at(peer, parts.keeper.view().now()) else {
            if parts.ownership.is_witness(peer) {
                let (ownership, mut cx, facts) = parts.ownership();
                ownership.witness_event(&mut cx, facts, peer, event);
            }
            return;
        };
        let visit = key.is_visit();
        match event {
            FabricEvent::Placed { .. } if visit => {}
            FabricEvent::Placed { imm, .. } => {
                self.sessions_touched = false;
                let (engine, mut cx) = parts.engine_as_is();
                engine.placed(&mut cx, key, imm);
            }
            FabricEvent::Message { bytes, .. } => match Message::decode(&bytes) {
                Ok((_, message)) => self.message(key, message),
                Err(_) => parts.out.violates(key, "it does not speak the protocol"),
            },
            event => {
                let (sessions, mut net) = parts.sessions();
                sessions.event(&mut net, key, event);
            }
        }
    }

    fn message(&mut self, key: SessionKey, message: Message) {
        match message {
            Message::Prepared { .. } | Message::Finished { .. } => {
                match self.parts.sessions.list.alive_role(key) {
                    Some(role) => self.set_message(role, message),
                    None => self.parts.out.violates(key, "it has a part in nothing"),
                }
            }
            Message::NeighbourLost { .. } | Message::Copied { .. } | Message::ReadFailed { .. }
                if !key.is_visit() =>
            {
                self.engine_message(key, message);
            }
            // It has a part in nothing.
            Message::NeighbourLost { .. } => {}
            message => {
                let (sessions, mut net) = self.parts.sessions();
                sessions.message(&mut net, key, message);
            }
        }
    }

    /// Handles the answer of a member on its part of a slice-set.
    fn set_message(&mut self, role: Role, message: Message) {
        self.sessions_touched = false;
        let (engine, mut cx) = self.parts.engine_as_is();
        match message {
            Message::Prepared {
                position,
                generation,
                ok,
                own_fault,
                no_room,
                cut_off,
                received_bytes,
            } => {
                let fault = own_fault.then_some(StoreFault { no_room });
                let prepared = Prepared { role, position, generation, ok, fault, cut_off };
                engine.sets.mix.received(role, received_bytes);
                engine.prepared(&mut cx, prepared);
            }
            Message::Finished { position, generation, ok, no_room } => {
                let result = if ok { Ok(()) } else { Err(StoreFault { no_room }) };
                engine.finished(&mut cx, role, position, generation, result);
            }
            _ => {}
        }
    }

    /// Handles a node's message on reads, and on its connections to others.
    fn engine_message(&mut self, key: SessionKey, message: Message) {
        self.sessions_touched = false;
        let (engine, mut cx) = self.parts.engine_as_is();
        match message {
            Message::NeighbourLost { role: lost } => {
                engine.neighbour_lost(&mut cx, [key.role(), Some(lost)]);
            }
            Message::Copied { slot } => {
                engine.copied(&mut cx, key, slot);
            }
            Message::ReadFailed { slot } => {
                engine.read_failed(&mut cx, key, slot);
            }
            _ => {}
        }
    }

    /// Handles an event of the sessions.
    pub(super) fn session_event(&mut self, event: SessionEvent) {
        let parts = &mut self.parts;
        match event {
            SessionEvent::Holds {
                key: SessionKey::Member(role),
                step: NegotiationStep::Granting,
            } => {
                let (ownership, mut cx, _) = parts.ownership();
                ownership.request_grant(&mut cx, role);
            }
            SessionEvent::Holds { key, step } => parts.holds(key, step),
            SessionEvent::Judge { key, answer } => parts.judge(key, &answer),
            SessionEvent::Ready => parts.start_goes_on(),
            SessionEvent::Wired { key, ok } => parts.wired(key, ok),
            SessionEvent::Over => parts.keeper_side.departed.done(),
            SessionEvent::Failed { key, why } => parts.join(|side| side.failed(key, why)),
            SessionEvent::Lost { role, why } => parts.lose(role, why),
            SessionEvent::Silent { key, why } => self.lose_now(key, why, LossKind::Returns),
            SessionEvent::Answered { key, kind, answer } => self.answered(key, kind, answer),
            SessionEvent::Outvoted { key, kind, granted } => {
                let (ownership, mut cx, facts) = parts.ownership();
                ownership.outvoted(&mut cx, facts, key, kind, granted);
            }
        }
    }

    /// Handles a node's answer to a request of the engine, the votes and views, or the keeper.
    fn answered(&mut self, key: SessionKey, kind: RequestKind, answer: Answer) {
        let parts = &mut self.parts;
        match (key, kind, answer) {
            (
                SessionKey::Member(role),
                RequestKind::Grant
                | RequestKind::ListLeftovers
                | RequestKind::Reread
                | RequestKind::ResolveLeftovers
                | RequestKind::StoreView(_),
                answer,
            ) => self.vote_answered(role, kind, answer),
            (
                SessionKey::Member(role),
                RequestKind::Journal,
                Answer::Journal { mark, items, next },
            ) => {
                let (engine, mut cx) = parts.engine();
                engine.journals.listed(&mut cx, role, mark, items, next);
                parts.start_journals();
            }
            (key, kind, answer) => self.done(key, kind, answer.outcome()),
        }
    }

    /// Handles a completed or refused request.
    fn done(&mut self, key: SessionKey, kind: RequestKind, done: Result<(), Refusal>) {
        let ok = done.is_ok();
        let needed = match kind {
            RequestKind::Meta | RequestKind::Flush(_) => true,
            RequestKind::Journal => self.parts.engine.journals.are_needed(),
            _ => false,
        };
        match (kind, done) {
            (RequestKind::Lengthen, done) => return self.parts.lengthened(key, done),
            (RequestKind::StoreCopied(_), Err(why)) => {
                return self.parts.lose_stranger(key, Some(why));
            }
            (_, Err(why)) if needed => self.lose_now(key, why, LossKind::Store),
            _ => {}
        }
        match kind {
            RequestKind::Meta => self.parts.keeper_mut().hear(LaneReport::UpdateDone),
            RequestKind::Journal => {
                if let Some(role) = key.role() {
                    self.parts.engine.journals.without(role);
                }
                self.parts.start_journals();
            }
            _ => {
                let (engine, mut cx) = self.parts.engine();
                engine.answered(&mut cx, key, kind, ok);
            }
        }
    }

    /// Handles a node's answer to a request of a takeover or for a view.
    fn vote_answered(&mut self, role: Role, kind: RequestKind, answer: Answer) {
        let (ownership, mut cx, facts) = self.parts.ownership();
        match (kind, answer) {
            (RequestKind::Grant, Answer::Granted(grant)) => {
                ownership.granted(&mut cx, facts, role, grant);
            }
            (RequestKind::ListLeftovers, Answer::Leftovers { params, items, next }) => {
                ownership.leftovers(&mut cx, facts, role, (params, items, next));
            }
            (RequestKind::Reread, Answer::Content(bytes)) => {
                ownership.reread(&mut cx, facts, role, Some(&bytes));
            }
            (RequestKind::Reread, Answer::Volume { .. }) => {
                ownership.reread(&mut cx, facts, role, None);
            }
            (RequestKind::ResolveLeftovers, Answer::Done) => {
                ownership.answered(&mut cx, facts, role);
            }
            (RequestKind::StoreView(order), Answer::Done) => {
                ownership.view_recorded(&mut cx, facts, role, order);
            }
            // It cannot vote, or not keep what it was told.
            (_, answer) => {
                let nonsense = || Refusal::new("it does not keep to the protocol", "update it");
                let why = answer.refusal().unwrap_or_else(nonsense);
                self.lose_now(role.into(), why, LossKind::Store);
            }
        }
    }
}
