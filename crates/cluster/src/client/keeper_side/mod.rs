//! Who the members are to be, [`KeeperSide`].

mod absent;
mod copy;
mod departed;
mod joining;
mod recovery;
mod spare;
mod visits;

use braid_array::Instant;
use braid_array::action::{CommandId, NewMember};
use braid_array::status::AbsentStatus;
use braid_array::{MemberId, Refusal};

use super::parts::Parts;
use super::session_key::SessionKey;
use super::sessions::Answer;
use super::sessions::negotiation::Step;
use crate::member::VolumeAddress;
use absent::Absents;
use departed::Departed;
use recovery::{Origin, Recovery};
use spare::Spares;

/// Decides which nodes join, return, replace another, are copied to or are dropped, by commands and
/// by itself, and tells the keeper what became of that. Members that return by themselves are taken
/// back ([`joining`]). A node is given the role of a member that is lost, removed or absent
/// ([`recovery`]): one that an administrator adds, an [`absent`] member, or a [`spare`]. A member
/// that serves is exchanged for a [`copy`]. And [`departed`] nodes are told to drop what they have.
///
/// It sees the sessions and the other machines with each call, and is told of what sessions come
/// to. Nothing else has the keeper take a member in.
#[derive(Debug)]
pub(super) struct KeeperSide {
    /// A node that is to be of the array.
    recovery: Option<Recovery>,
    absents: Absents,
    pub(super) departed: Departed,
    spares: Spares,
}

impl KeeperSide {
    /// `absent`: where members may be that could not be reached; `not_in`: why members are not in.
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

    /// When somebody is to be tried.
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

    /// Begins with whose time has come.
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

    /// What a node has said is to be judged, before anything more is negotiated with it.
    pub(super) fn judge(&mut self, parts: &mut Parts, key: SessionKey, answer: Answer) {
        match answer {
            Answer::Identity(node) if key == SessionKey::DepartedVisit => {
                self.departed_is(parts, node);
            }
            Answer::Identity(node) => self.target_is(parts, key, node),
            Answer::Granted(grant) if key == SessionKey::DepartedVisit => {
                self.departed_granted(parts, &grant);
            }
            Answer::Granted(grant) => self.granted(parts, key, grant),
            Answer::Volume { bytes, .. } => self.target_opened(parts, key, bytes),
            Answer::Content(bytes) => self.absent_read(parts, &bytes),
            Answer::Pipeline { .. } => self.pipeline_ready(parts, key),
            _ => parts.out.violates(key, answer.unasked()),
        }
    }

    /// A node that comes rests at a step.
    pub(super) fn holds(&mut self, parts: &mut Parts, key: SessionKey, step: Step) {
        match step {
            Step::Prepared => self.prepared(parts, key),
            Step::ReadingBack => Self::begin_to_read_back(parts),
            _ => {}
        }
    }

    /// A node that comes is wired to the others, or is not.
    pub(super) fn wired(&mut self, parts: &mut Parts, key: SessionKey, ok: bool) {
        if parts.session(key).is_coming_at(Step::Wiring) {
            if ok && parts.may_return() {
                self.take_back(parts, key);
            } else {
                self.fail(parts, key, None);
            }
        }
        self.wire_next(parts);
    }

    /// Nothing more is to be said to a node that has left.
    pub(super) fn over(&mut self) {
        self.departed.visits.done();
    }

    /// A node that is no member now does not keep to the protocol, or cannot be used.
    pub(super) fn lose_stranger(&mut self, parts: &mut Parts, key: SessionKey, why: Refusal) {
        if parts.session(key).is_coming() {
            let (sessions, mut net) = parts.sessions();
            sessions.end(&mut net, key);
            self.failed(parts, key, Some(why));
        }
    }

    /// Goes on with what waits for views, slice-sets and journals.
    pub(super) fn advance(&mut self, parts: &mut Parts) {
        self.drop_leftovers(parts);
        self.resolve_departed(parts);
    }

    /// Members that were removed do not come back; and nobody comes while the array ends.
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

    /// Nobody waits for what was asked of a member that is gone.
    pub(super) fn nothing_asked_of(parts: &mut Parts, member: MemberId) {
        if parts.alive_role_of(member).is_none() {
            parts.keeper_mut().nothing_asked(member);
        }
    }

    /// Nobody comes any more.
    pub(super) fn retire(&mut self, parts: &mut Parts) {
        for key in parts.sessions.list.member_keys() {
            if parts.session(key).is_coming() {
                self.fail(parts, key, None);
            }
        }
    }

    /// Where members are that were not found so far.
    pub(super) fn absent_places(&self) -> impl Iterator<Item = VolumeAddress> {
        self.absents.visits.places().cloned()
    }

    /// Who is not in, while anybody could be.
    pub(super) fn absent_status(&self, parts: &Parts) -> Vec<AbsentStatus> {
        if absent::has_open_role(parts) { self.absents.status() } else { Vec::new() }
    }
}
