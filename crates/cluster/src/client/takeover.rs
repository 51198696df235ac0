//! How a client becomes the only one: the voters grant it an epoch, it finds out who holds what was
//! acknowledged, and records that before it serves.

use std::collections::{BTreeMap, BTreeSet};

use braid_array::Refusal;
use braid_array::events::ArrayEvent;

use super::decision::{Decision, Findings, Grant, START, decide, going};
use super::out::LossKind;
use super::reread::Reread;
use super::setup::SessionState;
use super::{Client, ClientConfig, Message, Phase, Redundancy, RequestKind, SyncSpace};
use crate::pipeline::{Params, Pipeline};
use crate::set::{Roles, Set};
use crate::view::View;
use crate::wire::Leftover;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Granting,
    /// What lies on the members is read again: see [`reread`](super::reread).
    Rereading,
    Listing,
    Recording,
    Settling,
    Over,
}

/// The takeover of an array, and from then on what the voters have on record: grants, the
/// slice-sets that the predecessor left, the newest view, and the voters that have stored it.
///
/// ```text
/// Granting ── all that are there ──► Rereading ── enough ──► Listing ──► Recording ──► Settling
///     ▲ └── outvoted: once more, with a higher epoch                                      ▼
///                                                                                       Over
/// ```
/// Of the predecessor's slice-sets those are committed that are prepared at all nodes that have a
/// part in them and hold what was acknowledged: the predecessor may have answered them. All others
/// are aborted. That is decided before the view is recorded, and carried out after: whoever comes
/// next decides the same. A takeover that cannot go on ends with `refused`, or with `fenced` when
/// another client has the array.
#[derive(Debug)]
pub(super) struct Takeover {
    /// The array's id.
    array: [u8; 16],
    /// A person answers for it that voters who are not there are off.
    pub(super) force: bool,
    /// Nobody else may have had the array since its last client.
    pub(super) follows: bool,
    /// Another client has the array.
    pub(super) fenced: bool,
    /// What stands against it that is no loss of nodes.
    pub(super) refused: Option<Refusal>,
    stage: Stage,
    /// The roles, and numbers of witnesses, from which an answer is still to come.
    pub(super) waiting: BTreeSet<u16>,
    /// By role; those of witnesses have numbers behind the roles.
    pub(super) grants: BTreeMap<u16, Grant>,
    /// The highest epoch that another client was granted.
    outvoted: u32,
    pub(super) reread: Reread,
    /// Roles that were there when it began, and were lost since.
    lost: BTreeSet<u16>,
    /// Roles that are there and missed something: as voters they are asked all the same.
    stale: Vec<u16>,
    /// By role, what nodes have of the predecessor's slice-sets.
    leftovers: BTreeMap<u16, Vec<Leftover>>,
    /// The predecessor's pipeline.
    left: Option<Params>,
    /// Which of them go.
    commit: Vec<(u32, u64)>,
    /// All who hold the array have all that they had: with what goes everything fits.
    soft: bool,
    /// Or journals have it.
    fits: bool,
    /// The newest view that is recorded, or on its way.
    pub(super) view: View,
    /// The voters that have it.
    have_view: BTreeSet<u64>,
    /// Roles that hold the array by any view that a later client may take for the newest, and the
    /// incarnations of their nodes.
    claimed: BTreeSet<(u16, u64)>,
    /// Other nodes may have to vote.
    pub(super) voters_due: bool,
}

impl Takeover {
    pub(super) fn new(array: [u8; 16], config: &ClientConfig) -> Self {
        let there = (0..).zip(&config.members).filter(|(_, member)| member.is_some());
        Self {
            array,
            force: config.force,
            follows: config.follows,
            fenced: false,
            refused: None,
            stage: Stage::Granting,
            waiting: there.map(|(role, _)| role).collect(),
            grants: BTreeMap::new(),
            outvoted: 0,
            reread: Reread::new(config.found.clone()),
            lost: BTreeSet::new(),
            stale: Vec::new(),
            leftovers: BTreeMap::new(),
            left: None,
            commit: Vec::new(),
            soft: false,
            fits: false,
            view: View::default(),
            have_view: BTreeSet::new(),
            claimed: BTreeSet::new(),
            voters_due: false,
        }
    }

    /// Whatever the last client had answered is there.
    pub(super) const fn fits(&self) -> bool {
        self.fits
    }

    /// What it was made from is no more, and nothing was recorded.
    pub(super) const fn is_outdated(&self) -> bool {
        self.reread.changed() && matches!(self.stage, Stage::Over)
    }

    /// The roles of which a later client may believe that they hold the array.
    pub(super) fn claimed_roles(&self) -> Roles {
        self.claimed.iter().map(|&(role, _)| role).collect()
    }

