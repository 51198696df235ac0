//! Who holds the array: the votes, the view that the voters have on record, and what the last
//! client left.
//!
//! A client becomes the only one when the voters grant it an epoch; it finds out who holds what was
//! acknowledged ([`decision`]), and records that before it serves. From then on it records each
//! change of who is in sync, and changes the voters ([`voters`]).

pub(super) mod decision;
mod reread;
mod voters;
mod witnesses;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_array::Refusal;
use braid_array::events::ArrayEvent;
use braid_array::fabric::{FabricEvent, PeerId};
use braid_array::keeper::{Redundancy, SyncSpace};

use super::ClientConfig;
use super::engine::Cx;
use super::membership::writes_over;
use super::out::RequestKind;
use crate::ids::SetVersion;
use crate::pipeline::{Params, Pipeline};
use crate::set::{Roles, Set};
use crate::view::View;
use crate::wire::{Leftover, Message};
use decision::{Decision, Findings, Grant, START, committed, decide};
use reread::Reread;
pub use witnesses::MAX_WITNESSES;
use witnesses::{Said, Witnesses};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Granting,
    /// What lies on the members is read again: see [`reread`].
    Rereading,
    Listing,
    Recording,
    Resolving,
    Over,
}

/// What the client has to do because of votes and views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OwnershipEvent {
    /// The array is taken over. These roles missed something; volumes are to be opened. If all
    /// fits, nothing is to be resynced.
    Resolved { stale: Vec<u16>, fits: bool },
    /// An answer has come that journals may wait for.
    Answered,
}

/// What the decisions are made by, besides the members and the superblocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// The array is being started.
    pub(super) starting: bool,
    /// Nodes may come back now.
    pub(super) may_return: bool,
    /// Journals hold whatever members may have lost.
    pub(super) recorded: bool,
    /// The superblocks say that slice-sets may be recorded and not stored.
    pub(super) live: bool,
    /// What journals do not hold is not believed.
    pub(super) ppl: bool,
}

/// The takeover of an array, and from then on what the voters have on record: grants, the
/// slice-sets that the predecessor left, the newest view, and the voters that have stored it.
///
/// ```text
/// Granting ── all that are there ──► Rereading ── enough ──► Listing ──► Recording ──► Resolving
///     ▲ └── outvoted: once more, with a higher epoch                                      ▼
///                                                                                       Over
/// ```
/// Of the predecessor's slice-sets those are committed that are prepared at all nodes that have a
/// part in them and hold what was acknowledged: the predecessor may have answered them. All others
/// are aborted. That is decided before the view is recorded, and carried out after: whoever comes
/// next decides the same. A takeover that cannot go on ends with `refused`, or with `fenced` when
/// another client has the array.
///
/// Order of calls: `begin`; what nodes and witnesses answer, or `without` for those that are lost;
/// `next_event` after each; once it is over, `record_changes` in each turn.
#[derive(Debug)]
pub(super) struct Ownership {
    /// The array's id.
    array: [u8; 16],
    /// A person answers for it that voters who are not there are off.
    pub(super) vouched: bool,
    /// Nobody else may have had the array since its last client.
    follows: bool,
    /// It takes the array over from nobody.
    looks: bool,
    /// Another client has the array.
    fenced: bool,
    /// What stands against it that is no loss of nodes.
    refused: Option<Refusal>,
    stage: Stage,
    /// The roles, and numbers of witnesses, from which an answer is still to come.
    waiting: BTreeSet<u16>,
    /// By role; those of witnesses have numbers behind the roles.
    grants: BTreeMap<u16, Grant>,
    /// The highest epoch that another client was granted.
    outvoted: u32,
    reread: Reread,
    /// Roles that were there when it began, and were lost since.
    lost: BTreeSet<u16>,
    decision: Decision,
    /// By role, what nodes have of the predecessor's slice-sets.
    leftovers: BTreeMap<u16, Vec<Leftover>>,
    /// The predecessor's pipeline.
    left: Option<Params>,
    /// Which of them are committed.
    commit: Vec<SetVersion>,
    /// The newest view that is recorded, or on its way.
    view: View,
    /// The voters that have it.
    have_view: BTreeSet<u64>,
    /// Roles that hold the array by any view that a later client may take for the newest, and the
    /// incarnations of their nodes.
    claimed: BTreeSet<(u16, u64)>,
    /// Other nodes may have to vote.
    voters_due: bool,
    witnesses: Witnesses,
    events: VecDeque<OwnershipEvent>,
}

