//! The takeover, step by step: from the votes to the leftovers that are resolved.

use std::collections::BTreeMap;

use braid_array::events::ArrayEvent;
use braid_array::keeper::{Redundancy, SyncSpace};
use braid_array::{Refusal, Role};

use super::decision::{Decision, Findings, NodeGrant, START, committed, decide};
use super::{Ownership, OwnershipEvent, OwnershipFacts, OwnershipStage};
use crate::client::engine::Cx;
use crate::client::out::RequestKind;
use crate::ids::VoterNo;
use crate::pipeline::Pipeline;
use crate::set::Set;
use crate::wire::Message;

impl Ownership {
    /// Advances the takeover when no answer is awaited.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_>, facts: OwnershipFacts) {
        while facts.starting && self.waiting.is_empty() {
            match self.stage {
                OwnershipStage::Granting if self.outvoted >= cx.shared.params().epoch => {
                    return self.request_again(cx);
                }
                OwnershipStage::Granting => {
                    self.stage = OwnershipStage::Rereading;
                    let read = self.reread.begin(cx);
                    self.wait_for(&read);
                }
                OwnershipStage::Rereading if self.reread.changed() => {
                    cx.out.notify(ArrayEvent::MembersChanged);
                    let reason = "another client changed the array while it was being started";
                    return self.refuse_to_start(cx, Refusal::new(reason, "start it again"));
                }
                OwnershipStage::Rereading => {
                    if !self.decide(cx, facts) {
                        return;
                    }
                }
                OwnershipStage::Listing => self.record_first(cx, facts),
                OwnershipStage::Recording if !self.stands_alone(cx) && !self.view_holds() => {
                    let why = Refusal::new("too few nodes took note of the client", START);
                    return self.refuse_to_start(cx, why);
                }
                OwnershipStage::Resolving
                    if braid_array::broken("decide-after-view") && self.have_view.is_empty() =>
                {
                    self.stage = OwnershipStage::Recording;
                    let view = self.view.clone().unwrap_or_default();
                    self.record(cx, view);
                }
                OwnershipStage::Recording => {
                    self.stage = OwnershipStage::Resolving;
                    if !braid_array::broken("decide-after-view") {
                        self.request_all(cx, RequestKind::ResolveLeftovers);
                    }
                    if braid_array::broken("resolved-before-serving") {
                        self.waiting.clear();
                    }
                }
                OwnershipStage::Resolving => {
                    self.stage = OwnershipStage::Over;
                    self.voters_due = true;
                    let stale = std::mem::take(&mut self.decision.stale);
                    let fits = self.decision.fits;
                    return self.events.push_back(OwnershipEvent::Resolved { stale, fits });
                }
                OwnershipStage::Over => return self.events.push_back(OwnershipEvent::Answered),
            }
        }
    }

    /// Requests the votes of all again, for a higher epoch.
    fn request_again(&mut self, cx: &mut Cx<'_>) {
        let epoch = self.outvoted.next();
        cx.shared.pipeline.set_epoch(epoch);
        cx.out.epoch = epoch;
        self.grants.clear();
        let roles: Vec<Role> = cx.members.alive_roles().collect();
        self.wait_for(&roles);
        roles.into_iter().for_each(|role| self.request_grant(cx, role));
        let grant = self.grant(cx.shared.params());
        let now = cx.keeper.now();
        self.waiting.extend(self.witnesses.request_grants(grant, cx.out, now));
    }

    /// Decides the holders of the array, by the votes that are granted.
    pub(in crate::client) fn decision(
        &self,
        cx: &Cx<'_>,
        facts: OwnershipFacts,
    ) -> Result<Decision, Refusal> {
        let space = &cx.shared.space;
        let findings = Findings {
            epoch: cx.shared.params().epoch,
            nodes: cx.shared.params().nodes,
            grants: &self.grants,
            in_sync: &|role| cx.keeper.is_in_sync(role),
            lost: &self.lost,
            alone: self.stands_alone(cx),
            vouched: self.vouched,
            survives: &|lost| space.survives(lost),
            parities: matches!(space.redundancy(), Redundancy::Parity(_)),
            marked: cx.keeper.has_to_resync(),
            recorded: facts.recorded,
            ppl: facts.ppl,
        };
        decide(&findings)
    }

    /// Sets the grants that a start would get, for a check without a start.
    pub(in crate::client) fn foretell(&mut self, grants: BTreeMap<VoterNo, NodeGrant>) {
        self.grants = grants;
    }

    fn decide(&mut self, cx: &mut Cx<'_>, facts: OwnershipFacts) -> bool {
        match self.decision(cx, facts) {
            Ok(decision) => self.decision = decision,
            Err(why) => {
                self.refuse_to_start(cx, why);
                return false;
            }
        }
        for number in self.witnesses.keep_those_of(&self.decision.view, cx.out) {
            self.forget_witness(number);
        }
        self.view = Some(self.decision.view.clone());
        self.stage = OwnershipStage::Listing;
        self.request_all(cx, RequestKind::ListLeftovers);
        true
    }

    /// Records the decision once all inputs are known.
    fn record_first(&mut self, cx: &mut Cx<'_>, facts: OwnershipFacts) {
        self.stage = OwnershipStage::Recording;
        let left = self.left;
        let parts = |set: &Set| {
            let mut pipeline = Pipeline::new(left?).ok()?;
            Some(pipeline.plan_of(set)?.involved(set.strategy, &set.touched).into_iter().collect())
        };
        let Some(mut view) = self.view.clone() else { return };
        let here = |role: Role| view.has(role) && self.grant_of(role).is_some();
        self.commit = committed(&self.leftovers, here, parts);
        let broken = self.leftovers.values().flatten().any(|item| !item.ok);
        let prepared = self.leftovers.values().flatten().any(|item| item.prepared.is_some());
        self.decision.fits &= !broken || facts.recorded;
        view.torn |= broken && !facts.recorded && !braid_array::broken("torn-recorded");
        self.view = Some(view.clone());
        if cx.keeper.is_read_only() && !prepared && !facts.live {
            // Nothing changes that anybody has to know of.
            return;
        }
        if braid_array::broken("decide-after-view") {
            self.stage = OwnershipStage::Resolving;
            self.have_view.clear();
            return self.request_all(cx, RequestKind::ResolveLeftovers);
        }
        self.record(cx, view);
    }

    /// Requests something of all that are there.
    fn request_all(&mut self, cx: &mut Cx<'_>, kind: RequestKind) {
        let roles: Vec<Role> = cx.members.alive_roles().collect();
        self.wait_for(&roles);
        for role in roles {
            let commit = self.commit.clone();
            cx.request(role, kind, |tag| match kind {
                RequestKind::ListLeftovers => Message::ListLeftovers { tag, from: 0 },
                _ => Message::ResolveLeftovers { tag, commit },
            });
        }
    }
}
