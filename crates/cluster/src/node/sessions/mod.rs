//! Connections: their peers, and the messages on them.

mod limit;
mod survey;

use std::collections::BTreeMap;

use braid_array::fabric::PeerId;
use braid_array::{Instant, Refusal, Role};

use self::limit::{Denied, beyond, denied};
pub(super) use self::survey::{NodeFacts, node_info};
use super::ids::{ArrayId, ClientId, Violation};
use super::out::{NodeOut, refused};
use crate::ids::Epoch;
use crate::set::Set;
use crate::wire::Message;

/// Tag of a refusal that answers no request, but tells why the connection ends. A client sends one
/// when it does not take the node back.
pub const PARTING_TAG: u32 = u32::MAX;

/// Peer at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conn {
    /// No message that counts has come yet. The array, if the peer's key is limited to one.
    New(Option<ArrayId>),
    /// A client.
    Client(ClientId),
    /// A node that this one connects to, for a client's pipeline: which neighbour it is.
    Dialing(ClientId, Role),
    /// A node of a client's pipeline.
    Node(ClientId, Role),
}

/// Message that has come on a connection.
#[derive(Debug)]
pub(super) enum Heard {
    /// A client says this.
    Client { client: ClientId, message: Message },
    /// Another node says which pipeline it belongs to.
    Join { session: u64, array: ArrayId, role: Role },
    /// A slice will not come from this neighbour of a client's pipeline.
    Missing { client: ClientId, neighbour: Role, imm: u32 },
    /// This neighbour relays a client's message.
    Relayed { client: ClientId, neighbour: Role, set: Set },
}

/// Facts about a client from the beginning.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The array that its key is good for, when that is one alone.
    limit: Option<ArrayId>,
    since: Instant,
}

/// The connections of this node, and the clients: each from its first message until it is gone and
/// nothing of it is in flight any more. A connection is [`accept`](Self::accept)ed or
/// [`dialed`](Self::dialed); its messages are [`heard`](Self::heard) until it is
/// [`remove`](Self::remove)d.
#[derive(Debug, Default)]
pub(super) struct ClientSessions {
    conns: BTreeMap<PeerId, Conn>,
    clients: BTreeMap<ClientId, Known>,
    next_client: u32,
}

impl ClientSessions {
    pub(super) fn accept(&mut self, peer: PeerId, limit: Option<ArrayId>) {
        self.conns.insert(peer, Conn::New(limit));
    }

    /// Adds a connection that this node makes to another.
    pub(super) fn dialed(&mut self, peer: PeerId, client: ClientId, neighbour: Role) {
        self.conns.insert(peer, Conn::Dialing(client, neighbour));
    }

    /// Assigns a connection to a neighbour in a client's pipeline.
    pub(super) fn assign(&mut self, peer: PeerId, client: ClientId, neighbour: Role) {
        self.conns.insert(peer, Conn::Node(client, neighbour));
    }

    pub(super) fn conn(&self, peer: PeerId) -> Option<Conn> {
        self.conns.get(&peer).copied()
    }

    /// Removes a connection that is over.
    pub(super) fn remove(&mut self, peer: PeerId) -> Option<Conn> {
        self.conns.remove(&peer)
    }

    pub(super) fn peers(&self) -> Vec<PeerId> {
        self.conns.keys().copied().collect()
    }

