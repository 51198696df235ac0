//! Choice of the members of the array, [`KeeperSide`].

mod absent;
mod copy;
mod departed;
mod joining;
mod judging;
mod recovery;
mod spare;
mod visits;

use braid_array::Instant;
use braid_array::action::{CommandId, NewMember};
use braid_array::status::AbsentStatus;
use braid_array::{MemberId, Refusal};

use super::parts::Parts;
use super::session_key::SessionKey;
use super::sessions::negotiation::NegotiationStep;
use crate::member::VolumeAddress;
use absent::Absents;
use departed::Departed;
use recovery::{Origin, Recovery};
use spare::Spares;

/// Decides which nodes join, return, replace another, are copied to or are dropped, by commands and
/// by itself, and tells the keeper the result. Members that return by themselves are taken back
/// ([`joining`]). The role of a lost, removed or absent member is given to a node ([`recovery`]):
/// one that an administrator adds, an [`absent`] member, or a [`spare`]. A serving member is
/// exchanged for a [`copy`]. [`departed`] nodes are told to drop their slice-sets.
///
/// Every call passes in the sessions and the other machines; results of sessions are reported to
/// it. No other part of the client has the keeper take in a member.
#[derive(Debug)]
pub(super) struct KeeperSide {
    /// Node that is being added.
    recovery: Option<Recovery>,
    absents: Absents,
    pub(super) departed: Departed,
    spares: Spares,
}

impl KeeperSide {
    /// Creates it. `absent`: addresses of members that could not be reached; `not_in`: reasons why
    /// members are not in.
    pub(super) fn new(
        absent: Vec<(String, String)>,
        not_in: Vec<(String, Refusal)>,
        spare_patience_ms: u64,
    ) -> Self {
        Self {
            recovery: None,
            absents: Absents::new(absent, not_in),
            departed: Departed::new(),
            spares: Spares::new(spare_patience_ms),
        }
    }

    /// Returns the time of the next attempt.
    pub(super) fn deadline(&self, parts: &Parts) -> Option<Instant> {
        let mut due = self.spare_deadline(parts);
        if self.may_look_for_absent(parts) {
            due = due.into_iter().chain(self.absents.visits.deadline()).min();
        }
        if parts.may_return() {
            due = due.into_iter().chain(self.departed.visits.deadline()).min();
        }
        due
    }

    /// Begins the attempts whose time has come.
    pub(super) fn tick(&mut self, parts: &mut Parts) {
        self.look_for_absent(parts);
        self.look_for_departed(parts);
        self.use_spares(parts);
    }

    /// Begins to take a node in; the command is answered when it is a member.
    pub(super) fn add(&mut self, parts: &mut Parts, command: CommandId, new: NewMember) {
        if let Err(why) = self.try_add(parts, command, new) {
            parts.out.reply(command, Err(why));
        }
    }

    fn try_add(
        &mut self,
        parts: &mut Parts,
        command: CommandId,
        new: NewMember,
    ) -> Result<(), Refusal> {
        parts.may_change()?;
        let place = Self::place_for(parts, &new);
        let Some(role) = place else { return spare::add(parts, command, new) };
        self.end_untold(parts);
        if self.recovery.is_some() {
            return Err(Refusal::new("another node is being added", "wait for that, try again"));
        }
        self.begin_recovery(parts, Origin::Command(command), new, role)
    }

    /// Handles a node that rests at a step.
    pub(super) fn holds(&mut self, parts: &mut Parts, key: SessionKey, step: NegotiationStep) {
        match step {
            NegotiationStep::Granted if key.is_visit() => self.resolve_departed(parts),
            NegotiationStep::Granted => self.drop_leftovers(parts),
            NegotiationStep::Prepared if parts.alive(key) => parts.start_goes_on(),
            NegotiationStep::Prepared => self.prepared(parts, key),
            NegotiationStep::ReadingBack => Self::begin_to_read_back(parts),
            _ => {}
        }
    }

    /// Handles the end of wiring of a joining node, with success or not.
    pub(super) fn wired(&mut self, parts: &mut Parts, key: SessionKey, ok: bool) {
        if parts.session(key).is_coming_at(NegotiationStep::Wiring) {
            if ok && parts.may_return() {
                self.take_back(parts, key);
            } else {
                self.fail(parts, key, None);
            }
        }
        self.wire_next(parts);
    }

    /// Ends the visit of a departed node.
    pub(super) fn over(&mut self) {
        self.departed.visits.done();
    }

    /// Ends the connection to a node without a member that violates the protocol or cannot be used.
    pub(super) fn lose_stranger(&mut self, parts: &mut Parts, key: SessionKey, why: Refusal) {
        if parts.session(key).is_coming() {
            let (sessions, mut net) = parts.sessions();
            sessions.end(&mut net, key);
            self.failed(parts, key, Some(why));
        }
    }

    /// Continues nodes that wait for views, slice-sets and journals.
    pub(super) fn advance(&mut self, parts: &mut Parts) {
        self.drop_leftovers(parts);
        self.resolve_departed(parts);
    }

    /// Forgets removed members. While the array ends, no node joins.
    pub(super) fn forget_removed(&mut self, parts: &mut Parts) {
        if !parts.may_return()
            && let Some(key) = self.recovery.as_ref().map(Recovery::session)
        {
            let over = Refusal::new("the array changes no more", "see its state");
            self.fail(parts, key, Some(over));
        }
        for role in parts.sessions.list.roles() {
            let session = parts.session(role);
            if session.id.is_none_or(|id| parts.keeper.view().knows(id)) || session.alive() {
                continue;
            }
            if session.is_coming() {
                self.fail(parts, role.into(), None);
            }
            self.departs(parts, role);
            parts.session_mut(role).clear();
        }
    }

    /// Stops waiting for answers of a member whose node is gone.
    pub(super) fn nothing_asked_of(parts: &mut Parts, member: MemberId) {
        if parts.alive_role_of(member).is_none() {
            parts.keeper_mut().nothing_asked(member);
        }
    }

    /// Ends all joining of nodes.
    pub(super) fn retire(&mut self, parts: &mut Parts) {
        for key in parts.sessions.list.member_keys() {
            if parts.session(key).is_coming() {
                self.fail(parts, key, None);
            }
        }
    }

    /// Returns the addresses of members that were not found so far.
    pub(super) fn absent_places(&self) -> impl Iterator<Item = VolumeAddress> {
        self.absents.visits.places().cloned()
    }

    /// Returns the members that are not in, while a role is open.
    pub(super) fn absent_status(&self, parts: &Parts) -> Vec<AbsentStatus> {
        if absent::has_open_role(parts) { self.absents.status() } else { Vec::new() }
    }
}
