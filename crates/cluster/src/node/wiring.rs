//! The pipelines of clients: their rings, and the connections of their nodes to each other.

use braid_array::fabric::{FabricOp, PeerId};
use braid_array::{Action, Refusal, SECTOR_BYTES};

use super::Node;
use super::ids::{ArrayId, ClientId, Violation};
use super::pipe::{Link, Pipe};
use super::session::Conn;
use super::volumes::Held;
use crate::pipeline::{Params, Pipeline};
use crate::wire::{Message, PeerAddress};

/// The longest name of a host, and a port.
const MAX_ADDRESS_BYTES: usize = 253 + 6;

impl Node {
    pub(super) fn prepare(
        &mut self,
        id: ClientId,
        tag: u32,
        (role, data_sector): (u16, u64),
        params: Params,
        held: &Held,
    ) -> Result<(), Violation> {
        let Some(client) = self.clients.get(&id) else { return Ok(()) };
        let peer = self.out.peer_of(id).filter(|_| client.pipe.is_none());
        let peer = peer.ok_or(Violation("a second pipeline on one connection"))?;
        if held.write && client.vote.is_none_or(|(_, granted)| granted != params.epoch) {
            return Err(Violation("a pipeline of an epoch that was not granted"));
        }
        match self.set_up((id, peer), role, data_sector, params, held) {
            Ok(pipe) => {
                self.out.admit(peer, pipe.window());
                self.sessions.insert(params.session, id);
                if let Some(client) = self.clients.get_mut(&id) {
                    self.out.raise_epoch(id, params.epoch);
                    client.pipe = Some(pipe);
                }
                if held.write {
                    self.look_for_journal(id, tag, held.volume.bytes);
                } else {
                    self.prepared(id, tag, None);
                }
            }
            Err(why) => self.out.refuse(id, tag, why),
        }
        Ok(())
    }

    fn set_up(
        &mut self,
        client: (ClientId, PeerId),
        role: u16,
        data_sector: u64,
        params: Params,
        held: &Held,
    ) -> Result<Pipe, Refusal> {
        if self.sessions.contains_key(&params.session) {
            return Err(Refusal::new(
                "a pipeline of this session is here already",
                "give every role another node and try again",
            ));
        }
        if role >= params.nodes {
            let reason = format!("there is no role {role} of {} nodes", params.nodes);
            return Err(Refusal::new(reason, "use a lower"));
        }
        let pipeline = Pipeline::new(params)?;
        let used = pipeline.member_byte(params.stripes, 0, 0);
        let end = data_sector.checked_mul(SECTOR_BYTES).and_then(|start| start.checked_add(used));
        if end.is_none_or(|end| end > held.volume.bytes) {
            let (name, bytes) = (&held.name, held.volume.bytes);
            return Err(Refusal::new(
                format!("volume {name} of {bytes} bytes is too small for its part of the array"),
                "use the volume that the array was created on",
            ));
        }
        let (bytes, base) = (pipeline.ring_bytes(role), pipeline.base_bytes(role));
        let ring = self.rings.take(bytes, base).map_err(|free| {
            let bytes = if self.rings.is_lean() { base } else { bytes };
            Refusal::new(
                format!("a ring of {bytes} bytes is needed and {free} are free"),
                "start the node with a larger --ring",
            )
        })?;
        let place = (held.volume.member, data_sector, held.write);
        Ok(Pipe::new(client, role, place, (ring, !self.rings.is_lean()), pipeline))
    }

    pub(super) fn connect(
        &mut self,
        id: ClientId,
        tag: u32,
        peers: Vec<PeerAddress>,
    ) -> Result<(), Violation> {
        let Some(client) = self.clients.get_mut(&id) else { return Ok(()) };
        let pipe = client.pipe.as_mut().ok_or(Violation("Connect before OpenPipeline"))?;
        // Who only reads has no use for it, and may not send this node anywhere.
        if !pipe.write || peers.iter().any(|peer| peer.address.len() > MAX_ADDRESS_BYTES) {
            return Err(Violation("a Connect that no array needs"));
        }
        let mut roles: Vec<u16> = peers.iter().map(|peer| peer.role).collect();
        roles.sort_unstable();
        let twice = roles.windows(2).any(|pair| pair[0] == pair[1]);
        let stranger = |&role: &u16| role >= pipe.pipeline.params().nodes;
        if twice || roles.iter().any(stranger) || pipe.connecting.is_some() {
            return Err(Violation("a Connect that names the wrong nodes"));
        }
        let neighbours = roles.iter().map(|&role| pipe.neighbour(role)).collect();
        pipe.connecting = Some((tag, neighbours));
        for PeerAddress { role, address, ring } in peers {
            let at = pipe.neighbour(role);
            let neighbour = &mut pipe.neighbours[usize::from(at)];
            neighbour.told = Some((ring, address.clone()));
            if !matches!(neighbour.link, Link::Absent | Link::Lost) {
                continue;
            }
            neighbour.link = Link::Absent;
            if role > pipe.role || role == pipe.role && !address.is_empty() {
                let peer = PeerId(self.next_peer);
                self.next_peer = (self.next_peer + 1) % PeerId::FIRST_ACCEPTED;
                neighbour.link = Link::Dialing(peer);
                self.conns.insert(peer, Conn::Dialing(id, at));
                self.out.push(Action::Fabric(FabricOp::Connect { peer, address }));
            }
        }
        self.check_connected(id);
        Ok(())
    }

