//! A member that is replaced while it serves: a spare is given a copy of it, and then its role.
//!
//! ```text
//!  connected, as who comes back ─► wired to the old one ─► copying ─► little left: flushing,
//!    any failure: all is as before                                     reading back
//!                                                                         ▼
//!        comes back, or a spare ◄── failure ── wired to all ◄── the old one retires, exchanged
//! ```
//! The copy target has a session of its own, behind those with the members. When the two are
//! exchanged, the new one joins like a returning node, and gets the content that the bitmap marks
//! from the others.

use braid_array::action::CommandId;
use braid_array::{MemberId, Refusal, Role};

use super::KeeperSide;
use super::recovery::{Before, Origin};
use crate::client::engine::Verdict;
use crate::client::parts::Parts;
use crate::client::retry::PATIENCE_MILLIS;
use crate::client::session_key::SessionKey;
use crate::client::sessions::negotiation::NegotiationStep;

const ADVICE: &str = "see whether its storage is well, and replace the member by another one";

fn too_few_votes() -> Refusal {
    let reason = "without its node too few of those that vote would be left";
    Refusal::new(reason, "start the witness, and replace it then")
}

impl KeeperSide {
    /// Begins to replace a member by a spare; by this one if it is named.
    pub(in crate::client) fn replace(
        &mut self,
        parts: &mut Parts,
        id: CommandId,
        old: MemberId,
        spare: Option<MemberId>,
    ) {
        if let Err(why) = self.try_replace(parts, id, old, spare) {
            parts.out.reply(id, Err(why));
        }
    }

    fn try_replace(
        &mut self,
        parts: &mut Parts,
        command: CommandId,
        old: MemberId,
        spare: Option<MemberId>,
    ) -> Result<(), Refusal> {
        parts.may_change()?;
        parts.keeper.view().may_be_copied(old)?;
        if self.recovery.is_some() {
            return Err(Refusal::new("another node is being added", "wait for that, try again"));
        }
        let new =
            parts.keeper.view().spares().find(|one| spare.is_none_or(|spare| spare == one.member));
        let none = || Refusal::new("there is no spare to copy it to", "add a spare first");
        let new = new.ok_or_else(none)?;
        let role = parts.sessions.list.role_of(old);
        let role = role.ok_or_else(|| Refusal::new("its node is not there", "add a spare"))?;
        if !parts.votes_suffice_without(role) {
            return Err(too_few_votes());
        }
        self.begin_recovery(parts, Origin::Copy { command: Some(command), old }, new, role)
    }

    /// Begins the copy: the old member's node is connected to the target.
    pub(super) fn begin_copying(&mut self, parts: &mut Parts) {
        let Some(recovery) = &mut self.recovery else {
            return self.fail(parts, SessionKey::CopyTarget, None);
        };
        let place = recovery.place;
        let Origin::Copy { command, old } = &mut recovery.origin else {
            return self.fail(parts, SessionKey::CopyTarget, None);
        };
        let command = command.take();
        let old = *old;
        if let Err(why) = parts.keeper_mut().begin_copying(old) {
            return self.fail(parts, SessionKey::CopyTarget, Some(why));
        }
        parts.shared.reads.stands_anew(SessionKey::CopyTarget);
        parts.engine.copies.begin(place, parts.shared.pipeline.base_reads());
        copy_step(parts, NegotiationStep::Copying);
        if let Some(id) = command {
            parts.out.reply(id, Ok(()));
        }
    }

