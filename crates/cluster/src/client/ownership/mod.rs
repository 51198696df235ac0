//! Ownership of the array: the votes, the view that the voters have on record, and the leftovers of
//! the last client.
//!
//! A client becomes the only one when the voters grant it an epoch. The client then finds the
//! holders of all acknowledged data ([`decision`]), and records them before it serves
//! ([`takeover`]). Later it records each change of the members in sync ([`changes`]), and changes
//! the voters ([`voters`]).

mod answers;
mod changes;
pub(super) mod decision;
mod reread;
mod takeover;
mod voters;
mod witnesses;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_array::fabric::PeerId;
use braid_array::keeper::LaneReport;
use braid_array::{Refusal, Role};

use super::ClientConfig;
use super::engine::Cx;
use super::out::RequestKind;
use super::session_key::SessionKey;
use crate::ids::{Epoch, NodeId, SetVersion, VoterNo};
use crate::pipeline::Params;
use crate::set::Roles;
use crate::view::View;
use crate::wire::{Leftover, Message};
use decision::{Decision, NodeGrant, of_members};
use reread::Reread;
pub use witnesses::MAX_WITNESSES;
use witnesses::Witnesses;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnershipStage {
    Granting,
    /// The members' superblocks and bitmaps are read again: see [`reread`].
    Rereading,
    Listing,
    Recording,
    Resolving,
    Over,
}

/// Event of votes and views for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OwnershipEvent {
    /// The array is taken over. These roles missed something; volumes are to be opened. If all
    /// fits, nothing is to be resynced.
    Resolved { stale: Vec<Role>, fits: bool },
    /// An answer has come that journals may wait for.
    Answered,
}

/// Inputs of the decisions, besides the members and the superblocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnershipFacts {
    /// The array is being started.
    pub(super) starting: bool,
    /// Nodes may come back now.
    pub(super) may_return: bool,
    /// Journals hold everything that members may have lost.
    pub(super) recorded: bool,
    /// The superblocks say that slice-sets may be recorded and not stored.
    pub(super) live: bool,
    /// The journals record parts of stripes only.
    pub(super) ppl: bool,
}

/// The takeover of an array, and from then on the voters' records: grants, leftover slice-sets of
/// the predecessor, the newest view, and the voters that have stored it.
///
/// ```text
/// Granting ── all that are there ──► Rereading ── enough ──► Listing ──► Recording ──► Resolving
///     ▲ └── outvoted: once more, with a higher epoch                                      ▼
///                                                                                       Over
/// ```
/// A slice-set of the predecessor is committed if it is prepared at each node that has a part in
/// it, is there, and is in sync: the predecessor may have answered it. All others are aborted. The
/// decision is made before the view is recorded, and carried out afterwards, so that a later client
/// decides the same. A takeover that cannot continue ends with `refused`, or with `fenced` when
/// another client has the array.
///
/// Order of calls: `begin`; the answers of nodes and witnesses, or `without` for lost ones;
/// `next_event` after each; after the takeover, `record_changes` in each turn.
#[derive(Debug)]
pub(super) struct Ownership {
    /// The array's id.
    array: [u8; 16],
    /// The operator guarantees that absent voters are off.
    pub(super) vouched: bool,
    /// Refuses the array if another client had it since the last client of this process.
    follows: bool,
    /// Only inspects: asks for no votes, takes nothing over, and changes nothing.
    looks: bool,
    /// Another client has the array.
    fenced: bool,
    /// Refusal for a reason other than lost nodes.
    refused: Option<Refusal>,
    stage: OwnershipStage,
    /// The voters from which an answer is still to come.
    waiting: BTreeSet<VoterNo>,
    grants: BTreeMap<VoterNo, NodeGrant>,
    /// The highest epoch that another client was granted.
    outvoted: Epoch,
    reread: Reread,
    /// Voters that were there at the start and were lost since.
    lost: BTreeSet<VoterNo>,
    decision: Decision,
    /// By role, the leftover slice-sets of the predecessor.
    leftovers: BTreeMap<Role, Vec<Leftover>>,
    /// The predecessor's pipeline.
    left: Option<Params>,
    /// The leftover slice-sets that are committed.
    commit: Vec<SetVersion>,
    /// The newest view that is recorded, or on its way, once it is decided.
    view: Option<View>,
    /// The voters that have it.
    have_view: BTreeSet<NodeId>,
    /// Roles that hold the array by any view that a later client may take for the newest, and the
    /// incarnations of their nodes.
    claimed: BTreeSet<(Role, u64)>,
    /// Other nodes may have to vote.
    voters_due: bool,
    witnesses: Witnesses,
    events: VecDeque<OwnershipEvent>,
}