    /// Those who hold the array by the view.
    fn holders(&self) -> BTreeSet<(u16, u64)> {
        (0..).zip(self.view.members.iter().copied()).filter(|&(_, member)| member != 0).collect()
    }

    /// Enough voters have the view: every client that comes later hears of it.
    pub(super) fn view_holds(&self) -> bool {
        self.view.holds(&self.have_view)
    }
}

impl Client {
    /// Asks a node that is connected for its vote.
    pub(super) fn ask_grant(&mut self, role: u16) {
        self.sessions[usize::from(role)].state = SessionState::Granting;
        let grant = self.grant();
        self.request(role, RequestKind::Grant, grant);
    }

    /// What asks a node for its vote.
    pub(super) fn grant(&self) -> impl FnOnce(u32) -> Message + use<> {
        let (array, epoch) = (self.takeover.array, self.shared.params().epoch);
        let client = self.shared.params().session;
        move |tag| Message::Grant { tag, array, epoch, client }
    }

    /// A node has granted what we asked for.
    pub(super) fn granted(&mut self, role: u16, tag: u32, grant: Grant) {
        if !matches!(self.take_request(role, tag), Some(RequestKind::Grant)) {
            return self.out.violates(role, "it grants what was not asked");
        }
        self.learn_of_witnesses(&grant.view);
        self.takeover.grants.insert(role, grant);
        self.voter_answered(role);
    }

    /// Another client was granted an epoch as high as ours, or higher.
    pub(super) fn outvoted(&mut self, role: u16, tag: u32, granted: u32) {
        match self.take_request(role, tag) {
            Some(RequestKind::Grant) if !self.takeover.follows => self.grant_refused(role, granted),
            // It is the parting word of the node, or refuses a view of ours.
            _ => self.fenced(role),
        }
    }

    /// It is asked for again with a higher epoch.
    pub(super) fn grant_refused(&mut self, voter: u16, granted: u32) {
        self.takeover.outvoted = self.takeover.outvoted.max(granted);
        self.voter_answered(voter);
    }

    /// Another client has the array: nothing that we say is listened to any more.
    pub(super) fn fenced(&mut self, role: u16) {
        self.takeover.fenced = true;
        self.out.notify(ArrayEvent::TakenOver);
        let why = Refusal::new("another client has taken the array over", "use that one");
        self.give_up(role, why);
    }

    /// A view is recorded at a node.
    pub(super) fn view_recorded(&mut self, role: u16, order: (u32, u32)) {
        let node = self.takeover.grants.get(&role).map(|grant| grant.node);
        if order == self.takeover.view.order() {
            self.takeover.have_view.extend(node);
            // From now on they hear of it.
            if self.takeover.view_holds() {
                self.takeover.force = false;
                self.takeover.claimed = self.takeover.holders();
            }
        }
        self.voter_answered(role);
    }

    /// A node cannot vote, or not keep what it was told.
    pub(super) fn vote_refused(&mut self, role: u16, why: Option<Refusal>) {
        let nonsense = || Refusal::new("it does not keep to the protocol", "update it");
        self.keeper.lose_member(self.member_id(role), why.unwrap_or_else(nonsense));
    }

    pub(super) fn voter_answered(&mut self, role: u16) {
        self.takeover.waiting.remove(&role);
        self.take_over();
    }

    /// A node is gone: its answer is not waited for.
    pub(super) fn take_over_without(&mut self, role: u16) {
        self.takeover.waiting.remove(&role);
        if self.takeover.stage != Stage::Over {
            self.takeover.grants.remove(&role);
            self.takeover.lost.insert(role);
        }
        self.take_over();
    }

