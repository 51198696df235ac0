//! The clients of the two arrays as one machine, [`Arrays`].

use braid_array::action::{Command, CommandId, Event};
use braid_array::fabric::{FabricEvent, FabricOp, PeerId};
use braid_array::request::Full;
use braid_array::{Action, BlockMachine, Buf, Instant, IoId, Machine, Request};

use super::Side;
use crate::failover::FailoverClient;

/// Connections of the new array's client are numbered from here.
pub const NEW_PEERS: u32 = PeerId::FIRST_ACCEPTED / 2;
/// I/O of the old array's client has this in its id.
const OLD_IO: u64 = 1 << 56;

/// The clients of the old and of the new array, whose I/O and connections have ids of their own.
#[derive(Debug)]
pub(super) struct Arrays {
    clients: [FailoverClient; 2],
}

impl Arrays {
    pub(super) const fn new(old: FailoverClient, new: FailoverClient) -> Self {
        Self { clients: [old, new] }
    }

    pub(super) const fn get(&self, side: Side) -> &FailoverClient {
        &self.clients[side as usize]
    }

    const fn get_mut(&mut self, side: Side) -> &mut FailoverClient {
        &mut self.clients[side as usize]
    }

    /// Gives an event to the client that it concerns.
    pub(super) fn handle(&mut self, now: Instant, event: Event) {
        match event {
            Event::Done { io, result } => {
                let (side, io) = asked(io);
                self.get_mut(side).handle(now, Event::Done { io, result });
            }
            Event::Fabric(event) => {
                let side = if peer_of(&event).0 >= NEW_PEERS { Side::New } else { Side::Old };
                self.get_mut(side).handle(now, Event::Fabric(event));
            }
            Event::Tick => self.clients.iter_mut().for_each(|it| it.handle(now, Event::Tick)),
            // Clients load nothing and have no volumes; commands are for one of them.
            Event::Command { .. }
            | Event::Loaded { .. }
            | Event::Survey { .. }
            | Event::Volume { .. } => {}
        }
    }

    pub(super) fn command(&mut self, side: Side, now: Instant, id: CommandId, command: Command) {
        self.get_mut(side).handle(now, Event::Command { id, command });
    }

    pub(super) fn submit(
        &mut self,
        side: Side,
        now: Instant,
        request: Request,
    ) -> Result<(), Full> {
        self.get_mut(side).submit(now, request)
    }

    /// Returns the next action of a client.
    pub(super) fn poll(&mut self, side: Side) -> Option<Action> {
        let tag = if side == Side::Old { OLD_IO } else { 0 };
        let tagged = |io: IoId| IoId(io.0 | tag);
        Some(match self.get_mut(side).poll()? {
            Action::Io { io, member, op } => Action::Io { io: tagged(io), member, op },
            Action::Compute { io, compute } => Action::Compute { io: tagged(io), compute },
            Action::Load { io, buf } => Action::Load { io: tagged(io), buf },
            Action::Abandon { io, buf } => Action::Abandon { io: tagged(io), buf },
            Action::Fabric(FabricOp::Put { io, peer, from, to, imm }) => {
                Action::Fabric(FabricOp::Put { io: tagged(io), peer, from, to, imm })
            }
            other => other,
        })
    }

    pub(super) fn expect_writes(&mut self, more: bool) {
        self.clients.iter_mut().for_each(|client| client.expect_writes(more));
    }

    /// Returns whether nodes are away that either array needs.
    pub(super) fn are_away(&self) -> bool {
        self.clients.iter().any(FailoverClient::is_waiting)
    }

    /// Returns whether nodes have been away for so long that requests fail.
    pub(super) fn have_waited_long(&self) -> bool {
        self.clients.iter().any(FailoverClient::has_waited_long)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.clients.iter().filter_map(Machine::deadline).min()
    }

    pub(super) fn each_unused(&self, found: &mut dyn FnMut(Buf)) {
        self.clients.iter().for_each(|client| client.each_unused(found));
    }

    pub(super) fn invariants(&self) -> Result<(), String> {
        self.clients.iter().try_for_each(Machine::invariants)
    }
}

/// Returns the array whose client has asked for this I/O, and its own id for that.
const fn asked(io: IoId) -> (Side, IoId) {
    if io.0 & OLD_IO == 0 { (Side::New, io) } else { (Side::Old, IoId(io.0 & !OLD_IO)) }
}

/// The connection that the fabric tells of.
const fn peer_of(event: &FabricEvent) -> PeerId {
    match event {
        FabricEvent::Accepted { peer, .. }
        | FabricEvent::Connected { peer }
        | FabricEvent::Lost { peer, .. }
        | FabricEvent::Placed { peer, .. }
        | FabricEvent::Message { peer, .. } => *peer,
    }
}
