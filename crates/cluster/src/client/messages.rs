//! What comes from nodes: who has to hear of it, and what it answers.

use super::engine::{Prepared, StoreFault};
use super::latency::TimedOperation;
use super::out::LossKind;
use super::ownership::decision::Grant;
use super::sessions::setup::SessionState;
use super::{Client, FabricEvent, Message, Refusal, RequestKind};
use crate::ids::SetVersion;
use crate::pipeline::Params;
use crate::wire::{JournalEntry, Leftover};

impl Client {
    pub(super) fn fabric(&mut self, event: FabricEvent) {
        let peer = match &event {
            FabricEvent::Accepted { peer, .. }
            | FabricEvent::Connected { peer }
            | FabricEvent::Lost { peer, .. }
            | FabricEvent::Placed { peer, .. }
            | FabricEvent::Message { peer, .. } => *peer,
        };
        if self.absents.are_looked_at_by(peer) {
            return self.absent_event(event);
        }
        if self.departed.is_visited_by(peer) {
            return self.departed_event(event);
        }
        if self.ownership.is_witness(peer) {
            let (ownership, mut cx, facts) = self.ownership();
            return ownership.witness_event(&mut cx, facts, peer, event);
        }
        let role =
            self.sessions.iter().position(|session| session.peer == peer && session.is_connected());
        let Some(role) = role.map(|role| role as u16) else { return };
        let returns = !self.alive(role);
        self.sessions[usize::from(role)].presence.heard = self.keeper.now();
        match event {
            FabricEvent::Connected { .. } if returns => self.return_connected(role),
            FabricEvent::Lost { why, .. } if returns => {
                self.target_hears(role, why);
                self.return_lost(role);
            }
            FabricEvent::Accepted { .. } => {}
            FabricEvent::Connected { .. } => self.connected(role),
            FabricEvent::Lost { why, .. } => self.lose(role, why),
            FabricEvent::Placed { imm, .. } => {
                self.sessions_touched = false;
                let (engine, mut cx) = self.engine_as_is();
                engine.placed(&mut cx, role, imm);
            }
            FabricEvent::Message { bytes, .. } => match Message::decode(&bytes) {
                Ok((_, message)) => self.message(role, message),
                Err(_) => self.out.violates(role, "it does not speak the protocol"),
            },
        }
    }

    pub(super) fn message(&mut self, role: u16, message: Message) {
        match message {
            Message::Prepared { .. } | Message::Finished { .. } if !self.alive(role) => {
                self.out.violates(role, "it has a part in nothing");
            }
            Message::Prepared { .. }
            | Message::Finished { .. }
            | Message::Copied { .. }
            | Message::ReadFailed { .. } => self.engine_message(role, message),
            Message::Ok { tag } => self.answered(role, tag, Ok(None)),
            Message::Volume { tag, bytes, .. } => self.answered(role, tag, Ok(Some(bytes))),
            Message::Meta { tag, bytes } if self.is_looked_at(role, tag) => {
                self.out.requests.remove(&tag);
                self.return_looked(role, &bytes);
            }
            Message::Meta { tag, bytes } => self.reread_came(role, tag, &bytes),
            Message::Pong { tag, storage_silent_ms } => {
                self.answered(role, tag, Ok(None));
                self.heard_of_storage(role, storage_silent_ms);
            }
            Message::Identity { tag, node } => self.target_is(role, tag, node),
            Message::Granted { tag, view, incarnation, node } if !self.alive(role) => {
                let grant = Grant { view, incarnation, node };
                self.return_granted(role, tag, Some(grant));
            }
            Message::Outvoted { tag, granted }
                if !self.alive(role) && granted <= self.shared.params().epoch =>
            {
                self.return_granted(role, tag, None);
            }
            Message::Granted { tag, view, incarnation, node } => {
                self.granted(role, tag, Grant { view, incarnation, node });
            }
            Message::Leftovers { tag, params, items, next } => {
                self.leftovers(role, tag, (params, items, next));
            }
            Message::Outvoted { tag, granted } => self.outvoted(role, tag, granted),
            Message::PipelineReady { tag, ring, journal_bytes, parts_only } => {
                self.engine.journals.told(role, journal_bytes, parts_only);
                self.answered(role, tag, Ok(Some(ring)));
            }
            Message::JournalEntries { tag, mark, items, next } => {
                self.journal_listed(role, tag, mark, items, next);
            }
            Message::Refused { tag, reason, advice, .. } => {
                self.answered(role, tag, Err(Refusal::new(reason, advice)));
            }
            _ => self.out.violates(role, "it does not keep to the protocol"),
        }
    }

