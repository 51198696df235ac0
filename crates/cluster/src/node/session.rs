//! Connections and what is said on them before slices flow: volumes, pipelines, other nodes.

use braid_array::fabric::{FabricOp, PeerId};
use braid_array::{Action, IoOp, Refusal, SECTOR_BYTES};

use super::ids::{ArrayId, ClientId, Violation};
use super::orphans::Settling;
use super::out::Flight;
use super::pipe::{Link, Pipe};
use super::reads::within;
use super::volumes::Held;
use super::{Life, Node, meta, slot, volumes, votes};
use crate::pipeline::{Params, Pipeline};
use crate::schedule::Endpoint;
use crate::wire::{MAX_NAME_BYTES, Message, PeerAddress, valid_volume_name};

/// Requests of one client that can be under way.
const MAX_REQUESTS: u32 = 256;
/// The longest name of a host, and a port.
const MAX_ADDRESS_BYTES: usize = 253 + 6;
/// A refusal with this tag answers no request: it says why the connection ends.
pub const PARTING_TAG: u32 = u32::MAX;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conn {
    /// Has said nothing yet.
    New,
    /// A client.
    Client(ClientId),
    /// A node that we connect to, for a client's pipeline.
    Dialing(ClientId, u16),
    /// A node of a client's pipeline, by role.
    Node(ClientId, u16),
}

/// A client, until nothing of it is in flight any more.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// Its connection; `None` once that is over.
    pub(super) peer: Option<PeerId>,
    /// The highest it named.
    pub(super) epoch: u32,
    /// The array that it was granted, and the epoch.
    pub(super) vote: Option<(ArrayId, u32)>,
    pub(super) held: Option<Held>,
    /// Waits for a volume.
    pub(super) asking: bool,
    pub(super) pipe: Option<Pipe>,
    /// Requests not answered yet.
    pub(super) requests: u32,
    /// What becomes of what it has left.
    pub(super) settling: Option<Settling>,
}

impl Client {
    pub(super) const fn is_here(&self) -> bool {
        self.peer.is_some()
    }

    /// It is gone, and has left slice-sets of which the next one has to say what becomes of them.
    pub(super) fn is_orphan(&self) -> bool {
        !self.is_here() && self.vote.is_some() && self.pipe.as_ref().is_some_and(Pipe::holds)
    }
}

/// As a message. What a stranger's bytes are part of may be long.
fn refused(tag: u32, busy: bool, why: Refusal) -> Message {
    let short = |text: &str| text.chars().take(1000).collect();
    let (reason, advice) = (short(&why.reason), short(&why.next.advice));
    Message::Refused { tag, busy, reason, advice }
}

impl Node {
    pub(super) fn is_here(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(Client::is_here)
    }

    fn held_of(&self, client: ClientId) -> Option<&Held> {
        self.clients.get(&client)?.held.as_ref()
    }

    /// Answers a request, if the client is still there.
    pub(super) fn answer(&mut self, client: ClientId, message: &Message) {
        let Some(client) = self.clients.get_mut(&client) else { return };
        let Some(peer) = client.peer else { return };
        client.requests = client.requests.saturating_sub(1);
        self.out.send(peer, client.epoch, message);
    }

    pub(super) fn refuse(&mut self, client: ClientId, tag: u32, why: Refusal) {
        self.answer(client, &refused(tag, false, why));
    }

    /// Refuses what somebody else has, who may give it back.
    pub(super) fn refuse_busy(&mut self, client: ClientId, tag: u32, why: Refusal) {
        self.answer(client, &refused(tag, true, why));
    }

    /// Ends a connection, telling why.
    pub(super) fn part_with(&mut self, peer: PeerId, why: Violation) {
        self.out.remark("violation", format!("hung up on a connection: {}", why.0));
        let told = Refusal::new(why.0, "use the same version of braid everywhere");
        self.out.send(peer, 0, &refused(PARTING_TAG, false, told));
        self.out.hang_up(peer);
        self.lost(peer, why.0);
    }

