//! Listeners and connections of the NBD export: who has something to do, and how much memory each
//! client may hold, so that a slow one does not stand in the way of the others.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use braid_array::{Instant, Request, RequestError};
use rustix::io::Errno;
use rustix::net::{Shutdown, sockopt};

use super::connection::{Connection, INPUT_BYTES};
use super::session::{Export, Session};
use crate::driver::{Op, Outgoing};
use crate::engine::core::Core;
use crate::slab::Slab;
use crate::token::{JobRef, Token};
use crate::users::User;

/// What one client may hold of the arena, however few there are.
const MAX_HELD_BYTES: u64 = 16 << 20;
/// What every client can count on; the number of clients is limited accordingly.
const MIN_HELD_BYTES: u64 = 2 << 20;
/// A Unix socket takes this much of a reply at once; by default it is about 200 KiB.
const UNIX_SEND_BYTES: usize = 4 << 20;
/// When the system is out of descriptors or memory, how long until the next try.
const ACCEPT_RETRY_MILLIS: u64 = 100;

/// A listening socket for NBD clients.
#[derive(Debug)]
pub enum Listener {
    /// Unix.
    Unix(UnixListener),
    /// TCP.
    Tcp(TcpListener),
}

#[derive(Debug)]
struct Listening {
    socket: Arc<OwnedFd>,
    tcp: bool,
    export: Arc<Export>,
    /// Accepting failed; try again then.
    retry_at: Option<Instant>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Server {
    listening: Vec<Listening>,
    connections: Slab<Option<Connection>>,
    /// Connections with something to do.
    busy: Vec<u32>,
    /// Connections with something to send, perhaps.
    to_flush: Vec<u32>,
    closing: bool,
}

impl Server {
    /// Adds a socket to accept clients on.
    ///
    /// # Errors
    /// When the socket cannot be set up.
    pub(crate) fn listen(&mut self, listener: Listener, export: Export) -> io::Result<()> {
        let (socket, tcp) = match listener {
            Listener::Unix(socket) => (OwnedFd::from(socket), false),
            Listener::Tcp(socket) => (OwnedFd::from(socket), true),
        };
        rustix::io::ioctl_fionbio(&socket, false)?;
        let (socket, export) = (Arc::new(socket), Arc::new(export));
        self.listening.push(Listening { socket, tcp, export, retry_at: None });
        Ok(())
    }

    /// Begins to accept.
    pub(crate) fn start(&mut self, core: &mut Core) {
        for index in 0..self.listening.len() {
            self.accept(core, index);
        }
    }

    fn accept(&mut self, core: &mut Core, index: usize) {
        let listening = &mut self.listening[index];
        listening.retry_at = None;
        let socket = Arc::clone(&listening.socket);
        let token = Token::Accept(u32::try_from(index).expect("a few listeners"));
        core.driver.start(token, Op::Accept { socket });
    }

    /// An accept has ended.
    pub(crate) fn accepted(
        &mut self,
        core: &mut Core,
        now: Instant,
        index: u32,
        accepted: Result<OwnedFd, Option<Errno>>,
    ) {
        if self.closing {
            return;
        }
        match accepted {
            Ok(socket) => {
                self.greet(core, index as usize, socket);
                self.accept(core, index as usize);
            }
            Err(Some(Errno::CONNABORTED)) => self.accept(core, index as usize),
            Err(_) => {
                let retry_at = now.plus_millis(ACCEPT_RETRY_MILLIS);
                self.listening[index as usize].retry_at = Some(retry_at);
            }
        }
    }

    /// When `tick` has to be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.listening.iter().filter_map(|listening| listening.retry_at).min()
    }

    /// Tries again to accept where that is due.
    pub(crate) fn tick(&mut self, core: &mut Core, now: Instant) {
        for index in 0..self.listening.len() {
            if self.listening[index].retry_at.is_some_and(|at| at <= now) && !self.closing {
                self.accept(core, index);
            }
        }
    }

