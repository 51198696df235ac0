//! Listeners and connections of the NBD export: the order of their work, the limits on clients, and
//! the choice of those to disconnect.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use braid_array::{Instant, Request, RequestError};
use rustix::io::Errno;
use rustix::net::{Shutdown, sockopt};
use rustls::ServerConfig;

use super::connection::{ClientConnection, Left, RECEIVE};
use super::devices::SocketDevices;
use super::handshakes::{ClientOrigin, HANDSHAKE_MILLIS, HandshakeQueue, Present};
use super::session::Session;
use crate::arena::MAX_CLIENTS;
use crate::driver::{Completion, Op};
use crate::engine::FAREWELL;
use crate::engine::core::Core;
use crate::engine::export::Export;
use crate::handover::{self, Handover};
use crate::submission::Done;
use crate::token::{ExportId, ExportToken, JobRef, Token};
use crate::users::User;
use slab::Slab;

/// Kind of an accept's token.
const ACCEPT: u8 = 0;
/// Clients of one machine, or of one user of this one.
const MAX_OF_ONE_ORIGIN: usize = MAX_CLIENTS as usize * 3 / 4;
/// Time for which a client may take nothing while others need the memory of its replies.
const SILENCE_MILLIS: u64 = 30_000;
/// A Unix socket takes this much of a reply at once; by default it is about 200 KiB.
const UNIX_SEND_BYTES: usize = 4 << 20;
/// Pause before the next accept when the system is out of descriptors or memory.
const ACCEPT_RETRY_MILLIS: u64 = 100;

/// A listening socket for NBD clients.
#[derive(Debug)]
pub(crate) enum Listener {
    /// Unix.
    Unix(UnixListener),
    /// TCP.
    Tcp(TcpListener),
}

#[derive(Debug)]
struct Listening {
    socket: Arc<OwnedFd>,
    tcp: bool,
    devices: SocketDevices,
    tls: Option<Arc<ServerConfig>>,
    /// Accepting failed; try again then.
    retry_at: Option<Instant>,
}

/// A device that clients are to use no more.
struct Leaving {
    part: String,
    /// Its clients are given up then, unless they have been.
    give_up_at: Option<Instant>,
    done: Done<()>,
}

/// Limits on waiting for clients, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientPatience {
    /// Limit on the handshake.
    pub(crate) handshake: u64,
    /// Limit on taking or sending nothing, while memory is short.
    pub(crate) silence: u64,
}

impl Default for ClientPatience {
    fn default() -> Self {
        Self { handshake: HANDSHAKE_MILLIS, silence: SILENCE_MILLIS }
    }
}

/// The NBD export: its listening sockets, its connections, and the lists of those with work to do
/// or data to send. Order of calls: [`listen`](Self::listen) for each socket; then the engine calls
/// it as an [`Export`], from `start` to `close` and `disconnect`.
///
/// A handshake may take ten seconds. Up to 64 clients use the array, up to 48 of one machine or
/// user; one more is told so. A client may leave its replies unread for any time, as a paused
/// virtual machine does. Only when memory is short, the client that holds most of it is
/// disconnected, if it took nothing for half a minute.
#[derive(Default)]
pub(crate) struct NbdServer {
    /// Name that the engine gave it.
    id: ExportId,
    pub(crate) patience: ClientPatience,
    listening: Vec<Listening>,
    connections: Slab<ClientConnection>,
    handshakes: HandshakeQueue,
    present: Present,
    /// Connections with something to do.
    busy: Vec<usize>,
    /// Connections with something to send, perhaps.
    to_flush: Vec<usize>,
    leaving: Vec<Leaving>,
    /// Name of the export.
    name: String,
    /// Clients left by the previous process, until the server starts.
    inherited: Vec<(OwnedFd, Left)>,
    /// Set while nothing is taken.
    held: bool,
    closing: bool,
}

impl NbdServer {
    /// Creates a server whose clients count together with those of others.
    pub(crate) fn beside(present: &Present) -> Self {
        Self { present: present.clone(), ..Self::default() }
    }

