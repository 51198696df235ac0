//! Witnesses: nodes that vote and have no member. With them a majority of the voters can be there
//! where most of the members' nodes are not.

use braid_array::Instant;
use braid_array::fabric::{FabricEvent, PeerId};
use braid_array::status::WitnessStatus;

use super::decision::NodeGrant;
use crate::client::out::{ClientOut, RequestKind};
use crate::client::retry::pause_millis;
use crate::ids::{Epoch, NodeId, VoterNo};
use crate::view::{View, Witness as Known};
use crate::wire::Message;

/// Most witnesses of an array.
pub const MAX_WITNESSES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WitnessState {
    Away,
    Dialing,
    Here,
}

/// One of them.
#[derive(Debug)]
struct AskedWitness {
    number: VoterNo,
    address: String,
    /// Identity as a node, once that is known.
    node: Option<NodeId>,
    /// The administrator names it, so it stays whatever views list.
    named: bool,
    /// Its connection, once there was one.
    peer: Option<PeerId>,
    state: WitnessState,
    /// The request that it has not answered.
    asked: Option<(u32, RequestKind)>,
    /// Time at which it is dialed again, or no longer waited for.
    due: Option<Instant>,
    /// Attempts that failed.
    tries: u32,
}

/// Answer or loss of a witness, by its number.
#[derive(Debug)]
pub(super) enum WitnessAnswer {
    Granted(VoterNo, NodeGrant),
    Recorded(VoterNo, (Epoch, u32)),
    /// Another client was granted this epoch.
    Outvoted(VoterNo, RequestKind, Epoch),
    Lost(VoterNo),
}

/// The witnesses of the array: those that the administrator names, and those that views name, with
/// the connection to each.
///
/// ```text
/// Away ─► Dialing ─► Here: grants, records
///   ▲ └──────┴─────────┴── lost, refuses, or owes an answer for too long
///   └── later, and later
/// ```
/// Every view lists their addresses, so a client that reaches one member learns of all witnesses.
/// As voters they are numbered after the roles. Methods that send requests return the numbers of
/// the witnesses that owe an answer.
#[derive(Debug)]
pub(in crate::client) struct Witnesses {
    list: Vec<AskedWitness>,
    next: VoterNo,
    timeout_ms: u64,
}

impl Witnesses {
    /// Creates the witnesses that the administrator names, for an array with this many roles.
    pub(super) fn new(roles: u16, named: Vec<String>, timeout_ms: u64) -> Self {
        let next = VoterNo::first_witness(roles);
        let mut witnesses = Self { list: Vec::new(), next, timeout_ms };
        for address in named {
            witnesses.add(address, None, true);
        }
        witnesses
    }

    fn add(&mut self, address: String, node: Option<NodeId>, named: bool) {
        self.list.push(AskedWitness {
            number: self.next,
            address,
            node,
            named,
            peer: None,
            state: WitnessState::Away,
            asked: None,
            due: Some(Instant(0)),
            tries: 0,
        });
        self.next = self.next.next();
    }

    /// Returns whether a connection leads to a witness.
    pub(super) fn has(&self, peer: PeerId) -> bool {
        self.at(peer).is_some()
    }

    fn at(&self, peer: PeerId) -> Option<usize> {
        self.list.iter().position(|one| one.peer == Some(peer) && one.state != WitnessState::Away)
    }

    fn by_number(&self, number: VoterNo) -> Option<usize> {
        self.list.iter().position(|one| one.number == number)
    }

    /// Returns the witnesses in the form of views.
    pub(super) fn known(&self) -> impl Iterator<Item = Known> {
        let known =
            |one: &AskedWitness| Some(Known { node: one.node?, address: one.address.clone() });
        self.list.iter().filter_map(known)
    }

    /// Returns the address of a voter that is a witness.
    pub(super) fn address_of(&self, voter: NodeId) -> Option<String> {
        Some(self.list.iter().find(|one| one.node == Some(voter))?.address.clone())
    }

    pub(super) fn status(&self) -> Vec<WitnessStatus> {
        let status = |one: &AskedWitness| WitnessStatus {
            address: one.address.clone(),
            reachable: one.state == WitnessState::Here,
        };
        self.list.iter().map(status).collect()
    }

    /// Returns whether the witness of this number is there.
    pub(super) fn is_here(&self, number: VoterNo) -> bool {
        self.by_number(number).is_some_and(|at| self.list[at].state == WitnessState::Here)
    }