    /// A connection is over.
    pub(super) fn lost(&mut self, peer: PeerId, reason: &str) {
        match self.conns.remove(&peer) {
            None | Some(Conn::New) => {}
            Some(Conn::Client(client)) => {
                let pipe = self.clients.get(&client).and_then(|client| client.pipe.as_ref());
                if let (Some(_), Some(held)) = (pipe, self.held_of(client)) {
                    let text = format!("the client of volume {} is gone: {reason}", held.name);
                    self.out.remark("client", text);
                }
                self.end(client);
            }
            Some(Conn::Dialing(client, role) | Conn::Node(client, role)) => {
                let Some(pipe) = self.clients.get_mut(&client).and_then(|c| c.pipe.as_mut()) else {
                    return;
                };
                pipe.lost(role, &mut self.out);
                let told = &pipe.neighbours[usize::from(role)].told;
                if let (Some((_, address)), Some(tag)) = (told, pipe.connecting) {
                    let why = Refusal::new(
                        format!("cannot connect to node {address}: {reason}"),
                        "check that it runs and can be reached from the other nodes",
                    );
                    pipe.connecting = None;
                    self.refuse(client, tag, why);
                }
            }
        }
    }

    /// Nothing of other clients of this array is taken any more.
    pub(super) fn end_older(&mut self, array: ArrayId, granted: u32, to: ClientId) {
        let conns = self.conns.iter().filter_map(|(&peer, conn)| match conn {
            Conn::Client(id) => Some((peer, *id)),
            _ => None,
        });
        let older = |&(_, id): &(PeerId, ClientId)| {
            let vote = self.clients.get(&id).and_then(|client| client.vote);
            // One of this epoch is the same client's, from before it lost this node.
            id != to && vote.is_some_and(|(other, epoch)| other == array && epoch <= granted)
        };
        for (peer, _) in conns.filter(older).collect::<Vec<_>>() {
            self.out.send(peer, 0, &Message::Outvoted { tag: PARTING_TAG, granted });
            self.out.hang_up(peer);
            self.lost(peer, "a newer client has taken the array over");
        }
    }

    /// A client is gone: nothing of it is started any more.
    pub(super) fn end(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.peer = None;
        self.meta.forget(id);
        for neighbour in client.pipe.iter().flat_map(|pipe| &pipe.neighbours) {
            if let Link::Up(peer) | Link::Dialing(peer) = neighbour.link {
                self.conns.remove(&peer);
                self.out.hang_up(peer);
            }
        }
        self.settle(id);
    }

    /// Takes leave of a client that is gone, once nothing uses its memory and its volume, unless it
    /// has left what the next one decides about.
    pub(super) fn settle(&mut self, id: ClientId) {
        if self.clients.get(&id).is_none_or(Client::is_here) || self.out.uses(id) {
            return;
        }
        self.go_on_granting();
        let serving = matches!(self.life, Life::Serving);
        if self.clients.get(&id).is_none_or(|client| serving && client.is_orphan()) {
            return;
        }
        let Some(client) = self.clients.remove(&id) else { return };
        if let Some(pipe) = client.pipe {
            self.rings.give(pipe.ring);
            if let Some(journal) = &pipe.journal {
                self.rings.give(journal.pages);
            }
            self.sessions.remove(&pipe.pipeline.params().session);
            if let Some((array, _)) = client.vote.filter(|_| pipe.write) {
                self.votes.keep_stock(array, pipe.stock());
            }
        }
        if let Some(held) = client.held {
            self.release_volume(&held.name, id);
        }
    }

    pub(super) fn message(&mut self, peer: PeerId, bytes: &[u8]) {
        let Some(&conn) = self.conns.get(&peer) else { return };
        let result = match Message::decode(bytes) {
            Err(_) => Err(Violation("a message that means nothing")),
            Ok((epoch, message)) => match conn {
                Conn::New => self.first_message(peer, epoch, message),
                Conn::Client(client) => self.client_message(client, epoch, message),
                Conn::Node(client, role) => match message {
                    Message::Missing { imm } => {
                        self.slice(client, Endpoint::Node(role), imm, false)
                    }
                    _ => Err(Violation("a message that nodes do not send")),
                },
                Conn::Dialing(..) => Err(Violation("a message too early")),
            },
        };
        if let Err(violation) = result {
            self.part_with(peer, violation);
        }
    }