impl Ownership {
    pub(super) fn new(array: [u8; 16], config: &ClientConfig) -> Self {
        let there = (0..).map(Role).zip(&config.members).filter(|(_, member)| member.is_some());
        let passive = config.read_only || config.looks;
        let named = if passive { Vec::new() } else { config.witnesses.clone() };
        Self {
            array,
            vouched: config.force,
            follows: config.follows,
            looks: config.looks,
            fenced: false,
            refused: None,
            stage: OwnershipStage::Granting,
            waiting: there.map(|(role, _)| role.into()).collect(),
            grants: BTreeMap::new(),
            outvoted: Epoch::BEFORE_ANY,
            reread: Reread::new(config),
            lost: BTreeSet::new(),
            decision: Decision::default(),
            leftovers: BTreeMap::new(),
            left: None,
            commit: Vec::new(),
            view: None,
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

    /// Returns whether another client has the array.
    pub(super) const fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Returns the refusal for a reason other than lost nodes.
    pub(super) const fn refused(&self) -> Option<&Refusal> {
        self.refused.as_ref()
    }

    /// Sets the reason for which the array does not continue.
    pub(super) fn refuse(&mut self, why: Refusal) {
        self.refused = Some(why);
    }

    /// Returns whether all data answered before this client is there, except for data in journals.
    /// Views of `lossy` epochs are no proof of that: they do not mention earlier losses.
    pub(super) fn fits_after(&self, lossy: &BTreeSet<Epoch>) -> bool {
        let Decision { fits, before, .. } = &self.decision;
        *fits && before.is_none_or(|epoch| !lossy.contains(&epoch))
    }

    /// Returns whether the members differ from those that this client was made from, and nothing
    /// was recorded.
    pub(super) const fn is_outdated(&self) -> bool {
        self.reread.changed() && matches!(self.stage, OwnershipStage::Over)
    }

    pub(super) const fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// Returns the order of the view among views.
    fn order(&self) -> Option<(Epoch, u32)> {
        self.view.as_ref().map(View::order)
    }

    /// Returns the grant of a role's node.
    pub(super) fn grant_of(&self, role: Role) -> Option<&NodeGrant> {
        self.grants.get(&VoterNo::from(role))
    }

    /// Returns the grants of members' nodes, by role.
    fn member_grants(&self, nodes: u16) -> impl Iterator<Item = (Role, &NodeGrant)> {
        of_members(&self.grants, nodes)
    }

    /// Notes the grant of a node that returns or takes a role, and therefore votes.
    pub(super) fn has_granted(&mut self, role: Role, grant: Option<NodeGrant>) {
        self.grants.extend(grant.map(|grant| (role.into(), grant)));
        self.voters_due = true;
    }

    /// Returns the voters that are this node.
    pub(super) fn voters_on(&self, node: NodeId) -> impl Iterator<Item = VoterNo> {
        let known = self.grants.iter().filter(move |(_, grant)| grant.node == node);
        known.map(|(&voter, _)| voter)
    }

    /// Returns the roles that a later client may believe to hold the array.
    pub(super) fn claimed_roles(&self) -> Roles {
        self.claimed.iter().map(|&(role, _)| role).collect()
    }

    pub(super) fn next_event(&mut self) -> Option<OwnershipEvent> {
        self.events.pop_front()
    }

    /// Returns the holders of the array according to the view.
    fn holders(&self) -> BTreeSet<(Role, u64)> {
        let members = self.view.iter().flat_map(|view| (0..).map(Role).zip(&view.members));
        members.filter_map(|(role, member)| Some((role, (*member)?.get()))).collect()
    }

    /// Returns whether enough voters have the view, so that every later client learns of it.
    fn view_holds(&self) -> bool {
        self.view.as_ref().is_none_or(|view| view.holds(&self.have_view))
    }

    /// Returns whether no majority is needed: the operator vouches for the others, or nothing is
    /// changed.
    fn stands_alone(&self, cx: &Cx<'_>) -> bool {
        self.vouched || cx.keeper.is_read_only()
    }

    /// Returns the request for a node's vote.
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
    pub(super) fn request_grant(&mut self, cx: &mut Cx<'_>, role: Role) {
        cx.request(role, RequestKind::Grant, self.grant(cx.shared.params()));
    }

    /// Gives up: the array must not continue as if the node were dead.
    pub(super) fn give_up(&mut self, cx: &mut Cx<'_>, key: impl Into<SessionKey>, why: Refusal) {
        self.refused.get_or_insert(why.clone());
        cx.report_of(key, |member| LaneReport::Lost(member, why));
        cx.report(LaneReport::Unservable);
    }

    fn refuse_to_start(&mut self, cx: &mut Cx<'_>, why: Refusal) {
        self.stage = OwnershipStage::Over;
        let role = cx.members.alive_roles().next().unwrap_or(Role(0));
        self.give_up(cx, role, why);
    }

    fn forget_witness(&mut self, number: VoterNo) {
        self.grants.remove(&number);
        self.waiting.remove(&number);
    }

    /// Notes that the nodes of these roles owe an answer.
    fn wait_for(&mut self, roles: &[Role]) {
        self.waiting.extend(roles.iter().map(|&role| VoterNo::from(role)));
    }

    /// Requests all voters that are there to record a view.
    fn record(&mut self, cx: &mut Cx<'_>, view: View) {
        let roles: Vec<Role> = cx.members.alive_roles().collect();
        let order = view.order();
        self.have_view.clear();
        self.wait_for(&roles);
        for role in roles {
            let view = view.clone();
            let message = |tag| Message::StoreView { tag, view };
            cx.request(role, RequestKind::StoreView(order), message);
        }
        let now = cx.keeper.now();
        self.waiting.extend(self.witnesses.record(&view, cx.out, now));
        self.view = Some(view);
        let holders = self.holders();
        self.claimed.extend(holders);
    }

    pub(super) fn is_witness(&self, peer: PeerId) -> bool {
        self.witnesses.has(peer)
    }

    pub(super) fn deadline(&self, may_return: bool) -> Option<braid_array::Instant> {
        self.witnesses.deadline(may_return)
    }

    /// Hangs up on witnesses.
    pub(super) fn close(&mut self, out: &mut super::out::ClientOut) {
        self.witnesses.close(out);
    }
}
