//! The machines of the client, [`Parts`].

use braid_array::keeper::{Keeper, Traffic};
use braid_array::{MemberId, Refusal, Role};

use super::Phase;
use super::engine::{Cx, Engine, Shared};
use super::membership::{Membership, writes_over};
use super::out::Out;
use super::ownership::{self, Ownership};
use super::session_key::SessionKey;
use super::sessions::negotiation::Step;
use super::sessions::session::Session;
use super::sessions::{self, Net, Sessions};

/// The machines of the client, side by side: each is called with what it may see, and none calls
/// another one. What one has for the others waits in its queue until the client carries it out.
/// [`KeeperSide`](super::keeper_side::KeeperSide) stands outside, as it works on all of them.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) phase: Phase,
    pub(super) keeper: Keeper,
    pub(super) out: Out,
    pub(super) members: Membership,
    pub(super) shared: Shared,
    pub(super) engine: Engine,
    pub(super) sessions: Sessions,
    pub(super) ownership: Ownership,
}

impl Parts {
    /// The engine, and what it is called with: the members as they are now.
    pub(super) fn engine(&mut self) -> (&mut Engine, Cx<'_>) {
        self.refresh();
        self.engine_as_is()
    }

    /// The same where no session has changed since the members were last looked at: whenever the
    /// client has nothing to do at once, they are as they were then.
    pub(super) fn engine_as_is(&mut self) -> (&mut Engine, Cx<'_>) {
        let Self { keeper, members, out, shared, engine, .. } = self;
        out.report_to(keeper);
        (engine, Cx { keeper: keeper.view(), members, out, shared })
    }

    /// The votes and views, what they are called with, and what they go by.
    pub(super) fn ownership(&mut self) -> (&mut Ownership, Cx<'_>, ownership::Facts) {
        self.refresh();
        let journals = &self.engine.journals;
        let facts = ownership::Facts {
            starting: self.is_starting(),
            may_return: self.may_return(),
            recorded: journals.all_is_recorded(),
            live: journals.live,
            ppl: journals.live && journals.parts.were_only,
        };
        let Self { keeper, members, out, shared, ownership, .. } = self;
        out.report_to(keeper);
        (ownership, Cx { keeper: keeper.view(), members, out, shared }, facts)
    }

    /// The sessions, and what they are called with.
    pub(super) fn sessions(&mut self) -> (&mut Sessions, Net<'_>) {
        let facts = self.facts();
        let Self { keeper, out, sessions, .. } = self;
        out.report_to(keeper);
        (sessions, Net { keeper: keeper.view(), out, facts })
    }

    /// What negotiations go by.
    pub(super) fn facts(&self) -> sessions::Facts {
        let params = *self.shared.params();
        sessions::Facts {
            array: self.ownership.array(),
            params,
            mark: self.engine.journals.mark(params.epoch),
            decided: self.engine.journals.decided.clone(),
            version: self.engine.sets.version(),
            starting: self.is_starting(),
            may_return: self.may_return(),
        }
    }

    /// Looks at the members anew.
    pub(super) fn refresh(&mut self) {
        let Self { members, sessions, .. } = self;
        if sessions.list.take_changed() {
            for (entry, session) in members.entries.iter_mut().zip(sessions.list.members()) {
                *entry = session.entry();
            }
            members.prepared_since = sessions.list.prepared_since();
        }
        self.members.claimed = self.ownership.claimed_roles();
        self.members.vouched = self.ownership.vouched;
        self.members.wiring = self.sessions.is_wiring();
    }

