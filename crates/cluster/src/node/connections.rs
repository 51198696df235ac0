//! Dispatch of connection events to the machines of the node.

use braid_array::Role;
use braid_array::fabric::{FabricEvent, PeerId};

use super::ids::{ClientId, Violation};
use super::sessions::{Conn, Heard};
use super::{Life, Node};
use crate::schedule::Endpoint;

impl Node {
    pub(super) fn fabric(&mut self, event: FabricEvent) {
        match event {
            FabricEvent::Accepted { peer, limit } => match self.life {
                Life::Serving => self.sessions.accept(peer, limit),
                Life::Stopping { .. } | Life::Stopped => self.out.hang_up(peer),
            },
            FabricEvent::Connected { peer } => self.connected(peer),
            FabricEvent::Lost { peer, why } => self.lost(peer, &why.reason),
            FabricEvent::Placed { peer, imm } => {
                if let Err(violation) = self.placed(peer, imm) {
                    self.abandon(peer, violation);
                }
            }
            FabricEvent::Message { peer, bytes } => {
                if let Err(violation) = self.message(peer, &bytes) {
                    self.abandon(peer, violation);
                }
            }
        }
    }

    /// Handles a connection that this node asked for and that now stands.
    fn connected(&mut self, peer: PeerId) {
        let Some(Conn::Dialing(client, neighbour)) = self.sessions.conn(peer) else { return };
        let Some(pipe) = self.pipes.of(client) else { return };
        self.sessions.assign(peer, client, neighbour);
        pipe.established(neighbour, peer, &mut self.out);
    }

    fn message(&mut self, peer: PeerId, bytes: &[u8]) -> Result<(), Violation> {
        match self.sessions.heard(peer, bytes, &mut self.out)? {
            None => Ok(()),
            Some(Heard::Client { client, message }) => self.client_message(client, message),
            Some(Heard::Join { session, array, role }) => {
                let (client, neighbour) =
                    self.pipes.join(session, array, role, peer, &mut self.out)?;
                self.sessions.assign(peer, client, neighbour);
                Ok(())
            }
            Some(Heard::Missing { client, neighbour, imm }) => {
                if self.is_beside(client, neighbour) {
                    return Err(Violation("a message that nodes do not send"));
                }
                self.slice(client, Endpoint::Node(neighbour), imm, false)
            }
            Some(Heard::Relayed { client, neighbour, set }) => {
                if self.is_beside(client, neighbour) {
                    return Err(Violation("a message that nodes do not send"));
                }
                let pipe = self.pipes.opened(client, "a slice-set before OpenPipeline")?;
                let result = pipe.relayed(set, &mut self.out);
                self.blame_client(client, result)
            }
        }
    }

    /// Handles a put into the arena of this node.
    fn placed(&mut self, peer: PeerId, imm: u32) -> Result<(), Violation> {
        match self.sessions.conn(peer) {
            None => Ok(()),
            Some(Conn::Client(client)) => self.slice(client, Endpoint::Client, imm, true),
            Some(Conn::Node(client, neighbour)) if self.is_beside(client, neighbour) => {
                let pipe = self.pipes.of(client);
                pipe.map_or(Ok(()), |pipe| pipe.copy_placed(imm, &mut self.out))
            }
            Some(Conn::Node(client, neighbour)) => {
                self.slice(client, Endpoint::Node(neighbour), imm, true)
            }
            Some(Conn::New(_) | Conn::Dialing(..)) => Err(Violation("a slice too early")),
        }
    }

    /// Returns whether this neighbour of a client's pipeline is the other node of its role.
    fn is_beside(&mut self, client: ClientId, neighbour: Role) -> bool {
        self.pipes.of(client).is_some_and(|pipe| pipe.is_beside(neighbour))
    }

    /// Handles a slice of a pipeline that has come, or will not. A wrong slice ends the client's
    /// connection, whether the client or another node has sent it.
    fn slice(
        &mut self,
        client: ClientId,
        from: Endpoint,
        imm: u32,
        placed: bool,
    ) -> Result<(), Violation> {
        let pipe = self.pipes.opened(client, "a slice before OpenPipeline")?;
        let result = pipe.arrived(imm, from, placed, &mut self.out);
        if from == Endpoint::Client { result } else { self.blame_client(client, result) }
    }

    /// Ends the connection of a client after a violation by another node of its pipeline, so that
    /// the client learns of it. Returns the violation if the client is gone.
    fn blame_client(
        &mut self,
        client: ClientId,
        result: Result<(), Violation>,
    ) -> Result<(), Violation> {
        if let Err(violation) = result
            && let Some(peer) = self.out.peer_of(client)
        {
            self.abandon(peer, violation);
            return Ok(());
        }
        result
    }
}
