//! Witnesses: nodes that vote and have no member. With them a majority of the voters can be there
//! where most of the members' nodes are not.

use braid_array::fabric::{FabricEvent, PeerId};
use braid_array::status::WitnessStatus;

use super::decision::Grant;
use super::rejoin::pause_millis;
use super::{Client, Instant, Message, Phase, RequestKind};
use crate::view::{View, Witness as Known};

/// Of an array.
pub const MAX_WITNESSES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Away,
    Dialing,
    Here,
}

/// One of them.
#[derive(Debug)]
struct Witness {
    /// In a takeover.
    number: u16,
    address: String,
    /// As a voter, once that is known.
    node: Option<u64>,
    /// The administrator wants it, whatever views say.
    named: bool,
    peer: PeerId,
    state: State,
    /// What it owes an answer to.
    asked: Option<(u32, RequestKind)>,
    /// When it is dialed again, or not waited for any longer.
    due: Option<Instant>,
    /// Attempts that failed.
    tries: u32,
}

/// The witnesses of the array: those that the administrator names, and those that views name, with
/// the connection to each.
///
/// ```text
/// Away ─► Dialing ─► Here: grants, records
///   ▲ └──────┴─────────┴── lost, refuses, or owes an answer for too long
///   └── later, and later
/// ```
/// Every view says where they are, so whoever asks one member hears of all of them. In a takeover
/// they have numbers behind the roles.
#[derive(Debug)]
pub(super) struct Witnesses {
    list: Vec<Witness>,
    next: u16,
}

impl Witnesses {
    /// Those that the administrator names, of an array with so many roles.
    pub(super) fn new(roles: u16, named: Vec<String>) -> Self {
        let mut witnesses = Self { list: Vec::new(), next: roles };
        for address in named {
            witnesses.add(address, None, true);
        }
        witnesses
    }

    fn add(&mut self, address: String, node: Option<u64>, named: bool) {
        let number = self.next;
        self.next += 1;
        let (peer, state) = (PeerId(u32::MAX), State::Away);
        let due = Some(Instant(0));
        let (asked, tries) = (None, 0);
        self.list.push(Witness { number, address, node, named, peer, state, asked, due, tries });
    }

    /// The one at the other end of a connection.
    pub(super) fn at(&self, peer: PeerId) -> Option<usize> {
        self.list.iter().position(|one| one.peer == peer && one.state != State::Away)
    }

    /// As views name them.
    pub(super) fn known(&self) -> impl Iterator<Item = Known> {
        let known = |one: &Witness| Some(Known { node: one.node?, address: one.address.clone() });
        self.list.iter().filter_map(known)
    }

    /// The address of a voter that is one of them.
    pub(super) fn address_of(&self, voter: u64) -> Option<String> {
        Some(self.list.iter().find(|one| one.node == Some(voter))?.address.clone())
    }

    pub(super) fn status(&self) -> Vec<WitnessStatus> {
        let status = |one: &Witness| WitnessStatus {
            address: one.address.clone(),
            reachable: one.state == State::Here,
        };
        self.list.iter().map(status).collect()
    }
}

impl Client {
    /// In a takeover: asks those for their votes that have not been asked.
    pub(super) fn dial_witnesses(&mut self) {
        for at in 0..self.witnesses.list.len() {
            let one = &self.witnesses.list[at];
            if one.state == State::Away && one.tries == 0 {
                self.takeover.waiting.insert(self.witnesses.list[at].number);
                self.dial_witness(at);
            }
        }
    }

    fn dial_witness(&mut self, at: usize) {
        let due = self.keeper.now().plus_millis(self.node_timeout_ms);
        let one = &mut self.witnesses.list[at];
        one.peer = self.out.connect(one.address.clone());
        one.state = State::Dialing;
        one.due = Some(due);
    }

    /// In a takeover: a voter tells where others are.
    pub(super) fn learn_of_witnesses(&mut self, view: &View) {
        let stands_alone = self.looks || self.keeper.is_read_only();
        for known in view.witnesses.iter().filter(|_| !stands_alone) {
            let list = &mut self.witnesses.list;
            if let Some(one) = list.iter_mut().find(|one| one.address == known.address) {
                one.node.get_or_insert(known.node);
            } else if list.len() < 2 * MAX_WITNESSES {
                self.witnesses.add(known.address.clone(), Some(known.node), false);
            }
        }
        self.dial_witnesses();
    }

