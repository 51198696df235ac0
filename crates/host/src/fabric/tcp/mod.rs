//! The fabric over TCP: frames (see `frame`) on one connection to each peer.

pub(super) mod connection;
mod input;
mod output;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use braid_array::action::Event;
use braid_array::fabric::{FabricEvent, FabricOp, PeerId};
use braid_array::{Buf, IoError, IoId, Refusal};
use rustix::io::Errno;

use self::connection::PeerConnection;
use self::output::Frame;
use crate::arena::FabricMemory;
use crate::driver::{Driver, Op, OutgoingBytes};
use crate::fabric::greet::{Greeted, Greeter, Greeting, Met};
use crate::fabric::{Fabric, Network, Protection};
use crate::heap;
use crate::system::describe;
use crate::token::{FabricToken, Token};
use slab::Slab;

/// Size of a connection's buffer for all input besides puts: a message at least.
const ROOM_BYTES: u32 = 16 << 10;

/// All TCP connections of an engine, as a [`Fabric`]: those being dialed or greeted, and those that
/// the machine knows by their `PeerId`. A put is received by the kernel straight into its place in
/// the arena and sent from where it lies; only headers, messages and the few bytes received
/// together with them pass through a small buffer.
///
/// A connection has at most one receive and one send in the driver, so that all are served in turn.
/// An accepted peer that leaves its messages unread is not received from. Life of a connection:
/// open; then *leaving* (the machine hung up: the rest is sent, and input is dropped) or *broken*
/// (reported to the machine when nothing is in the driver any more).
pub(crate) struct Tcp {
    place: FabricMemory,
    greeter: Greeter,
    connections: Slab<PeerConnection>,
    /// Peers that the machine knows. `None`: still dialling.
    peers: BTreeMap<PeerId, Option<usize>>,
    /// The id of the next that we accept.
    next_accepted: u32,
    /// Buffers for connections to come.
    rooms: Vec<Buf>,
    /// Connections that may have something to send.
    gathered: Vec<usize>,
    events: VecDeque<Event>,
    closing: bool,
}

impl Tcp {
    /// A fabric that works in this place; with a listener, others can connect.
    ///
    /// # Errors
    /// When the system is out of descriptors.
    pub(crate) fn new(
        network: Network,
        place: FabricMemory,
        listener: Option<TcpListener>,
    ) -> io::Result<Self> {
        let rooms = (0..place.own.len / ROOM_BYTES)
            .map(|i| place.own.slice(i * ROOM_BYTES, ROOM_BYTES))
            .rev()
            .collect();
        Ok(Self {
            place,
            greeter: Greeter::new(Greeting::new(network, Vec::new()), listener)?,
            connections: Slab::default(),
            peers: BTreeMap::new(),
            next_accepted: PeerId::FIRST_ACCEPTED,
            rooms,
            gathered: Vec::new(),
            events: VecDeque::new(),
            closing: false,
        })
    }

    fn await_wake(&self, driver: &mut Driver<Token>) {
        let eventfd = Arc::clone(self.greeter.wake());
        driver.start(Token::Fabric(FabricToken::Wake), Op::Readable { file: eventfd });
    }

    fn tell(&mut self, event: FabricEvent) {
        self.events.push_back(Event::Fabric(event));
    }

    fn answer(&mut self, io: IoId, result: Result<(), IoError>) {
        let result = result.map(|()| braid_array::Outcome::Done);
        self.events.push_back(Event::Done { io, result });
    }

    /// Takes in a connection that a thread of the greeter's has made.
    fn meet(&mut self, driver: &mut Driver<Token>, met: Met) {
        let Met { dialled, result } = met;
        // Hung up on while dialling: nobody waits for it.
        if dialled.is_some_and(|peer| self.peers.get(&peer) != Some(&None)) {
            return;
        }
        let limit = result.as_ref().ok().and_then(|greeted| greeted.limit);
        match (self.connect(driver, dialled, result), dialled) {
            (Ok(peer), None) => self.tell(FabricEvent::Accepted { peer, limit }),
            (Ok(peer), Some(_)) => self.tell(FabricEvent::Connected { peer }),
            (Err(why), Some(peer)) => {
                self.peers.remove(&peer);
                self.tell(FabricEvent::Lost { peer, why });
            }
            (Err(_), None) => {}
        }
    }