    /// Something was put into our arena.
    pub(super) fn placed(&mut self, peer: PeerId, imm: u32) {
        let Some(&conn) = self.conns.get(&peer) else { return };
        let result = match conn {
            Conn::Client(client) => self.slice(client, Endpoint::Client, imm, true),
            Conn::Node(client, role) => self.slice(client, Endpoint::Node(role), imm, true),
            Conn::New | Conn::Dialing(..) => Err(Violation("a slice too early")),
        };
        if let Err(violation) = result {
            self.part_with(peer, violation);
        }
    }

    /// A slice of a pipeline has come, or will not. What is wrong with it is the client's fault,
    /// or else the client has to know.
    fn slice(
        &mut self,
        id: ClientId,
        from: Endpoint,
        imm: u32,
        placed: bool,
    ) -> Result<(), Violation> {
        let Some(client) = self.clients.get_mut(&id) else { return Ok(()) };
        let pipe = client.pipe.as_mut().ok_or(Violation("a slice before Prepare"))?;
        let result = pipe.arrived(imm, from, placed, &mut self.out);
        match (result, client.peer) {
            (Err(violation), Some(peer)) if from != Endpoint::Client => {
                self.part_with(peer, violation);
                Ok(())
            }
            (result, _) => result,
        }
    }

    fn first_message(
        &mut self,
        peer: PeerId,
        epoch: u32,
        message: Message,
    ) -> Result<(), Violation> {
        match message {
            Message::Join { session, role } => self.join(peer, session, role),
            Message::Grant { .. }
            | Message::CreateVolume { .. }
            | Message::OpenVolume { .. }
            | Message::NodeStatus { .. }
            | Message::Identify { .. }
            | Message::Shutdown { .. } => {
                let id = ClientId(self.next_client);
                self.next_client += 1;
                self.clients.insert(id, Client { peer: Some(peer), ..Client::default() });
                self.conns.insert(peer, Conn::Client(id));
                self.client_message(id, epoch, message)
            }
            _ => Err(Violation("a message before OpenVolume")),
        }
    }

    fn client_message(
        &mut self,
        id: ClientId,
        epoch: u32,
        message: Message,
    ) -> Result<(), Violation> {
        let Some(client) = self.clients.get_mut(&id) else { return Ok(()) };
        client.epoch = client.epoch.max(epoch);
        match message {
            Message::Ping { tag } => {
                let storage_silent_ms = self.out.storage_silent_ms();
                let (peer, epoch) = (client.peer, client.epoch);
                if let Some(peer) = peer {
                    self.out.send(peer, epoch, &Message::Pong { tag, storage_silent_ms });
                }
                Ok(())
            }
            Message::Open { set } => {
                let pipe = client.pipe.as_mut().ok_or(Violation("a slice-set before Prepare"))?;
                pipe.open(set, &mut self.out)
            }
            Message::Go { sets } => {
                let early = Violation("Go before Prepare");
                let pipe = client.pipe.as_mut().ok_or(early)?;
                sets.into_iter().try_for_each(|(at, turn)| pipe.go(at, turn, &mut self.out))
            }
            Message::Drop { position, turn } => {
                let early = Violation("Drop before Prepare");
                client.pipe.as_mut().ok_or(early)?.drop_set(position, turn, &mut self.out)
            }
            Message::Without { role } => self.without(id, role),
            Message::Read { slot, sector, bytes, to } => {
                let early = Violation("a read before Prepare");
                let pipe = client.pipe.as_mut().ok_or(early)?;
                let end = client.held.as_ref().map_or(0, |held| held.volume.bytes);
                pipe.read(slot, slot::Ask { sector, bytes, to }, end, &mut self.out)
            }
            request => {
                if client.requests >= MAX_REQUESTS {
                    return Err(Violation("too many requests at a time"));
                }
                client.requests += 1;
                self.request(id, request)
            }
        }
    }