    /// Returns whether a client is there, or is gone with something in flight or left.
    pub(super) fn knows(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    /// Removes a client that is gone, and of which nothing is in flight any more.
    pub(super) fn retire(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    /// Returns whether there is no client, nor anything of one.
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Returns the array that a client is limited to.
    pub(super) fn limit_of(&self, client: ClientId) -> Option<ArrayId> {
        self.clients.get(&client)?.limit
    }

    /// Takes a message of a connection; returns `None` when it is dealt with.
    pub(super) fn heard(
        &mut self,
        peer: PeerId,
        bytes: &[u8],
        out: &mut NodeOut,
    ) -> Result<Option<Heard>, Violation> {
        let Some(conn) = self.conn(peer) else { return Ok(None) };
        let decoded = Message::decode(bytes);
        let (epoch, message) = decoded.map_err(|_| Violation("a message that means nothing"))?;
        let limit = match conn {
            Conn::New(limit) => limit,
            Conn::Client(client) => self.limit_of(client),
            Conn::Dialing(..) | Conn::Node(..) => None,
        };
        if let Some(array) = limit
            && let Some(denied) = denied(&array, &message)
        {
            let Denied::Refuse(tag) = denied else {
                return Err(Violation("a message that the key of one array does not allow"));
            };
            out.send(peer, Epoch::BEFORE_ANY, &refused(tag, false, &beyond(array)));
            return Ok(None);
        }
        let message = match (conn, message) {
            (Conn::Node(client, neighbour), Message::BeginSet { set }) => {
                return Ok(Some(Heard::Relayed { client, neighbour, set }));
            }
            (_, message) => message,
        };
        let client = match (conn, &message) {
            (Conn::Client(client), _) => client,
            (Conn::New(_), &Message::Join { session, role, array }) => {
                return Ok(Some(Heard::Join { session, array, role }));
            }
            (Conn::New(_), message) if begins(message) => self.new_client(peer, limit, out),
            (Conn::New(_), _) => return Err(Violation("a message before OpenVolume")),
            (Conn::Node(client, neighbour), &Message::Missing { imm }) => {
                return Ok(Some(Heard::Missing { client, neighbour, imm }));
            }
            (Conn::Node(..), _) => return Err(Violation("a message that nodes do not send")),
            (Conn::Dialing(..), _) => return Err(Violation("a message too early")),
        };
        out.raise_epoch(client, epoch);
        Ok(Some(Heard::Client { client, message }))
    }

    fn new_client(&mut self, peer: PeerId, limit: Option<ArrayId>, out: &mut NodeOut) -> ClientId {
        let client = ClientId(self.next_client);
        self.next_client += 1;
        out.attach(client, peer);
        self.clients.insert(client, Known { limit, since: out.now });
        self.conns.insert(peer, Conn::Client(client));
        client
    }

    /// Returns the clients from this number on, each with the time of its first message.
    pub(super) fn clients_from(&self, number: u32) -> impl Iterator<Item = (ClientId, Instant)> {
        self.clients.range(ClientId(number)..).map(|(&client, known)| (client, known.since))
    }

    /// Checks the invariants; `leaves` returns whether a client has leftovers.
    pub(super) fn check(
        &self,
        out: &NodeOut,
        leaves: impl Fn(ClientId) -> bool,
    ) -> Result<(), String> {
        for (peer, conn) in &self.conns {
            let known = match conn {
                Conn::New(_) => true,
                Conn::Client(id) => out.peer_of(*id) == Some(*peer),
                Conn::Dialing(id, _) | Conn::Node(id, _) => out.is_here(*id),
            };
            if !known {
                return Err(format!("connection {peer:?} is {conn:?}, which is not there"));
            }
        }
        let kept = |&id: &ClientId| !out.is_here(id) && !out.uses(id) && !leaves(id);
        if self.clients.keys().any(kept) {
            return Err("a client is gone, and what it had is not given back".to_owned());
        }
        Ok(())
    }
}

/// Returns whether a client can begin with this message.
const fn begins(message: &Message) -> bool {
    matches!(
        message,
        Message::Grant { .. }
            | Message::ReadVote { .. }
            | Message::Forget { .. }
            | Message::CreateVolume { .. }
            | Message::OpenVolume { .. }
            | Message::NodeStatus { .. }
            | Message::ListSessions { .. }
            | Message::Identify { .. }
            | Message::Shutdown { .. }
    )
}

/// Tells a connection the reason for its end, and hangs up.
pub(super) fn hang_up(peer: PeerId, why: Violation, out: &mut NodeOut) {
    out.remark("violation", format!("hung up on a connection: {}", why.0));
    let told = Refusal::new(why.0, "use the same version of braid everywhere");
    out.send(peer, Epoch::BEFORE_ANY, &refused(PARTING_TAG, false, &told));
    out.hang_up(peer);
}
