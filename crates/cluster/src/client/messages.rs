//! What comes from nodes: who has to hear of it.

use braid_array::fabric::FabricEvent;
use braid_array::keeper::LaneReport;
use braid_array::{Refusal, Role};

use super::Client;
use super::engine::{Prepared, StoreFault};
use super::out::{LossKind, RequestKind};
use super::sessions::negotiation::Step;
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
        let Some(role) = parts.sessions.list.at(peer, parts.keeper.view().now()) else {
            if parts.ownership.is_witness(peer) {
                let (ownership, mut cx, facts) = parts.ownership();
                ownership.witness_event(&mut cx, facts, peer, event);
            }
            return;
        };
        let visit = parts.sessions.list.is_visit(role);
        match event {
            FabricEvent::Placed { .. } if visit => {}
            FabricEvent::Placed { imm, .. } => {
                self.sessions_touched = false;
                let (engine, mut cx) = parts.engine_as_is();
                engine.placed(&mut cx, role, imm);
            }
            FabricEvent::Message { bytes, .. } => match Message::decode(&bytes) {
                Ok((_, message)) => self.message(role, message),
                Err(_) => parts.out.violates(role, "it does not speak the protocol"),
            },
            event => {
                let (sessions, mut net) = parts.sessions();
                sessions.event(&mut net, role, event);
            }
        }
    }

    fn message(&mut self, role: Role, message: Message) {
        let list = &self.parts.sessions.list;
        match message {
            Message::Prepared { .. } | Message::Finished { .. } if !list.alive(role) => {
                self.parts.out.violates(role, "it has a part in nothing");
            }
            Message::Prepared { .. }
            | Message::Finished { .. }
            | Message::NeighbourLost { .. }
            | Message::Copied { .. }
            | Message::ReadFailed { .. }
                if !list.is_visit(role) =>
            {
                self.engine_message(role, message);
            }
            // It has a part in nothing.
            Message::NeighbourLost { .. } => {}
            message => {
                let (sessions, mut net) = self.parts.sessions();
                sessions.message(&mut net, role, message);
            }
        }
    }

    /// What a node says of slice-sets and reads.
    fn engine_message(&mut self, role: Role, message: Message) {
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
            Message::Finished { position, generation, ok } => {
                engine.finished(&mut cx, role, position, generation, ok);
            }
            Message::NeighbourLost { role: lost } => {
                engine.neighbour_lost(&mut cx, [role, lost]);
            }
            Message::Copied { slot } => {
                engine.copied(&mut cx, role, slot);
            }
            Message::ReadFailed { slot } => {
                engine.read_failed(&mut cx, role, slot);
            }
            _ => {}
        }
    }

    /// What the sessions have come to.
    pub(super) fn session_event(&mut self, event: SessionEvent) {
        let Self { parts, keeper_side, .. } = self;
        match event {
            SessionEvent::Holds { role, step: Step::Granting } => {
                let (ownership, mut cx, _) = parts.ownership();
                ownership.request_grant(&mut cx, role);
            }
            SessionEvent::Holds { role, step } => keeper_side.holds(parts, role, step),
            SessionEvent::Judge {
                role,
                answer: answer @ Answer::Pipeline { ring, journal_bytes, parts_only },
            } => {
                parts.engine.journals.told(role, journal_bytes, parts_only);
                parts.session_mut(role).ring = ring;
                if parts.alive(role) {
                    parts.sessions.hold(role, Step::Prepared);
                    parts.start_goes_on();
                } else {
                    keeper_side.judge(parts, role, answer);
                }
            }
            SessionEvent::Judge { role, answer } => keeper_side.judge(parts, role, answer),
            SessionEvent::Ready => parts.start_goes_on(),
            SessionEvent::Wired { role, ok } => keeper_side.wired(parts, role, ok),
            SessionEvent::Over => keeper_side.over(),
            SessionEvent::Failed { role, why } => keeper_side.failed(parts, role, why),
            SessionEvent::Unusable { role, why } => parts.give_up(role, why),
            SessionEvent::Lost { role, why } => parts.lose(role, why),
            SessionEvent::Silent { role, why } => self.lose_now(role, why, LossKind::Returns),
            SessionEvent::Answered { role, kind, answer } => self.answered(role, kind, answer),
            SessionEvent::Outvoted { role, kind, granted } => {
                let (ownership, mut cx, facts) = parts.ownership();
                ownership.outvoted(&mut cx, facts, role, kind, granted);
            }
        }
    }

    /// A node answers what the engine, the votes and views, or the keeper have asked for.
    fn answered(&mut self, role: Role, kind: RequestKind, answer: Answer) {
        let parts = &mut self.parts;
        match (kind, answer) {
            (
                RequestKind::Grant
                | RequestKind::ListLeftovers
                | RequestKind::Reread
                | RequestKind::ResolveLeftovers
                | RequestKind::StoreView(_),
                answer,
            ) => self.vote_answered(role, kind, answer),
            (RequestKind::Journal, Answer::Journal { mark, items, next }) => {
                let (engine, mut cx) = parts.engine();
                engine.journals.listed(&mut cx, role, mark, items, next);
                parts.start_journals();
            }
            (kind, answer) => self.done(role, kind, answer.outcome()),
        }
    }

    /// A node has done what was asked for, or refuses.
    fn done(&mut self, role: Role, kind: RequestKind, done: Result<(), Refusal>) {
        let ok = done.is_ok();
        let needed = match kind {
            RequestKind::Meta | RequestKind::Flush(_) => true,
            RequestKind::Journal => self.parts.engine.journals.are_needed(),
            _ => false,
        };
        match (kind, done) {
            (RequestKind::StoreCopied(_), Err(why)) => {
                return self.keeper_side.lose_stranger(&mut self.parts, role, why);
            }
            (_, Err(why)) if needed => self.lose_now(role, why, LossKind::Fault),
            _ => {}
        }
        match kind {
            RequestKind::Meta => self.parts.keeper_mut().hear(LaneReport::UpdateDone),
            RequestKind::Journal => {
                self.parts.engine.journals.without(role);
                self.parts.start_journals();
            }
            _ => {
                let (engine, mut cx) = self.parts.engine();
                engine.answered(&mut cx, role, kind, ok);
            }
        }
    }

    /// A node answers what a takeover, or a view, has asked for.
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
                self.lose_now(role, why, LossKind::Fault);
            }
        }
    }
}
