//! What comes from nodes: who has to hear of it, and what it answers.

use super::decision::Grant;
use super::pace::TimedOperation;
use super::sets::StoreFault;
use super::setup::LinkState;
use super::{Client, FabricEvent, Message, Refusal, RequestKind};

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
        if let Some(at) = self.witnesses.at(peer) {
            return self.witness_event(at, event);
        }
        let role = self.links.iter().position(|link| link.peer == peer && link.is_connected());
        let Some(role) = role.map(|role| role as u16) else { return };
        let returns = !self.alive(role);
        self.links[usize::from(role)].presence.heard = self.keeper.now();
        match event {
            FabricEvent::Connected { .. } if returns => self.return_connected(role),
            FabricEvent::Lost { why, .. } if returns => {
                self.newcomer_hears(role, why);
                self.return_lost(role);
            }
            FabricEvent::Accepted { .. } => {}
            FabricEvent::Connected { .. } => self.connected(role),
            FabricEvent::Lost { why, .. } => self.lose(role, why),
            FabricEvent::Placed { imm, .. } => self.read_placed(role, imm),
            FabricEvent::Message { bytes, .. } => match Message::decode(&bytes) {
                Ok((_, message)) => self.message(role, message),
                Err(_) => self.part_with(role, "it does not speak the protocol"),
            },
        }
    }

    pub(super) fn message(&mut self, role: u16, message: Message) {
        match message {
            Message::Prepared { .. } | Message::Finished { .. } if !self.alive(role) => {
                self.part_with(role, "it has a part in nothing");
            }
            Message::Prepared {
                position,
                generation,
                ok,
                own_fault,
                no_room,
                cut_off,
                received_bytes,
            } => {
                self.mix.received(role, received_bytes);
                let fault = own_fault.then_some(StoreFault { no_room });
                self.staged(role, (position, generation), ok, fault, cut_off);
            }
            Message::Finished { position, generation, ok } => {
                self.closed(role, position, generation, ok)
            }
            Message::Copied { slot } => self.read_copied(role, slot),
            Message::ReadFailed { slot } => self.read_failed(role, slot),
            Message::Ok { tag } => self.answered(role, tag, Ok(None)),
            Message::Volume { tag, bytes, .. } => self.answered(role, tag, Ok(Some(bytes))),
            Message::Meta { tag, bytes } if self.is_looked_at(role, tag) => {
                self.questions.remove(&tag);
                self.return_looked(role, &bytes);
            }
            Message::Meta { tag, bytes } => self.reread_came(role, tag, bytes),
            Message::Pong { tag, storage_silent_ms } => {
                self.answered(role, tag, Ok(None));
                self.heard_of_storage(role, storage_silent_ms);
            }
            Message::Identity { tag, node } => self.newcomer_is(role, tag, node),
            Message::Granted { tag, view, incarnation, node } if !self.alive(role) => {
                let grant = Grant { view, incarnation, node };
                self.return_granted(role, tag, Some(grant));
            }
            Message::Outvoted { tag, granted }
                if !self.alive(role) && granted <= self.params().epoch =>
            {
                self.return_granted(role, tag, None);
            }
            Message::Granted { tag, view, incarnation, node } => {
                self.granted(role, tag, Grant { view, incarnation, node });
            }
            Message::Leftovers { tag, params, items, next } => {
                self.leftovers(role, tag, params, items, next);
            }
            Message::Outvoted { tag, granted } => self.outvoted(role, tag, granted),
            Message::PipelineReady { tag, ring, journal_bytes, parts_only } => {
                self.journal_told(role, journal_bytes, parts_only);
                self.answered(role, tag, Ok(Some(ring)));
            }
            Message::JournalEntries { tag, mark, items, next } => {
                self.recorded(role, tag, mark, items, next);
            }
            Message::Refused { tag, reason, advice, .. } => {
                self.answered(role, tag, Err(Refusal::new(reason, advice)));
            }
            _ => self.part_with(role, "it does not keep to the protocol"),
        }
    }

    /// What a node answers.
    pub(super) fn question(&mut self, role: u16, tag: u32) -> Option<RequestKind> {
        self.questions.get(&tag).filter(|(asked, _)| *asked == role)?;
        self.keeper.answered(self.member_id(role));
        self.pace.answered(role, TimedOperation::Request(tag), self.keeper.now());
        Some(self.questions.remove(&tag)?.1)
    }

    /// A question is answered.
    pub(super) fn answered(&mut self, role: u16, tag: u32, answer: Result<Option<u64>, Refusal>) {
        let returning = self.links[usize::from(role)].state;
        if let (LinkState::Returning(step), Some((asked, RequestKind::Return))) =
            (returning, self.questions.get(&tag).copied())
            && asked == role
        {
            self.questions.remove(&tag);
            return self.return_answered(role, step, answer);
        }
        let Some(question) = self.question(role, tag) else {
            return self.part_with(role, "it answers what was not asked");
        };
        if let (RequestKind::Flush(_) | RequestKind::Meta, Err(why)) = (question, &answer) {
            self.do_without(role, why.clone());
        }
        match question {
            RequestKind::Grant | RequestKind::ListLeftovers => {
                self.vote_refused(role, answer.err())
            }
            RequestKind::Reread => match answer {
                Ok(_) => self.reread_next(role),
                Err(why) => self.vote_refused(role, Some(why)),
            },
            RequestKind::ResolveLeftovers => match answer {
                Ok(_) => self.voter_answered(role),
                Err(why) => self.vote_refused(role, Some(why)),
            },
            RequestKind::StoreView(order) => match answer {
                Ok(_) => self.view_recorded(role, order),
                Err(why) => self.vote_refused(role, Some(why)),
            },
            RequestKind::OpenVolume | RequestKind::OpenPipeline | RequestKind::Connect => {
                self.setup_answered(role, question, answer);
            }
            RequestKind::Flush(number) => self.flush_answered(number),
            RequestKind::Meta => self.meta_answered(),
            RequestKind::LeaseRing => self.use_answered(role, answer.is_ok()),
            RequestKind::ReturnRing => self.given_back(role),
            RequestKind::Rewire => self.rewired(role, answer.is_ok()),
            RequestKind::Journal => self.journal_answered(role, answer.err()),
            RequestKind::StoreCopied(number) => self.copy_taken(number, answer),
            RequestKind::Return => {}
            RequestKind::Ping => {}
        }
    }
}