    /// Answers `Connect` when all nodes that it names are there. That others may not be, the client
    /// hears when a slice-set needs them.
    fn check_connected(&mut self, id: ClientId) {
        let pipe = self.clients.get_mut(&id).and_then(|client| client.pipe.as_mut());
        let Some(pipe) = pipe else { return };
        let Pipe { neighbours, connecting, .. } = pipe;
        let up = |role: &u16| matches!(neighbours[usize::from(*role)].link, Link::Up(_));
        if let Some((tag, _)) = connecting.take_if(|(_, roles)| roles.iter().all(up)) {
            self.out.confirm(id, tag);
        }
    }

    /// A connection that we asked for stands.
    pub(super) fn connected(&mut self, peer: PeerId) {
        let Some(&Conn::Dialing(id, role)) = self.conns.get(&peer) else { return };
        let Some(client) = self.clients.get_mut(&id) else { return };
        // Who writes was granted one.
        let (Some(pipe), Some((array, _))) = (client.pipe.as_mut(), client.vote) else { return };
        self.conns.insert(peer, Conn::Node(id, role));
        pipe.neighbours[usize::from(role)].link = Link::Up(peer);
        let Params { session, silence_ms, .. } = *pipe.pipeline.params();
        self.out.bear_silence(peer, silence_ms);
        self.out.admit(peer, pipe.window());
        self.out.send(peer, pipe.epoch(), &Message::Join { session, role: pipe.role, array });
        self.check_connected(id);
    }

    /// Another node says which pipeline it belongs to. A client of another array may know the
    /// session, and has it of the node that it sends here only with its own array.
    pub(super) fn join(
        &mut self,
        peer: PeerId,
        (session, array): (u64, ArrayId),
        role: u16,
    ) -> Result<(), Violation> {
        let stranger = Violation("a node that no pipeline waits for");
        let id = self.sessions.get(&session).copied().ok_or(stranger)?;
        let client = self.clients.get_mut(&id).filter(|_| self.out.is_here(id));
        let client = client.filter(|client| client.vote.is_some_and(|(of, _)| of == array));
        let pipe = client.and_then(|client| client.pipe.as_mut()).ok_or(stranger)?;
        // One that comes back may be here before the client has told of it.
        // To one that is copied to nobody else is connected yet.
        let copied = role == pipe.role && pipe.is_unconnected();
        let at = pipe.neighbour(role);
        let link = pipe.neighbours.get(usize::from(at)).map(|neighbour| neighbour.link);
        if role >= pipe.role && !copied || !matches!(link, Some(Link::Absent | Link::Lost)) {
            return Err(stranger);
        }
        pipe.neighbours[usize::from(at)].link = Link::Up(peer);
        self.out.bear_silence(peer, pipe.pipeline.params().silence_ms);
        self.out.admit(peer, pipe.window());
        self.conns.insert(peer, Conn::Node(id, at));
        self.check_connected(id);
        Ok(())
    }

    /// Another node is not of the array any more: nothing of it may land here.
    pub(super) fn without(&mut self, id: ClientId, role: u16) -> Result<(), Violation> {
        let pipe = self.clients.get_mut(&id).and_then(|client| client.pipe.as_mut());
        let pipe = pipe.ok_or(Violation("Without before OpenPipeline"))?;
        let at = pipe.neighbour(role);
        let stranger = role >= pipe.pipeline.params().nodes;
        let neighbour = pipe.neighbours.get(usize::from(at)).filter(|_| !stranger);
        let link = neighbour.ok_or(Violation("Without a role that is none"))?.link;
        if let Link::Up(peer) | Link::Dialing(peer) = link {
            self.conns.remove(&peer);
            self.out.hang_up(peer);
        }
        pipe.neighbours[usize::from(at)].told = None;
        if let Some((_, neighbours)) = &mut pipe.connecting {
            neighbours.retain(|&named| named != at);
        }
        pipe.lost(at, &mut self.out);
        self.beside_lost(id, at);
        self.check_connected(id);
        Ok(())
    }
}