    /// Connects to the witnesses that have not been asked for their votes.
    pub(super) fn dial_new(&mut self, out: &mut ClientOut, now: Instant) -> Vec<VoterNo> {
        let new = |one: &&mut AskedWitness| one.state == WitnessState::Away && one.tries == 0;
        let due = now.plus_millis(self.timeout_ms);
        let new = self.list.iter_mut().filter(new);
        new.map(|one| one.dial(out, due)).collect()
    }

    /// Adds the witnesses that a view lists.
    pub(super) fn learn(&mut self, view: &View) {
        for known in &view.witnesses {
            if let Some(one) = self.list.iter_mut().find(|one| one.address == known.address) {
                one.node.get_or_insert(known.node);
            } else if self.list.len() < 2 * MAX_WITNESSES {
                self.add(known.address.clone(), Some(known.node), false);
            }
        }
    }

    /// Forgets the witnesses that neither the newest view nor the administrator names. Returns
    /// their numbers.
    pub(super) fn keep_those_of(&mut self, view: &View, out: &mut ClientOut) -> Vec<VoterNo> {
        let stays = |one: &AskedWitness| {
            let is = |known: &Known| known.address == one.address || Some(known.node) == one.node;
            one.named || view.witnesses.iter().any(is)
        };
        let gone = self.list.iter().filter(|one| !stays(one)).map(|one| one.number);
        let gone: Vec<VoterNo> = gone.collect();
        gone.iter().for_each(|&number| self.forget(number, out));
        gone
    }

    fn forget(&mut self, number: VoterNo, out: &mut ClientOut) {
        let Some(at) = self.by_number(number) else { return };
        let one = self.list.remove(at);
        if one.state != WitnessState::Away {
            out.hang_up(one.peer);
        }
    }

    /// Forgets another witness that turns out to be the same node as this one. Returns its number.
    pub(super) fn forget_same(&mut self, number: VoterNo, out: &mut ClientOut) -> Option<VoterNo> {
        let node = self.list[self.by_number(number)?].node;
        let same = |other: &&AskedWitness| other.number != number && other.node == node;
        let other = self.list.iter().find(same)?.number;
        self.forget(other, out);
        Some(other)
    }

    /// Requests the witnesses that are there, and owe no answer, to record a view.
    pub(super) fn record(
        &mut self,
        view: &View,
        out: &mut ClientOut,
        now: Instant,
    ) -> Vec<VoterNo> {
        let free = |one: &&mut AskedWitness| one.state == WitnessState::Here && one.asked.is_none();
        let due = now.plus_millis(self.timeout_ms);
        self.list.iter_mut().filter(free).map(|one| one.record(view.clone(), out, due)).collect()
    }

    /// Requests a witness to record a view.
    pub(super) fn record_at(
        &mut self,
        number: VoterNo,
        view: View,
        out: &mut ClientOut,
        now: Instant,
    ) {
        let due = now.plus_millis(self.timeout_ms);
        if let Some(at) = self.by_number(number) {
            self.list[at].record(view, out, due);
        }
    }

    /// Requests the votes of all witnesses that are there again.
    pub(super) fn request_grants(
        &mut self,
        grant: impl Fn(u32) -> Message,
        out: &mut ClientOut,
        now: Instant,
    ) -> Vec<VoterNo> {
        let due = now.plus_millis(self.timeout_ms);
        let here = self.list.iter_mut().filter(|one| one.state == WitnessState::Here);
        here.map(|one| one.request(RequestKind::Grant, &grant, out, due)).collect()
    }

    /// Handles an event on the connection to a witness.
    pub(super) fn event(
        &mut self,
        peer: PeerId,
        event: FabricEvent,
        grant: impl Fn(u32) -> Message,
        out: &mut ClientOut,
        now: Instant,
    ) -> Option<WitnessAnswer> {
        let at = self.at(peer)?;
        let due = now.plus_millis(self.timeout_ms);
        match event {
            FabricEvent::Connected { .. } => {
                self.list[at].state = WitnessState::Here;
                self.list[at].request(RequestKind::Grant, grant, out, due);
                None
            }
            FabricEvent::Message { bytes, .. } => match Message::decode(&bytes) {
                Ok((_, message)) => self.list[at].says(message, out, now),
                Err(_) => Some(self.list[at].cut(out, now)),
            },
            FabricEvent::Lost { .. } => Some(self.list[at].lost(now)),
            FabricEvent::Accepted { .. } | FabricEvent::Placed { .. } => None,
        }
    }