impl Ownership {
    pub(super) fn new(array: [u8; 16], config: &ClientConfig) -> Self {
        let there = (0..).zip(&config.members).filter(|(_, member)| member.is_some());
        let passive = config.read_only || config.looks;
        let named = if passive { Vec::new() } else { config.witnesses.clone() };
        Self {
            array,
            vouched: config.force,
            follows: config.follows,
            looks: config.looks,
            fenced: false,
            refused: None,
            stage: Stage::Granting,
            waiting: there.map(|(role, _)| role).collect(),
            grants: BTreeMap::new(),
            outvoted: 0,
            reread: Reread::new(config),
            lost: BTreeSet::new(),
            decision: Decision::default(),
            leftovers: BTreeMap::new(),
            left: None,
            commit: Vec::new(),
            view: View::default(),
            have_view: BTreeSet::new(),
            claimed: BTreeSet::new(),
            voters_due: false,
            witnesses: Witnesses::new(config.params.nodes, named, config.node_timeout_ms),
            events: VecDeque::new(),
        }
    }

    /// The array's id.
    pub(super) const fn array(&self) -> [u8; 16] {
        self.array
    }

    /// Another client has the array.
    pub(super) const fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// What stands against the array that is no loss of nodes.
    pub(super) const fn refused(&self) -> Option<&Refusal> {
        self.refused.as_ref()
    }

    /// That is why the array does not go on, if anybody asks.
    pub(super) fn refuse(&mut self, why: Refusal) {
        self.refused = Some(why);
    }

    /// Whatever the last client had answered is there.
    pub(super) const fn fits(&self) -> bool {
        self.decision.fits
    }

    /// What it was made from is no more, and nothing was recorded.
    pub(super) const fn is_outdated(&self) -> bool {
        self.reread.changed() && matches!(self.stage, Stage::Over)
    }

    pub(super) const fn view(&self) -> &View {
        &self.view
    }

    /// What the member's node of a role has granted.
    pub(super) fn grant_of(&self, role: u16) -> Option<&Grant> {
        self.grants.get(&role)
    }

    /// A node that comes back, or takes a role, is a voter.
    pub(super) fn has_granted(&mut self, role: u16, grant: Option<Grant>) {
        self.grants.extend(grant.map(|grant| (role, grant)));
        self.voters_due = true;
    }

    /// The numbers of voters that are this node: roles, and witnesses behind them.
    pub(super) fn voters_on(&self, node: u64) -> impl Iterator<Item = u16> {
        let known = self.grants.iter().filter(move |(_, grant)| grant.node == node);
        known.map(|(&voter, _)| voter)
    }

    /// The roles of which a later client may believe that they hold the array.
    pub(super) fn claimed_roles(&self) -> Roles {
        self.claimed.iter().map(|&(role, _)| role).collect()
    }

    pub(super) fn next_event(&mut self) -> Option<OwnershipEvent> {
        self.events.pop_front()
    }

    /// Those who hold the array by the view.
    fn holders(&self) -> BTreeSet<(u16, u64)> {
        (0..).zip(self.view.members.iter().copied()).filter(|&(_, member)| member != 0).collect()
    }

    /// Enough voters have the view: every client that comes later hears of it.
    fn view_holds(&self) -> bool {
        self.view.holds(&self.have_view)
    }

    /// No majority is asked for: a person answers for the others, or nothing is changed.
    fn stands_alone(&self, cx: &Cx<'_>) -> bool {
        self.vouched || cx.keeper.is_read_only()
    }

    /// What requests a node's vote.
    pub(super) fn grant(&self, params: &Params) -> impl Fn(u32) -> Message + use<> {
        let array = self.array;
        let epoch = params.epoch;
        let client = params.session;
        move |tag| Message::Grant { tag, array, epoch, client }
    }

    /// Requests the votes of witnesses.
    pub(super) fn begin(&mut self, cx: &mut Cx<'_>) {
        let now = cx.keeper.now();
        self.waiting.extend(self.witnesses.dial_new(cx.out, now));
    }

