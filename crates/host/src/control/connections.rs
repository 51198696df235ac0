//! The connections to a control socket: how many there may be, and which of them gives way.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Limit on connections. A new one replaces the one that has been idle for longest; when all are at
/// work, the new one is turned away.
const MAX_CONNECTIONS: usize = 32;
/// Limit on readers of the content, which may take any time. Room is left for other commands.
pub(super) const MAX_READERS: usize = 24;

/// The open connections to one control socket, shared by their threads: at most 32, and for each
/// whether it is idle, at a command, or reading the array's content (at most 24).
/// [`enter`](Self::enter) takes one in, or fails with `ResourceBusy` when all others are at work;
/// the [`ConnectionSlot`] that it returns frees the place when dropped.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<ConnectionState>);

#[derive(Debug, Default)]
struct ConnectionState {
    /// Counter of the clients' actions, by which the latest one is known.
    clock: u64,
    open: Vec<OpenConnection>,
}

#[derive(Debug)]
struct OpenConnection {
    id: u64,
    stream: UnixStream,
    doing: Doing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Idle since then.
    Nothing(u64),
    /// A command.
    Something,
    /// Reads the array's content.
    Reading,
}

impl Doing {
    const fn idle_since(self) -> Option<u64> {
        match self {
            Self::Nothing(since) => Some(since),
            Self::Something | Self::Reading => None,
        }
    }
}

impl Connections {
    /// Takes a connection in. An error when there is no place for it.
    pub(super) fn enter(
        connections: &Arc<Self>,
        stream: &UnixStream,
    ) -> io::Result<ConnectionSlot> {
        let stream = stream.try_clone()?;
        let mut state = connections.lock();
        if state.open.len() >= MAX_CONNECTIONS {
            state.hang_up_on_an_idle_one()?;
        }
        let id = state.tick();
        state.open.push(OpenConnection { id, stream, doing: Doing::Nothing(id) });
        drop(state);
        Ok(ConnectionSlot { connections: Arc::clone(connections), id })
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionState {
    const fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn hang_up_on_an_idle_one(&mut self) -> io::Result<()> {
        let idle = (0..self.open.len()).filter(|at| self.open[*at].doing.idle_since().is_some());
        let oldest = idle.min_by_key(|at| self.open[*at].doing.idle_since());
        let oldest = oldest.ok_or(io::ErrorKind::ResourceBusy)?;
        // Its thread notices, and finds its place taken already.
        let _ = self.open.swap_remove(oldest).stream.shutdown(Shutdown::Both);
        Ok(())
    }
}

/// The place of a connection, until this goes.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    connections: Arc<Connections>,
    id: u64,
}

impl ConnectionSlot {
    /// The connection is at work until the guard goes.
    pub(super) fn begin(&self) -> Busy<'_> {
        self.set(|_| Doing::Something);
        Busy(self)
    }

    /// Returns whether the content may be read. Then the connection counts as a reader.
    pub(super) fn may_read(&self) -> bool {
        let mut state = self.connections.lock();
        let readers = state.open.iter().filter(|open| open.doing == Doing::Reading).count();
        let own = state.open.iter_mut().find(|open| open.id == self.id);
        match own {
            Some(own) if readers < MAX_READERS => {
                own.doing = Doing::Reading;
                true
            }
            _ => false,
        }
    }

    fn set(&self, doing: impl FnOnce(u64) -> Doing) {
        let mut state = self.connections.lock();
        let now = state.tick();
        // It may have had to give way a moment ago.
        if let Some(own) = state.open.iter_mut().find(|open| open.id == self.id) {
            own.doing = doing(now);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.lock().open.retain(|open| open.id != self.id);
    }
}

/// A connection at work.
#[derive(Debug)]
pub(super) struct Busy<'a>(&'a ConnectionSlot);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(Doing::Nothing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_idle_for_longest_gives_way_and_nobody_else() {
        let connections = Arc::new(Connections::default());
        let enter = || {
            let (server, client) = UnixStream::pair().unwrap();
            client.set_nonblocking(true).unwrap();
            (Connections::enter(&connections, &server), client)
        };
        let entered: Vec<_> = (0..MAX_CONNECTIONS).map(|_| enter()).collect();
        let is_open = |at: usize| {
            let read = rustix::io::read(&entered[at].1, &mut [0; 1][..]);
            read == Err(rustix::io::Errno::WOULDBLOCK)
        };
        let slot = |at: usize| entered[at].0.as_ref().unwrap();
        // The first is at work, and the second was.
        let busy = slot(0).begin();
        drop(slot(1).begin());
        let next = enter();
        let open: Vec<_> = (0..MAX_CONNECTIONS).filter(|at| is_open(*at)).collect();
        let expected: Vec<_> = (0..MAX_CONNECTIONS).filter(|at| *at != 2).collect();
        assert_eq!(open, expected);
        // When all are at work, nobody gives way.
        let all: Vec<_> = (3..MAX_CONNECTIONS).map(|at| slot(at).begin()).collect();
        let second = slot(1).begin();
        let last = next.0.as_ref().unwrap().begin();
        assert_eq!(enter().0.unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop((busy, all, second, last));
        assert!(enter().0.is_ok());
    }
}
