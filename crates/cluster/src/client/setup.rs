//! Connections to the nodes, from the first to the array that can serve.
//!
//! ```text
//!  Connecting ─► Granting ─► Opening ─► Preparing ─► Prepared ─► Wiring ─► Ready     any ─► Lost
//! ```
//! Nodes are wired to each other when all are prepared. Who only has a look asks for no votes, and
//! needs no wires for reads.

use braid_array::fabric::{FabricOp, PeerId};
use braid_array::format::Superblock;
use braid_array::{Action, MemberId, Refusal};

use super::presence::Presence;
use super::step::Step;
use super::{Client, ClientMember, Instant, Message, Phase, Piece, RequestKind, VecDeque};
use crate::wire::PeerAddress;

/// A volume that its last client has just left may be taken for a moment.
const PATIENCE_MILLIS: u64 = 3000;
const RETRY_MILLIS: u64 = 100;
/// Of two nodes that do not see each other the one that dials says so, and goes: the other may be
/// silent for so much longer, and answers when it hears of that.
const SILENT_MILLIS: u64 = 1000;
const NETWORK: &str = "look at the network between the nodes";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    /// The array begins without it.
    Missing,
    Connecting,
    /// It is asked for its vote: see [`takeover`](super::takeover).
    Granting,
    Opening {
        /// A refusal is final from here on.
        until: Instant,
        /// LaneCommand again then.
        retry_at: Option<Instant>,
    },
    Preparing,
    Prepared,
    /// It is to connect to the others.
    Wiring {
        /// A refusal is final from here on: until then one of them may turn out to be lost.
        until: Instant,
        /// LaneCommand again then.
        retry_at: Option<Instant>,
    },
    Ready,
    Lost,
    /// It was lost, and is coming back.
    Returning(Step),
}

/// The connection to one node.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) member: Option<ClientMember>,
    /// What the keeper calls it.
    pub(super) id: Option<MemberId>,
    pub(super) peer: PeerId,
    pub(super) state: LinkState,
    pub(super) presence: Presence,
    /// Where the ring begins in the node's arena.
    pub(super) ring: u64,
    /// By slot: what it is read for.
    pub(super) slots: Vec<Option<Piece>>,
    pub(super) free_slots: Vec<u16>,
    /// Reads that wait for a slot.
    pub(super) queue: VecDeque<Piece>,
    /// Slice-sets that are to go there, by position and generation.
    pub(super) goes: Vec<(u16, u32)>,
    /// When it is tried again to get it back, or the attempt given up.
    pub(super) due: Option<Instant>,
    /// Since when it has been gone.
    pub(super) gone_at: Option<Instant>,
    /// No slice-set of a later version was opened before it was lost.
    pub(super) lost_at: u64,
    /// Attempts that failed.
    pub(super) tries: u32,
    /// Size and superblock of its volume, as found when it came back.
    pub(super) volume_bytes: u64,
    pub(super) returned: Option<Box<Superblock>>,
    /// Why it was not taken back the last time, though its node was there.
    pub(super) refused: Option<Refusal>,
}

impl Link {
    /// The connections to all members, by role, and one to a node that is to take the place of one.
    pub(super) fn all(members: Vec<Option<ClientMember>>, slots: u16) -> Vec<Self> {
        let mut ids = (0..).map(MemberId);
        let link = |member: Option<ClientMember>| {
            let id = member.as_ref().and_then(|_| ids.next());
            Self::new(member, id, slots)
        };
        members.into_iter().map(link).chain([Self::new(None, None, slots)]).collect()
    }

    /// The peer is numbered when the connection is asked for.
    pub(super) fn new(member: Option<ClientMember>, id: Option<MemberId>, slots: u16) -> Self {
        let state = if member.is_some() { LinkState::Connecting } else { LinkState::Missing };
        Self {
            member,
            id,
            peer: PeerId(u32::MAX),
            state,
            presence: Presence::default(),
            ring: 0,
            slots: (0..slots).map(|_| None).collect(),
            free_slots: (0..slots).rev().collect(),
            queue: VecDeque::new(),
            goes: Vec::new(),
            due: None,
            gone_at: None,
            lost_at: 0,
            tries: 0,
            volume_bytes: 0,
            returned: None,
            refused: None,
        }
    }

    pub(super) fn alive(&self) -> bool {
        !matches!(self.state, LinkState::Missing | LinkState::Lost | LinkState::Returning(_))
    }

    /// A member is at the other end.
    pub(super) fn can_be_asked(&self) -> bool {
        self.alive() && self.state != LinkState::Connecting
    }

