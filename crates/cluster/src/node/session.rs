//! Connections: who is at the other end, where what it says goes, and what its end means.

use braid_array::Refusal;
use braid_array::fabric::{PeerId, Volume};

use super::forget::Search;
use super::ids::{ArrayId, ClientId, Violation};
use super::limit::{Denied, beyond, denied};
use super::orphans::Settling;
use super::out::refused;
use super::pipe::{Link, Pipe};
use super::slot::{Ask, Wanted};
use super::volumes::{Held, Looking};
use super::{Life, Node};
use crate::schedule::Endpoint;
use crate::wire::Message;

/// A refusal with this tag answers no request: it says why the connection ends. A client says so
/// when it does not take the node back.
pub const PARTING_TAG: u32 = u32::MAX;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conn {
    /// Has said nothing yet that counts. Its key may be that of one array.
    New(Option<ArrayId>),
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
    /// The array that its key is good for, when that is one alone.
    pub(super) limit: Option<ArrayId>,
    /// The array that it was granted, and the epoch.
    pub(super) vote: Option<(ArrayId, u32)>,
    pub(super) held: Option<Held>,
    /// Before that, when its key is limited; or while it has the node search its volumes.
    pub(super) looking: Option<Looking>,
    /// While it waits for a vote to be forgotten.
    pub(super) search: Option<Search>,
    /// Waits for a volume.
    pub(super) asking: bool,
    pub(super) pipe: Option<Pipe>,
    /// What becomes of what it has left.
    pub(super) settling: Option<Settling>,
}

impl Client {
    /// What it has open.
    pub(super) fn volume(&self) -> Option<Volume> {
        let looking = || self.looking.as_ref().map(|looking| looking.volume);
        self.held.as_ref().map(|held| held.volume).or_else(looking)
    }

    /// It has prepared slice-sets.
    pub(super) fn holds(&self) -> bool {
        self.vote.is_some() && self.pipe.as_ref().is_some_and(Pipe::holds)
    }
}

impl Node {
    fn held_of(&self, client: ClientId) -> Option<&Held> {
        self.clients.get(&client)?.held.as_ref()
    }

    /// The client is gone, and has left slice-sets of which the next one has to say what becomes
    /// of them.
    pub(super) fn is_orphan(&self, id: ClientId) -> bool {
        !self.out.is_here(id) && self.clients.get(&id).is_some_and(Client::holds)
    }

    /// Ends a connection, telling why.
    pub(super) fn part_with(&mut self, peer: PeerId, why: Violation) {
        self.out.remark("violation", format!("hung up on a connection: {}", why.0));
        let told = Refusal::new(why.0, "use the same version of braid everywhere");
        self.out.send(peer, 0, &refused(PARTING_TAG, false, &told));
        self.out.hang_up(peer);
        self.lost(peer, why.0);
    }

