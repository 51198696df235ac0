//! A member that is replaced while it serves: a spare is given a copy of it, and then its role.
//!
//! ```text
//!  connected, as who comes back ─► wired to the old one ─► copying ─► little left: flushing,
//!    any failure: all is as before                                     reading back
//!                                                                         ▼
//!        comes back, or a spare ◄── failure ── wired to all ◄── the old one retires, exchanged
//! ```
//! The copy target has a session of its own, behind those with the members. When the two are
//! exchanged the new one comes the way of a node that comes back (see
//! [`returning`](super::returning)), and gets from the others what the bitmap marks.

use braid_array::action::CommandId;
use braid_array::{MemberId, Refusal};

use super::recovery::Origin;
use super::setup::{Session, SessionState};
use super::step::Step;
use crate::client::engine::Verdict;
use crate::client::retry::PATIENCE_MILLIS;
use crate::client::{Client, Message, RequestKind};
use crate::wire::PeerAddress;

const ADVICE: &str = "see whether its storage is well, and replace the member by another one";

fn too_few_votes() -> Refusal {
    let reason = "without its node too few of those that vote would be left";
    Refusal::new(reason, "start the witness, and replace it then")
}

impl Client {
    /// Begins to replace a member by a spare, by this one if it is named.
    pub(in crate::client) fn replace(
        &mut self,
        id: CommandId,
        old: MemberId,
        spare: Option<MemberId>,
    ) {
        if let Err(why) = self.try_replace(id, old, spare) {
            self.out.reply(id, Err(why));
        }
    }

    fn try_replace(
        &mut self,
        command: CommandId,
        old: MemberId,
        spare: Option<MemberId>,
    ) -> Result<(), Refusal> {
        self.may_change()?;
        self.keeper.view().may_be_copied(old)?;
        if self.recovery.is_some() {
            return Err(Refusal::new("another node is being added", "wait for that, try again"));
        }
        let new =
            self.keeper.view().spares().find(|one| spare.is_none_or(|spare| spare == one.member));
        let none = || Refusal::new("there is no spare to copy it to", "add a spare first");
        let new = new.ok_or_else(none)?;
        let role = self.role_of(old);
        let role = role.ok_or_else(|| Refusal::new("its node is not there", "add a spare"))?;
        if !self.votes_suffice_without(role) {
            return Err(too_few_votes());
        }
        self.begin_recovery(Origin::Copy { command: Some(command), old }, new, role)
    }

    /// The node of a copy is prepared: the old one connects to it.
    pub(in crate::client) fn wire_copy_target(&mut self, role: u16) {
        let target = self.copy_target();
        let session = &self.sessions[usize::from(target)];
        let Some(member) = session.member.as_ref().filter(|_| self.alive(role)) else {
            return self.return_fails(target);
        };
        let peer = |address, ring| vec![PeerAddress { role, address, ring }];
        let peers = peer(member.address.clone(), session.ring);
        // Without an address it waits for the old one, which connects.
        let others = peer(String::new(), self.sessions[usize::from(role)].ring);
        self.wires(target, [role, target].into());
        self.request(role, RequestKind::Rewire, |tag| Message::Connect { tag, peers });
        self.return_step(target, Step::Wiring, |tag| Message::Connect { tag, peers: others });
    }

    /// They are connected: the copy begins.
    pub(in crate::client) fn begin_copying(&mut self) {
        let target = self.copy_target();
        let place = self.place_of(target);
        let Some((command, old)) = self.recovery.as_mut().and_then(|one| one.begin_copy()) else {
            return self.return_fails(target);
        };
        if let Err(why) = self.keeper.begin_copying(old) {
            self.target_hears(target, why);
            return self.return_fails(target);
        }
        self.shared.reads.stands_anew(target);
        self.engine.copies.begin(place, self.shared.pipeline.base_reads());
        self.copy_step(Step::Copying);
        if let Some(id) = command {
            self.out.reply(id, Ok(()));
        }
    }

    fn copy_step(&mut self, step: Step) {
        let target = usize::from(self.copy_target());
        self.sessions[target].state = SessionState::Returning(step);
        self.sessions[target].due = None;
    }

