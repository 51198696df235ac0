//! Changes after the takeover that voters record: losses, and members newly in sync.

use std::num::NonZeroU64;

use braid_array::keeper::LaneReport;
use braid_array::{Refusal, Role};

use super::Ownership;
use super::decision::{NodeGrant, START};
use crate::client::engine::Cx;
use crate::client::membership::writes_over;
use crate::ids::VoterNo;
use crate::view::View;

impl Ownership {
    /// Records changes: losses, and the first or last part of the array that waits for a resync.
    /// After too many losses nothing changes, views neither. No request is answered before later
    /// clients are certain to learn of a loss.
    pub(in crate::client) fn record_changes(&mut self, cx: &mut Cx<'_>) {
        // Where a person answers for the voters they need not know any more who was lost.
        let stops = cx.keeper.is_stopping() && !self.needs_votes(cx);
        let over = cx.keeper.is_read_only() || stops || writes_over(cx.keeper);
        if over || !self.waiting.is_empty() {
            return;
        }
        // What is lost of it is noted before a view says that nothing is torn.
        let torn = cx.keeper.has_torn() && !braid_array::broken("torn-recorded");
        let holder = |role: Role, before: Option<NonZeroU64>| {
            if cx.members.readable(cx.keeper, role) {
                self.grant_of(role).and_then(NodeGrant::member)
            } else if cx.keeper.arrivals_told() {
                None
            } else {
                // Whoever comes next goes by superblocks, too: these may not say yet who is in sync
                // in its place.
                before
            }
        };
        let Some(recorded) = &self.view else { return };
        let mut holders = (0..).map(Role).zip(&recorded.members);
        let stays = holders.all(|(role, &before)| holder(role, before) == before);
        if stays && torn == recorded.torn && recorded.voted.is_empty() && !self.voters_due {
            return self.look_at_votes(cx);
        }
        let mut view = recorded.clone();
        for (role, member) in (0..).map(Role).zip(&mut view.members) {
            *member = holder(role, *member);
        }
        self.change_voters(&mut view, cx.shared.params().nodes);
        self.voters_due = false;
        let view = View { torn, ..view };
        if self.view.as_ref() == Some(&view) {
            self.look_at_votes(cx);
        } else {
            self.record(cx, View { count: view.count + 1, ..view });
        }
    }

    /// Reports that nothing can be answered any more: too few voters are left to note a loss, and
    /// none is awaited.
    fn look_at_votes(&self, cx: &mut Cx<'_>) {
        let noted = || cx.members.losses_noted(cx.keeper);
        if !self.view_holds() && self.needs_votes(cx) && !noted() {
            cx.report(LaneReport::Unservable);
        }
    }

    /// Returns whether voters have to know of losses. Where the operator vouches for the absent
    /// voters, none has to.
    fn needs_votes(&self, cx: &Cx<'_>) -> bool {
        !(self.stands_alone(cx) || writes_over(cx.keeper))
    }

    /// Returns whether no later client will ask this incarnation of a node for its prepared
    /// slice-sets. Answered writes are then with the other nodes, or were answered without it. Who
    /// is lost among too many is asked, as no view says so any more.
    pub(in crate::client) fn is_out(&self, cx: &Cx<'_>, incarnation: u64) -> bool {
        let claimed = self.claimed.iter().any(|&(_, claimed)| claimed == incarnation);
        let failed = braid_array::broken("kept-while-claimed") && writes_over(cx.keeper);
        !claimed || failed || self.stands_alone(cx)
    }

    /// Returns whether later clients learn of all losses. Records them if not; the client gives up
    /// when too many are lost, or too few voters are left to note that.
    pub(in crate::client) fn lost_are_recorded(&mut self, cx: &mut Cx<'_>) -> bool {
        let over = writes_over(cx.keeper);
        if !self.waiting.is_empty() || cx.out.has_losses() {
            return false;
        }
        if over && braid_array::broken("start-ends") {
            return false;
        }
        let mut view = self.view.clone();
        let members = view.iter_mut().flat_map(|view| &mut view.members);
        for (role, member) in (0..).map(Role).zip(members) {
            *member = if cx.members.alive(role) { *member } else { None };
        }
        let known = view == self.view;
        let noted = known && (self.stands_alone(cx) || self.view_holds());
        if over {
            let why = Refusal::new("too many nodes were lost meanwhile", START);
            self.refuse_to_start(cx, why);
        } else if let Some(view) = view
            && !known
        {
            self.record(cx, View { count: view.count + 1, ..view });
        } else if !noted {
            let why = Refusal::new("too few nodes took note of who was lost", START);
            self.refuse_to_start(cx, why);
        }
        noted && !over
    }

    /// Returns whether the other nodes could note the loss of this role's node.
    pub(in crate::client) fn votes_suffice_without(&self, cx: &Cx<'_>, role: Role) -> bool {
        let nodes = cx.members.nodes();
        let there = |voter: VoterNo| match voter.role(nodes) {
            Some(other) => other != role && cx.members.alive(other),
            None => self.witnesses.is_here(voter),
        };
        let here = self.grants.iter().filter(|&(&voter, _)| there(voter));
        let here = here.map(|(_, grant)| grant.node).collect();
        !self.needs_votes(cx) || self.view.as_ref().is_none_or(|view| view.holds(&here))
    }
}
