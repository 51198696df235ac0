//! Connections that have not come to commands yet. No I/O.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_array::Instant;
use rustix::net::{getpeername, sockopt};

/// A handshake that has not ended by then is not going to.
pub(super) const HANDSHAKE_MILLIS: u64 = 10_000;
/// Handshakes at the same time.
const MAX_HANDSHAKES: usize = 16;

/// Origin of a client, by which room is shared: a user of this machine, or another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientOrigin {
    User(u32),
    Machine(IpAddr),
    Unknown,
}

impl ClientOrigin {
    /// Returns the origin of the client at the other end of a socket.
    pub(super) fn of(socket: impl AsFd, tcp: bool) -> Self {
        if !tcp {
            let user = sockopt::socket_peercred(&socket).map(|cred| cred.uid.as_raw());
            return user.map_or(Self::Unknown, Self::User);
        }
        let address = getpeername(&socket).ok().flatten();
        let address = address.and_then(|address| SocketAddr::try_from(address).ok());
        address.map_or(Self::Unknown, |address| Self::Machine(address.ip()))
    }
}

#[derive(Debug)]
struct Handshake {
    connection: usize,
    origin: ClientOrigin,
    until: Instant,
}

/// Handshake queue: the connections whose handshake is not over, the oldest first, at most 16 and
/// each until its time is over. A connection [enters](Self::enter) when it is accepted and
/// [leaves](Self::leave) when it has come to commands or is over; [`overdue`](Self::overdue) takes
/// out a connection whose time is over. When there are too many, the origin with the most of them
/// loses its oldest.
#[derive(Debug, Default)]
pub(super) struct HandshakeQueue(VecDeque<Handshake>);

impl HandshakeQueue {
    /// Lets a connection in. Returns the connection to disconnect for it, if the queue is full: the
    /// oldest one of the origin with the most connections. So a crowd makes room for itself.
    pub(super) fn enter(
        &mut self,
        connection: usize,
        origin: ClientOrigin,
        until: Instant,
    ) -> Option<usize> {
        let mut gone = None;
        if self.0.len() >= MAX_HANDSHAKES {
            let crowd =
                |of: ClientOrigin| self.0.iter().filter(|handshake| handshake.origin == of).count();
            let oldest_first = (0..self.0.len()).rev();
            let index = oldest_first.max_by_key(|&index| crowd(self.0[index].origin));
            gone =
                index.and_then(|index| self.0.remove(index)).map(|handshake| handshake.connection);
        }
        self.0.push_back(Handshake { connection, origin, until });
        gone
    }

    /// Removes a connection that has come to commands, or is over. Does nothing if it is not in the
    /// queue.
    pub(super) fn remove(&mut self, connection: usize) {
        self.0.retain(|handshake| handshake.connection != connection);
    }

    /// Returns the time at which the oldest handshake is overdue.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.front().map(|handshake| handshake.until)
    }

    /// Takes out a connection whose time is over.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<usize> {
        let due = self.0.front().is_some_and(|handshake| handshake.until <= now);
        let handshake = if due { self.0.pop_front() } else { None };
        handshake.map(|handshake| handshake.connection)
    }
}

/// The origins of all clients that use the array, by whichever of its servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Present(Arc<Mutex<Vec<ClientOrigin>>>);

impl Present {
    fn origins(&self) -> MutexGuard<'_, Vec<ClientOrigin>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of clients of this origin.
    pub(super) fn count(&self, origin: ClientOrigin) -> usize {
        self.origins().iter().filter(|of| **of == origin).count()
    }

    /// A client has come to commands.
    pub(super) fn enter(&self, origin: ClientOrigin) {
        self.origins().push(origin);
    }

    /// Removes a client of this origin.
    pub(super) fn leave(&self, origin: ClientOrigin) {
        let mut origins = self.origins();
        if let Some(at) = origins.iter().position(|of| *of == origin) {
            origins.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_makes_room_for_itself() {
        let machine = |last| ClientOrigin::Machine(IpAddr::from([10, 0, 0, last]));
        let mut handshakes = HandshakeQueue::default();
        assert_eq!(handshakes.enter(100, machine(1), Instant(5)), None);
        for connection in 0..15 {
            assert_eq!(handshakes.enter(connection, machine(2), Instant(6)), None);
        }
        for connection in 15..1000 {
            let gone = handshakes.enter(connection, machine(2), Instant(6));
            assert_eq!(gone, Some(connection - 15), "the oldest of the crowd");
        }
        assert_eq!(handshakes.deadline(), Some(Instant(5)));
        assert_eq!(handshakes.overdue(Instant(4)), None);
        assert_eq!(handshakes.overdue(Instant(5)), Some(100));
        assert_eq!(handshakes.overdue(Instant(5)), None);
        handshakes.remove(985);
        assert_eq!(handshakes.overdue(Instant(6)), Some(986));
    }
}
