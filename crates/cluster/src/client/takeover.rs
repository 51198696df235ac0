//! How a client becomes the only one: the voters grant it an epoch, it finds out who holds what was
//! acknowledged, and records that before it serves.
//!
//! ```text
//! Granting ── all that are there, enough of them ──► Recording ──► Over
//!     ▲ └── outvoted: once more, with a higher epoch
//! ```

use std::collections::{BTreeMap, BTreeSet};

use braid_array::Refusal;

use super::setup::LinkState;
use super::{Client, ClientMember, Message, Phase, Question};
use crate::view::View;

const START: &str = "start the other nodes, or use --force";

/// What a node has granted.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    /// The newest view that it was told of.
    pub(super) view: View,
    /// As a member of which it would be in sync now.
    pub(super) incarnation: u64,
    /// Who it is as a voter.
    pub(super) node: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Granting,
    Recording,
    Over,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Takeover {
    /// The array's id.
    array: [u8; 16],
    /// A person answers for it that voters who are not there are off.
    force: bool,
    stage: Stage,
    /// The roles from which an answer is still to come.
    waiting: BTreeSet<u16>,
    /// By role.
    pub(super) grants: BTreeMap<u16, Grant>,
    /// The highest epoch that another client was granted.
    outvoted: u32,
    /// Roles that are there and missed something: as voters they are asked all the same.
    stale: Vec<u16>,
    /// The newest view that is recorded, or on its way.
    pub(super) view: View,
    /// The voters that have it.
    have_view: BTreeSet<u64>,
}

/// Who holds an array now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// To be recorded.
    pub(super) view: View,
    /// Roles that are there and missed something.
    pub(super) stale: Vec<u16>,
}

/// What a client finds when it has been granted an epoch.
#[derive(Debug)]
pub(super) struct Findings<'a> {
    pub(super) epoch: u32,
    pub(super) nodes: u16,
    /// By role, of the nodes that are there.
    pub(super) grants: &'a BTreeMap<u16, Grant>,
    /// A majority is not asked for.
    pub(super) alone: bool,
    /// The superblocks say that parts of the array may not fit.
    pub(super) marked: bool,
}

/// Decides who holds the array.
pub(super) fn decide(findings: &Findings<'_>) -> Result<Decision, Refusal> {
    let Findings { epoch, nodes, grants, alone, marked } = *findings;
    let newest = grants.values().map(|grant| &grant.view).max_by_key(|view| view.order());
    let newest = newest.filter(|view| view.epoch > 0);
    let here: BTreeSet<u64> = grants.values().map(|grant| grant.node).collect();
    let (asked, majority) = match newest {
        Some(view) => {
            (view.voters.iter().filter(|voter| here.contains(voter)).count(), view.majority())
        }
        None => (here.len(), usize::from(nodes) / 2 + 1),
    };
    if asked < majority && !alone {
        let reason = format!("{asked} nodes that vote are there, and {majority} are needed");
        return Err(Refusal::new(reason, START));
    }
    let holds = |role: u16| newest.is_none_or(|view| view.has(role));
    let incarnation = |role| grants.get(&role).filter(|_| holds(role)).map_or(0, |g| g.incarnation);
    let voters = newest.map_or_else(|| here.into_iter().collect(), |view| view.voters.clone());
    let members = (0..nodes).map(incarnation).collect();
    let stale = grants.keys().copied().filter(|&role| !holds(role)).collect();
    Ok(Decision { view: View { epoch, count: 1, torn: marked, members, voters }, stale })
}

impl Takeover {
    pub(super) fn new(array: [u8; 16], force: bool, members: &[Option<ClientMember>]) -> Self {
        let there = (0..).zip(members).filter(|(_, member)| member.is_some());
        Self {
            array,
            force,
            stage: Stage::Granting,
            waiting: there.map(|(role, _)| role).collect(),
            grants: BTreeMap::new(),
            outvoted: 0,
            stale: Vec::new(),
            view: View::default(),
            have_view: BTreeSet::new(),
        }
    }

    /// Enough voters have the view: every client that comes later hears of it.
    pub(super) fn view_holds(&self) -> bool {
        self.have_view.len() >= self.view.enough()
    }
}

impl Client {
    /// Asks a node that is connected for its vote.
    pub(super) fn ask_grant(&mut self, role: u16) {
        self.links[usize::from(role)].state = LinkState::Granting;
        let (array, epoch) = (self.takeover.array, self.params().epoch);
        self.ask(role, Question::Grant, |tag| Message::Grant { tag, array, epoch });
    }