    /// Another node is not of the array any more: nothing of it may land here.
    fn without(&mut self, id: ClientId, role: u16) -> Result<(), Violation> {
        let pipe = self.clients.get_mut(&id).and_then(|client| client.pipe.as_mut());
        let pipe = pipe.ok_or(Violation("Without before Prepare"))?;
        let neighbour = pipe.neighbours.get(usize::from(role));
        let link = neighbour.ok_or(Violation("Without a role that is none"))?.link;
        if let Link::Up(peer) | Link::Dialing(peer) = link {
            self.conns.remove(&peer);
            self.out.hang_up(peer);
        }
        pipe.neighbours[usize::from(role)].told = None;
        pipe.lost(role, &mut self.out);
        self.check_connected(id);
        Ok(())
    }

    /// Who has an array, and what its predecessor has left.
    fn vote_request(&mut self, id: ClientId, message: Message) -> Result<(), Violation> {
        let Some(client) = self.clients.get(&id) else { return Ok(()) };
        if let Message::Grant { tag, array, epoch, client: asks } = message {
            let same = client.vote.is_none_or(|(other, _)| other == array);
            if !same || client.held.is_some() || client.requests > 1 {
                return Err(Violation("a Grant that is not the first request"));
            }
            let what = votes::Want::Grant(epoch, asks);
            self.ask_vote(array, votes::Ask { client: id, tag, what });
            return Ok(());
        }
        let (array, _) = client.vote.ok_or(Violation("a request before Grant"))?;
        match message {
            Message::Record { tag, view } => {
                let what = votes::Want::Record(view);
                self.ask_vote(array, votes::Ask { client: id, tag, what });
            }
            Message::Inventory { tag, from } => self.inventory(id, tag, array, from),
            Message::Settle { tag, go } => self.settle_left(id, tag, array, &go),
            _ => {}
        }
        Ok(())
    }

    /// Everything with a tag.
    fn request(&mut self, id: ClientId, message: Message) -> Result<(), Violation> {
        match message {
            Message::Grant { .. }
            | Message::Record { .. }
            | Message::Inventory { .. }
            | Message::Settle { .. } => return self.vote_request(id, message),
            Message::Records { .. } | Message::Replay { .. } | Message::Trim { .. } => {
                return self.journal_request(id, &message);
            }
            Message::CreateVolume { tag, name, bytes } => {
                let ask = volumes::Ask { client: id, tag, write: true, create: Some(bytes) };
                return self.open_volume(&name, ask);
            }
            Message::OpenVolume { tag, name, write } => {
                let ask = volumes::Ask { client: id, tag, write, create: None };
                return self.open_volume(&name, ask);
            }
            Message::NodeStatus { tag, after } => {
                self.survey(id, tag, after);
                return Ok(());
            }
            Message::Identify { tag } => {
                self.answer(id, &Message::Identity { tag, node: self.id });
                return Ok(());
            }
            Message::Shutdown { tag } => {
                self.shut_down(id, tag);
                return Ok(());
            }
            _ => {}
        }
        let held = self.clients.get(&id).and_then(|client| client.held.clone());
        let held = held.ok_or(Violation("a request before OpenVolume"))?;
        let tag = match &message {
            Message::DeleteVolume { tag }
            | Message::RemoveVolume { tag }
            | Message::ReadMeta { tag, .. }
            | Message::WriteMeta { tag, .. }
            | Message::Prepare { tag, .. }
            | Message::Connect { tag, .. }
            | Message::Flush { tag } => *tag,
            _ => return Err(Violation("a message that clients do not send")),
        };
        match message {
            Message::DeleteVolume { .. } => self.delete(id, tag, &held, held.made),
            Message::RemoveVolume { .. } => self.delete(id, tag, &held, held.write),
            Message::ReadMeta { sector, bytes, .. } => {
                self.meta_request(id, tag, (sector, bytes), meta::MetaOp::Read(bytes), &held);
            }
            Message::WriteMeta { sector, bytes, .. } => {
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                self.meta_request(id, tag, (sector, len), meta::MetaOp::Write(bytes), &held);
            }
            Message::Prepare { role, data_sector, params, .. } => {
                return self.prepare(id, tag, (role, data_sector), params, &held);
            }
            Message::Connect { peers, .. } => return self.connect(id, tag, peers),
            _ => {
                let flight = Flight::Flush { client: id, tag };
                self.out.io(flight, held.volume.member, IoOp::Flush);
            }
        }
        Ok(())
    }

