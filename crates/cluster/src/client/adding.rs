//! Nodes that are added, or to which a member is copied: facts for [`KeeperSide`], and execution of
//! its commands.

use braid_array::action::{Command, NewMember};
use braid_array::events::ArrayEvent;
use braid_array::format::{BadBlocks, Superblock};
use braid_array::{MemberId, Refusal, Role};

use super::ClientMember;
use super::engine::Verdict;
use super::keeper_side::{
    JoinCommand, JoinFacts, KeeperSide, Origin, Recovery, Vacancy, moved, too_few_votes,
};
use super::parts::Parts;
use super::retry::PATIENCE_MILLIS;
use super::session_key::SessionKey;
use super::sessions::negotiation::NegotiationStep;
use super::sessions::session::SessionState;
use crate::member::member_parts;
use crate::wire::Message;

/// Advice against a target that does not hold its copy.
const REPLACE: &str = "see whether its storage is well, and replace the member by another one";

impl Parts {
    /// Returns the facts that the choice of members depends on.
    pub(super) fn join_facts(&self) -> JoinFacts {
        let list = &self.sessions.list;
        let keeper = self.keeper.view();
        let vacant = |role: &Role| !list.alive(*role) && keeper.is_vacant(*role);
        let vacancy = |role| {
            let session = list.get(role);
            Vacancy {
                role,
                state: session.state,
                had: session.member.is_some(),
                due: session.due,
                gone_at: session.gone_at.unwrap_or_default(),
            }
        };
        JoinFacts {
            may_return: self.may_return(),
            spares: keeper.spares().collect(),
            vacancies: list.roles().filter(vacant).map(vacancy).collect(),
        }
    }

    /// Passes an event to the choice of members, and carries out the commands that follow.
    pub(super) fn join(&mut self, event: impl FnOnce(&mut KeeperSide)) {
        self.keeper_side.now = self.keeper.view().now();
        event(&mut self.keeper_side);
        while let Some(command) = self.keeper_side.next_command() {
            self.carry_out_join(command);
        }
    }

    fn carry_out_join(&mut self, command: JoinCommand) {
        match command {
            JoinCommand::Recover(recovery) => self.recover(recovery),
            JoinCommand::AddSpare(command, mut new) => {
                let Some(id) = self.keeper.view().free_id() else {
                    let why = Refusal::new("it has too many members", "remove one first");
                    return self.out.reply(command, Err(why));
                };
                new.member = id;
                new.device_sectors = self.engine.journals.sectors_before(new.device_sectors);
                let add = Command::Add(new);
                self.with_traffic(|keeper, traffic| keeper.command(command, add, traffic));
            }
            JoinCommand::Connect { key, place, member, purpose } => {
                let (sessions, mut net) = self.sessions();
                sessions.recover(&mut net, key, place, *member, purpose);
            }
            JoinCommand::Visit(key, place) => {
                let (sessions, mut net) = self.sessions();
                sessions.visit(&mut net, key, place);
            }
            JoinCommand::HangUp(key) => {
                let (sessions, mut net) = self.sessions();
                sessions.end(&mut net, key);
            }
            JoinCommand::Restore(key, copied) => {
                self.session_mut(key).restore();
                let Some(role) = copied else { return };
                let (engine, mut cx) = self.engine();
                engine.end_copy(&mut cx, role);
                let session = self.sessions.list.get(role);
                if session.state == SessionState::Ready {
                    self.out.send(session.peer, &Message::Without { role });
                }
            }
            JoinCommand::TakeIn(recovery) => {
                if let Err(why) = self.take_in(&recovery) {
                    self.keeper_side.fail(recovery.place.into(), Some(why));
                }
            }
            JoinCommand::Reply(id, result) => self.out.reply(id, result),
            JoinCommand::BeginCopying(old, place) => {
                let target = SessionKey::CopyTarget;
                if let Err(why) = self.keeper_mut().begin_copying(old) {
                    return self.keeper_side.fail(target, Some(why));
                }
                self.shared.reads.stands_anew(target);
                self.engine.copies.begin(place, self.shared.pipeline.base_reads());
                self.sessions.rest(target, NegotiationStep::Copying);
                self.keeper_side.copy_begun();
            }
            JoinCommand::Exchange(place) => {
                let (engine, mut cx) = self.engine();
                engine.end_copy(&mut cx, place);
                let (sessions, net) = self.sessions();
                sessions.exchange(&net, place);
                self.shared.reads.exchange(place);
                self.wire_next();
            }
            JoinCommand::EndCopying(old, why) => {
                self.keeper_mut().end_copying(why.reason.clone());
                let Refusal { reason, next } = why;
                let event = ArrayEvent::NotReplaced { member: old, reason: reason.into(), next };
                self.out.notify(event);
            }
        }
    }

