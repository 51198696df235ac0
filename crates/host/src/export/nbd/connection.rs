//! One client of the NBD export.

mod answers;
mod commands;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use braid_array::{Buf, Instant, Op, RequestError};
use rustix::io::Errno;
use rustix::net::Shutdown;
use serde::{Deserialize, Serialize};

use super::handshakes::ClientOrigin;
use super::session::{Session, SessionProgress};
use super::tls::{Decrypted, Tls};
use crate::arena::Holder;
use crate::driver::{Op as DriverOp, OutgoingBytes};
use crate::engine::core::Core;
use crate::token::{ExportId, ExportToken, JobRef, Owner, Token};
use crate::users::{Process, User};
use slab::Slab;

/// A message is full with so much. When it is sent its memory is free again and the client has
/// shown that it takes replies, so this is not much.
const MESSAGE_BYTES: u64 = 1 << 20;

/// Kinds of its tokens: a receive or a send.
pub(super) const RECEIVE: u8 = 1;
pub(super) const SEND: u8 = 2;

/// A command under way.
#[derive(Debug)]
struct ServedCommand {
    cookie: u64,
    read: bool,
    /// Flush when it is done, and only then answer.
    then_flush: bool,
    /// Requests in flight.
    pieces: u32,
    /// All its requests have been made.
    issued: bool,
    /// Part of the answer has been given.
    answering: bool,
    error: Option<RequestError>,
}

/// The command whose requests are being made.
#[derive(Clone, Copy, Debug)]
struct Current {
    job: usize,
    offset: u64,
    left: u32,
    transfer: NbdTransfer,
    /// Buffer of a write that is being filled from the socket, and how far it is.
    filling: Option<(Buf, u32)>,
}

#[derive(Clone, Copy, Debug)]
enum NbdTransfer {
    /// A read. With `in_turn`, one piece after the other: simple replies cannot be given in pieces
    /// that come in any order.
    Read {
        in_turn: bool,
    },
    Write {
        fua: bool,
    },
}

/// A connection as one process leaves it to the next.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Left {
    pub(super) session: SessionProgress,
    /// Received and not understood yet.
    pub(super) input: Vec<u8>,
}

/// Reason for which a connection does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Bytes from the client are needed.
    Input,
    /// As much is in flight as the connection may have.
    Own,
}

/// One client: its socket, the bytes received and not yet understood, the commands under way and
/// the replies to be sent. At any time there is at most one receive and one send in flight.
///
/// The handshake lasts until the connection [transmits](Self::transmits); then commands are taken,
/// until it is `closing` (the last replies are still sent) or `broken`. The server calls
/// [`advance`](Self::advance) after each event of the connection, then `flush`, and
/// [`dissolve`](Self::dissolve) when it is [`finished`](Self::finished).
#[derive(Debug)]
pub(super) struct ClientConnection {
    /// The names of the export, and of this in it.
    export: ExportId,
    index: usize,
    socket: Arc<OwnedFd>,
    pub(super) origin: ClientOrigin,
    session: Session,
    /// TLS, once the client asked for it.
    tls: Option<Box<Tls>>,
    /// Receive buffer; `start..end` has not been consumed.
    input: Buf,
    start: u32,
    end: u32,
    jobs: Slab<ServedCommand>,
    current: Option<Current>,
    /// A read in turn is under way: nothing else may be answered meanwhile.
    exclusive: bool,
    /// Memory of its commands and replies, once there may be some.
    holder: Option<Holder>,
    /// Replies as they come.
    out: Box<OutgoingBytes>,
    /// Full messages before that.
    full: VecDeque<Box<OutgoingBytes>>,
    /// Empty messages, to be reused.
    #[expect(clippy::vec_box, reason = "a message keeps its box from send to send")]
    spares: Vec<Box<OutgoingBytes>>,
    /// Time at which the client last took or gave something, or began to be expected to.
    progress_at: Instant,
    receiving: bool,
    sending: bool,
    /// Set while no command is taken, except one of which a part has come.
    held: bool,
    /// No more commands are taken; the last replies are still sent.
    closing: bool,
    /// The socket is of no use any more.
    broken: bool,
    /// Listed by the server among connections with work to do.
    pub(super) listed: bool,
}