    /// A connection is over.
    pub(super) fn lost(&mut self, peer: PeerId, reason: &str) {
        match self.conns.remove(&peer) {
            None | Some(Conn::New(_)) => {}
            Some(Conn::Client(client)) => {
                let pipe = self.clients.get(&client).and_then(|client| client.pipe.as_ref());
                if let (Some(_), Some(held)) = (pipe, self.held_of(client)) {
                    let text = format!("the client of volume {} is gone: {reason}", held.name);
                    self.out.remark("client", text);
                }
                self.end(client);
            }
            Some(Conn::Dialing(client, role) | Conn::Node(client, role)) => {
                let Some(known) = self.clients.get_mut(&client) else { return };
                let limited = known.limit.is_some();
                let Some(pipe) = known.pipe.as_mut() else { return };
                pipe.lost(role, &mut self.out);
                let told = &pipe.neighbours[usize::from(role)].told;
                let named = pipe.connecting.take_if(|(_, roles)| roles.contains(&role));
                if let (Some((_, address)), Some((tag, _))) = (told, named) {
                    let failed = format!("cannot connect to node {address}");
                    let full = format!("{failed}: {reason}");
                    // It is not to find out what listens where.
                    let why = match limited {
                        false => Refusal::new(
                            full,
                            "check that it runs and can be reached from the other nodes",
                        ),
                        true => {
                            self.out.remark("neighbour", full);
                            Refusal::new(failed, "see why in the log of the node that tried")
                        }
                    };
                    self.out.refuse(client, tag, why);
                }
                self.beside_lost(client, role);
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
        self.out.detach(id);
        self.meta.forget(id);
        for neighbour in client.pipe.iter().flat_map(|pipe| &pipe.neighbours) {
            if let Link::Up(peer) | Link::Dialing(peer) = neighbour.link {
                self.conns.remove(&peer);
                self.out.hang_up(peer);
            }
        }
        self.run_ready(id);
    }

    /// Takes leave of a client that is gone, once nothing uses its memory and its volume, unless it
    /// has left what the next one decides about.
    pub(super) fn run_ready(&mut self, id: ClientId) {
        if self.out.is_here(id) || self.out.uses(id) || !self.clients.contains_key(&id) {
            return;
        }
        self.go_on_granting();
        let serving = matches!(self.life, Life::Serving);
        if serving && self.is_orphan(id) {
            return;
        }
        let Some(client) = self.clients.remove(&id) else { return };
        if let Some(pipe) = client.pipe {
            self.give_ring(pipe.ring);
            if let Some(journal) = &pipe.journal {
                self.give_ring(journal.pages);
            }
            self.sessions.remove(&pipe.pipeline.params().session);
            if let Some((array, _)) = client.vote.filter(|_| pipe.write) {
                self.votes.keep_leftovers(array, pipe.leftovers());
            }
        }
        let looking = client.looking.map(|looking| looking.name);
        if let Some(name) = client.held.map(|held| held.name).or(looking) {
            self.release_volume(&name, id);
        }
    }

    /// The array that whoever is at the other end is limited to.
    fn limit_of(&self, conn: Conn) -> Option<ArrayId> {
        match conn {
            Conn::New(limit) => limit,
            Conn::Client(id) => self.clients.get(&id)?.limit,
            Conn::Dialing(..) | Conn::Node(..) => None,
        }
    }

    /// Answers what a limited client may not say.
    fn deny(&mut self, peer: PeerId, array: ArrayId, denied: Denied) -> Result<(), Violation> {
        let Denied::Refuse(tag) = denied else {
            return Err(Violation("a message that the key of one array does not allow"));
        };
        self.out.send(peer, 0, &refused(tag, false, &beyond(array)));
        Ok(())
    }

    pub(super) fn message(&mut self, peer: PeerId, bytes: &[u8]) {
        let Some(&conn) = self.conns.get(&peer) else { return };
        let said = Message::decode(bytes).map_err(|_| Violation("a message that means nothing"));
        let result = said.and_then(|(epoch, message)| {
            let limit = self.limit_of(conn);
            let denied = limit.and_then(|array| Some((array, denied(&array, &message)?)));
            if let Some((array, denied)) = denied {
                return self.deny(peer, array, denied);
            }
            match conn {
                Conn::New(_) => self.first_message(peer, epoch, message),
                Conn::Client(client) => self.client_message(client, epoch, message),
                Conn::Node(client, role) => match message {
                    Message::Missing { imm } if !self.is_beside(client, role) => {
                        self.slice(client, Endpoint::Node(role), imm, false)
                    }
                    _ => Err(Violation("a message that nodes do not send")),
                },
                Conn::Dialing(..) => Err(Violation("a message too early")),
            }
        });
        if let Err(violation) = result {
            self.part_with(peer, violation);
        }
    }

    /// Something was put into our arena.
    pub(super) fn placed(&mut self, peer: PeerId, imm: u32) {
        let Some(&conn) = self.conns.get(&peer) else { return };
        let result = match conn {
            Conn::Client(client) => self.slice(client, Endpoint::Client, imm, true),
            Conn::Node(client, role) if self.is_beside(client, role) => self.taken(client, imm),
            Conn::Node(client, role) => self.slice(client, Endpoint::Node(role), imm, true),
            Conn::New(_) | Conn::Dialing(..) => Err(Violation("a slice too early")),
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
        let pipe = client.pipe.as_mut().ok_or(Violation("a slice before OpenPipeline"))?;
        let result = pipe.arrived(imm, from, placed, &mut self.out);
        match (result, self.out.peer_of(id)) {
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
            Message::Join { session, role, array } => self.join(peer, (session, array), role),
            Message::Grant { .. }
            | Message::ReadVote { .. }
            | Message::Forget { .. }
            | Message::CreateVolume { .. }
            | Message::OpenVolume { .. }
            | Message::NodeStatus { .. }
            | Message::Identify { .. }
            | Message::Shutdown { .. } => {
                let id = ClientId(self.next_client);
                self.next_client += 1;
                let limit = self.conns.get(&peer).and_then(|&conn| self.limit_of(conn));
                self.out.attach(id, peer);
                self.clients.insert(id, Client { limit, ..Client::default() });
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
        self.out.raise_epoch(id, epoch);
        match message {
            Message::Ping { tag } => {
                let storage_silent_ms = self.out.storage_silent_ms();
                self.out.tell(id, &Message::Pong { tag, storage_silent_ms });
                Ok(())
            }
            Message::BeginSet { set } => {
                let pipe =
                    client.pipe.as_mut().ok_or(Violation("a slice-set before OpenPipeline"))?;
                pipe.open(set, &mut self.out)
            }
            Message::Commit { sets } => {
                let early = Violation("Commit before OpenPipeline");
                let pipe = client.pipe.as_mut().ok_or(early)?;
                sets.into_iter()
                    .try_for_each(|(at, generation)| pipe.go(at, generation, &mut self.out))
            }
            Message::Abort { position, generation } => {
                let early = Violation("Abort before OpenPipeline");
                client.pipe.as_mut().ok_or(early)?.drop_set(position, generation, &mut self.out)
            }
            Message::Without { role } => self.without(id, role),
            Message::Refused { tag: PARTING_TAG, reason, .. } => {
                let volume = client.held.as_ref().map(|held| format!("volume {}", held.name));
                let volume = volume.unwrap_or_else(|| "this node".to_owned());
                self.out
                    .remark("refused", format!("an array does not take {volume} back: {reason}"));
                Ok(())
            }
            Message::Read { slot, sector, bytes, to } => {
                self.read(id, slot, Ask { sector, bytes, to, wanted: Wanted::Content })
            }
            Message::Copy { slot, sector, bytes, into } => {
                self.read(id, slot, Ask { sector, bytes, to: 0, wanted: Wanted::Copy(into) })
            }
            Message::Digest { slot, sector, bytes, to } => {
                self.read(id, slot, Ask { sector, bytes, to, wanted: Wanted::Digest })
            }
            request => {
                self.out.begin_request(id)?;
                self.request(id, request)
            }
        }
    }

    fn read(&mut self, id: ClientId, slot: u16, ask: Ask) -> Result<(), Violation> {
        let Some(client) = self.clients.get_mut(&id) else { return Ok(()) };
        let pipe = client.pipe.as_mut().ok_or(Violation("a read before OpenPipeline"))?;
        let end = client.held.as_ref().map_or(0, |held| held.volume.bytes);
        pipe.read(slot, ask, end, &mut self.out)
    }
}