    /// Adds a socket to accept clients on, for these devices; with `tls` only by way of that.
    ///
    /// # Errors
    /// When the socket cannot be set up.
    pub(crate) fn listen(
        &mut self,
        listener: Listener,
        devices: SocketDevices,
        tls: Option<Arc<ServerConfig>>,
    ) -> io::Result<()> {
        let (socket, tcp) = match listener {
            Listener::Unix(socket) => (OwnedFd::from(socket), false),
            Listener::Tcp(socket) => (OwnedFd::from(socket), true),
        };
        rustix::io::ioctl_fionbio(&socket, false)?;
        let socket = Arc::new(socket);
        self.listening.push(Listening { socket, tcp, devices, tls, retry_at: None });
        Ok(())
    }

    /// Takes in the clients that the previous process has left to the export of this name.
    pub(crate) fn inherit(&mut self, name: &str) {
        name.clone_into(&mut self.name);
        let inherited = handover::guests(name).into_iter();
        self.inherited = inherited
            .filter_map(|(socket, state)| Some((socket, serde_json::from_value(state).ok()?)))
            .collect();
    }

    fn accept(&mut self, core: &mut Core, index: usize) {
        let listening = &mut self.listening[index];
        listening.retry_at = None;
        if self.held {
            return;
        }
        let socket = Arc::clone(&listening.socket);
        let token = Token::Export(self.id, ExportToken { kind: ACCEPT, index });
        core.driver.start(token, Op::Accept { socket });
    }

    fn accepted(
        &mut self,
        core: &mut Core,
        index: usize,
        accepted: Result<OwnedFd, Option<Errno>>,
    ) {
        if self.closing {
            return;
        }
        match accepted {
            Ok(socket) => {
                self.greet(core, index, socket);
                self.accept(core, index);
            }
            Err(Some(Errno::CANCELED)) => {}
            Err(Some(Errno::CONNABORTED)) => self.accept(core, index),
            Err(_) => {
                let retry_at = core.now.plus_millis(ACCEPT_RETRY_MILLIS);
                self.listening[index].retry_at = Some(retry_at);
            }
        }
    }

    /// Takes a connection in, or hangs up when there are too many.
    fn greet(&mut self, core: &mut Core, index: usize, socket: OwnedFd) {
        let Some(input) = core.arena.allocate_input() else { return };
        let listening = &self.listening[index];
        let origin = ClientOrigin::of(&socket, listening.tcp);
        // Both are for speed only.
        let _ = if listening.tcp {
            sockopt::set_tcp_nodelay(&socket, true)
        } else {
            sockopt::set_socket_send_buffer_size_force(&socket, UNIX_SEND_BYTES)
                .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, UNIX_SEND_BYTES))
        };
        let devices = listening.devices.clone();
        let tls = listening.tls.clone();
        let new_session = |out: &mut Vec<u8>| Session::new(devices, tls, out);
        let entry = self.connections.vacant_entry();
        let name = (self.id, entry.key());
        entry.insert(ClientConnection::new(name, socket, origin, input, core.now, new_session));
        self.let_in(core, name.1, origin);
    }

    fn let_in(&mut self, core: &mut Core, index: usize, origin: ClientOrigin) {
        if self.held {
            self.connections[index].hold(core);
        }
        self.list(index);
        let until = core.now.plus_millis(self.patience.handshake);
        if let Some(gone) = self.handshakes.enter(index, origin, until) {
            self.hang_up(core, gone);
        }
    }

    /// Goes on with a client of the process before this one, or hangs up.
    fn welcome(&mut self, core: &mut Core, (socket, Left { session, input }): (OwnedFd, Left)) {
        let Some(listening) = self.listening.first() else { return };
        let origin = ClientOrigin::of(&socket, listening.tcp);
        let devices = listening.devices.clone();
        let Some(session) = Session::at(session, devices, listening.tls.clone()) else { return };
        let Some(buffer) = core.arena.allocate_input() else { return };
        let entry = self.connections.vacant_entry();
        let name = (self.id, entry.key());
        let new_session = |_: &mut Vec<u8>| session;
        let connection = ClientConnection::new(name, socket, origin, buffer, core.now, new_session);
        let understood = entry.insert(connection).begin_with(core, &input);
        self.let_in(core, name.1, origin);
        if !understood {
            self.hang_up(core, name.1);
        }
        // Who has come to commands is none of those who may be too many.
        self.work(core);
    }

    fn hang_up(&mut self, core: &mut Core, index: usize) {
        self.connections[index].break_off(core);
        self.list(index);
    }

    /// Removes leaving devices that are no longer used.
    fn part(&mut self) {
        let connections = &self.connections;
        let used = |part: &str| connections.iter().any(|(_, connection)| connection.is_for(part));
        for leaving in self.leaving.extract_if(.., |leaving| !used(&leaving.part)) {
            (leaving.done)(());
        }
    }

    /// Returns whether one more client of this origin may use the array.
    fn has_room(&self, core: &Core, origin: ClientOrigin) -> bool {
        core.arena.has_room() && self.present.count(origin) < MAX_OF_ONE_ORIGIN
    }

    /// Calls `act` for each client of a device.
    fn each_of(&mut self, part: &str, mut act: impl FnMut(&mut ClientConnection)) {
        for (index, connection) in &mut self.connections {
            if connection.is_for(part) {
                act(connection);
                self.busy.extend(connection.list().then_some(index));
            }
        }
    }

    fn list(&mut self, index: usize) {
        self.busy.extend(self.connections[index].list().then_some(index));
    }

    fn advance(&mut self, core: &mut Core, index: usize) {
        if self.connections[index].is_client() {
            self.connections[index].advance(core);
        } else {
            let origin = self.connections[index].origin;
            let room = self.has_room(core, origin);
            self.connections[index].set_room(room);
            self.connections[index].advance(core);
            if self.connections[index].is_client() {
                self.handshakes.remove(index);
                self.present.enter(origin);
            }
        }
        self.to_flush.push(index);
    }
}