impl ClientConnection {
    pub(super) fn new(
        (export, index): (ExportId, usize),
        socket: OwnedFd,
        origin: ClientOrigin,
        input: Buf,
        now: Instant,
        new_session: impl FnOnce(&mut Vec<u8>) -> Session,
    ) -> Self {
        let mut out = Box::<OutgoingBytes>::default();
        let session = new_session(&mut out.bytes);
        Self {
            export,
            index,
            socket: Arc::new(socket),
            origin,
            session,
            tls: None,
            input,
            start: 0,
            end: 0,
            jobs: Slab::default(),
            current: None,
            exclusive: false,
            holder: None,
            out,
            full: VecDeque::new(),
            spares: Vec::new(),
            progress_at: now,
            receiving: false,
            sending: false,
            held: false,
            closing: false,
            broken: false,
            listed: false,
        }
    }

    /// Notes that the connection has work to do. Returns true when it was not listed yet.
    pub(super) const fn list(&mut self) -> bool {
        !std::mem::replace(&mut self.listed, true)
    }

    fn request(&mut self, core: &mut Core, job: usize, op: Op, range: (u64, u32), buf: Buf) {
        self.jobs[job].pieces += 1;
        let owner = Owner::Export(self.export, JobRef { client: self.index, job });
        core.request(op, range.0, range.1.into(), buf, owner);
    }

    /// Memory; without any it goes on when some of its own has been released.
    fn allocate(&mut self, core: &mut Core, len: u32) -> Result<Buf, Stop> {
        let holder = self.holder.as_mut().ok_or(Stop::Own)?;
        core.arena.allocate(holder, len).ok_or(Stop::Own)
    }

    fn release(&mut self, core: &mut Core, buf: Buf) {
        let holder = self.holder.as_mut().expect("whoever has a buffer is a holder");
        core.arena.release(holder, buf);
    }

    /// Moves bytes of the input into a buffer, and returns their number.
    pub(super) fn take_input(&mut self, core: &Core, to: Buf) -> u32 {
        let len = to.len.min(self.end - self.start);
        let memory = core.arena.memory();
        // SAFETY: no receive is in flight, so both buffers are this connection's alone, and they
        // are different allocations.
        let (from, to) = unsafe {
            (memory.bytes(self.input.slice(self.start, len)), memory.bytes_mut(to.slice(0, len)))
        };
        to.copy_from_slice(from);
        self.start += len;
        len
    }

    /// Returns the missing rest of the buffer being filled; empty when none is being filled.
    fn unfilled(&self) -> Buf {
        match self.current.and_then(|current| current.filling) {
            Some((buf, filled)) => buf.slice(filled, buf.len - filled),
            None => self.input.slice(0, 0),
        }
    }