    /// The newest view is known: others than it names are none any more.
    pub(super) fn keep_witnesses_of(&mut self, view: &View) {
        let stays = |one: &Witness| {
            let is = |known: &Known| known.address == one.address || Some(known.node) == one.node;
            one.named || view.witnesses.iter().any(is)
        };
        while let Some(at) = self.witnesses.list.iter().position(|one| !stays(one)) {
            self.forget_witness(at);
        }
    }

    fn forget_witness(&mut self, at: usize) {
        let one = self.witnesses.list.remove(at);
        self.takeover.grants.remove(&one.number);
        self.takeover.waiting.remove(&one.number);
        if one.state != State::Away {
            self.out.hang_up(one.peer);
        }
    }

    /// Has all of them record a view that are there.
    pub(super) fn record_at_witnesses(&mut self, view: &View) {
        for at in 0..self.witnesses.list.len() {
            let one = &self.witnesses.list[at];
            if one.state == State::Here && one.asked.is_none() {
                self.record_at(at, view.clone());
            }
        }
    }

    fn record_at(&mut self, at: usize, view: View) {
        self.takeover.waiting.insert(self.witnesses.list[at].number);
        let kind = RequestKind::StoreView(view.order());
        self.ask_witness(at, kind, |tag| Message::StoreView { tag, view });
    }

    /// Asks all of them for their votes again that are there.
    pub(super) fn ask_witnesses_again(&mut self) {
        for at in 0..self.witnesses.list.len() {
            if self.witnesses.list[at].state == State::Here {
                self.takeover.waiting.insert(self.witnesses.list[at].number);
                let grant = self.grant();
                self.ask_witness(at, RequestKind::Grant, grant);
            }
        }
    }

    fn ask_witness(&mut self, at: usize, what: RequestKind, message: impl FnOnce(u32) -> Message) {
        let tag = self.out.tag();
        let due = self.keeper.now().plus_millis(self.node_timeout_ms);
        let one = &mut self.witnesses.list[at];
        (one.asked, one.due) = (Some((tag, what)), Some(due));
        let peer = one.peer;
        self.out.send(peer, &message(tag));
    }

    /// What comes over the connection to one.
    pub(super) fn witness_event(&mut self, at: usize, event: FabricEvent) {
        match event {
            FabricEvent::Connected { .. } => {
                self.witnesses.list[at].state = State::Here;
                let grant = self.grant();
                self.ask_witness(at, RequestKind::Grant, grant);
            }
            FabricEvent::Message { bytes, .. } => match Message::decode(&bytes) {
                Ok((_, message)) => self.witness_says(at, message),
                Err(_) => self.cut_witness(at),
            },
            FabricEvent::Lost { .. } => self.witness_lost(at),
            FabricEvent::Accepted { .. } | FabricEvent::Placed { .. } => {}
        }
    }

    fn witness_says(&mut self, at: usize, message: Message) {
        let one = &mut self.witnesses.list[at];
        let (number, asked) = (one.number, one.asked.take());
        one.due = None;
        match (message, asked) {
            (
                Message::Granted { tag, view, incarnation, node },
                Some((asked, RequestKind::Grant)),
            ) if tag == asked => {
                (one.node, one.tries) = (Some(node), 0);
                self.witness_granted(at, Grant { view, incarnation, node });
            }
            (Message::Ok { tag }, Some((asked, RequestKind::StoreView(order)))) if tag == asked => {
                self.view_recorded(number, order);
            }
            (Message::Outvoted { granted, .. }, Some((_, RequestKind::Grant)))
                if matches!(self.phase, Phase::Setup) && !self.takeover.follows =>
            {
                self.grant_refused(number, granted);
            }
            (Message::Outvoted { granted, .. }, Some((_, RequestKind::Grant)))
                if granted <= self.shared.params().epoch && !matches!(self.phase, Phase::Setup) =>
            {
                self.cut_witness(at);
            }
            (Message::Outvoted { .. }, _) => {
                let role = self.alive_roles().next().unwrap_or(0);
                self.fenced(role);
            }
            _ => self.cut_witness(at),
        }
    }