    /// Begins to take a node in, if the keeper allows that.
    fn recover(&mut self, mut recovery: Recovery) {
        let new = &mut recovery.new;
        new.device_sectors = self.engine.journals.sectors_before(new.device_sectors);
        let member = member_parts(&new.device).ok_or_else(|| {
            let reason = format!("{} is on no node, and the array is over nodes", new.device);
            Refusal::new(reason, "add node://HOST:PORT/VOLUME")
        });
        let member = member.and_then(|(address, volume)| {
            let (_, superblock) = self.candidate(new, recovery.place)?;
            let address = address.to_owned();
            let volume = volume.to_owned();
            let bad_blocks = BadBlocks::default();
            Ok(Box::new(ClientMember { address, volume, superblock, bad_blocks }))
        });
        self.keeper_side.begin(recovery, member);
    }

    /// Returns the keeper's id for a node that is to have this role, and its superblock there.
    pub(super) fn candidate(
        &self,
        new: &NewMember,
        place: Role,
    ) -> Result<(MemberId, Superblock), Refusal> {
        let keeper = self.keeper.view();
        let member = keeper.id_for(&new.device).ok_or_else(moved)?;
        let new = NewMember { member, ..new.clone() };
        Ok((member, keeper.candidate(&new, place)?))
    }

    /// Has the keeper take a node in.
    fn take_in(&mut self, recovery: &Recovery) -> Result<(), Refusal> {
        let &Recovery { origin, ref new, place } = recovery;
        let has_all = self.has_what_it_recorded(place);
        let keeper = self.keeper_mut();
        match origin {
            Origin::Command(command) => keeper.take_in(Some(command), new, place)?,
            Origin::Spare => keeper.take_in(None, new, place)?,
            Origin::Copied => keeper.take_in_copy(new, place)?,
            Origin::Absent => keeper.member_returned(new, place, has_all)?,
            Origin::Copy { .. } => return Err(moved()),
        }
        let session = self.session_mut(place);
        session.id = Some(new.member);
        session.is_back();
        session.stands_anew();
        let grant = session.grant.take();
        let before = session.before.take();
        self.shared.reads.stands_anew(place);
        self.ownership.has_granted(place, grant);
        let facts = self.join_facts();
        self.keeper_side.taken_in(&facts, before.map(|before| before.member.address));
        Ok(())
    }

    /// Returns whether a node has in place everything that the last client answered and that it has
    /// a part in.
    pub(super) fn has_what_it_recorded(&self, role: Role) -> bool {
        let journals = &self.engine.journals;
        !journals.are_used() || journals.decided.is_none() || self.session(role).replayed
    }

    /// Advances the copy. Once all of it is durable and was read back, the old member is retired.
    /// Returns whether it is: the two are to be exchanged after the keeper's commands are carried
    /// out.
    pub(super) fn advance_copy(&mut self) -> bool {
        let target = SessionKey::CopyTarget;
        let Some((old, place, new)) = self.keeper_side.copied() else { return false };
        let begun =
            [NegotiationStep::Copying, NegotiationStep::Flushing, NegotiationStep::ReadingBack];
        let step = self.session(target).negotiation().map(|negotiation| negotiation.step);
        let Some(step) = step.filter(|step| begun.contains(step)) else { return false };
        let spare = self.keeper.view().spares().find(|one| one.device == new.device);
        let spare = spare.map(|one| one.member);
        if spare.is_none() || !self.keeper.view().is_copied(old) {
            let reason = if spare.is_none() { "the spare is gone" } else { "it has failed" };
            self.end_copy(Refusal::new(reason, "add a spare, replace it again"));
            return false;
        }
        let (engine, mut cx) = self.engine();
        engine.advance_copy(&mut cx);
        match self.engine.read_back.take_verdict() {
            // Nothing could be answered while the new one is taken in.
            Some(Verdict::Copied) if !self.votes_suffice_without(place) => {
                self.end_copy(too_few_votes());
            }
            Some(Verdict::Copied) if self.keeper_mut().retire_copied() => return true,
            Some(Verdict::Copied) => {
                self.engine.copies.resume();
                self.sessions.rest(target, NegotiationStep::Copying);
            }
            Some(Verdict::NotCopied(reason)) => {
                let why = Refusal::new(reason, REPLACE);
                self.end_copy(why.clone());
                self.lose_member(spare, why);
            }
            None => self.await_target(step),
        }
        false
    }

    /// Sets the time until which the copy target may take for what it was asked. When little is
    /// left to copy, the target makes everything durable.
    fn await_target(&mut self, step: NegotiationStep) {
        let target = SessionKey::CopyTarget;
        let due = match step {
            NegotiationStep::ReadingBack => self.engine.read_back.due(),
            NegotiationStep::Copying => self.engine.copies.due(),
            _ => return,
        };
        self.session_mut(target).due = due;
        let copies = &mut self.engine.copies;
        let little = self.keeper.view().little_is_left() && copies.is_done();
        if step == NegotiationStep::Copying && little {
            copies.pause();
            let until = self.keeper.view().now().plus_millis(PATIENCE_MILLIS);
            self.session_mut(target).due = Some(until);
            self.go_on(target, NegotiationStep::Flushing);
        }
    }

    fn end_copy(&mut self, why: Refusal) {
        self.join(|side| side.fail(SessionKey::CopyTarget, Some(why)));
    }
}