    fn open_volume(&mut self, name: &str, ask: volumes::Ask) -> Result<(), Violation> {
        let Some(client) = self.clients.get_mut(&ask.client) else { return Ok(()) };
        if client.held.is_some() || client.asking {
            return Err(Violation("a second volume on one connection"));
        }
        if !valid_volume_name(name) {
            let next = format!(
                "use up to {MAX_NAME_BYTES} letters, digits, dots, hyphens and underscores"
            );
            self.refuse(ask.client, ask.tag, Refusal::new("no volume can be called this", next));
            return Ok(());
        }
        client.asking = true;
        self.ask_volume(name.into(), ask);
        Ok(())
    }

    fn delete(&mut self, id: ClientId, tag: u32, held: &Held, may: bool) {
        let piped = self.clients.get(&id).is_some_and(|client| client.pipe.is_some());
        if !may {
            let why = Refusal::new("this connection did not make the volume", "it stays");
            self.refuse(id, tag, why);
        } else if piped || self.out.uses(id) {
            self.refuse_busy(id, tag, Refusal::new("the volume is in use", "stop the array first"));
        } else {
            self.delete_volume(id, tag, held);
        }
    }

    fn meta_request(
        &mut self,
        id: ClientId,
        tag: u32,
        (sector, bytes): (u64, u32),
        op: meta::MetaOp,
        held: &Held,
    ) {
        let whole = bytes > 0
            && bytes <= meta::MAX_META_BYTES
            && u64::from(bytes).is_multiple_of(SECTOR_BYTES);
        if !whole || !within(sector, bytes, held.volume.bytes) {
            let size = held.volume.bytes;
            let reason = format!(
                "{bytes} bytes at sector {sector} are no metadata of a volume of {size} bytes"
            );
            return self.refuse(id, tag, Refusal::new(reason, "use up to 4096, whole sectors"));
        }
        if matches!(op, meta::MetaOp::Write(_)) && !held.write {
            let why = Refusal::new("the volume is open for reading", "open it for writing");
            return self.refuse(id, tag, why);
        }
        self.ask_meta(meta::Ask { client: id, tag, sector, op });
    }

