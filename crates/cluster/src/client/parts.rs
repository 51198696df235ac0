//! The machines of the client, [`Parts`].

use braid_array::keeper::{Keeper, Traffic};
use braid_array::{MemberId, Refusal, Role};

use super::ClientPhase;
use super::engine::{Cx, Engine, Shared};
use super::keeper_side::KeeperSide;
use super::membership::{Membership, writes_over};
use super::out::ClientOut;
use super::ownership::{self, Ownership};
use super::session_key::SessionKey;
use super::sessions::negotiation::NegotiationStep;
use super::sessions::session::Session;
use super::sessions::{self, Net, Sessions};

/// The machines of the client, side by side. Each call passes in everything that a machine may see,
/// and none calls another one. Requests to other machines wait in a queue until the client carries
/// them out.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) phase: ClientPhase,
    pub(super) keeper: Keeper,
    pub(super) out: ClientOut,
    pub(super) members: Membership,
    pub(super) shared: Shared,
    pub(super) engine: Engine,
    pub(super) sessions: Sessions,
    pub(super) ownership: Ownership,
    /// Decides the members.
    pub(super) keeper_side: KeeperSide,
}

impl Parts {
    /// Returns the engine, with its context and the current members.
    pub(super) fn engine(&mut self) -> (&mut Engine, Cx<'_>) {
        self.refresh();
        self.engine_as_is()
    }

    /// Returns the same without refreshing the members, where no session has changed since the last
    /// refresh. The members are always fresh when the client has nothing to do at once.
    pub(super) fn engine_as_is(&mut self) -> (&mut Engine, Cx<'_>) {
        let Self { keeper, members, out, shared, engine, .. } = self;
        out.report_to(keeper);
        (engine, Cx { keeper: keeper.view(), members, out, shared })
    }

    /// Returns the votes and views, with their context and facts.
    pub(super) fn ownership(&mut self) -> (&mut Ownership, Cx<'_>, ownership::OwnershipFacts) {
        self.refresh();
        let journals = &self.engine.journals;
        let facts = ownership::OwnershipFacts {
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

    /// Returns the sessions, with their context.
    pub(super) fn sessions(&mut self) -> (&mut Sessions, Net<'_>) {
        let facts = self.facts();
        let Self { keeper, out, sessions, .. } = self;
        out.report_to(keeper);
        (sessions, Net { keeper: keeper.view(), out, facts })
    }

    /// Returns the facts for negotiations.
    pub(super) fn facts(&self) -> sessions::NegotiationFacts {
        let params = *self.shared.params();
        sessions::NegotiationFacts {
            array: self.ownership.array(),
            params,
            mark: self.engine.journals.mark(params.epoch),
            decided: self.engine.journals.decided.clone(),
            version: self.engine.sets.version(),
            starting: self.is_starting(),
            may_return: self.may_return(),
        }
    }

    /// Refreshes the membership from the sessions and the views.
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
        matches!(self.phase, ClientPhase::Setup)
    }

    /// Returns whether nothing may change any more.
    pub(super) fn writes_over(&self) -> bool {
        writes_over(self.keeper.view())
    }

    /// Returns whether nodes may return.
    pub(super) fn may_return(&self) -> bool {
        let stays = self.writes_over()
            || self.keeper.view().is_read_only()
            || self.keeper.view().is_stopping();
        self.shared.redundant() && !stays && matches!(self.phase, ClientPhase::Running)
    }

    /// Refuses unless members may be added and removed now.
    pub(super) fn may_change(&self) -> Result<(), Refusal> {
        self.keeper.view().is_changeable()?;
        if !matches!(self.phase, ClientPhase::Running) || self.keeper.view().is_stopping() {
            return Err(Refusal::new("the array is being started or stopped", "try again then"));
        }
        Ok(())
    }

    /// Returns whether the array cannot continue, as more nodes are away than it can do without.
    /// False for an array that is read-only, stopping, or fenced.
    pub(super) fn has_too_few(&self) -> bool {
        let ends = self.keeper.view().is_read_only()
            || self.keeper.view().is_stopping()
            || self.ownership.is_fenced();
        self.writes_over() && !ends
    }

    /// Returns whether nothing requested by the exports is under way.
    pub(super) fn quiet(&self) -> bool {
        self.engine.is_quiet(&self.shared)
    }

    /// Returns whether nothing is under way.
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

    /// Continues a negotiation at a step, and sends its request.
    pub(super) fn go_on(&mut self, key: SessionKey, step: NegotiationStep) {
        let (sessions, mut net) = self.sessions();
        sessions.go_on(&mut net, key, step);
    }

    /// Hangs up on visited nodes and on witnesses.
    pub(super) fn close_visits(&mut self) {
        let (sessions, mut net) = self.sessions();
        sessions.close_visits(&mut net);
        self.ownership.close(&mut self.out);
    }

    pub(super) fn alive(&self, key: impl Into<SessionKey>) -> bool {
        self.sessions.list.alive(key)
    }

    /// Returns the role of a member whose node is there.
    pub(super) fn alive_role_of(&self, member: MemberId) -> Option<Role> {
        self.sessions.list.role_of(member).filter(|&role| self.alive(role))
    }

    /// Returns whether the other nodes could note the loss of this role's node.
    pub(super) fn votes_suffice_without(&mut self, role: Role) -> bool {
        let (ownership, cx, _) = self.ownership();
        ownership.votes_suffice_without(&cx, role)
    }

    /// Returns whether no later client will ask this incarnation of a node for its prepared
    /// slice-sets.
    pub(super) fn is_out(&mut self, incarnation: u64) -> bool {
        let (ownership, cx, _) = self.ownership();
        ownership.is_out(&cx, incarnation)
    }

    /// Notifies when a node has become slow.
    pub(super) fn say_who_is_slow(&mut self) {
        let list = &self.sessions.list;
        let event = self.out.latency.event(self.keeper.view().now(), |role| list.id(role));
        if let Some(event) = event {
            self.out.notify(event);
        }
    }

    /// Tells the keeper to continue without a member, if there is one.
    pub(super) fn lose_member(&mut self, member: Option<MemberId>, why: Refusal) {
        let keeper = self.keeper_mut();
        if let Some(member) = member {
            keeper.lose_member(member, why);
        }
    }

    /// Passes the pending reports to the keeper.
    pub(super) fn hear_reports(&mut self) {
        self.out.report_to(&mut self.keeper);
    }

    /// Returns the keeper, after passing the pending reports to it.
    pub(super) fn keeper_mut(&mut self) -> &mut Keeper {
        self.hear_reports();
        &mut self.keeper
    }

    /// Drives the keeper, with the traffic under way.
    pub(super) fn with_traffic(&mut self, drive: impl FnOnce(&mut Keeper, Traffic<'_>)) {
        self.hear_reports();
        let quiet = self.quiet();
        let never = |_| false;
        drive(&mut self.keeper, Traffic { quiet, plans: &never, gave_up: &never });
    }

    /// Wires the next prepared node, once no slice-set from the time of its loss can reach it.
    pub(super) fn wire_next(&mut self) {
        let facts = self.facts();
        let Self { keeper, out, sessions, engine, .. } = self;
        out.report_to(keeper);
        let mut net = Net { keeper: keeper.view(), out, facts };
        let sets = &engine.sets;
        let journals = &engine.journals;
        let over = |lost_at| sets.oldest().is_none_or(|oldest| lost_at < oldest);
        sessions.wire_next(&mut net, |lost_at| over(lost_at) && journals.allow(lost_at));
    }
}