    fn witness_granted(&mut self, at: usize, grant: Grant) {
        let one = &self.witnesses.list[at];
        let (number, node) = (one.number, one.node);
        let setup = matches!(self.phase, Phase::Setup);
        if setup {
            self.learn_of_witnesses(&grant.view);
        }
        let lacks = grant.view.order() < self.takeover.view.order();
        self.takeover.grants.insert(number, grant);
        // It may have been known by another address.
        let same = |other: &Witness| other.number != number && other.node == node;
        if let Some(other) = self.witnesses.list.iter().position(same) {
            self.forget_witness(other);
        }
        if !setup {
            self.takeover.voters_due = true;
            if let Some(at) = self.witnesses.list.iter().position(|one| one.number == number)
                && lacks
            {
                return self.record_at(at, self.takeover.view.clone());
            }
        }
        self.voter_answered(number);
    }

    fn cut_witness(&mut self, at: usize) {
        let peer = self.witnesses.list[at].peer;
        self.out.cut(peer);
        self.witness_lost(at);
    }

    fn witness_lost(&mut self, at: usize) {
        let now = self.keeper.now();
        let one = &mut self.witnesses.list[at];
        (one.state, one.asked) = (State::Away, None);
        one.due = Some(now.plus_millis(pause_millis(one.tries)));
        one.tries = (one.tries + 1).min(10);
        let number = one.number;
        self.take_over_without(number);
    }

    /// They are not needed any more.
    pub(super) fn leave_witnesses(&mut self) {
        for one in self.witnesses.list.iter_mut().filter(|one| one.state != State::Away) {
            (one.state, one.asked, one.due) = (State::Away, None, None);
            self.out.hang_up(one.peer);
        }
    }

    pub(super) fn witness_deadline(&self) -> Option<Instant> {
        let may_return = self.may_return();
        let waits = |one: &&Witness| one.state != State::Away || may_return;
        self.witnesses.list.iter().filter(waits).filter_map(|one| one.due).min()
    }

    /// Dials those again whose time has come, and gives up who owes an answer for too long.
    pub(super) fn look_for_witnesses(&mut self) {
        let (now, may_return) = (self.keeper.now(), self.may_return());
        for at in 0..self.witnesses.list.len() {
            let one = &self.witnesses.list[at];
            match one.state {
                _ if one.due.is_none_or(|due| due > now) => {}
                State::Away if may_return => self.dial_witness(at),
                State::Away => {}
                State::Dialing | State::Here => self.cut_witness(at),
            }
        }
    }

    /// If the node of this role were lost, could the others take note of that?
    pub(super) fn votes_suffice_without(&self, role: u16) -> bool {
        let nodes = self.shared.params().nodes;
        let is_here = |voter| {
            let of = |one: &Witness| one.number == voter && one.state == State::Here;
            self.witnesses.list.iter().any(of)
        };
        let there = |&(&voter, _): &(&u16, &Grant)| match voter < nodes {
            true => voter != role && self.alive(voter),
            false => is_here(voter),
        };
        let here = self.takeover.grants.iter().filter(there).map(|(_, grant)| grant.node).collect();
        !self.needs_votes() || self.takeover.view.holds(&here)
    }

    /// Do voters have to know who was lost? Not where a person answers for the others.
    pub(super) fn needs_votes(&self) -> bool {
        !(self.takeover.force || self.keeper.is_read_only() || self.writes_over())
    }

    /// Do views leave all out who were lost?
    fn losses_noted(&self) -> bool {
        self.takeover.claimed_roles().iter().all(|role| self.readable(role))
    }

    /// Too few voters are there to take note of a loss, and nobody waits for another: nothing can
    /// be answered any more.
    pub(super) fn look_at_votes(&mut self) {
        if self.needs_votes() && !self.takeover.view_holds() && !self.losses_noted() {
            self.keeper.give_up();
        }
    }
}
