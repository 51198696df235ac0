//! Answers of nodes and witnesses.

use braid_array::events::ArrayEvent;
use braid_array::fabric::{FabricEvent, PeerId};
use braid_array::{Refusal, Role};

use super::decision::NodeGrant;
use super::witnesses::WitnessAnswer;
use super::{Ownership, OwnershipFacts, OwnershipStage};
use crate::client::engine::Cx;
use crate::client::out::RequestKind;
use crate::client::session_key::SessionKey;
use crate::ids::{Epoch, VoterNo};
use crate::pipeline::Params;
use crate::view::View;
use crate::wire::{Leftover, Message};

impl Ownership {
    /// Takes the grant of a node.
    pub(in crate::client) fn granted(
        &mut self,
        cx: &mut Cx<'_>,
        facts: OwnershipFacts,
        role: Role,
        grant: NodeGrant,
    ) {
        self.learn_of_witnesses(cx, grant.view.as_ref());
        self.grants.insert(role.into(), grant);
        self.answered(cx, facts, role);
    }

    /// Adds the witnesses that a voter's view names, during a takeover.
    fn learn_of_witnesses(&mut self, cx: &mut Cx<'_>, view: Option<&View>) {
        if let Some(view) = view
            && !self.looks
            && !cx.keeper.is_read_only()
        {
            self.witnesses.learn(view);
        }
        self.begin(cx);
    }

    /// Handles a refusal: another client was granted an epoch as high as this client's, or higher.
    /// A refused request for a vote is repeated with a higher epoch, unless this client follows
    /// another one. Any other refusal makes the client give up.
    pub(in crate::client) fn outvoted(
        &mut self,
        cx: &mut Cx<'_>,
        facts: OwnershipFacts,
        key: SessionKey,
        kind: Option<RequestKind>,
        granted: Epoch,
    ) {
        match (key.role(), kind) {
            (Some(role), Some(RequestKind::Grant)) if !self.follows => {
                self.asked_too_low(cx, facts, role.into(), granted);
            }
            _ => self.is_fenced_by(cx, key),
        }
    }

    /// Notes the epoch that a voter has granted to another client.
    fn asked_too_low(
        &mut self,
        cx: &mut Cx<'_>,
        facts: OwnershipFacts,
        voter: VoterNo,
        granted: Epoch,
    ) {
        self.outvoted = self.outvoted.max(granted);
        self.answered(cx, facts, voter);
    }

    /// Gives up: a voter says goodbye or refuses a view, and no voter accepts messages of this
    /// client any more.
    fn is_fenced_by(&mut self, cx: &mut Cx<'_>, key: impl Into<SessionKey>) {
        self.fenced = true;
        cx.out.notify(ArrayEvent::TakenOver);
        let why = Refusal::new("another client has taken the array over", "use that one");
        self.give_up(cx, key, why);
    }

    /// Notes that a view is recorded at a voter.
    pub(in crate::client) fn view_recorded(
        &mut self,
        cx: &mut Cx<'_>,
        facts: OwnershipFacts,
        voter: impl Into<VoterNo>,
        order: (Epoch, u32),
    ) {
        let voter = voter.into();
        let node = self.grants.get(&voter).map(|grant| grant.node);
        if Some(order) == self.order() {
            self.have_view.extend(node);
            // From now on they hear of it.
            if self.view_holds() {
                self.vouched = false;
                self.claimed = self.holders();
            }
        }
        self.answered(cx, facts, voter);
    }

    /// Notes that a voter has answered a request of the takeover.
    pub(in crate::client) fn answered(
        &mut self,
        cx: &mut Cx<'_>,
        facts: OwnershipFacts,
        voter: impl Into<VoterNo>,
    ) {
        self.waiting.remove(&voter.into());
        self.advance(cx, facts);
    }