    fn copy_is_at(&self, step: Step) -> bool {
        let target = usize::from(self.copy_target());
        self.sessions[target].state == SessionState::Returning(step)
    }

    /// Goes on with the copy, and exchanges the two once little is left.
    pub(in crate::client) fn advance_copy(&mut self) {
        let Some((place, old, spare)) = self.recovery.as_ref().and_then(|one| one.copied()) else {
            return;
        };
        let target = self.copy_target();
        let begun = [Step::Copying, Step::Flushing, Step::ReadingBack];
        if !begun.into_iter().any(|step| self.copy_is_at(step)) {
            return;
        }
        let gone = if !self.keeper.view().spares().any(|one| one.device == spare) {
            Some("the spare is gone")
        } else if !self.keeper.view().is_copied(old) {
            Some("it has failed")
        } else {
            None
        };
        if let Some(reason) = gone {
            self.target_hears(target, Refusal::new(reason, "add a spare, replace it again"));
            return self.return_fails(target);
        }
        let (engine, mut cx) = self.engine();
        engine.advance_copy(&mut cx);
        match self.engine.read_back.take_verdict() {
            Some(Verdict::Copied) => return self.exchange(place),
            Some(Verdict::NotCopied(reason)) => return self.not_copied(&spare, reason),
            None => {}
        }
        if self.copy_is_at(Step::ReadingBack) {
            self.sessions[usize::from(target)].due = self.engine.read_back.due();
        }
        if !self.copy_is_at(Step::Copying) {
            return;
        }
        self.sessions[usize::from(target)].due = self.engine.copies.due();
        if self.keeper.view().little_is_left() && self.engine.copies.is_done() {
            self.engine.copies.pause();
            let until = self.keeper.view().now().plus_millis(PATIENCE_MILLIS);
            self.sessions[usize::from(target)].due = Some(until);
            self.return_step(target, Step::Flushing, |tag| Message::Flush { tag });
        }
    }

    /// All that was copied is durable.
    pub(in crate::client) fn begin_to_read_back(&mut self) {
        self.engine.read_back.begin(self.place_of(self.copy_target()));
        self.copy_step(Step::ReadingBack);
    }

    /// The new one is of no use.
    fn not_copied(&mut self, spare: &str, reason: &'static str) {
        let target = self.copy_target();
        let why = Refusal::new(reason, ADVICE);
        self.target_hears(target, why.clone());
        self.return_fails(target);
        let spare =
            self.keeper.view().spares().find(|one| one.device == spare).map(|one| one.member);
        if let Some(spare) = spare {
            self.keeper.lose_member(spare, why);
        }
    }

    /// There is nobody to copy to any more.
    pub(in crate::client) fn copy_ends(&mut self, place: u16) {
        let (engine, mut cx) = self.engine();
        engine.end_copy(&mut cx, place);
        if self.sessions[usize::from(place)].state == SessionState::Ready {
            self.send(place, &Message::Without { role: place });
        }
    }

    /// All that was copied is durable, and can be read: the new one takes the place of the old one.
    fn exchange(&mut self, place: u16) {
        let target = self.copy_target();
        if !self.votes_suffice_without(place) {
            // Nothing could be answered while the new one is taken in.
            self.target_hears(target, too_few_votes());
            return self.return_fails(target);
        }
        if !self.keeper.let_copied_go() {
            self.engine.copies.resume();
            return self.copy_step(Step::Copying);
        }
        self.drain();
        let (engine, mut cx) = self.engine();
        engine.end_copy(&mut cx, place);
        let session = std::mem::replace(&mut self.sessions[usize::from(target)], Session::none());
        let old = std::mem::replace(&mut self.sessions[usize::from(place)], session);
        self.shared.reads.exchange(place);
        let now = self.keeper.view().now();
        let session = &mut self.sessions[usize::from(place)];
        session.state = SessionState::Returning(Step::Prepared);
        session.due = Some(now.plus_millis(PATIENCE_MILLIS));
        session.lost_at = self.engine.sets.version();
        session.gone_at = old.gone_at;
        if let Some(recovery) = &mut self.recovery {
            // If it fails now, the old one comes back.
            recovery.exchanged(place, old.member.map(|member| (member, old.id, Some(now))));
        }
        self.wire_returned();
    }
}
