//! Connections to the nodes, from the first to the array that can serve.
//!
//! ```text
//!  Connecting ─► Granting ─► Opening ─► Preparing ─► Prepared ─► Wiring ─► Ready     any ─► Lost
//! ```
//! Nodes are wired to each other when all are prepared. Who only has a look asks for no votes, and
//! needs no wires for reads.

use braid_array::fabric::PeerId;
use braid_array::format::Superblock;
use braid_array::{Action, MemberId, Refusal};

use super::presence::Presence;
use super::step::Step;
use crate::client::{Client, ClientMember, Entry, Instant, Message, Phase, RequestKind};
use crate::wire::PeerAddress;

/// A volume that its last client has just left may be taken for a moment.
const PATIENCE_MILLIS: u64 = 3000;
const RETRY_MILLIS: u64 = 100;
/// Of two nodes that do not see each other the one that dials says so, and goes: the other may be
/// silent for so much longer, and answers when it hears of that.
const SILENT_MILLIS: u64 = 1000;
const NETWORK: &str = "look at the network between the nodes";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum SessionState {
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
pub(in crate::client) struct Session {
    pub(in crate::client) member: Option<ClientMember>,
    /// What the keeper calls it.
    pub(in crate::client) id: Option<MemberId>,
    pub(in crate::client) peer: PeerId,
    pub(in crate::client) state: SessionState,
    pub(in crate::client) presence: Presence,
    /// Where the ring begins in the node's arena.
    pub(in crate::client) ring: u64,
    /// When it is tried again to get it back, or the attempt given up.
    pub(in crate::client) due: Option<Instant>,
    /// Since when it has been gone.
    pub(in crate::client) gone_at: Option<Instant>,
    /// No slice-set of a later version was opened before it was lost.
    pub(in crate::client) lost_at: u64,
    /// Attempts that failed.
    pub(in crate::client) tries: u32,
    /// Size and superblock of its volume, as found when it came back.
    pub(in crate::client) volume_bytes: u64,
    pub(in crate::client) returned: Option<Box<Superblock>>,
    /// Why it was not taken back the last time, though its node was there.
    pub(in crate::client) refused: Option<Refusal>,
}

impl Session {
    /// The connections to all members, by role, and one to a node that is to take the place of one.
    pub(in crate::client) fn all(members: Vec<Option<ClientMember>>) -> Vec<Self> {
        let mut ids = (0..).map(MemberId);
        let session = |member: Option<ClientMember>| {
            let id = member.as_ref().and_then(|_| ids.next());
            Self::new(member, id)
        };
        members.into_iter().map(session).chain([Self::new(None, None)]).collect()
    }

    /// The peer is numbered when the connection is asked for.
    pub(in crate::client) fn new(member: Option<ClientMember>, id: Option<MemberId>) -> Self {
        let state = if member.is_some() { SessionState::Connecting } else { SessionState::Missing };
        Self {
            member,
            id,
            peer: PeerId(u32::MAX),
            state,
            presence: Presence::default(),
            ring: 0,
            due: None,
            gone_at: None,
            lost_at: 0,
            tries: 0,
            volume_bytes: 0,
            returned: None,
            refused: None,
        }
    }

    /// With nobody.
    pub(in crate::client) fn none() -> Self {
        Self::new(None, None)
    }

    pub(in crate::client) fn alive(&self) -> bool {
        !matches!(
            self.state,
            SessionState::Missing | SessionState::Lost | SessionState::Returning(_)
        )
    }

    /// A member is at the other end.
    pub(in crate::client) fn can_be_asked(&self) -> bool {
        self.alive() && self.state != SessionState::Connecting
    }

    /// Somebody may be at the other end.
    pub(in crate::client) fn is_connected(&self) -> bool {
        self.alive() || matches!(self.state, SessionState::Returning(_))
    }

    /// The connection is new.
    pub(in crate::client) fn stands_anew(&mut self) {
        self.state = SessionState::Ready;
        self.due = None;
        self.gone_at = None;
        self.refused = None;
    }

    fn needs_no_wires(&mut self) {
        self.state = SessionState::Ready;
    }

    /// As the engine sees it.
    pub(in crate::client) fn entry(&self) -> Entry {
        Entry {
            peer: self.peer,
            id: self.id,
            alive: self.alive(),
            ready: self.state == SessionState::Ready,
            ring: self.ring,
            data_sector: self.data_sector(),
        }
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
    pub(in crate::client) fn begin(&mut self) {
        let buf = self.shared.zeroes();
        self.out.push(Action::Store { buf, bytes: vec![0; buf.len as usize] });
        for session in &mut self.sessions {
            if let Some(member) = &session.member {
                session.peer = self.out.connect(member.address.clone());
            }
        }
        if !self.looks {
            let (ownership, mut cx, _) = self.ownership();
            ownership.begin(&mut cx);
        }
        self.setup_goes_on();
    }

    /// First sector of the data on a member.
    pub(in crate::client) fn data_sector(&self, role: u16) -> u64 {
        self.sessions[usize::from(role)].data_sector()
    }

    pub(in crate::client) fn connected(&mut self, role: u16) {
        if self.looks {
            self.open_volume_of(role);
        } else {
            self.sessions[usize::from(role)].state = SessionState::Granting;
            let (ownership, mut cx, _) = self.ownership();
            ownership.request_grant(&mut cx, role);
        }
    }

    pub(in crate::client) fn open_volume_of(&mut self, role: u16) {
        let until = self.keeper.view().now().plus_millis(PATIENCE_MILLIS);
        let session = &mut self.sessions[usize::from(role)];
        session.state = SessionState::Opening { until, retry_at: None };
        // It puts what is read into any buffer of a request.
        self.out.admit(session.peer);
        self.open_volume(role);
    }

    fn open_volume(&mut self, role: u16) {
        let Some(member) = &self.sessions[usize::from(role)].member else { return };
        let name = member.volume.clone();
        let write = !self.looks;
        self.request(role, RequestKind::OpenVolume, |tag| Message::OpenVolume { tag, name, write });
    }

    pub(in crate::client) fn setup_answered(
        &mut self,
        role: u16,
        kind: RequestKind,
        answer: Result<Option<u64>, Refusal>,
    ) {
        let now = self.keeper.view().now();
        let session = &mut self.sessions[usize::from(role)];
        match (kind, answer, session.state) {
            (RequestKind::OpenVolume, Ok(_), SessionState::Opening { .. }) => {
                session.state = SessionState::Preparing;
                let params = *self.shared.params();
                let data_sector = self.data_sector(role);
                self.request(role, RequestKind::OpenPipeline, |tag| Message::OpenPipeline {
                    tag,
                    role,
                    data_sector,
                    params,
                });
            }
            (RequestKind::OpenVolume, Err(_), SessionState::Opening { until, .. })
                if now < until =>
            {
                let retry_at = Some(now.plus_millis(RETRY_MILLIS));
                session.state = SessionState::Opening { until, retry_at };
            }
            (RequestKind::OpenVolume, Err(why), _) => self.give_up(role, why),
            (RequestKind::OpenPipeline, Ok(Some(ring)), SessionState::Preparing) => {
                session.ring = ring;
                session.state = SessionState::Prepared;
                self.setup_goes_on();
            }
            (RequestKind::OpenPipeline, Err(why), _) => self.give_up(role, why),
            (RequestKind::Connect, Ok(None), SessionState::Wiring { .. }) => {
                session.state = SessionState::Ready;
                self.setup_goes_on();
            }
            (RequestKind::Connect, Err(_), SessionState::Wiring { until, .. }) if now < until => {
                let retry_at = Some(now.plus_millis(RETRY_MILLIS));
                session.state = SessionState::Wiring { until, retry_at };
            }
            // Two nodes that are there do not see each other.
            (RequestKind::Connect, Err(why), SessionState::Wiring { .. }) => {
                self.out.lose(role, why)
            }
            _ => self.out.violates(role, "it does not keep to the protocol"),
        }
    }

    /// The node is there, but another client has the volume, or it has no room: the array must not
    /// go on as if the node were dead.
    pub(in crate::client) fn give_up(&mut self, role: u16, why: Refusal) {
        let (ownership, mut cx, _) = self.ownership();
        ownership.give_up(&mut cx, role, why);
        self.out.report_to(&mut self.keeper);
    }

    pub(in crate::client) fn hang_up_all(&mut self) {
        self.absents.close(&mut self.out, self.keeper.view().now());
        self.departed.close(&mut self.out, self.keeper.view().now());
        self.ownership.close(&mut self.out);
        for session in self.sessions.iter_mut().filter(|session| session.is_connected()) {
            session.state = SessionState::Lost;
            self.out.hang_up(session.peer);
        }
    }

    /// Wires the nodes when all are prepared; serves when all are ready. When too many are lost the
    /// others are given up, whatever they were asked: each comes by here when it is gone.
    pub(in crate::client) fn setup_goes_on(&mut self) {
        if !matches!(self.phase, Phase::Setup) {
            return;
        }
        let all =
            |state: SessionState| self.sessions.iter().all(|l| l.state == state || !l.alive());
        let ends = self.has_too_few() && !braid_array::broken("start-ends");
        if ends && self.sessions.iter().any(Session::alive) {
            self.keeper.give_up();
        } else if all(SessionState::Ready) {
            self.phase = Phase::Running;
            self.keeper.begin();
        } else if all(SessionState::Prepared) && self.looks {
            self.sessions
                .iter_mut()
                .filter(|session| session.alive())
                .for_each(Session::needs_no_wires);
            self.setup_goes_on();
        } else if all(SessionState::Prepared) && self.journals_are_ready() {
            self.wire();
        }
    }

    fn journals_are_ready(&mut self) -> bool {
        let (engine, mut cx) = self.engine();
        engine.journals.are_ready(&mut cx)
    }

    /// Goes on with what journals held when nothing is waited for, and views say who was lost.
    pub(in crate::client) fn start_journals(&mut self) {
        if !matches!(self.phase, Phase::Setup) {
            return;
        }
        while self.engine.journals.wants_views() {
            let (ownership, mut cx, _) = self.ownership();
            if !ownership.lost_are_recorded(&mut cx) {
                return;
            }
            let view = self.ownership.view().clone();
            let (engine, mut cx) = self.engine();
            if engine.journals.views_told(&mut cx, &view) {
                return self.setup_goes_on();
            }
        }
    }

    fn wire(&mut self) {
        let until = self.keeper.view().now().plus_millis(PATIENCE_MILLIS);
        for role in 0..self.shared.params().nodes {
            if self.alive(role) {
                self.sessions[usize::from(role)].state =
                    SessionState::Wiring { until, retry_at: None };
                self.ask_to_connect(role);
            }
        }
    }

    /// Has a node connect to the others that are there.
    fn ask_to_connect(&mut self, role: u16) {
        let peer = |(other, session): (u16, &Session)| {
            let there = session.alive() && other != role;
            let address = session.member.as_ref().filter(|_| there)?.address.clone();
            Some(PeerAddress { role: other, address, ring: session.ring })
        };
        let peers: Vec<PeerAddress> = (0..).zip(&self.sessions).filter_map(peer).collect();
        self.request(role, RequestKind::Connect, |tag| Message::Connect { tag, peers });
    }

    /// Asks again for volumes that were taken, and to connect.
    pub(in crate::client) fn setup_tick(&mut self) {
        if !matches!(self.phase, Phase::Setup) {
            return;
        }
        for role in 0..self.shared.params().nodes {
            let now = self.keeper.view().now();
            let session = &mut self.sessions[usize::from(role)];
            match session.state {
                SessionState::Opening { until, retry_at: Some(at) } if at <= now => {
                    session.state = SessionState::Opening { until, retry_at: None };
                    self.open_volume(role);
                }
                SessionState::Wiring { until, retry_at: Some(at) } if at <= now => {
                    session.state = SessionState::Wiring { until, retry_at: None };
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
        let now = self.keeper.view().now();
        let overdue = |session: &Session| match session.state {
            SessionState::Wiring { until, retry_at: None } => silent_until(until) <= now,
            _ => false,
        };
        let Some(role) = self.sessions.iter().position(overdue) else { return };
        let why = Refusal::new("it does not get connected to the others", NETWORK);
        self.out.lose(role as u16, why);
        for session in &mut self.sessions {
            if let SessionState::Wiring { until, retry_at: None } = &mut session.state {
                *until = (*until).max(now);
            }
        }
    }

    pub(in crate::client) fn setup_deadline(&self) -> Option<Instant> {
        let retry = |session: &Session| match session.state {
            SessionState::Wiring { until, retry_at } => retry_at.or(Some(silent_until(until))),
            SessionState::Opening { retry_at, .. } => retry_at,
            _ => None,
        };
        if !matches!(self.phase, Phase::Setup) {
            return None;
        }
        self.sessions.iter().filter_map(retry).min()
    }
}
