//! The other nodes of a pipeline, and the connections to them.

use braid_array::fabric::PeerId;
use braid_array::{Refusal, Role};

use super::seat::Seat;
use crate::node::ids::Violation;
use crate::node::out::NodeOut;
use crate::pipeline::Params;
use crate::wire::{Message, PeerAddress};

/// The longest name of a host, and a port.
const MAX_ADDRESS_BYTES: usize = 253 + 6;

/// A connection to another node of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NeighbourLink {
    /// Not yet.
    Absent,
    /// This node is connecting.
    Dialing(PeerId),
    /// The connection stands.
    Up(PeerId),
    /// The connection is over.
    Lost,
}

/// Another node of the array.
#[derive(Clone, Debug)]
struct Neighbour {
    link: NeighbourLink,
    /// Its ring in its arena, and its address, once the client has told.
    told: Option<(u64, String)>,
}

/// A `Connect` that is not answered yet.
#[derive(Debug)]
struct Connecting {
    tag: u32,
    /// The neighbours that it names and that are not given up.
    named: Vec<Role>,
}

/// A connection that this node makes, to this neighbour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialed {
    pub(crate) peer: PeerId,
    pub(crate) neighbour: Role,
}

/// The other nodes of a pipeline, by role; behind them the other node of the same role, when this
/// member is copied: *beside*. [`connect`](Self::connect) names them and dials those of higher
/// roles, which is over with [`established`](Self::established) or [`lost`](Self::lost); those of
/// lower roles [`join`](Self::join).
#[derive(Debug)]
pub(super) struct Neighbours {
    role: Role,
    all: Vec<Neighbour>,
    connecting: Option<Connecting>,
}

impl Neighbours {
    pub(super) fn new(nodes: u16, role: Role) -> Self {
        let neighbour = Neighbour { link: NeighbourLink::Absent, told: None };
        Self { role, all: vec![neighbour; usize::from(nodes) + 1], connecting: None }
    }

    const fn nodes(&self) -> u16 {
        (self.all.len() - 1) as u16
    }

    /// Returns the index of the other node of the same role.
    pub(super) const fn beside(&self) -> Role {
        Role(self.nodes())
    }

    /// Returns the neighbour for a role that the client names; the own role means the node beside.
    const fn of_role(&self, role: Role) -> Role {
        if role.0 == self.role.0 { self.beside() } else { role }
    }

    /// Returns the connection to a neighbour, if it stands.
    pub(super) fn connected(&self, neighbour: Role) -> Option<PeerId> {
        match self.all[neighbour.index()].link {
            NeighbourLink::Up(peer) => Some(peer),
            NeighbourLink::Absent | NeighbourLink::Dialing(_) | NeighbourLink::Lost => None,
        }
    }

    /// Returns the connection to a neighbour and the beginning of its ring, if slices can be put
    /// there.
    pub(super) fn ring_of(&self, neighbour: Role) -> Option<(PeerId, u64)> {
        let peer = self.connected(neighbour)?;
        let (ring, _) = self.all[neighbour.index()].told.as_ref()?;
        Some((peer, *ring))
    }

    /// Returns the connections that stand.
    pub(super) fn peers(&self) -> impl Iterator<Item = PeerId> {
        Role::all(self.nodes() + 1).filter_map(|neighbour| self.connected(neighbour))
    }

    /// Ends all connections, and returns them.
    pub(super) fn hang_up(&self, out: &mut NodeOut) -> Vec<PeerId> {
        let links = self.all.iter().map(|neighbour| neighbour.link);
        let peers: Vec<PeerId> = links.filter_map(NeighbourLink::peer).collect();
        for &peer in &peers {
            out.hang_up(peer);
        }
        peers
    }

    /// Connects to the nodes that the client names. Returns the connections that this node makes.
    pub(super) fn connect(
        &mut self,
        tag: u32,
        peers: Vec<PeerAddress>,
        seat: &Seat,
        out: &mut NodeOut,
    ) -> Result<Vec<Dialed>, Violation> {
        // A client that only reads has no use for it, and may not send this node anywhere.
        if !seat.write || peers.iter().any(|peer| peer.address.len() > MAX_ADDRESS_BYTES) {
            return Err(Violation("a Connect that no array needs"));
        }
        let mut roles: Vec<Role> = peers.iter().map(|peer| peer.role).collect();
        roles.sort_unstable();
        let twice = roles.windows(2).any(|pair| pair[0] == pair[1]);
        let stranger = |&role: &Role| role.0 >= self.nodes();
        if twice || roles.iter().any(stranger) || self.connecting.is_some() {
            return Err(Violation("a Connect that names the wrong nodes"));
        }
        let named = roles.iter().map(|&role| self.of_role(role)).collect();
        self.connecting = Some(Connecting { tag, named });
        let mut dialed = Vec::new();
        for PeerAddress { role, address, ring } in peers {
            let at = self.of_role(role);
            let neighbour = &mut self.all[at.index()];
            neighbour.told = Some((ring, address.clone()));
            if !matches!(neighbour.link, NeighbourLink::Absent | NeighbourLink::Lost) {
                continue;
            }
            neighbour.link = NeighbourLink::Absent;
            if role > self.role || role == self.role && !address.is_empty() {
                let peer = out.connect(address);
                neighbour.link = NeighbourLink::Dialing(peer);
                dialed.push(Dialed { peer, neighbour: at });
            }
        }
        self.answer_connect(seat, out);
        Ok(dialed)
    }

