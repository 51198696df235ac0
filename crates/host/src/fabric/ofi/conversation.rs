//! The connection to one peer, as its thread sees it.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use braid_array::action::Event;
use braid_array::fabric::{FabricEvent, MAX_MESSAGE_BYTES};
use braid_array::{IoError, Outcome, Refusal};

use super::domain::{RegisteredRegion, RemoteRegion};
use super::endpoint::{Endpoint, Happened};
use super::ffi;
use super::info::OfiError;
use super::introduction::{Word, read_name, write_name};
use super::link::Link;
use super::outbox::{Counts, MESSAGE_MEMORY_BYTES, Outbox, OutgoingTransfer, inbound_slots, slot};
use crate::arena::Memory;
use crate::system::describe;

/// Interval of checks whether the peer is still there.
const TICK: Duration = Duration::from_millis(100);

/// Interval of checks while data wait for room, and while the connection closes.
pub(super) const SHORT_TICK: Duration = Duration::from_millis(2);

/// Limit on opening, and on closing. Opening a device takes long where many processes share a
/// processor.
const PATIENCE: Duration = Duration::from_secs(15);

const UNREACHABLE: &str = "can be reached by TCP, but not by libfabric; check that the address is \
                           one of its device's";

/// The first message, either way.
const OPENING: &[u8] = b"!";

/// Runs a connection, from the introduction to the end. On a thread of its own.
pub(super) fn run(
    link: &Link,
    arena: impl FnOnce() -> Result<Arc<RegisteredRegion>, Refusal>,
    dialled: bool,
) {
    let converse = |arena| Conversation::open(link, arena, dialled)?.hold();
    let ended = arena().and_then(|arena| converse(arena).map_err(Refusal::plain));
    link.end();
    let _ = link.stream().shutdown(Shutdown::Both);
    let why = ended.err().unwrap_or_else(|| Refusal::plain("it has hung up"));
    link.tell(vec![Event::Fabric(FabricEvent::Lost { peer: link.peer(), why })]);
}

/// One connection over libfabric, from the introduction to the end; its thread owns it, in [`run`].
/// Each side sends its endpoint's address over TCP. The side that dialled sends the first message,
/// the other answers, and with that the connection stands. The TCP connection stays open: on it
/// each side tells the other the key to its window, when the engine admits it, and it ends when the
/// peer does. A side that hangs up tells how much it has sent; the other takes in all of it before
/// it regards the connection as over.
pub(super) struct Conversation<'a> {
    pub(super) link: &'a Link,
    pub(super) endpoint: Arc<Endpoint>,
    /// Window that the peer may put into. Declared behind the endpoint, to be dropped after it.
    pub(super) window: Option<RegisteredRegion>,
    /// Events that were not handled yet.
    pub(super) happened: Vec<Happened>,
    received: Counts,
    /// Time of the last look at the TCP connection.
    pub(super) looked: Instant,
    /// Time since which one side closes.
    leaving: Option<Instant>,
    said_farewell: bool,
    /// Received part of the peer's next word.
    pub(super) word: Vec<u8>,
    pub(super) farewell: Option<Counts>,
    /// Window that the peer lets us put into, until the outbox knows it.
    pub(super) admission: Option<RemoteRegion>,
    /// The peer has closed the TCP connection.
    pub(super) deserted: bool,
}

impl<'a> Conversation<'a> {
    /// Opens the connection and tells the engine.
    ///
    /// # Errors
    /// Reason for the failure, for people.
    fn open(link: &'a Link, arena: Arc<RegisteredRegion>, dialled: bool) -> Result<Self, String> {
        let endpoint = Arc::new(introduce(arena, link.stream())?);
        let mut outbox = Outbox::new(Arc::clone(&endpoint));
        let mut conversation = Self {
            link,
            endpoint,
            window: None,
            happened: Vec::new(),
            received: Counts::default(),
            looked: Instant::now(),
            leaving: None,
            said_farewell: false,
            word: Vec::new(),
            farewell: None,
            admission: None,
            deserted: false,
        };
        if let Err(reason) = conversation.begin(&mut outbox, dialled) {
            conversation.part(outbox);
            return Err(reason);
        }
        link.up(Arc::clone(&conversation.endpoint), outbox);
        let peer = link.peer();
        link.tell(vec![Event::Fabric(if dialled {
            FabricEvent::Connected { peer }
        } else {
            FabricEvent::Accepted { peer, limit: link.limit() }
        })]);
        Ok(conversation)
    }