    fn connect(
        &mut self,
        driver: &mut Driver<Token>,
        dialled: Option<PeerId>,
        result: Result<Greeted, Refusal>,
    ) -> Result<PeerId, Refusal> {
        let Greeted { stream, seals, .. } = result?;
        connection::prepare(&stream).map_err(|e| {
            Refusal::plain(format!("its socket cannot be set up: {}", describe(&e)))
        })?;
        let full = || Refusal::plain("there are too many connections already");
        let room = self.rooms.pop().ok_or_else(full)?;
        let peer = dialled.unwrap_or_else(|| self.accepted());
        let index = self.connections.insert(PeerConnection::new(stream, peer, room, seals));
        self.peers.insert(peer, Some(index));
        self.connections[index].receive(driver, index);
        Ok(peer)
    }

    /// An id that no connection has.
    fn accepted(&mut self) -> PeerId {
        loop {
            let peer = PeerId(self.next_accepted);
            self.next_accepted = peer.0.wrapping_add(1).max(PeerId::FIRST_ACCEPTED);
            if !self.peers.contains_key(&peer) {
                return peer;
            }
        }
    }

    /// The connection to a peer, when there is one.
    fn index(&self, peer: PeerId) -> Option<usize> {
        self.peers.get(&peer).copied().flatten()
    }

    fn enqueue(&mut self, peer: PeerId, frame: Frame) {
        match self.index(peer) {
            Some(index) => {
                if let Err(reason) = self.connections[index].enqueue(frame) {
                    self.connections[index].break_off(reason);
                }
                self.gathered.push(index);
            }
            None => {
                if let Frame::Put { io, .. } = frame {
                    self.answer(io, Err(IoError::GONE));
                }
            }
        }
    }

    fn hang_up(&mut self, peer: PeerId) {
        if let Some(Some(index)) = self.peers.remove(&peer) {
            self.connections[index].close();
            self.gathered.push(index);
        }
    }

    fn cut(&mut self, peer: PeerId) {
        if let Some(index) = self.index(peer) {
            self.hang_up(peer);
            self.connections[index].break_off("the machine ends it".into());
            self.remove_ended(index);
        } else {
            self.hang_up(peer);
        }
    }

    fn received(&mut self, driver: &mut Driver<Token>, index: usize, result: Result<u32, Errno>) {
        let Self { connections, place, events, .. } = self;
        let connection = &mut connections[index];
        let outcome = connection.received(place, result, events);
        match outcome {
            Ok(true) => return connection.go_on(driver, index),
            Ok(false) => {}
            Err(reason) => connection.break_off(reason),
        }
        self.remove_ended(index);
    }

    fn sent(
        &mut self,
        index: usize,
        result: Result<u32, Errno>,
        message: Option<Box<OutgoingBytes>>,
    ) {
        let (answered, outcome) = self.connections[index].sent(result, message);
        for io in answered {
            self.answer(io, outcome);
        }
        self.gathered.push(index);
        self.remove_ended(index);
    }

    /// Sends queued frames of connections. An index may occur twice, and its connection may be over
    /// by now.
    fn send(&mut self, driver: &mut Driver<Token>, indices: Vec<usize>) {
        for &index in &indices {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            while let Some((answered, outcome)) = connection.send(&self.place, driver, index) {
                let result = outcome.map(|()| braid_array::Outcome::Done);
                let done = |io| Event::Done { io, result };
                self.events.extend(answered.into_iter().map(done));
            }
            connection.resume(driver, index);
        }
        for index in indices {
            if self.connections.get(index).is_some() {
                self.remove_ended(index);
            }
        }
    }