    /// Receives: first the missing rest of the buffer being filled, then more input. Returns true
    /// when some of that has come already.
    pub(super) fn receive(&mut self, core: &mut Core) -> bool {
        let start = self.start as usize;
        let end = self.end as usize;
        if start > 0 {
            // SAFETY: no receive is in flight, the buffer is this connection's alone.
            let input = unsafe { core.arena.memory().bytes_mut(self.input) };
            input.copy_within(start..end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let missing = self.unfilled();
        let room = self.input.slice(self.end, self.input.len - self.end);
        let mut bufs = if missing.len > 0 { [missing, room] } else { [room, room.slice(0, 0)] };
        if let Some(tls) = &mut self.tls {
            match tls.open(core.arena.memory(), bufs) {
                Ok(Decrypted::Bytes(moved)) => {
                    self.took(moved);
                    return true;
                }
                Ok(Decrypted::NeedMore) => bufs = [tls.input(), room.slice(0, 0)],
                Ok(Decrypted::Over) => self.closing = true,
                Err(error) => self.refuse_tls(&error),
            }
            if self.closing {
                self.stop_reading(core);
                return false;
            }
        }
        self.receiving = true;
        let op = DriverOp::Receive { socket: Arc::clone(&self.socket), bufs };
        core.driver.start(self.token(RECEIVE), op);
        false
    }

    /// Notes so many received bytes, first in the buffer being filled.
    fn took(&mut self, moved: u32) {
        let direct = moved.min(self.unfilled().len);
        self.end += moved - direct;
        if let Some(Current { filling: Some((_, filled)), .. }) = &mut self.current {
            *filled += direct;
        }
    }

    /// Starts TLS. Answers so far are sent in the clear; bytes received behind the option are
    /// decrypted.
    pub(super) fn start_tls(&mut self, core: &mut Core) {
        self.full.push_back(std::mem::take(&mut self.out));
        let came = std::mem::take(&mut self.start)..std::mem::take(&mut self.end);
        let Some(input) = core.arena.allocate_input() else { return self.break_off(core) };
        let sealed = std::mem::replace(&mut self.input, input);
        let config = self.session.tls().expect("it is asked for where there is some");
        match Tls::new(config, (sealed, came), self.full.len()) {
            Ok(tls) => self.tls = Some(Box::new(tls)),
            Err(error) => {
                core.arena.release_input(sealed);
                self.refuse_tls(&io::Error::other(error));
                self.break_off(core);
            }
        }
    }

    /// Its certificate is not the right one, or it is no client at all.
    fn refuse_tls(&mut self, error: &io::Error) {
        tracing::warn!("NBD client {} refused: TLS: {error}", self.peer());
        self.closing = true;
    }

    /// Returns whether a command is being received of which a first part has come.
    pub(super) fn receives_write(&self) -> bool {
        self.receiving && (self.unfilled().len > 0 || self.end > self.start)
    }

    /// A receive has ended.
    pub(super) fn received(&mut self, core: &mut Core, result: Result<u32, Errno>) {
        self.receiving = false;
        match result {
            Ok(0) => self.closing = true,
            // Nothing has come, and nothing is to.
            Err(Errno::CANCELED) => {}
            Err(_) => self.break_off(core),
            Ok(moved) => {
                self.progress_at = core.now;
                match &mut self.tls {
                    Some(tls) => tls.received(moved),
                    None => self.took(moved),
                }
            }
        }
        if self.closing {
            self.stop_reading(core);
        }
    }

    const fn token(&self, kind: u8) -> Token {
        Token::Export(self.export, ExportToken { kind, index: self.index })
    }

    /// Takes nothing more. A write whose data did not come is not continued. Not while a receive is
    /// in flight: it may be filling a buffer.
    fn stop_reading(&mut self, core: &mut Core) {
        debug_assert!(!self.receiving);
        self.closing = true;
        let Some(Current { job, filling, .. }) = self.current.take() else { return };
        if let Some((buf, _)) = filling {
            self.release(core, buf);
        }
        self.jobs[job].issued = true;
        if self.jobs[job].pieces == 0 {
            self.jobs.remove(job);
        }
    }

    /// Takes no command until it goes on. Commands in flight are answered.
    pub(super) fn hold(&mut self, core: &mut Core) {
        self.held = true;
        // What fills a buffer goes on until that is full.
        if self.receiving && self.unfilled().len == 0 {
            core.driver.cancel(self.token(RECEIVE));
        }
    }

    /// Takes commands again.
    pub(super) const fn go_on(&mut self) {
        self.held = false;
    }

    /// Returns whether a held connection has nothing in flight.
    pub(super) fn is_held(&self) -> bool {
        let idle = !self.receiving && !self.sending && self.jobs.is_empty();
        let sent = self.broken || self.out.is_empty() && self.full.is_empty();
        idle && sent && self.current.is_none()
    }

    /// Its socket, for another process.
    pub(super) fn socket(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// Returns the progress of the connection, with which another process can go on. `None` where
    /// that is not possible.
    pub(super) fn left(&self, core: &Core) -> Option<Left> {
        if self.closing {
            return None;
        }
        let session = self.session.progress()?;
        let unread = self.input.slice(self.start, self.end - self.start);
        // SAFETY: no receive is in flight, the buffer is this connection's alone.
        let input = unsafe { core.arena.memory().bytes(unread) }.to_vec();
        Some(Left { session, input })
    }

    /// Bytes that another process has received and not understood yet. False when there are too
    /// many of them.
    pub(super) fn begin_with(&mut self, core: &Core, bytes: &[u8]) -> bool {
        let len = u32::try_from(bytes.len()).ok().filter(|len| *len <= self.input.len);
        let Some(len) = len else { return false };
        // SAFETY: no receive is in flight, the buffer is this connection's alone.
        let input = unsafe { core.arena.memory().bytes_mut(self.input.slice(0, len)) };
        input.copy_from_slice(bytes);
        (self.start, self.end) = (0, len);
        true
    }

    /// Takes no more commands; those in flight are still answered.
    pub(super) fn close(&mut self, core: &mut Core) {
        // Whatever receive is in flight ends with "no more bytes".
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Read);
        self.closing = true;
        if !self.receiving {
            self.stop_reading(core);
        }
    }

    /// Gives the client up.
    pub(super) fn break_off(&mut self, core: &mut Core) {
        (self.broken, self.closing) = (true, true);
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        if !self.receiving {
            self.stop_reading(core);
        }
    }

    /// Returns whether the client has come to commands and may send more of them.
    pub(super) const fn uses_array(&self) -> bool {
        self.session.transmits() && !self.closing
    }

    /// Returns whether the client has chosen this device.
    pub(super) fn is_for(&self, name: &str) -> bool {
        self.session.chosen().is_some_and(|device| device.name == name)
    }

    /// Returns the user at the other end.
    pub(super) fn peer(&self) -> User {
        let address = rustix::net::getpeername(&self.socket).ok().flatten();
        match address.and_then(|address| SocketAddr::try_from(address).ok()) {
            Some(address) => User::Peer(address),
            None => Process::at_other_end(&self.socket).map_or(User::Unseen, User::Process),
        }
    }

    /// Returns whether the client has ever come to commands. Then it counts as a client until it is
    /// dissolved.
    pub(super) const fn is_client(&self) -> bool {
        self.holder.is_some()
    }

    /// Tells it whether there is room for one more client.
    pub(super) const fn set_room(&mut self, room: bool) {
        self.session.set_room(room);
    }

    /// Returns the time since which it waits for the client, to take replies or to send the rest of
    /// a write.
    pub(super) const fn waits_since(&self) -> Option<Instant> {
        let filling = matches!(self.current, Some(Current { filling: Some(_), .. }));
        if self.sending || filling { Some(self.progress_at) } else { None }
    }

    /// Returns the bytes that the client holds of the common memory.
    pub(super) fn common_bytes(&self) -> u64 {
        self.holder.as_ref().map_or(0, Holder::common_bytes)
    }

    /// The client has been given up.
    pub(super) const fn is_broken(&self) -> bool {
        self.broken
    }

    /// Returns whether nothing of this connection is in flight, and nothing more will come of it.
    pub(super) fn finished(&self) -> bool {
        let idle = !self.receiving && !self.sending && self.jobs.is_empty();
        let silent = self.tls.as_ref().is_none_or(|tls| !tls.wants_to_send());
        let sent = self.out.is_empty() && self.full.is_empty() && silent;
        idle && self.closing && (self.broken || sent)
    }

    /// Gives its memory back.
    pub(super) fn dissolve(mut self, core: &mut Core) {
        self.stop_reading(core);
        let messages =
            std::mem::take(&mut self.full).into_iter().chain([std::mem::take(&mut self.out)]);
        for message in messages {
            message.buffers().for_each(|buf| self.release(core, buf));
        }
        core.arena.release_input(self.input);
        if let Some(tls) = self.tls.take() {
            core.arena.release_input(tls.input());
        }
        if let Some(holder) = self.holder.take() {
            core.arena.release_holder(holder);
        }
    }
}