    /// Somebody may be at the other end.
    pub(super) fn is_connected(&self) -> bool {
        self.alive() || matches!(self.state, LinkState::Returning(_))
    }

    /// Nothing is under way on a connection that is new.
    pub(super) fn stands_anew(&mut self) {
        self.slots.fill_with(|| None);
        self.free_slots = (0..self.slots.len() as u16).rev().collect();
        self.goes.clear();
        (self.gone_at, self.refused) = (None, None);
    }

    fn needs_no_wires(&mut self) {
        self.state = LinkState::Ready;
    }

    /// A free slot for a read, below this one.
    pub(super) fn take_slot(&mut self, end: u16) -> Option<u16> {
        let at = self.free_slots.iter().rposition(|&slot| slot < end)?;
        Some(self.free_slots.swap_remove(at))
    }

    /// Reads on their way or waiting.
    pub(super) fn load(&self) -> usize {
        self.queue.len() + self.slots.len() - self.free_slots.len()
    }

    fn data_sector(&self) -> u64 {
        self.member.as_ref().map_or(0, |member| member.superblock.data_offset)
    }
}

const fn silent_until(until: Instant) -> Instant {
    until.plus_millis(SILENT_MILLIS)
}

impl Client {
    /// Connects to every node.
    pub(super) fn begin(&mut self) {
        let bytes = vec![0; self.zeroes.len as usize];
        self.actions.push_back(Action::Store { buf: self.zeroes, bytes });
        for link in &mut self.links {
            let Some(member) = &link.member else { continue };
            link.peer = PeerId(self.next_peer);
            self.next_peer = (self.next_peer + 1) % PeerId::FIRST_ACCEPTED;
            let op = FabricOp::Connect { peer: link.peer, address: member.address.clone() };
            self.actions.push_back(Action::Fabric(op));
        }
        self.dial_witnesses();
        self.setup_goes_on();
    }

    /// First sector of the data on a member.
    pub(super) fn data_sector(&self, role: u16) -> u64 {
        self.links[usize::from(role)].data_sector()
    }

    pub(super) fn connected(&mut self, role: u16) {
        if self.looks {
            self.open_volume_of(role);
        } else {
            self.ask_grant(role);
        }
    }

    pub(super) fn open_volume_of(&mut self, role: u16) {
        let until = self.keeper.now().plus_millis(PATIENCE_MILLIS);
        let link = &mut self.links[usize::from(role)];
        link.state = LinkState::Opening { until, retry_at: None };
        // It puts what is read into any buffer of a request.
        let admit = FabricOp::Admit { peer: link.peer, window: 0..u64::MAX };
        self.actions.push_back(Action::Fabric(admit));
        self.open_volume(role);
    }

    fn open_volume(&mut self, role: u16) {
        let Some(member) = &self.links[usize::from(role)].member else { return };
        let (name, write) = (member.volume.clone(), !self.looks);
        self.ask(role, RequestKind::OpenVolume, |tag| Message::OpenVolume { tag, name, write });
    }

    pub(super) fn setup_answered(
        &mut self,
        role: u16,
        question: RequestKind,
        answer: Result<Option<u64>, Refusal>,
    ) {
        let now = self.keeper.now();
        let link = &mut self.links[usize::from(role)];
        match (question, answer, link.state) {
            (RequestKind::OpenVolume, Ok(_), LinkState::Opening { .. }) => {
                link.state = LinkState::Preparing;
                let (params, data_sector) = (*self.params(), self.data_sector(role));
                self.ask(role, RequestKind::OpenPipeline, |tag| Message::OpenPipeline {
                    tag,
                    role,
                    data_sector,
                    params,
                });
            }
            (RequestKind::OpenVolume, Err(_), LinkState::Opening { until, .. }) if now < until => {
                let retry_at = Some(now.plus_millis(RETRY_MILLIS));
                link.state = LinkState::Opening { until, retry_at };
            }
            (RequestKind::OpenVolume, Err(why), _) => self.give_up(role, why),
            (RequestKind::OpenPipeline, Ok(Some(ring)), LinkState::Preparing) => {
                link.ring = ring;
                link.state = LinkState::Prepared;
                self.setup_goes_on();
            }
            (RequestKind::OpenPipeline, Err(why), _) => self.give_up(role, why),
            (RequestKind::Connect, Ok(None), LinkState::Wiring { .. }) => {
                link.state = LinkState::Ready;
                self.setup_goes_on();
            }
            (RequestKind::Connect, Err(_), LinkState::Wiring { until, .. }) if now < until => {
                let retry_at = Some(now.plus_millis(RETRY_MILLIS));
                link.state = LinkState::Wiring { until, retry_at };
            }
            // Two nodes that are there do not see each other.
            (RequestKind::Connect, Err(why), LinkState::Wiring { .. }) => {
                self.do_without(role, why)
            }
            _ => self.part_with(role, "it does not keep to the protocol"),
        }
    }