    pub(super) const fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Setup)
    }

    /// Nothing may change any more.
    pub(super) fn writes_over(&self) -> bool {
        writes_over(self.keeper.view())
    }

    /// May nodes come back?
    pub(super) fn may_return(&self) -> bool {
        let stays = self.writes_over()
            || self.keeper.view().is_read_only()
            || self.keeper.view().is_stopping();
        self.shared.redundant() && !stays && matches!(self.phase, Phase::Running)
    }

    /// May members come and go?
    pub(super) fn may_change(&self) -> Result<(), Refusal> {
        self.keeper.view().is_changeable()?;
        if !matches!(self.phase, Phase::Running) || self.keeper.view().is_stopping() {
            return Err(Refusal::new("the array is being started or stopped", "try again then"));
        }
        Ok(())
    }

    /// It cannot go on: more nodes are away than the array can do without.
    pub(super) fn has_too_few(&self) -> bool {
        let ends = self.keeper.view().is_read_only()
            || self.keeper.view().is_stopping()
            || self.ownership.is_fenced();
        self.writes_over() && !ends
    }

    /// Nothing that the exports asked for is under way.
    pub(super) fn quiet(&self) -> bool {
        self.engine.is_quiet(&self.shared)
    }

    /// Nothing is under way.
    pub(super) fn are_idle(&self) -> bool {
        let Self { keeper, out, shared, engine, .. } = self;
        let unanswered = !out.ios.is_empty() || !out.requests.is_empty();
        out.is_empty() && !unanswered && engine.holds_nothing(shared) && keeper.view().is_idle()
    }

    pub(super) fn session(&self, key: impl Into<SessionKey>) -> &Session {
        self.sessions.list.get(key)
    }

    pub(super) fn session_mut(&mut self, key: impl Into<SessionKey>) -> &mut Session {
        self.sessions.list.get_mut(key)
    }

    /// Goes on with a negotiation, and asks what is asked at this step.
    pub(super) fn go_on(&mut self, key: SessionKey, step: Step) {
        let (sessions, mut net) = self.sessions();
        sessions.go_on(&mut net, key, step);
    }

    /// Hangs up on those that are visited, and on witnesses.
    pub(super) fn close_visits(&mut self) {
        let (sessions, mut net) = self.sessions();
        sessions.close_visits(&mut net);
        self.ownership.close(&mut self.out);
    }

    pub(super) fn alive(&self, key: impl Into<SessionKey>) -> bool {
        self.sessions.list.alive(key)
    }

    /// The role of a member that is there.
    pub(super) fn alive_role_of(&self, member: MemberId) -> Option<Role> {
        self.sessions.list.role_of(member).filter(|&role| self.alive(role))
    }

    /// If the node of this role were lost, could the others take note of that?
    pub(super) fn votes_suffice_without(&mut self, role: Role) -> bool {
        let (ownership, cx, _) = self.ownership();
        ownership.votes_suffice_without(&cx, role)
    }

    /// Will no later client ask this incarnation of a node for what it has prepared?
    pub(super) fn is_out(&mut self, incarnation: u64) -> bool {
        let (ownership, cx, _) = self.ownership();
        ownership.is_out(&cx, incarnation)
    }

    /// Says so when a node has become slow.
    pub(super) fn say_who_is_slow(&mut self) {
        let list = &self.sessions.list;
        let event = self.out.latency.event(self.keeper.view().now(), |role| list.id(role));
        if let Some(event) = event {
            self.out.notify(event);
        }
    }

    /// The keeper goes on without the member of a role, if that has one.
    pub(super) fn lose_member(&mut self, member: Option<MemberId>, why: Refusal) {
        let keeper = self.keeper_mut();
        if let Some(member) = member {
            keeper.lose_member(member, why);
        }
    }

    /// The keeper hears what was reported to it.
    pub(super) fn hear_reports(&mut self) {
        self.out.report_to(&mut self.keeper);
    }

    /// The keeper, when it has heard what was reported to it.
    pub(super) fn keeper_mut(&mut self) -> &mut Keeper {
        self.hear_reports();
        &mut self.keeper
    }

    /// Has the keeper do what depends on what is under way.
    pub(super) fn with_traffic(&mut self, drive: impl FnOnce(&mut Keeper, Traffic<'_>)) {
        self.hear_reports();
        let quiet = self.quiet();
        let never = |_| false;
        drive(&mut self.keeper, Traffic { quiet, plans: &never, gave_up: &never });
    }
}