impl Export for NbdServer {
    fn start(&mut self, core: &mut Core, id: ExportId) {
        self.id = id;
        for index in 0..self.listening.len() {
            self.accept(core, index);
        }
        for client in std::mem::take(&mut self.inherited) {
            self.welcome(core, client);
        }
    }

    fn start_held(&mut self, core: &mut Core, id: ExportId) {
        self.held = true;
        self.start(core, id);
    }

    fn take_in(&mut self, core: &mut Core, completion: Completion<ExportToken>) {
        let Completion { token: ExportToken { kind, index }, result, message, accepted } =
            completion;
        match kind {
            ACCEPT => return self.accepted(core, index, accepted.ok_or(result.err())),
            RECEIVE => self.connections[index].received(core, result),
            _ => self.connections[index].sent(core, result, message.unwrap_or_default()),
        }
        self.list(index);
    }

    fn completed(
        &mut self,
        core: &mut Core,
        job: JobRef,
        request: Request,
        result: Result<(), RequestError>,
    ) {
        self.connections[job.client].completed(core, job, request, result);
        self.list(job.client);
    }

    fn work(&mut self, core: &mut Core) {
        while let Some(index) = self.busy.pop() {
            self.connections[index].listed = false;
            self.advance(core, index);
        }
    }

    fn receives_write(&self) -> bool {
        self.connections.iter().any(|(_, connection)| connection.receives_write())
    }