    /// What a node says of slice-sets and reads.
    fn engine_message(&mut self, role: u16, message: Message) {
        self.sessions_touched = false;
        let (engine, mut cx) = self.engine_as_is();
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
            Message::Copied { slot } => {
                engine.copied(&mut cx, role, slot);
            }
            Message::ReadFailed { slot } => {
                engine.read_failed(&mut cx, role, slot);
            }
            _ => {}
        }
    }

    /// What a node answers.
    pub(super) fn take_request(&mut self, role: u16, tag: u32) -> Option<RequestKind> {
        self.out.requests.get(&tag).filter(|(asked, _)| *asked == role)?;
        self.keeper.answered(self.member_id(role));
        self.out.latency.end(role, TimedOperation::Request(tag), self.keeper.now());
        Some(self.out.requests.remove(&tag)?.1)
    }

    /// A kind is answered.
    pub(super) fn answered(&mut self, role: u16, tag: u32, answer: Result<Option<u64>, Refusal>) {
        let returning = self.sessions[usize::from(role)].state;
        if let (SessionState::Returning(step), Some((asked, RequestKind::Return))) =
            (returning, self.out.requests.get(&tag).copied())
            && asked == role
        {
            self.out.requests.remove(&tag);
            return self.return_answered(role, step, answer);
        }
        let Some(kind) = self.take_request(role, tag) else {
            return self.out.violates(role, "it answers what was not asked");
        };
        match (kind, answer) {
            (RequestKind::Grant | RequestKind::ListLeftovers, answer) => {
                self.vote_refused(role, answer.err());
            }
            (
                RequestKind::Reread | RequestKind::ResolveLeftovers | RequestKind::StoreView(_),
                Err(why),
            ) => self.vote_refused(role, Some(why)),
            (RequestKind::Reread, Ok(_)) => {
                let (ownership, mut cx, facts) = self.ownership();
                ownership.reread(&mut cx, facts, role, None);
            }
            (RequestKind::ResolveLeftovers, Ok(_)) => {
                let (ownership, mut cx, facts) = self.ownership();
                ownership.answered(&mut cx, facts, role);
            }
            (RequestKind::StoreView(order), Ok(_)) => {
                let (ownership, mut cx, facts) = self.ownership();
                ownership.view_recorded(&mut cx, facts, role, order);
            }
            (
                RequestKind::OpenVolume | RequestKind::OpenPipeline | RequestKind::Connect,
                answer,
            ) => self.setup_answered(role, kind, answer),
            (RequestKind::Meta, answer) => {
                if let Err(why) = answer {
                    self.lose_now(role, why, LossKind::Fault);
                }
                self.keeper.update_done();
            }
            (RequestKind::Rewire, answer) => self.rewired(role, answer.is_ok()),
            (RequestKind::Journal, answer) => self.journal_answered(role, answer.err()),
            (RequestKind::StoreCopied(_), Err(why)) => self.lose_stranger(role, why),
            (RequestKind::Flush(_), Err(why)) => {
                self.lose_now(role, why, LossKind::Fault);
                self.engine_answered(role, kind, false);
            }
            (
                RequestKind::Flush(_)
                | RequestKind::LeaseRing
                | RequestKind::ReturnRing
                | RequestKind::StoreCopied(_),
                answer,
            ) => self.engine_answered(role, kind, answer.is_ok()),
            (RequestKind::Return | RequestKind::Ping, _) => {}
        }
    }

    /// A node has granted what was requested.
    fn granted(&mut self, role: u16, tag: u32, grant: Grant) {
        if !matches!(self.take_request(role, tag), Some(RequestKind::Grant)) {
            return self.out.violates(role, "it grants what was not asked");
        }
        let (ownership, mut cx, facts) = self.ownership();
        ownership.granted(&mut cx, facts, role, grant);
    }

    /// Another client was granted an epoch as high as ours, or higher.
    fn outvoted(&mut self, role: u16, tag: u32, granted: u32) {
        let kind = self.take_request(role, tag);
        let (ownership, mut cx, facts) = self.ownership();
        ownership.outvoted(&mut cx, facts, (role, granted), kind);
    }

    /// A node says what it has of the predecessor's slice-sets.
    fn leftovers(&mut self, role: u16, tag: u32, leftovers: (Option<Params>, Vec<Leftover>, u16)) {
        if !matches!(self.take_request(role, tag), Some(RequestKind::ListLeftovers)) {
            return self.out.violates(role, "it lists what was not asked");
        }
        let (ownership, mut cx, facts) = self.ownership();
        ownership.leftovers(&mut cx, facts, role, leftovers);
    }

    /// A part of what lies on a member now.
    fn reread_came(&mut self, role: u16, tag: u32, bytes: &[u8]) {
        if !matches!(self.take_request(role, tag), Some(RequestKind::Reread)) {
            return self.out.violates(role, "it tells what was not asked");
        }
        let (ownership, mut cx, facts) = self.ownership();
        ownership.reread(&mut cx, facts, role, Some(bytes));
    }

    /// A node cannot vote, or not keep what it was told.
    fn vote_refused(&mut self, role: u16, why: Option<Refusal>) {
        let nonsense = || Refusal::new("it does not keep to the protocol", "update it");
        self.lose_now(role, why.unwrap_or_else(nonsense), LossKind::Fault);
    }

    fn engine_answered(&mut self, role: u16, kind: RequestKind, ok: bool) {
        let (engine, mut cx) = self.engine();
        engine.answered(&mut cx, role, kind, ok);
    }

    /// A node lists what its journal holds.
    fn journal_listed(
        &mut self,
        role: u16,
        tag: u32,
        mark: SetVersion,
        items: Vec<JournalEntry>,
        next: u32,
    ) {
        if !matches!(self.take_request(role, tag), Some(RequestKind::Journal)) {
            return self.out.violates(role, "it lists what was not asked");
        }
        let (engine, mut cx) = self.engine();
        engine.journals.listed(&mut cx, role, mark, items, next);
        self.start_journals();
    }

    /// A journal has done what it was asked for, or cannot.
    fn journal_answered(&mut self, role: u16, refused: Option<Refusal>) {
        if let Some(why) = refused
            && self.engine.journals.are_needed()
        {
            self.lose_now(role, why, LossKind::Fault);
        }
        self.engine.journals.without(role);
        self.start_journals();
    }
}