    /// Cuts the connection to a witness.
    pub(super) fn cut(&mut self, number: VoterNo, out: &mut ClientOut, now: Instant) {
        if let Some(at) = self.by_number(number) {
            self.list[at].cut(out, now);
        }
    }

    /// Closes the connections: the witnesses are not needed any more.
    pub(super) fn close(&mut self, out: &mut ClientOut) {
        for one in self.list.iter_mut().filter(|one| one.state != WitnessState::Away) {
            one.state = WitnessState::Away;
            one.asked = None;
            one.due = None;
            out.hang_up(one.peer);
        }
    }

    pub(super) fn deadline(&self, may_return: bool) -> Option<Instant> {
        let waits = |one: &&AskedWitness| one.state != WitnessState::Away || may_return;
        self.list.iter().filter(waits).filter_map(|one| one.due).min()
    }

    /// Dials witnesses whose time has come, and cuts those that owe an answer for too long. Returns
    /// the numbers of the lost ones.
    pub(super) fn tick(
        &mut self,
        may_return: bool,
        out: &mut ClientOut,
        now: Instant,
    ) -> Vec<VoterNo> {
        let timeout_ms = self.timeout_ms;
        let mut lost = Vec::new();
        for one in &mut self.list {
            if one.due.is_none_or(|due| due > now) {
                continue;
            }
            match one.state {
                WitnessState::Away if may_return => {
                    one.dial(out, now.plus_millis(timeout_ms));
                }
                WitnessState::Away => {}
                WitnessState::Dialing | WitnessState::Here => {
                    one.cut(out, now);
                    lost.push(one.number);
                }
            }
        }
        lost
    }
}

impl AskedWitness {
    fn dial(&mut self, out: &mut ClientOut, due: Instant) -> VoterNo {
        self.peer = Some(out.connect(self.address.clone()));
        self.state = WitnessState::Dialing;
        self.due = Some(due);
        self.number
    }

    fn request(
        &mut self,
        kind: RequestKind,
        message: impl FnOnce(u32) -> Message,
        out: &mut ClientOut,
        due: Instant,
    ) -> VoterNo {
        let tag = out.tag();
        self.asked = Some((tag, kind));
        self.due = Some(due);
        out.send(self.peer, &message(tag));
        self.number
    }

    fn record(&mut self, view: View, out: &mut ClientOut, due: Instant) -> VoterNo {
        let kind = RequestKind::StoreView(view.order());
        self.request(kind, |tag| Message::StoreView { tag, view }, out, due)
    }

    fn says(
        &mut self,
        message: Message,
        out: &mut ClientOut,
        now: Instant,
    ) -> Option<WitnessAnswer> {
        let asked = self.asked.take();
        self.due = None;
        match (message, asked) {
            (
                Message::Granted { tag, view, incarnation, node },
                Some((asked, RequestKind::Grant)),
            ) if tag == asked => {
                self.node = Some(node);
                self.tries = 0;
                Some(WitnessAnswer::Granted(
                    self.number,
                    NodeGrant { view: view.told(), incarnation, node },
                ))
            }
            (Message::Ok { tag }, Some((asked, RequestKind::StoreView(order)))) if tag == asked => {
                Some(WitnessAnswer::Recorded(self.number, order))
            }
            (Message::Outvoted { granted, .. }, asked) => {
                // Without a request it is the parting word of the node.
                let kind =
                    asked.map_or(RequestKind::StoreView((Epoch::BEFORE_ANY, 0)), |(_, kind)| kind);
                Some(WitnessAnswer::Outvoted(self.number, kind, granted))
            }
            _ => Some(self.cut(out, now)),
        }
    }

    fn cut(&mut self, out: &mut ClientOut, now: Instant) -> WitnessAnswer {
        out.cut(self.peer);
        self.lost(now)
    }

    fn lost(&mut self, now: Instant) -> WitnessAnswer {
        self.state = WitnessState::Away;
        self.asked = None;
        self.due = Some(now.plus_millis(pause_millis(self.tries)));
        self.tries = (self.tries + 1).min(10);
        WitnessAnswer::Lost(self.number)
    }
}