    /// Goes on with the takeover when nothing is waited for.
    fn take_over(&mut self) {
        if !matches!(self.phase, Phase::Setup) || !self.takeover.waiting.is_empty() {
            return;
        }
        match self.takeover.stage {
            Stage::Granting if self.takeover.outvoted >= self.shared.params().epoch => {
                let epoch = self.takeover.outvoted.saturating_add(1);
                self.shared.pipeline.set_epoch(epoch);
                self.out.epoch = epoch;
                self.takeover.grants.clear();
                let roles: Vec<u16> = self.alive_roles().collect();
                self.takeover.waiting.extend(&roles);
                roles.into_iter().for_each(|role| self.ask_grant(role));
                self.ask_witnesses_again();
            }
            Stage::Granting => {
                self.takeover.stage = Stage::Rereading;
                self.reread();
                self.take_over();
            }
            Stage::Rereading if self.takeover.reread.changed() => {
                self.out.notify(ArrayEvent::MembersChanged);
                let reason = "another client changed the array while it was being started";
                self.refuse_to_start(Refusal::new(reason, "start it again"));
            }
            Stage::Rereading => self.decide(),
            Stage::Listing => self.record_first(),
            Stage::Recording if !self.stands_alone() && !self.takeover.view_holds() => {
                let why = Refusal::new("too few nodes took note of the client", START);
                self.refuse_to_start(why);
            }
            Stage::Settling
                if braid_array::broken("decide-after-view")
                    && self.takeover.have_view.is_empty() =>
            {
                self.takeover.stage = Stage::Recording;
                let view = self.takeover.view.clone();
                self.record(view);
            }
            Stage::Recording => {
                self.takeover.stage = Stage::Settling;
                if !braid_array::broken("decide-after-view") {
                    self.ask_all(RequestKind::ResolveLeftovers);
                }
                if braid_array::broken("settled-before-serving") {
                    self.takeover.waiting.clear();
                }
                self.take_over();
            }
            Stage::Settling => {
                self.takeover.stage = Stage::Over;
                self.takeover.voters_due = true;
                for role in std::mem::take(&mut self.takeover.stale) {
                    let why = Refusal::new("has missed writes", "it is given them");
                    self.lose_now(role, why, LossKind::Returns);
                }
                // Not before it is known who misses something: the bitmap still says what.
                if self.takeover.fits {
                    self.keeper.nothing_to_resync();
                }
                let roles: Vec<u16> = self.alive_roles().collect();
                roles.into_iter().for_each(|role| self.open_volume_of(role));
            }
            Stage::Over => self.start_journals(),
        }
    }

    /// Who holds the array, by the votes that are granted.
    pub(super) fn decision(&self) -> Result<Decision, Refusal> {
        let findings = Findings {
            epoch: self.shared.params().epoch,
            nodes: self.shared.params().nodes,
            grants: &self.takeover.grants,
            in_sync: &|role| self.keeper.is_in_sync(role),
            lost: &self.takeover.lost,
            alone: self.stands_alone(),
            vouched: self.takeover.force,
            survives: &|lost| self.shared.space.survives(lost),
            parities: matches!(self.shared.space.redundancy(), Redundancy::Parity(_)),
            marked: self.keeper.has_to_resync(),
            recorded: self.engine.journals.all_is_recorded(),
            ppl: self.engine.journals.live && self.engine.journals.parts.were_only,
        };
        decide(&findings)
    }

    fn decide(&mut self) {
        let decision = match self.decision() {
            Ok(decision) => decision,
            Err(why) => return self.refuse_to_start(why),
        };
        self.takeover.stale = decision.stale;
        self.takeover.soft = decision.soft;
        self.takeover.fits = decision.fits;
        self.keep_witnesses_of(&decision.view);
        self.takeover.view = decision.view;
        self.takeover.stage = Stage::Listing;
        self.ask_all(RequestKind::ListLeftovers);
        self.take_over();
    }

    /// A node says what it has of the predecessor's slice-sets.
    pub(super) fn leftovers(
        &mut self,
        role: u16,
        tag: u32,
        params: Option<Params>,
        items: Vec<Leftover>,
        next: u16,
    ) {
        if !matches!(self.take_request(role, tag), Some(RequestKind::ListLeftovers)) {
            return self.out.violates(role, "it lists what was not asked");
        }
        self.takeover.left = params.or(self.takeover.left);
        let leftovers = self.takeover.leftovers.entry(role).or_default();
        leftovers.extend(items);
        if next > 0 && usize::from(next) == leftovers.len() {
            let message = |tag| Message::ListLeftovers { tag, from: next };
            return self.request(role, RequestKind::ListLeftovers, message);
        }
        self.voter_answered(role);
    }

    /// All is known: what is decided is recorded.
    fn record_first(&mut self) {
        self.takeover.stage = Stage::Recording;
        let recorded = self.engine.journals.all_is_recorded();
        let live = self.engine.journals.live;
        let Takeover { view, leftovers, left, grants, commit, soft, fits, .. } = &mut self.takeover;
        let parts = |set: &Set| {
            let mut pipeline = Pipeline::new((*left)?).ok()?;
            Some(pipeline.plan_of(set)?.involved(set.strategy, &set.touched).into_iter().collect())
        };
        let here = |role: u16| view.has(role) && grants.contains_key(&role);
        *commit = going(leftovers, here, parts);
        let broken = leftovers.values().flatten().any(|item| !item.ok);
        let staged = leftovers.values().flatten().any(|item| item.staged.is_some());
        *soft &= !broken;
        *fits &= !broken || recorded;
        view.torn |= broken && !recorded && !braid_array::broken("torn-recorded");
        if self.keeper.is_read_only() && !staged && !live {
            // Nothing changes that anybody has to know of.
            return self.take_over();
        }
        let view = view.clone();
        if braid_array::broken("decide-after-view") {
            self.takeover.stage = Stage::Settling;
            self.takeover.have_view.clear();
            self.ask_all(RequestKind::ResolveLeftovers);
            return self.take_over();
        }
        self.record(view);
    }