    fn begin(&mut self, outbox: &mut Outbox, dialled: bool) -> Result<(), String> {
        for number in inbound_slots() {
            self.post_receive(number).map_err(broken)?;
        }
        if dialled {
            outbox.push(OutgoingTransfer::Message(OPENING.to_vec())).map_err(broken)?;
        }
        self.await_opening(outbox)?;
        if !dialled {
            outbox.push(OutgoingTransfer::Message(OPENING.to_vec())).map_err(broken)?;
        }
        Ok(())
    }

    /// Takes in the first message. Other events are left for later.
    fn await_opening(&mut self, outbox: &mut Outbox) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            outbox.work().map_err(broken)?;
            let is_message = |happened: &Happened| matches!(happened, Happened::Received { .. });
            let opening = self.happened.iter().position(is_message);
            if let Some(at) = opening
                && let Happened::Received { number, .. } = self.happened.remove(at)
            {
                self.received.messages += 1;
                return self.post_receive(number as u32).map_err(broken);
            }
            self.look()?;
            if self.link.is_cut() || self.deserted {
                return Err("closes the connection without a word".into());
            }
            if begun.elapsed() > PATIENCE {
                return Err(UNREACHABLE.into());
            }
            self.endpoint.wait(SHORT_TICK, &mut self.happened).map_err(broken)?;
        }
    }

    /// Serves the connection until it is over and closed.
    ///
    /// # Errors
    /// Reason for the end, for people, unless one side hung up.
    fn hold(mut self) -> Result<(), String> {
        let ended = self.converse();
        let outbox = self.link.end().expect("only this thread ends it");
        self.part(outbox);
        ended
    }

    fn converse(&mut self) -> Result<(), String> {
        loop {
            self.take_in()?;
            self.admit()?;
            if let Some(remote) = self.admission.take() {
                self.outbox(|outbox| outbox.admitted(remote));
            }
            let stuck = self.outbox(|outbox| outbox.work().map(|()| outbox.is_stuck()));
            let short = stuck.map_err(broken)? || self.leaving.is_some();
            if short || self.looked.elapsed() >= TICK {
                self.look()?;
            }
            if self.is_over()? {
                return Ok(());
            }
            let limit = if short || self.leaving.is_some() { SHORT_TICK } else { TICK };
            self.endpoint.wait(limit, &mut self.happened).map_err(broken)?;
        }
    }

    /// Ends an operation of the device; returns the answer, if that was a put.
    fn gone(&self, number: usize, result: Result<Outcome, IoError>) -> Option<Event> {
        let put = self.outbox(|outbox| outbox.gone(number));
        put.map(|io| Event::Done { io, result })
    }

    fn outbox<T>(&self, work: impl FnOnce(&mut Outbox) -> T) -> T {
        self.link.outbox(work).expect("only this thread ends it")
    }

    /// Reports events to the engine.
    fn take_in(&mut self) -> Result<(), String> {
        let peer = self.link.peer();
        let mut events = Vec::with_capacity(self.happened.len());
        let mut failed = None;
        for happened in std::mem::take(&mut self.happened) {
            match happened {
                Happened::Placed { imm } => {
                    self.received.puts += 1;
                    events.push(Event::Fabric(FabricEvent::Placed { peer, imm }));
                }
                Happened::Gone { number } => {
                    events.extend(self.gone(number, Ok(Outcome::Done)));
                }
                Happened::Failed { number, sending, error } => {
                    if sending {
                        events.extend(self.gone(number, Err(IoError::GONE)));
                    }
                    failed.get_or_insert(error);
                }
                Happened::Received { number, bytes } => {
                    self.received.messages += 1;
                    if !(1..=MAX_MESSAGE_BYTES).contains(&bytes) {
                        self.link.tell(events);
                        return Err("it sent bytes that mean nothing".into());
                    }
                    let number = number as u32;
                    // SAFETY: the device has filled the slot and is done with it.
                    let bytes =
                        unsafe { self.endpoint.messages().memory().bytes(slot(number, bytes)) };
                    let bytes = bytes.to_vec();
                    events.push(Event::Fabric(FabricEvent::Message { peer, bytes }));
                    self.post_receive(number).map_err(broken)?;
                }
            }
        }
        self.link.tell(events);
        // Whoever sends faster than we work is slowed down: nothing is received meanwhile.
        while self.link.is_to_wait() {
            thread::sleep(SHORT_TICK);
        }
        match failed {
            Some(error) => Err(broken(OfiError::new("an operation failed", error.into()))),
            None => Ok(()),
        }
    }

    fn post_receive(&self, number: u32) -> Result<(), OfiError> {
        let posted = self.endpoint.receive(slot(number, MAX_MESSAGE_BYTES), number as usize)?;
        let full = OfiError::new("fi_recvmsg", (ffi::FI_EAGAIN).into());
        if posted { Ok(()) } else { Err(full) }
    }

    /// Tells the peer where it may put, once the engine knows.
    fn admit(&mut self) -> Result<(), String> {
        let window = self.link.take_window();
        if self.window.is_some() {
            return Ok(());
        }
        let Some(window) = window else { return Ok(()) };
        let arena = self.endpoint.arena();
        let region = RegisteredRegion::register(
            arena.domain(),
            arena.memory(),
            window,
            ffi::FI_REMOTE_WRITE,
        );
        let region = self.window.insert(region.map_err(broken)?);
        let told = self.link.stream().write_all(&Word::Admission(region.remote()).encode());
        // So few bytes always fit; if the peer is gone, that shows soon enough.
        told.or(Ok(()))
    }

    /// Returns whether the connection is over: one side has hung up and all was taken in, or the
    /// limit for that is exceeded.
    fn is_over(&mut self) -> Result<bool, String> {
        if self.link.is_cut() {
            return Ok(true);
        }
        let farewell = self.farewell;
        if self.link.is_closing() || farewell.is_some() {
            self.leaving.get_or_insert_with(Instant::now);
        }
        let late = self.leaving.is_some_and(|since| since.elapsed() > PATIENCE);
        if farewell == Some(self.received) || late {
            return Ok(true);
        }
        if self.link.is_closing() && !self.said_farewell && self.outbox(|outbox| outbox.is_idle()) {
            let sent = Word::Farewell(self.outbox(|outbox| outbox.sent())).encode();
            // So few bytes always fit; if the peer is gone, that shows soon enough.
            let _ = self.link.stream().write_all(&sent);
            let _ = self.link.stream().shutdown(Shutdown::Write);
            self.said_farewell = true;
        }
        match (self.deserted, self.said_farewell) {
            (false, _) => Ok(false),
            (true, true) => Ok(true),
            // It may have sent more than we have taken in.
            (true, false) if farewell.is_some() => Ok(false),
            (true, false) => Err("the connection broke off".into()),
        }
    }
}