    /// Takes a part of a member's content that is read again.
    pub(in crate::client) fn reread(
        &mut self,
        cx: &mut Cx<'_>,
        facts: OwnershipFacts,
        role: Role,
        part: Option<&[u8]>,
    ) {
        if let Some(part) = part {
            self.reread.take(role, part);
        }
        if self.reread.go_on(cx, role) {
            self.answered(cx, facts, role);
        }
    }

    /// Takes a node's list of leftover slice-sets of the predecessor.
    pub(in crate::client) fn leftovers(
        &mut self,
        cx: &mut Cx<'_>,
        facts: OwnershipFacts,
        role: Role,
        (params, items, next): (Option<Params>, Vec<Leftover>, u16),
    ) {
        self.left = params.or(self.left);
        let leftovers = self.leftovers.entry(role).or_default();
        leftovers.extend(items);
        if next > 0 && usize::from(next) == leftovers.len() {
            let message = |tag| Message::ListLeftovers { tag, from: next };
            return cx.request(role, RequestKind::ListLeftovers, message);
        }
        self.answered(cx, facts, role);
    }

    /// Stops waiting for a lost voter.
    pub(in crate::client) fn without(
        &mut self,
        cx: &mut Cx<'_>,
        facts: OwnershipFacts,
        voter: impl Into<VoterNo>,
    ) {
        let voter = voter.into();
        self.waiting.remove(&voter);
        if self.stage != OwnershipStage::Over {
            self.grants.remove(&voter);
            self.lost.insert(voter);
        }
        self.advance(cx, facts);
    }

    /// Handles an event on the connection to a witness.
    pub(in crate::client) fn witness_event(
        &mut self,
        cx: &mut Cx<'_>,
        facts: OwnershipFacts,
        peer: PeerId,
        event: FabricEvent,
    ) {
        let now = cx.keeper.now();
        let grant = self.grant(cx.shared.params());
        let Some(said) = self.witnesses.event(peer, event, grant, cx.out, now) else { return };
        match said {
            WitnessAnswer::Granted(number, grant) => self.witness_granted(cx, facts, number, grant),
            WitnessAnswer::Recorded(number, order) => self.view_recorded(cx, facts, number, order),
            WitnessAnswer::Lost(number) => self.without(cx, facts, number),
            WitnessAnswer::Outvoted(number, RequestKind::Grant, granted)
                if !facts.starting && granted <= cx.shared.params().epoch =>
            {
                self.witnesses.cut(number, cx.out, now);
                self.without(cx, facts, number);
            }
            WitnessAnswer::Outvoted(number, RequestKind::Grant, granted)
                if facts.starting && !self.follows =>
            {
                self.asked_too_low(cx, facts, number, granted);
            }
            WitnessAnswer::Outvoted(..) => {
                let role = cx.members.alive_roles().next().unwrap_or(Role(0));
                self.is_fenced_by(cx, role);
            }
        }
    }

    fn witness_granted(
        &mut self,
        cx: &mut Cx<'_>,
        facts: OwnershipFacts,
        number: VoterNo,
        grant: NodeGrant,
    ) {
        if facts.starting {
            self.learn_of_witnesses(cx, grant.view.as_ref());
        }
        let lacks = grant.view.as_ref().map(View::order) < self.order();
        self.grants.insert(number, grant);
        // It may have been known by another address.
        if let Some(other) = self.witnesses.forget_same(number, cx.out) {
            self.forget_witness(other);
        }
        if !facts.starting {
            self.voters_due = true;
            if let Some(view) = self.view.clone()
                && lacks
            {
                self.waiting.insert(number);
                let now = cx.keeper.now();
                return self.witnesses.record_at(number, view, cx.out, now);
            }
        }
        self.answered(cx, facts, number);
    }

    /// Dials witnesses whose time has come, and abandons those that owe an answer for too long.
    pub(in crate::client) fn tick(&mut self, cx: &mut Cx<'_>, facts: OwnershipFacts) {
        let now = cx.keeper.now();
        for number in self.witnesses.tick(facts.may_return, cx.out, now) {
            self.without(cx, facts, number);
        }
    }
}