    /// Has it recorded when somebody is lost, and when parts of the array begin to wait for a
    /// resync, or none does any more. When too many are lost nothing changes, views neither.
    /// Nothing is answered before it is certain that those who come later hear of a loss.
    pub(super) fn record_changes(&mut self) {
        // Where a person answers for the voters they need not know any more who was lost.
        let stops = self.keeper.is_stopping() && !self.needs_votes();
        let over = self.keeper.is_read_only() || stops || self.writes_over();
        let torn = self.keeper.has_to_resync() && !braid_array::broken("torn-recorded");
        let mut view = self.takeover.view.clone();
        for (role, member) in (0..).zip(&mut view.members) {
            let holds = self.alive(role) && self.keeper.is_in_sync(role);
            let grant = self.takeover.grants.get(&role).filter(|_| holds);
            // Whoever comes next goes by superblocks, too: these may not say yet who is in sync in
            // its place.
            if holds || self.keeper.arrivals_told() {
                *member = grant.map_or(0, |grant| grant.incarnation);
            }
        }
        if over || !self.takeover.waiting.is_empty() {
            return;
        }
        self.change_voters(&mut view);
        self.takeover.voters_due = false;
        let view = View { torn, ..view };
        if view == self.takeover.view {
            self.look_at_votes();
        } else {
            self.record(View { count: view.count + 1, ..view });
        }
    }

    /// Will no later client ask this incarnation of a node for what it has prepared? What was
    /// answered is with the others then, or was answered without it.
    pub(super) fn is_out(&self, incarnation: u64) -> bool {
        let claimed = self.takeover.claimed.iter().any(|&(_, claimed)| claimed == incarnation);
        !claimed || !self.needs_votes()
    }

    /// Does whoever comes later hear of all who were lost? They are recorded if not; the client
    /// gives up when too many are, or too few are left to note it.
    pub(super) fn lost_are_recorded(&mut self) -> bool {
        if !self.takeover.waiting.is_empty() || self.out.has_losses() {
            return false;
        }
        if self.writes_over() && braid_array::broken("start-ends") {
            return false;
        }
        let mut view = self.takeover.view.clone();
        for (role, member) in (0..).zip(&mut view.members) {
            *member = if self.alive(role) { *member } else { 0 };
        }
        let known = view == self.takeover.view;
        let noted = known && (self.stands_alone() || self.takeover.view_holds());
        if self.writes_over() {
            self.refuse_to_start(Refusal::new("too many nodes were lost meanwhile", START));
        } else if !known {
            self.record(View { count: view.count + 1, ..view });
        } else if !noted {
            self.refuse_to_start(Refusal::new("too few nodes took note of who was lost", START));
        }
        noted && !self.writes_over()
    }

    /// Asks all that are there.
    fn ask_all(&mut self, kind: RequestKind) {
        let roles: Vec<u16> = self.alive_roles().collect();
        self.takeover.waiting.extend(&roles);
        for role in roles {
            let commit = self.takeover.commit.clone();
            self.request(role, kind, |tag| match kind {
                RequestKind::ListLeftovers => Message::ListLeftovers { tag, from: 0 },
                _ => Message::ResolveLeftovers { tag, commit },
            });
        }
    }

    /// No majority is asked for: a person answers for the others, or nothing is changed.
    fn stands_alone(&self) -> bool {
        self.takeover.force || self.keeper.is_read_only()
    }

    fn refuse_to_start(&mut self, why: Refusal) {
        self.takeover.stage = Stage::Over;
        let role = self.alive_roles().next().unwrap_or(0);
        self.give_up(role, why);
    }

    /// Has all that are there record a view.
    fn record(&mut self, view: View) {
        let roles: Vec<u16> = self.alive_roles().collect();
        let order = view.order();
        self.takeover.have_view.clear();
        self.takeover.waiting.extend(&roles);
        for role in roles {
            let view = view.clone();
            self.request(role, RequestKind::StoreView(order), |tag| Message::StoreView {
                tag,
                view,
            });
        }
        self.record_at_witnesses(&view);
        self.takeover.view = view;
        let holders = self.takeover.holders();
        self.takeover.claimed.extend(holders);
    }

    /// The array's id.
    pub(super) const fn array_id(&self) -> [u8; 16] {
        self.takeover.array
    }

    pub(super) fn alive_roles(&self) -> impl Iterator<Item = u16> {
        (0..self.shared.params().nodes).filter(|&role| self.alive(role))
    }
}