/// Makes an endpoint, and tells and hears over TCP where it is.
fn introduce(arena: Arc<RegisteredRegion>, stream: &TcpStream) -> Result<Endpoint, String> {
    let access = ffi::FI_SEND | ffi::FI_RECV;
    let memory = Memory::new(MESSAGE_MEMORY_BYTES, MESSAGE_MEMORY_BYTES)
        .map_err(|error| describe(&error))?;
    let all = 0..MESSAGE_MEMORY_BYTES as u64;
    let messages = RegisteredRegion::register(arena.domain(), &Arc::new(memory), all, access);
    let mut endpoint = Endpoint::open(arena, messages.map_err(broken)?).map_err(broken)?;
    let ours = endpoint.name().map_err(broken)?;
    let exchange = || {
        stream.set_read_timeout(Some(PATIENCE))?;
        write_name(&ours, stream)?;
        let theirs = read_name(stream)?;
        stream.set_nonblocking(true)?;
        Ok(theirs)
    };
    let theirs = exchange().map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::InvalidData => "it sent bytes that mean nothing".to_owned(),
        io::ErrorKind::UnexpectedEof => "closes the connection without a word".to_owned(),
        _ => format!("cannot be talked to: {}", describe(&error)),
    })?;
    endpoint.set_peer(&theirs).map_err(broken)?;
    Ok(endpoint)
}

fn broken(error: OfiError) -> String {
    format!("the connection broke off: {error}")
}