    /// Advances the copy. Once all of it is durable and was read back, the old member is retired.
    /// Returns its role: the two are to be exchanged after the keeper's commands are carried out.
    pub(in crate::client) fn advance_copy(&mut self, parts: &mut Parts) -> Option<Role> {
        let recovery = self.recovery.as_ref()?;
        let Origin::Copy { old, .. } = recovery.origin else { return None };
        let place = recovery.place;
        let spare = recovery.new.device.clone();
        let is_at = |parts: &Parts, step| parts.session(SessionKey::CopyTarget).is_coming_at(step);
        let begun =
            [NegotiationStep::Copying, NegotiationStep::Flushing, NegotiationStep::ReadingBack];
        if !begun.into_iter().any(|step| is_at(parts, step)) {
            return None;
        }
        let gone = if !parts.keeper.view().spares().any(|one| one.device == spare) {
            Some("the spare is gone")
        } else if !parts.keeper.view().is_copied(old) {
            Some("it has failed")
        } else {
            None
        };
        if let Some(reason) = gone {
            let why = Refusal::new(reason, "add a spare, replace it again");
            self.fail(parts, SessionKey::CopyTarget, Some(why));
            return None;
        }
        let (engine, mut cx) = parts.engine();
        engine.advance_copy(&mut cx);
        match parts.engine.read_back.take_verdict() {
            Some(Verdict::Copied) => return self.retire_copied(parts, place),
            Some(Verdict::NotCopied(reason)) => {
                self.not_copied(parts, &spare, reason);
                return None;
            }
            None => {}
        }
        if is_at(parts, NegotiationStep::ReadingBack) {
            parts.session_mut(SessionKey::CopyTarget).due = parts.engine.read_back.due();
        }
        if !is_at(parts, NegotiationStep::Copying) {
            return None;
        }
        parts.session_mut(SessionKey::CopyTarget).due = parts.engine.copies.due();
        if parts.keeper.view().little_is_left() && parts.engine.copies.is_done() {
            parts.engine.copies.pause();
            let until = parts.keeper.view().now().plus_millis(PATIENCE_MILLIS);
            parts.session_mut(SessionKey::CopyTarget).due = Some(until);
            parts.go_on(SessionKey::CopyTarget, NegotiationStep::Flushing);
        }
        None
    }

    /// Begins to read the copy back: everything copied is durable.
    pub(super) fn begin_to_read_back(parts: &mut Parts) {
        let Some(place) = parts.sessions.list.place(SessionKey::CopyTarget) else { return };
        parts.engine.read_back.begin(place);
        copy_step(parts, NegotiationStep::ReadingBack);
    }

    /// Fails the copy and its target.
    fn not_copied(&mut self, parts: &mut Parts, spare: &str, reason: &'static str) {
        let why = Refusal::new(reason, ADVICE);
        self.fail(parts, SessionKey::CopyTarget, Some(why.clone()));
        let spare =
            parts.keeper.view().spares().find(|one| one.device == spare).map(|one| one.member);
        if let Some(spare) = spare {
            parts.keeper_mut().lose_member(spare, why);
        }
    }

    fn retire_copied(&mut self, parts: &mut Parts, place: Role) -> Option<Role> {
        if !parts.votes_suffice_without(place) {
            // Nothing could be answered while the new one is taken in.
            self.fail(parts, SessionKey::CopyTarget, Some(too_few_votes()));
            return None;
        }
        if !parts.keeper_mut().retire_copied() {
            parts.engine.copies.resume();
            copy_step(parts, NegotiationStep::Copying);
            return None;
        }
        Some(place)
    }

    /// Gives the copy target the role of the retired member.
    pub(in crate::client) fn exchange(&mut self, parts: &mut Parts, place: Role) {
        let copied = |origin| matches!(origin, Origin::Copy { .. });
        let recovery = self.recovery.as_mut().filter(|recovery| copied(recovery.origin));
        let Some(recovery) = recovery else { return };
        let (engine, mut cx) = parts.engine();
        engine.end_copy(&mut cx, place);
        let now = parts.keeper.view().now();
        let old = parts.sessions.exchange(place);
        parts.shared.reads.exchange(place);
        let session = parts.sessions.list.get_mut(place);
        session.due = Some(now.plus_millis(PATIENCE_MILLIS));
        session.lost_at = parts.engine.sets.version();
        // If it fails now, the old one comes back.
        recovery.origin = Origin::Copied;
        recovery.key = place.into();
        recovery.before = Before::of(old, now);
        self.wire_next(parts);
    }
}

fn copy_step(parts: &mut Parts, step: NegotiationStep) {
    parts.sessions.hold(SessionKey::CopyTarget, step);
    parts.session_mut(SessionKey::CopyTarget).due = None;
}