    /// Buries a connection that has ended.
    fn remove_ended(&mut self, index: usize) {
        if !self.connections[index].is_over() {
            return;
        }
        let connection = self.connections.remove(index);
        self.gathered.retain(|&other| other != index);
        self.rooms.push(connection.room());
        let had_much = connection.was_held_back();
        let (peer, unsent, told) = connection.bury();
        for io in unsent {
            self.answer(io, Err(IoError::GONE));
        }
        if had_much {
            heap::trim();
        }
        if let Some(reason) = told {
            self.peers.remove(&peer);
            self.tell(FabricEvent::Lost { peer, why: Refusal::plain(reason) });
        }
    }
}

impl Fabric for Tcp {
    fn begin(&mut self, driver: &mut Driver<Token>) -> io::Result<()> {
        self.await_wake(driver);
        self.greeter.accept()
    }

    fn start(&mut self, _: &mut Driver<Token>, op: FabricOp) {
        match op {
            FabricOp::Connect { peer, address } => {
                self.peers.insert(peer, None);
                self.greeter.dial(peer, address);
            }
            FabricOp::Admit { peer, window } => {
                if let Some(index) = self.index(peer) {
                    self.connections[index].admit(self.place.window(window));
                }
            }
            FabricOp::BearSilence { peer, millis } => {
                if let Some(index) = self.index(peer) {
                    let silence = Duration::from_millis(u64::from(millis));
                    self.connections[index].bear_silence(silence);
                }
            }
            FabricOp::Put { io, peer, from, to, imm } => {
                self.enqueue(peer, Frame::Put { io, from, to, imm });
            }
            FabricOp::Send { peer, bytes } => self.enqueue(peer, Frame::Message(bytes)),
            FabricOp::HangUp { peer } => self.hang_up(peer),
            FabricOp::Cut { peer } => self.cut(peer),
        }
    }

    fn flush(&mut self, driver: &mut Driver<Token>) -> bool {
        // What the machine says once puts are over goes with what waits for others.
        let connections = &self.connections;
        let puts = |index: &usize| connections.get(*index).is_some_and(PeerConnection::has_puts);
        let (first, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.gathered).into_iter().partition(puts);
        self.send(driver, first);
        if self.events.is_empty() {
            self.send(driver, others);
        } else {
            self.gathered.extend(others);
        }
        !self.events.is_empty()
    }

    fn protection(&self) -> Protection {
        let known = self.peers.values().flatten().map(|&index| &self.connections[index]);
        let (sealed, open): (Vec<_>, Vec<_>) = known.partition(|known| known.seals_slices());
        self.greeter.protection(sealed.len() + open.len(), sealed.len())
    }

    fn completed(
        &mut self,
        driver: &mut Driver<Token>,
        token: FabricToken,
        result: Result<u32, Errno>,
        message: Option<Box<OutgoingBytes>>,
    ) {
        match token {
            FabricToken::Wake => {
                if self.closing {
                    return;
                }
                let _ = rustix::io::read(self.greeter.wake().as_fd(), &mut [0; 8]);
                self.await_wake(driver);
                while let Some(met) = self.greeter.take() {
                    self.meet(driver, met);
                }
            }
            FabricToken::Receive(index) => self.received(driver, index, result),
            FabricToken::Send(index) => self.sent(index, result, message),
        }
    }

    fn poll(&mut self) -> Option<Event> {
        if self.closing {
            self.events.clear();
        }
        self.events.pop_front()
    }

    fn close(&mut self, driver: &mut Driver<Token>) {
        self.closing = true;
        self.greeter.close();
        while let Some((peer, _)) = self.peers.first_key_value() {
            self.hang_up(*peer);
        }
        // Nobody hears any more what is over by that.
        while self.flush(driver) {
            self.events.clear();
        }
    }

    fn disconnect(&mut self) {
        for (_, connection) in &mut self.connections {
            connection.break_off("the engine ends".into());
        }
    }
}