    /// A node has granted what we asked for.
    pub(super) fn granted(&mut self, role: u16, tag: u32, grant: Grant) {
        if !matches!(self.question(role, tag), Some(Question::Grant)) {
            return self.part_with(role, "it grants what was not asked");
        }
        self.takeover.grants.insert(role, grant);
        self.voter_answered(role);
    }

    /// Another client was granted an epoch as high as ours, or higher.
    pub(super) fn outvoted(&mut self, role: u16, tag: u32, granted: u32) {
        match self.question(role, tag) {
            Some(Question::Grant) => {
                self.takeover.outvoted = self.takeover.outvoted.max(granted);
                self.voter_answered(role);
            }
            // It is the parting word of the node, or refuses a view of ours.
            _ => self.fenced(role),
        }
    }

    /// Another client has the array: nothing that we say is listened to any more.
    pub(super) fn fenced(&mut self, role: u16) {
        let why = Refusal::new("another client has taken the array over", "use that one");
        self.give_up(role, why);
    }

    /// A view is recorded at a node.
    pub(super) fn view_recorded(&mut self, role: u16, order: (u32, u32)) {
        let node = self.takeover.grants.get(&role).map(|grant| grant.node);
        if order == self.takeover.view.order() {
            self.takeover.have_view.extend(node);
        }
        self.voter_answered(role);
    }

    /// A node cannot vote, or not keep what it was told.
    pub(super) fn vote_refused(&mut self, role: u16, why: Option<Refusal>) {
        let nonsense = || Refusal::new("it does not keep to the protocol", "update it");
        self.keeper.lose_member(self.member_id(role), why.unwrap_or_else(nonsense));
        self.obey();
    }

    fn voter_answered(&mut self, role: u16) {
        self.takeover.waiting.remove(&role);
        self.take_over();
    }

    /// A node is gone: its answer is not waited for.
    pub(super) fn take_over_without(&mut self, role: u16) {
        self.takeover.waiting.remove(&role);
        if self.takeover.stage != Stage::Over {
            self.takeover.grants.remove(&role);
        }
        self.take_over();
    }

    /// Goes on with the takeover when nothing is waited for.
    fn take_over(&mut self) {
        if !matches!(self.phase, Phase::Setup) || !self.takeover.waiting.is_empty() {
            return;
        }
        match self.takeover.stage {
            Stage::Granting if self.takeover.outvoted >= self.params().epoch => {
                self.pipeline.set_epoch(self.takeover.outvoted.saturating_add(1));
                self.takeover.grants.clear();
                let roles: Vec<u16> = self.alive_roles().collect();
                self.takeover.waiting.extend(&roles);
                roles.into_iter().for_each(|role| self.ask_grant(role));
            }
            Stage::Granting => self.decide(),
            Stage::Recording => {
                self.takeover.stage = Stage::Over;
                if !self.stands_alone() && !self.takeover.view_holds() {
                    let why = Refusal::new("too few nodes took note of the client", START);
                    return self.refuse_to_start(why);
                }
                for role in std::mem::take(&mut self.takeover.stale) {
                    let why = Refusal::new("it has missed writes", "add it again");
                    self.keeper.lose_member(self.member_id(role), why);
                }
                self.obey();
                let roles: Vec<u16> = self.alive_roles().collect();
                roles.into_iter().for_each(|role| self.open_volume_of(role));
            }
            Stage::Over => {}
        }
    }

    fn decide(&mut self) {
        let findings = Findings {
            epoch: self.params().epoch,
            nodes: self.params().nodes,
            grants: &self.takeover.grants,
            alone: self.stands_alone(),
            marked: self.keeper.has_to_resync(),
        };
        let decision = match decide(&findings) {
            Ok(decision) => decision,
            Err(why) => return self.refuse_to_start(why),
        };
        self.takeover.stale = decision.stale;
        self.takeover.stage = Stage::Recording;
        if self.keeper.is_read_only() {
            // Nothing will change that anybody has to know of.
            self.takeover.view = decision.view;
            return self.take_over();
        }
        self.record(decision.view);
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
            self.ask(role, Question::Record(order), |tag| Message::Record { tag, view });
        }
        self.takeover.view = view;
    }

    fn alive_roles(&self) -> impl Iterator<Item = u16> {
        (0..self.params().nodes).filter(|&role| self.alive(role))
    }
}