    fn flush(&mut self, core: &mut Core) {
        while let Some(index) = self.to_flush.pop() {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            connection.flush(core);
            if connection.finished() && !connection.listed {
                let connection = self.connections.remove(index);
                if connection.is_client() {
                    self.present.leave(connection.origin);
                }
                connection.dissolve(core);
                self.handshakes.remove(index);
            }
        }
        if !self.leaving.is_empty() {
            self.part();
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let retries = self.listening.iter().filter_map(|listening| listening.retry_at);
        let leaving = self.leaving.iter().filter_map(|leaving| leaving.give_up_at);
        retries.chain(leaving).chain(self.handshakes.deadline()).min()
    }

    /// Tries again to accept where that is due, and disconnects clients whose handshake takes too
    /// long.
    fn tick(&mut self, core: &mut Core) {
        for index in 0..self.listening.len() {
            if self.listening[index].retry_at.is_some_and(|at| at <= core.now) && !self.closing {
                self.accept(core, index);
            }
        }
        while let Some(index) = self.handshakes.overdue(core.now) {
            self.hang_up(core, index);
        }
        let due = |at: &mut Instant| *at <= core.now;
        let late = self.leaving.iter_mut().filter_map(|leaving| {
            leaving.give_up_at.take_if(due).is_some().then(|| leaving.part.clone())
        });
        for part in late.collect::<Vec<_>>() {
            self.each_of(&part, |connection| connection.break_off(core));
        }
    }

    /// Disconnects no client while the one disconnected last is not over.
    fn relieve(&mut self, core: &mut Core) -> Option<User> {
        let mut worst = None;
        for (index, client) in &self.connections {
            let bytes = client.common_bytes();
            let broken = client.is_broken();
            if bytes > 0 && broken {
                return None;
            }
            let waits = client.waits_since().map(|since| since.plus_millis(self.patience.silence));
            if bytes > 0 && waits.is_some_and(|until| until <= core.now) {
                worst = worst.max(Some((bytes, index)));
            }
        }
        let (_, index) = worst?;
        let who = self.connections[index].peer();
        self.hang_up(core, index);
        Some(who)
    }

    /// Returns the clients that use the array, without those still in the handshake.
    fn clients(&self) -> Vec<User> {
        let connections = self.connections.iter().map(|(_, connection)| connection);
        connections.filter(|client| client.uses_array()).map(ClientConnection::peer).collect()
    }

    fn client_count(&self) -> Option<(&'static str, usize)> {
        let connections = self.connections.iter().map(|(_, connection)| connection);
        Some(("nbd", connections.filter(|client| client.uses_array()).count()))
    }

    fn clients_of(&self, part: &str) -> Vec<User> {
        let connections = self.connections.iter().map(|(_, connection)| connection);
        let clients = connections.filter(|client| client.is_for(part) && client.uses_array());
        clients.map(ClientConnection::peer).collect()
    }

    fn close_part(&mut self, core: &mut Core, part: &str, done: Done<()>) {
        self.each_of(part, |connection| connection.close(core));
        let give_up_at = Some(core.now.plus_millis(FAREWELL.as_millis() as u64));
        self.leaving.push(Leaving { part: part.to_owned(), give_up_at, done });
    }

    fn hold(&mut self, core: &mut Core) {
        self.held = true;
        for index in 0..self.listening.len() {
            core.driver.cancel(Token::Export(self.id, ExportToken { kind: ACCEPT, index }));
        }
        self.connections.iter_mut().for_each(|(_, connection)| connection.hold(core));
    }

    fn go_on(&mut self, core: &mut Core) {
        self.held = false;
        for index in 0..self.listening.len() {
            self.accept(core, index);
        }
        for (index, connection) in &mut self.connections {
            connection.go_on();
            self.busy.extend(connection.list().then_some(index));
        }
    }

    fn is_held(&self, core: &Core) -> bool {
        let mut connections = self.connections.iter();
        !core.serves(self.id) && connections.all(|(_, connection)| connection.is_held())
    }

    fn cut_off(&mut self, core: &mut Core) {
        for (index, connection) in &mut self.connections {
            if connection.waits_since().is_some() {
                connection.break_off(core);
                self.busy.extend(connection.list().then_some(index));
            }
        }
    }

    /// Hands over all clients except those with TLS, which are disconnected later.
    fn hand_over(&self, core: &Core, to: &mut Handover) -> io::Result<()> {
        for (_, connection) in &self.connections {
            if let Some(left) = connection.left(core) {
                to.give_guest(&self.name, connection.socket()?, &left)?;
            }
        }
        Ok(())
    }

    fn close(&mut self, core: &mut Core) {
        self.closing = true;
        for listening in &mut self.listening {
            listening.retry_at = None;
            // Ends the accept in flight.
            let _ = rustix::net::shutdown(&listening.socket, Shutdown::Both);
        }
        for (index, connection) in &mut self.connections {
            connection.close(core);
            self.busy.extend(connection.list().then_some(index));
        }
    }

    fn disconnect(&mut self, core: &mut Core) {
        for (index, connection) in &mut self.connections {
            connection.break_off(core);
            self.busy.extend(connection.list().then_some(index));
        }
    }

    fn is_over(&self) -> bool {
        self.connections.is_empty()
    }
}