    /// The node is there, but another client has the volume, or it has no room: the array must not
    /// go on as if the node were dead.
    pub(super) fn give_up(&mut self, role: u16, why: Refusal) {
        self.takeover.refused.get_or_insert(why.clone());
        self.keeper.lose_member(self.member_id(role), why);
        self.keeper.give_up();
        self.carry_out();
    }

    pub(super) fn hang_up_all(&mut self) {
        self.leave_absent();
        self.leave_departed();
        self.leave_witnesses();
        for link in self.links.iter_mut().filter(|link| link.is_connected()) {
            link.state = LinkState::Lost;
            self.actions.push_back(Action::Fabric(FabricOp::HangUp { peer: link.peer }));
        }
    }

    /// Wires the nodes when all are prepared; serves when all are ready. When too many are lost the
    /// others are given up, whatever they were asked: each comes by here when it is gone.
    pub(super) fn setup_goes_on(&mut self) {
        if !matches!(self.phase, Phase::Setup) {
            return;
        }
        let all = |state: LinkState| self.links.iter().all(|l| l.state == state || !l.alive());
        let ends = self.has_too_few() && !braid_array::broken("start-ends");
        if ends && self.links.iter().any(Link::alive) {
            self.keeper.give_up();
            self.carry_out();
        } else if all(LinkState::Ready) {
            self.phase = Phase::Running;
            self.keeper.begin();
        } else if all(LinkState::Prepared) && self.looks {
            self.links.iter_mut().filter(|link| link.alive()).for_each(Link::needs_no_wires);
            self.setup_goes_on();
        } else if all(LinkState::Prepared) && self.journals_are_ready() {
            self.wire();
        }
    }

    fn wire(&mut self) {
        let until = self.keeper.now().plus_millis(PATIENCE_MILLIS);
        for role in 0..self.params().nodes {
            if self.alive(role) {
                self.links[usize::from(role)].state = LinkState::Wiring { until, retry_at: None };
                self.ask_to_connect(role);
            }
        }
    }

    /// Has a node connect to the others that are there.
    fn ask_to_connect(&mut self, role: u16) {
        let peer = |(other, link): (u16, &Link)| {
            let there = link.alive() && other != role;
            let address = link.member.as_ref().filter(|_| there)?.address.clone();
            Some(PeerAddress { role: other, address, ring: link.ring })
        };
        let peers: Vec<PeerAddress> = (0..).zip(&self.links).filter_map(peer).collect();
        self.ask(role, RequestKind::Connect, |tag| Message::Connect { tag, peers });
    }

    /// Asks again for volumes that were taken, and to connect.
    pub(super) fn setup_tick(&mut self) {
        if !matches!(self.phase, Phase::Setup) {
            return;
        }
        for role in 0..self.params().nodes {
            let now = self.keeper.now();
            let link = &mut self.links[usize::from(role)];
            match link.state {
                LinkState::Opening { until, retry_at: Some(at) } if at <= now => {
                    link.state = LinkState::Opening { until, retry_at: None };
                    self.open_volume(role);
                }
                LinkState::Wiring { until, retry_at: Some(at) } if at <= now => {
                    link.state = LinkState::Wiring { until, retry_at: None };
                    self.ask_to_connect(role);
                }
                _ => {}
            }
        }
        self.lose_unwired();
    }

    /// A node waits for another one to connect, and the connection was lost: neither answers. One
    /// is gone on without; what the others wait for is over with that.
    fn lose_unwired(&mut self) {
        let now = self.keeper.now();
        let overdue = |link: &Link| match link.state {
            LinkState::Wiring { until, retry_at: None } => silent_until(until) <= now,
            _ => false,
        };
        let Some(role) = self.links.iter().position(overdue) else { return };
        let why = Refusal::new("it does not get connected to the others", NETWORK);
        self.do_without(role as u16, why);
        for link in &mut self.links {
            if let LinkState::Wiring { until, retry_at: None } = &mut link.state {
                *until = (*until).max(now);
            }
        }
    }

    pub(super) fn setup_deadline(&self) -> Option<Instant> {
        let retry = |link: &Link| match link.state {
            LinkState::Wiring { until, retry_at } => retry_at.or(Some(silent_until(until))),
            LinkState::Opening { retry_at, .. } => retry_at,
            _ => None,
        };
        let setup = matches!(self.phase, Phase::Setup);
        self.links.iter().filter(|_| setup).filter_map(retry).min()
    }
}