    /// Answers `Connect` when all nodes that it names are connected. The client learns of other
    /// missing connections when a slice-set needs them.
    pub(super) fn answer_connect(&mut self, seat: &Seat, out: &mut NodeOut) {
        let all_up = |connecting: &Connecting| {
            connecting.named.iter().all(|&neighbour| self.connected(neighbour).is_some())
        };
        if self.connecting.as_ref().is_some_and(all_up)
            && let Some(Connecting { tag, .. }) = self.connecting.take()
        {
            out.confirm(seat.client, tag);
        }
    }

    /// Handles a connection that this node asked for and that now stands. The neighbour may put
    /// into this `window`.
    pub(super) fn established(
        &mut self,
        neighbour: Role,
        peer: PeerId,
        window: std::ops::Range<u64>,
        seat: &Seat,
        out: &mut NodeOut,
    ) {
        // A client that writes was granted one.
        let Some(array) = seat.array else { return };
        self.all[neighbour.index()].link = NeighbourLink::Up(peer);
        let Params { session, silence_ms, .. } = *seat.pipeline.params();
        out.bear_silence(peer, silence_ms);
        out.admit(peer, window);
        out.send(peer, seat.epoch(), &Message::Join { session, role: self.role, array });
        self.answer_connect(seat, out);
    }

    /// Accepts a connection from the node of a role. Returns the neighbour, if it is expected.
    pub(super) fn join(
        &mut self,
        role: Role,
        peer: PeerId,
        window: std::ops::Range<u64>,
        seat: &Seat,
        out: &mut NodeOut,
    ) -> Option<Role> {
        // One that comes back may be here before the client has told of it.
        // To one that is copied to nobody else is connected yet.
        let others = &self.all[..usize::from(self.nodes())];
        let copied =
            role == self.role && others.iter().all(|other| other.link == NeighbourLink::Absent);
        let at = self.of_role(role);
        let link = self.all.get(at.index()).map(|neighbour| neighbour.link);
        if role >= self.role && !copied
            || !matches!(link, Some(NeighbourLink::Absent | NeighbourLink::Lost))
        {
            return None;
        }
        self.all[at.index()].link = NeighbourLink::Up(peer);
        out.bear_silence(peer, seat.pipeline.params().silence_ms);
        out.admit(peer, window);
        self.answer_connect(seat, out);
        Some(at)
    }

    /// Handles a connection that is over: refuses the `Connect` of a client that waits for it.
    /// `limited`: the client is not to find out what listens where.
    pub(super) fn lost(
        &mut self,
        neighbour: Role,
        reason: &str,
        limited: bool,
        seat: &Seat,
        out: &mut NodeOut,
    ) {
        let named = self.connecting.take_if(|connecting| connecting.named.contains(&neighbour));
        let told = &self.all[neighbour.index()].told;
        let (Some((_, address)), Some(Connecting { tag, .. })) = (told, named) else { return };
        let failed = format!("cannot connect to node {address}");
        let full = format!("{failed}: {reason}");
        let why = if limited {
            out.remark("neighbour", full);
            Refusal::new(failed, "see why in the log of the node that tried")
        } else {
            Refusal::new(full, "check that it runs and can be reached from the other nodes")
        };
        out.refuse(seat.client, tag, why);
    }

    /// Marks the connection to a neighbour as over.
    pub(super) fn cut(&mut self, neighbour: Role) {
        self.all[neighbour.index()].link = NeighbourLink::Lost;
    }

    /// Ends the connection to the node of a role, which has left the array. Returns the neighbour
    /// and the connection.
    pub(super) fn remove(
        &mut self,
        role: Role,
        out: &mut NodeOut,
    ) -> Result<(Role, Option<PeerId>), Violation> {
        if role.0 >= self.nodes() {
            return Err(Violation("Without a role that is none"));
        }
        let at = self.of_role(role);
        let neighbour = &mut self.all[at.index()];
        neighbour.told = None;
        let peer = neighbour.link.peer();
        if let Some(peer) = peer {
            out.hang_up(peer);
        }
        if let Some(connecting) = &mut self.connecting {
            connecting.named.retain(|&named| named != at);
        }
        Ok((at, peer))
    }
}

impl NeighbourLink {
    const fn peer(self) -> Option<PeerId> {
        match self {
            Self::Up(peer) | Self::Dialing(peer) => Some(peer),
            Self::Absent | Self::Lost => None,
        }
    }
}
