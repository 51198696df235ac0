//! Answers to clients: their requests are counted here, and answered while they are connected.

use braid_array::Refusal;
use braid_array::fabric::PeerId;

use super::NodeOut;
use crate::ids::Epoch;
use crate::node::STORAGE;
use crate::node::ids::{ClientId, Violation};
use crate::wire::{Message, no_room};

/// Requests of one client that can be under way.
const MAX_REQUESTS: u32 = 256;
/// Characters of a reason or an advice: a stranger's bytes that are part of it may be long.
const MAX_TEXT: usize = 1000;

/// The connection of a client.
#[derive(Debug)]
pub(super) struct Line {
    peer: PeerId,
    /// The highest that the client named.
    epoch: Epoch,
    /// Requests that are not answered yet.
    requests: u32,
}

/// A refusal as a message. `busy`: another client has the object of the request, and may give it
/// back.
pub(crate) fn refused(tag: u32, busy: bool, why: &Refusal) -> Message {
    let short = |text: &str| text.chars().take(MAX_TEXT).collect();
    Message::Refused { tag, busy, reason: short(&why.reason), advice: short(&why.next.advice) }
}

impl NodeOut {
    /// Adds the connection of a client.
    pub(crate) fn attach(&mut self, client: ClientId, peer: PeerId) {
        self.lines.insert(client, Line { peer, epoch: Epoch::BEFORE_ANY, requests: 0 });
    }

    /// Removes the connection of a client: no request of it is answered any more.
    pub(crate) fn detach(&mut self, client: ClientId) {
        self.lines.remove(&client);
    }

    pub(crate) fn is_here(&self, client: ClientId) -> bool {
        self.lines.contains_key(&client)
    }

    pub(crate) fn peer_of(&self, client: ClientId) -> Option<PeerId> {
        self.lines.get(&client).map(|line| line.peer)
    }

    /// Notes the epoch that a client has named.
    pub(crate) fn raise_epoch(&mut self, client: ClientId, epoch: Epoch) {
        if let Some(line) = self.lines.get_mut(&client) {
            line.epoch = line.epoch.max(epoch);
        }
    }

    /// Counts a request that is to be answered.
    pub(crate) fn begin_request(&mut self, client: ClientId) -> Result<(), Violation> {
        let Some(line) = self.lines.get_mut(&client) else { return Ok(()) };
        if line.requests >= MAX_REQUESTS {
            return Err(Violation("too many requests at a time"));
        }
        line.requests += 1;
        Ok(())
    }

    /// Returns whether the latest request of a client is the only one that is not answered.
    pub(crate) fn is_only_request(&self, client: ClientId) -> bool {
        self.lines.get(&client).is_some_and(|line| line.requests <= 1)
    }

    /// Answers a request, if the client is still there.
    pub(crate) fn answer(&mut self, client: ClientId, message: &Message) {
        if let Some(line) = self.lines.get_mut(&client) {
            line.requests = line.requests.saturating_sub(1);
        }
        self.tell(client, message);
    }

    /// Sends a message that answers no request, if the client is still there.
    pub(crate) fn tell(&mut self, client: ClientId, message: &Message) {
        let Some(&Line { peer, epoch, .. }) = self.lines.get(&client) else { return };
        self.send(peer, epoch, message);
    }

    /// Answers that a request is done.
    pub(crate) fn confirm(&mut self, client: ClientId, tag: u32) {
        self.answer(client, &Message::Ok { tag });
    }

    pub(crate) fn refuse(&mut self, client: ClientId, tag: u32, why: Refusal) {
        self.answer(client, &refused(tag, false, &why));
    }

    /// Refuses something that another client has and may give back.
    pub(crate) fn refuse_busy(&mut self, client: ClientId, tag: u32, why: Refusal) {
        self.answer(client, &refused(tag, true, &why));
    }

    /// Answers that a request is done, or that the storage has failed it.
    pub(crate) fn report(&mut self, client: ClientId, tag: u32, ok: bool, failed: &'static str) {
        if ok {
            self.confirm(client, tag);
        } else if self.no_room {
            self.refuse(client, tag, no_room());
        } else {
            self.refuse(client, tag, Refusal::new(failed, STORAGE));
        }
    }
}