    /// Takes a client in, or hangs up when there are too many.
    fn greet(&mut self, core: &mut Core, index: usize, socket: OwnedFd) {
        let most = core.arena.request_bytes() / MIN_HELD_BYTES;
        if self.connections.len() as u64 >= most.saturating_sub(1).max(1) {
            return;
        }
        let Some(input) = core.arena.allocate(INPUT_BYTES) else { return };
        let listening = &self.listening[index];
        // Both are for speed only.
        let _ = if listening.tcp {
            sockopt::set_tcp_nodelay(&socket, true)
        } else {
            sockopt::set_socket_send_buffer_size_force(&socket, UNIX_SEND_BYTES)
                .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, UNIX_SEND_BYTES))
        };
        let export = Arc::clone(&listening.export);
        let at = self.connections.insert(None);
        let connection = Connection::new(at, socket, input, |out| Session::new(export, out));
        self.connections[at] = Some(connection);
        self.list(at);
    }

    fn connection(&mut self, index: u32) -> &mut Connection {
        self.connections[index].as_mut().expect("filled right after it was inserted")
    }

    fn list(&mut self, index: u32) {
        let connection = self.connection(index);
        if !connection.listed {
            connection.listed = true;
            self.busy.push(index);
        }
    }

    /// A receive has ended.
    pub(crate) fn received(&mut self, core: &mut Core, index: u32, result: Result<u32, Errno>) {
        self.connection(index).received(core, result);
        self.list(index);
    }

    /// A send has ended.
    pub(crate) fn sent(
        &mut self,
        core: &mut Core,
        index: u32,
        result: Result<u32, Errno>,
        message: Option<Box<Outgoing>>,
    ) {
        self.connection(index).sent(core, result, message.unwrap_or_default());
        self.list(index);
    }

    /// A request is done.
    pub(crate) fn completed(
        &mut self,
        core: &mut Core,
        job: JobRef,
        request: Request,
        result: Result<(), RequestError>,
    ) {
        self.connection(job.connection).completed(core, job, request, result);
        self.list(job.connection);
    }

    /// Lets every connection that has something to do go on.
    pub(crate) fn work(&mut self, core: &mut Core) {
        while let Some(index) = self.busy.pop() {
            self.connection(index).listed = false;
            self.retry(core, index);
        }
    }

    /// Lets one connection go on.
    pub(crate) fn retry(&mut self, core: &mut Core, index: u32) {
        let limit = core.arena.request_bytes() / self.connections.len().max(1) as u64;
        let limit = limit.clamp(MIN_HELD_BYTES, MAX_HELD_BYTES);
        self.connection(index).advance(core, limit);
        self.to_flush.push(index);
    }

    /// Sends replies, and parts with connections that are over. True when that gave memory back.
    pub(crate) fn flush(&mut self, core: &mut Core) -> bool {
        let mut freed = false;
        while let Some(index) = self.to_flush.pop() {
            let Some(Some(_)) = self.connections.get(index) else { continue };
            let connection = self.connection(index);
            connection.flush(core);
            if connection.finished() && !connection.listed {
                let connection = self.connections.remove(index);
                connection.expect("looked at above").dissolve(core);
                freed = true;
            }
        }
        freed
    }

    /// The clients that use the array; not those that are still asking what there is.
    pub(crate) fn clients(&self) -> Vec<User> {
        let connections = self.connections.indices().into_iter();
        let connections = connections.filter_map(|index| self.connections[index].as_ref());
        connections.filter(|client| client.uses_array()).map(Connection::peer).collect()
    }

    /// Accepts no more clients and takes no more commands.
    pub(crate) fn close(&mut self, core: &mut Core) {
        self.closing = true;
        for listening in &self.listening {
            // Ends the accept in flight.
            let _ = rustix::net::shutdown(&listening.socket, Shutdown::Both);
        }
        for index in self.connections.indices() {
            self.connection(index).close(core);
            self.list(index);
        }
    }

    /// Gives up all clients that are left.
    pub(crate) fn disconnect(&mut self, core: &mut Core) {
        for index in self.connections.indices() {
            self.connection(index).break_off(core);
            self.list(index);
        }
    }
}