    fn prepare(
        &mut self,
        id: ClientId,
        tag: u32,
        (role, data_sector): (u16, u64),
        params: Params,
        held: &Held,
    ) -> Result<(), Violation> {
        let Some(client) = self.clients.get(&id) else { return Ok(()) };
        let peer = client.peer.filter(|_| client.pipe.is_none());
        let peer = peer.ok_or(Violation("a second pipeline on one connection"))?;
        if held.write && client.vote.is_none_or(|(_, granted)| granted != params.epoch) {
            return Err(Violation("a pipeline of an epoch that was not granted"));
        }
        match self.set_up((id, peer), role, data_sector, params, held) {
            Ok(pipe) => {
                self.out.admit(peer, pipe.window());
                self.sessions.insert(params.session, id);
                if let Some(client) = self.clients.get_mut(&id) {
                    client.epoch = client.epoch.max(params.epoch);
                    client.pipe = Some(pipe);
                }
                if held.write {
                    self.look_for_journal(id, tag, held.volume.bytes);
                } else {
                    self.prepared(id, tag, None);
                }
            }
            Err(why) => self.refuse(id, tag, why),
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
        let bytes = pipeline.ring_bytes(role);
        let ring = self.rings.take(bytes).map_err(|free| {
            Refusal::new(
                format!("a ring of {bytes} bytes is needed and {free} are free"),
                "start the node with a larger --ring",
            )
        })?;
        let place = (held.volume.member, data_sector, held.write);
        Ok(Pipe::new(client, role, place, ring, pipeline))
    }

    fn connect(
        &mut self,
        id: ClientId,
        tag: u32,
        peers: Vec<PeerAddress>,
    ) -> Result<(), Violation> {
        let Some(client) = self.clients.get_mut(&id) else { return Ok(()) };
        let pipe = client.pipe.as_mut().ok_or(Violation("Connect before Prepare"))?;
        // Who only reads has no use for it, and may not send this node anywhere.
        if !pipe.write || peers.iter().any(|peer| peer.address.len() > MAX_ADDRESS_BYTES) {
            return Err(Violation("a Connect that no array needs"));
        }
        let mut roles: Vec<u16> = peers.iter().map(|peer| peer.role).collect();
        roles.sort_unstable();
        let twice = roles.windows(2).any(|pair| pair[0] == pair[1]);
        let stranger = |&role: &u16| role == pipe.role || role >= pipe.pipeline.params().nodes;
        if twice || roles.iter().any(stranger) || pipe.connecting.is_some() {
            return Err(Violation("a Connect that names the wrong nodes"));
        }
        pipe.connecting = Some(tag);
        for PeerAddress { role, address, ring } in peers {
            let neighbour = &mut pipe.neighbours[usize::from(role)];
            neighbour.told = Some((ring, address.clone()));
            if !matches!(neighbour.link, Link::Absent | Link::Lost) {
                continue;
            }
            neighbour.link = Link::Absent;
            if role > pipe.role {
                let peer = PeerId(self.next_peer);
                self.next_peer = (self.next_peer + 1) % PeerId::FIRST_ACCEPTED;
                neighbour.link = Link::Dialing(peer);
                self.conns.insert(peer, Conn::Dialing(id, role));
                self.out.push(Action::Fabric(FabricOp::Connect { peer, address }));
            }
        }
        self.check_connected(id);
        Ok(())
    }

    /// Answers `Connect` when all nodes that it names are there.
    fn check_connected(&mut self, id: ClientId) {
        let pipe = self.clients.get_mut(&id).and_then(|client| client.pipe.as_mut());
        let Some(pipe) = pipe else { return };
        let mut told = pipe.neighbours.iter().filter(|neighbour| neighbour.told.is_some());
        if told.all(|neighbour| matches!(neighbour.link, Link::Up(_)))
            && let Some(tag) = pipe.connecting.take()
        {
            self.answer(id, &Message::Ok { tag });
        }
    }

    /// A connection that we asked for stands.
    pub(super) fn connected(&mut self, peer: PeerId) {
        let Some(&Conn::Dialing(id, role)) = self.conns.get(&peer) else { return };
        let pipe = self.clients.get_mut(&id).and_then(|client| client.pipe.as_mut());
        let Some(pipe) = pipe else { return };
        self.conns.insert(peer, Conn::Node(id, role));
        pipe.neighbours[usize::from(role)].link = Link::Up(peer);
        let session = pipe.pipeline.params().session;
        self.out.admit(peer, pipe.window());
        self.out.send(peer, pipe.epoch(), &Message::Join { session, role: pipe.role });
        self.check_connected(id);
    }

    /// Another node says which pipeline it belongs to.
    fn join(&mut self, peer: PeerId, session: u64, role: u16) -> Result<(), Violation> {
        let stranger = Violation("a node that no pipeline waits for");
        let id = self.sessions.get(&session).copied().ok_or(stranger)?;
        let client = self.clients.get_mut(&id).filter(|client| client.is_here());
        let pipe = client.and_then(|client| client.pipe.as_mut()).ok_or(stranger)?;
        // One that comes back may be here before the client has told of it.
        let link = pipe.neighbours.get(usize::from(role)).map(|neighbour| neighbour.link);
        if role >= pipe.role || !matches!(link, Some(Link::Absent | Link::Lost)) {
            return Err(stranger);
        }
        pipe.neighbours[usize::from(role)].link = Link::Up(peer);
        self.out.admit(peer, pipe.window());
        self.conns.insert(peer, Conn::Node(id, role));
        self.check_connected(id);
        Ok(())
    }
}