    /// Requests the vote of a node that is connected.
    pub(super) fn request_grant(&mut self, cx: &mut Cx<'_>, role: u16) {
        cx.request(role, RequestKind::Grant, self.grant(cx.shared.params()));
    }

    /// A node has granted what was requested.
    pub(super) fn granted(&mut self, cx: &mut Cx<'_>, facts: Facts, role: u16, grant: Grant) {
        self.learn_of_witnesses(cx, &grant.view);
        self.grants.insert(role, grant);
        self.answered(cx, facts, role);
    }

    /// In a takeover: a voter tells where others are.
    fn learn_of_witnesses(&mut self, cx: &mut Cx<'_>, view: &View) {
        if !self.looks && !cx.keeper.is_read_only() {
            self.witnesses.learn(view);
        }
        self.begin(cx);
    }

    /// Another client was granted an epoch as high as ours, or higher: it is asked for again with a
    /// higher one, if that was the answer to a request for a vote.
    pub(super) fn outvoted(
        &mut self,
        cx: &mut Cx<'_>,
        facts: Facts,
        (voter, granted): (u16, u32),
        kind: Option<RequestKind>,
    ) {
        if matches!(kind, Some(RequestKind::Grant)) && !self.follows {
            self.outvoted = self.outvoted.max(granted);
            return self.answered(cx, facts, voter);
        }
        // It is the parting word of the node, or refuses a view of ours: nothing that we say is
        // listened to any more.
        self.fenced = true;
        cx.out.notify(ArrayEvent::TakenOver);
        let why = Refusal::new("another client has taken the array over", "use that one");
        self.give_up(cx, voter, why);
    }

    /// The array must not go on as if the node were dead.
    pub(super) fn give_up(&mut self, cx: &mut Cx<'_>, role: u16, why: Refusal) {
        self.refused.get_or_insert(why.clone());
        cx.keeper.lose_member(cx.members.id(role), why);
        cx.keeper.give_up();
    }

    fn refuse_to_start(&mut self, cx: &mut Cx<'_>, why: Refusal) {
        self.stage = Stage::Over;
        let role = cx.members.alive_roles().next().unwrap_or(0);
        self.give_up(cx, role, why);
    }

    /// A view is recorded at a voter.
    pub(super) fn view_recorded(
        &mut self,
        cx: &mut Cx<'_>,
        facts: Facts,
        voter: u16,
        order: (u32, u32),
    ) {
        let node = self.grants.get(&voter).map(|grant| grant.node);
        if order == self.view.order() {
            self.have_view.extend(node);
            // From now on they hear of it.
            if self.view_holds() {
                self.vouched = false;
                self.claimed = self.holders();
            }
        }
        self.answered(cx, facts, voter);
    }

    /// A voter has answered what a takeover waits for.
    pub(super) fn answered(&mut self, cx: &mut Cx<'_>, facts: Facts, voter: u16) {
        self.waiting.remove(&voter);
        self.advance(cx, facts);
    }

    /// What lies on a member was read again, a part of it.
    pub(super) fn reread(&mut self, cx: &mut Cx<'_>, facts: Facts, role: u16, part: Option<&[u8]>) {
        if let Some(part) = part {
            self.reread.take(role, part);
        }
        if self.reread.go_on(cx, role) {
            self.answered(cx, facts, role);
        }
    }

