//! The end of connections, of clients, and of everything that these hold.

use braid_array::fabric::PeerId;

use super::ids::{ClientId, Violation};
use super::sessions::{Conn, PARTING_TAG, hang_up};
use super::votes::Grant;
use super::{Life, Node};
use crate::ids::Epoch;
use crate::wire::Message;

/// The kind of remark about a client that is gone and left nothing to do.
pub const CLEAN_END: &str = "client left";

impl Node {
    /// Ends a connection whose peer has violated the protocol.
    pub(super) fn abandon(&mut self, peer: PeerId, why: Violation) {
        hang_up(peer, why, &mut self.out);
        self.lost(peer, why.0);
    }

    /// Handles a connection that is over.
    pub(super) fn lost(&mut self, peer: PeerId, reason: &str) {
        match self.sessions.remove(peer) {
            None | Some(Conn::New(_)) => {}
            Some(Conn::Client(client)) => {
                if self.pipes.has(client)
                    && let Some(held) = self.volumes.held(client)
                {
                    // A stop and the end of an idle client look the same, and harm nothing.
                    let clean = self.volumes.is_clean(client) && !self.pipes.has_leftovers(client);
                    let (kind, left) =
                        if clean { (CLEAN_END, ", and left it clean") } else { ("client", "") };
                    let text =
                        format!("the client of volume {} is gone{left}: {reason}", held.name);
                    self.out.remark(kind, text);
                }
                self.end(client);
            }
            Some(Conn::Dialing(client, neighbour) | Conn::Node(client, neighbour)) => {
                let limited = self.sessions.limit_of(client).is_some();
                if let Some(pipe) = self.pipes.of(client) {
                    pipe.neighbour_lost(neighbour, reason, limited, &mut self.out);
                }
            }
        }
    }

    /// Ends a client that is gone: nothing of it is started any more.
    fn end(&mut self, client: ClientId) {
        self.out.detach(client);
        self.volumes.disconnected(client, self.pipes.has_leftovers(client));
        for peer in self.pipes.disconnect(client, &mut self.out) {
            self.sessions.remove(peer);
        }
        self.retire(client);
    }

    /// Ends the older clients of this array, so that nothing of theirs is taken any more.
    pub(super) fn end_older(&mut self, grant: Grant, newer: ClientId) {
        let older = self.votes.older(grant, newer);
        let mut peers: Vec<PeerId> = older.filter_map(|id| self.out.peer_of(id)).collect();
        peers.sort_unstable();
        for peer in peers {
            let granted = grant.epoch;
            self.out.send(
                peer,
                Epoch::BEFORE_ANY,
                &Message::Outvoted { tag: PARTING_TAG, granted },
            );
            self.out.hang_up(peer);
            self.lost(peer, "a newer client has taken the array over");
        }
    }

    /// Retires a client that is gone, once nothing uses its memory and its volume. A client with
    /// leftovers is kept until the next one has decided about these.
    pub(super) fn retire(&mut self, client: ClientId) {
        if self.out.is_here(client) || !self.sessions.knows(client) || self.out.uses(client) {
            return;
        }
        self.votes.confirm_grants(&mut self.out);
        if matches!(self.life, Life::Serving) && self.pipes.has_leftovers(client) {
            return self.pipes.keep_leftovers(client, &mut self.out);
        }
        self.sessions.retire(client);
        if let Some((array, leftovers)) = self.pipes.close(client, &mut self.out) {
            self.votes.keep_leftovers(array, leftovers);
        }
        self.votes.retire(client);
        self.searches.retire(client);
        self.volumes.release(client, &mut self.out);
    }

    /// Retires a client whose leftovers are resolved, or will never be.
    pub(super) fn resolved(&mut self, orphan: ClientId) {
        self.volumes.resolved(orphan);
        self.retire(orphan);
    }
}