    /// A node says what it has of the predecessor's slice-sets.
    pub(super) fn leftovers(
        &mut self,
        cx: &mut Cx<'_>,
        facts: Facts,
        role: u16,
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

    /// A voter is gone: its answer is not waited for.
    pub(super) fn without(&mut self, cx: &mut Cx<'_>, facts: Facts, voter: u16) {
        self.waiting.remove(&voter);
        if self.stage != Stage::Over {
            self.grants.remove(&voter);
            self.lost.insert(voter);
        }
        self.advance(cx, facts);
    }

    /// Goes on with the takeover when nothing is waited for.
    fn advance(&mut self, cx: &mut Cx<'_>, facts: Facts) {
        while facts.starting && self.waiting.is_empty() {
            match self.stage {
                Stage::Granting if self.outvoted >= cx.shared.params().epoch => {
                    return self.request_again(cx);
                }
                Stage::Granting => {
                    self.stage = Stage::Rereading;
                    self.waiting.extend(self.reread.begin(cx));
                }
                Stage::Rereading if self.reread.changed() => {
                    cx.out.notify(ArrayEvent::MembersChanged);
                    let reason = "another client changed the array while it was being started";
                    return self.refuse_to_start(cx, Refusal::new(reason, "start it again"));
                }
                Stage::Rereading => {
                    if !self.decide(cx, facts) {
                        return;
                    }
                }
                Stage::Listing => self.record_first(cx, facts),
                Stage::Recording if !self.stands_alone(cx) && !self.view_holds() => {
                    let why = Refusal::new("too few nodes took note of the client", START);
                    return self.refuse_to_start(cx, why);
                }
                Stage::Resolving
                    if braid_array::broken("decide-after-view") && self.have_view.is_empty() =>
                {
                    self.stage = Stage::Recording;
                    self.record(cx, self.view.clone());
                }
                Stage::Recording => {
                    self.stage = Stage::Resolving;
                    if !braid_array::broken("decide-after-view") {
                        self.request_all(cx, RequestKind::ResolveLeftovers);
                    }
                    if braid_array::broken("settled-before-serving") {
                        self.waiting.clear();
                    }
                }
                Stage::Resolving => {
                    self.stage = Stage::Over;
                    self.voters_due = true;
                    let stale = std::mem::take(&mut self.decision.stale);
                    let fits = self.decision.fits;
                    return self.events.push_back(OwnershipEvent::Resolved { stale, fits });
                }
                Stage::Over => return self.events.push_back(OwnershipEvent::Answered),
            }
        }
    }

    /// Requests the votes of all again, for a higher epoch.
    fn request_again(&mut self, cx: &mut Cx<'_>) {
        let epoch = self.outvoted.saturating_add(1);
        cx.shared.pipeline.set_epoch(epoch);
        cx.out.epoch = epoch;
        self.grants.clear();
        let roles: Vec<u16> = cx.members.alive_roles().collect();
        self.waiting.extend(&roles);
        roles.into_iter().for_each(|role| self.request_grant(cx, role));
        let grant = self.grant(cx.shared.params());
        let now = cx.keeper.now();
        self.waiting.extend(self.witnesses.request_grants(grant, cx.out, now));
    }

    /// Who holds the array, by the votes that are granted.
    pub(super) fn decision(&self, cx: &Cx<'_>, facts: Facts) -> Result<Decision, Refusal> {
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

    /// The same of what somebody would be granted who only asks.
    pub(super) fn foretell(&mut self, grants: BTreeMap<u16, Grant>) {
        self.grants = grants;
    }

    fn decide(&mut self, cx: &mut Cx<'_>, facts: Facts) -> bool {
        match self.decision(cx, facts) {
            Ok(decision) => self.decision = decision,
            Err(why) => {
                self.refuse_to_start(cx, why);
                return false;
            }
        }
        self.view = self.decision.view.clone();
        for number in self.witnesses.keep_those_of(&self.view, cx.out) {
            self.forget_witness(number);
        }
        self.stage = Stage::Listing;
        self.request_all(cx, RequestKind::ListLeftovers);
        true
    }

    fn forget_witness(&mut self, number: u16) {
        self.grants.remove(&number);
        self.waiting.remove(&number);
    }

    /// All is known: what is decided is recorded.
    fn record_first(&mut self, cx: &mut Cx<'_>, facts: Facts) {
        self.stage = Stage::Recording;
        let left = self.left;
        let parts = |set: &Set| {
            let mut pipeline = Pipeline::new(left?).ok()?;
            Some(pipeline.plan_of(set)?.involved(set.strategy, &set.touched).into_iter().collect())
        };
        let here = |role: u16| self.view.has(role) && self.grants.contains_key(&role);
        self.commit = committed(&self.leftovers, here, parts);
        let broken = self.leftovers.values().flatten().any(|item| !item.ok);
        let prepared = self.leftovers.values().flatten().any(|item| item.staged.is_some());
        self.decision.fits &= !broken || facts.recorded;
        self.view.torn |= broken && !facts.recorded && !braid_array::broken("torn-recorded");
        if cx.keeper.is_read_only() && !prepared && !facts.live {
            // Nothing changes that anybody has to know of.
            return;
        }
        if braid_array::broken("decide-after-view") {
            self.stage = Stage::Resolving;
            self.have_view.clear();
            return self.request_all(cx, RequestKind::ResolveLeftovers);
        }
        self.record(cx, self.view.clone());
    }

    /// Has it recorded when somebody is lost, and when parts of the array begin to wait for a
    /// resync, or none does any more. When too many are lost nothing changes, views neither.
    /// Nothing is answered before it is certain that those who come later hear of a loss.
    pub(super) fn record_changes(&mut self, cx: &mut Cx<'_>) {
        // Where a person answers for the voters they need not know any more who was lost.
        let stops = cx.keeper.is_stopping() && !self.needs_votes(cx);
        let over = cx.keeper.is_read_only() || stops || writes_over(cx.keeper);
        if over || !self.waiting.is_empty() {
            return;
        }
        let torn = cx.keeper.has_to_resync() && !braid_array::broken("torn-recorded");
        let mut view = self.view.clone();
        for (role, member) in (0..).zip(&mut view.members) {
            let holds = cx.members.readable(cx.keeper, role);
            // Whoever comes next goes by superblocks, too: these may not say yet who is in sync in
            // its place.
            if holds || cx.keeper.arrivals_told() {
                let grant = self.grants.get(&role).filter(|_| holds);
                *member = grant.map_or(0, |grant| grant.incarnation);
            }
        }
        self.change_voters(&mut view, cx.shared.params().nodes, self.view_holds());
        self.voters_due = false;
        let view = View { torn, ..view };
        if view == self.view {
            self.look_at_votes(cx);
        } else {
            self.record(cx, View { count: view.count + 1, ..view });
        }
    }

    /// Too few voters are there to take note of a loss, and nobody waits for another: nothing can
    /// be answered any more.
    fn look_at_votes(&self, cx: &mut Cx<'_>) {
        let noted = cx.members.losses_noted(cx.keeper);
        if self.needs_votes(cx) && !self.view_holds() && !noted {
            cx.keeper.give_up();
        }
    }

    /// Do voters have to know who was lost? Not where a person answers for the others.
    fn needs_votes(&self, cx: &Cx<'_>) -> bool {
        !(self.stands_alone(cx) || writes_over(cx.keeper))
    }

    /// Will no later client ask this incarnation of a node for what it has prepared? What was
    /// answered is with the others then, or was answered without it.
    pub(super) fn is_out(&self, cx: &Cx<'_>, incarnation: u64) -> bool {
        let claimed = self.claimed.iter().any(|&(_, claimed)| claimed == incarnation);
        !claimed || !self.needs_votes(cx)
    }

    /// Does whoever comes later hear of all who were lost? They are recorded if not; the client
    /// gives up when too many are, or too few are left to note it.
    pub(super) fn lost_are_recorded(&mut self, cx: &mut Cx<'_>) -> bool {
        let over = writes_over(cx.keeper);
        if !self.waiting.is_empty() || cx.out.has_losses() {
            return false;
        }
        if over && braid_array::broken("start-ends") {
            return false;
        }
        let mut view = self.view.clone();
        for (role, member) in (0..).zip(&mut view.members) {
            *member = if cx.members.alive(role) { *member } else { 0 };
        }
        let known = view == self.view;
        let noted = known && (self.stands_alone(cx) || self.view_holds());
        if over {
            let why = Refusal::new("too many nodes were lost meanwhile", START);
            self.refuse_to_start(cx, why);
        } else if !known {
            self.record(cx, View { count: view.count + 1, ..view });
        } else if !noted {
            let why = Refusal::new("too few nodes took note of who was lost", START);
            self.refuse_to_start(cx, why);
        }
        noted && !over
    }

    /// If the node of this role were lost, could the others take note of that?
    pub(super) fn votes_suffice_without(&self, cx: &Cx<'_>, role: u16) -> bool {
        let nodes = cx.members.nodes();
        let there = |voter: u16| {
            if voter < nodes {
                voter != role && cx.members.alive(voter)
            } else {
                self.witnesses.is_here(voter)
            }
        };
        let here = self.grants.iter().filter(|&(&voter, _)| there(voter));
        let here = here.map(|(_, grant)| grant.node).collect();
        !self.needs_votes(cx) || self.view.holds(&here)
    }

    /// Requests something of all that are there.
    fn request_all(&mut self, cx: &mut Cx<'_>, kind: RequestKind) {
        let roles: Vec<u16> = cx.members.alive_roles().collect();
        self.waiting.extend(&roles);
        for role in roles {
            let commit = self.commit.clone();
            cx.request(role, kind, |tag| match kind {
                RequestKind::ListLeftovers => Message::ListLeftovers { tag, from: 0 },
                _ => Message::ResolveLeftovers { tag, commit },
            });
        }
    }

    /// Has all that are there record a view.
    fn record(&mut self, cx: &mut Cx<'_>, view: View) {
        let roles: Vec<u16> = cx.members.alive_roles().collect();
        let order = view.order();
        self.have_view.clear();
        self.waiting.extend(&roles);
        for role in roles {
            let view = view.clone();
            let message = |tag| Message::StoreView { tag, view };
            cx.request(role, RequestKind::StoreView(order), message);
        }
        let now = cx.keeper.now();
        self.waiting.extend(self.witnesses.record(&view, cx.out, now));
        self.view = view;
        let holders = self.holders();
        self.claimed.extend(holders);
    }

    pub(super) fn is_witness(&self, peer: PeerId) -> bool {
        self.witnesses.has(peer)
    }

    /// What comes over the connection to a witness.
    pub(super) fn witness_event(
        &mut self,
        cx: &mut Cx<'_>,
        facts: Facts,
        peer: PeerId,
        event: FabricEvent,
    ) {
        let now = cx.keeper.now();
        let grant = self.grant(cx.shared.params());
        let Some(said) = self.witnesses.event(peer, event, grant, cx.out, now) else { return };
        match said {
            Said::Granted(number, grant) => self.witness_granted(cx, facts, number, grant),
            Said::Recorded(number, order) => self.view_recorded(cx, facts, number, order),
            Said::Lost(number) => self.without(cx, facts, number),
            Said::Outvoted(number, RequestKind::Grant, granted)
                if !facts.starting && granted <= cx.shared.params().epoch =>
            {
                self.witnesses.cut(number, cx.out, now);
                self.without(cx, facts, number);
            }
            Said::Outvoted(number, RequestKind::Grant, granted)
                if facts.starting && !self.follows =>
            {
                let kind = Some(RequestKind::Grant);
                self.outvoted(cx, facts, (number, granted), kind);
            }
            Said::Outvoted(_, _, granted) => {
                let role = cx.members.alive_roles().next().unwrap_or(0);
                self.outvoted(cx, facts, (role, granted), None);
            }
        }
    }

    fn witness_granted(&mut self, cx: &mut Cx<'_>, facts: Facts, number: u16, grant: Grant) {
        if facts.starting {
            self.learn_of_witnesses(cx, &grant.view);
        }
        let lacks = grant.view.order() < self.view.order();
        self.grants.insert(number, grant);
        // It may have been known by another address.
        if let Some(other) = self.witnesses.forget_same(number, cx.out) {
            self.forget_witness(other);
        }
        if !facts.starting {
            self.voters_due = true;
            if lacks {
                self.waiting.insert(number);
                let now = cx.keeper.now();
                return self.witnesses.record_at(number, self.view.clone(), cx.out, now);
            }
        }
        self.answered(cx, facts, number);
    }

    /// Dials witnesses again whose time has come, and gives up who owes an answer for too long.
    pub(super) fn tick(&mut self, cx: &mut Cx<'_>, facts: Facts) {
        let now = cx.keeper.now();
        for number in self.witnesses.tick(facts.may_return, cx.out, now) {
            self.without(cx, facts, number);
        }
    }

    pub(super) fn deadline(&self, may_return: bool) -> Option<braid_array::Instant> {
        self.witnesses.deadline(may_return)
    }

    /// Hangs up on witnesses.
    pub(super) fn close(&mut self, out: &mut super::out::Out) {
        self.witnesses.close(out);
    }
}
