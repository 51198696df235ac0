//! The simulated fabric: exactly the guarantees of `braid_array::fabric`, and no others.
//!
//! Messages of a connection arrive in order, after any delay. The steps of a put happen at separate
//! times: its bytes are read, the sender is notified, the bytes land, and the receiver is notified.
//! Until then the target of the put holds poison.

use std::collections::VecDeque;
use std::ops::Range;

use braid_array::action::Event;
use braid_array::fabric::{FabricEvent, FabricOp, MAX_MESSAGE_BYTES, PeerId};
use braid_array::{AnyMachine, Buf, Refusal};
use braid_cluster::wire::Message;

use super::claims::Use;
use super::process::POISON;
use super::votes::is_granted;
use super::world::{Due, World};
use crate::fault::Mutation;

mod puts;

pub(super) use self::puts::Put;

/// One end of a connection: 0 has dialed, 1 has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndId {
    /// The connection.
    pub connection: usize,
    /// The end of the connection.
    pub end: usize,
}

impl EndId {
    const fn other(self) -> Self {
        Self { end: 1 - self.end, ..self }
    }
}

/// Something due on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FabricDue {
    /// This end is told that the connection stands.
    Up(EndId),
    /// The next message reaches this end.
    Message(EndId),
    /// This end has hung up; its messages are still under way.
    Closing(EndId),
    /// This end is told that the connection is over.
    Cut(EndId),
    PutRead(usize),
    PutDone(usize),
    PutLand(usize),
    PutPlaced(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not told yet that the connection stands.
    Waiting,
    Up,
    HungUp,
    Over,
}

#[derive(Debug)]
struct End {
    process: usize,
    peer: PeerId,
    state: State,
    /// Where the other end may put.
    window: Option<Range<u64>>,
    /// So long it bears to hear nothing from the other.
    silence_ms: Option<u32>,
    /// Messages that have not reached this end.
    coming: VecDeque<Vec<u8>>,
}

/// A connection between two processes.
#[derive(Debug)]
pub(super) struct Connection {
    ends: [End; 2],
}

impl World {
    fn end(&mut self, id: EndId) -> &mut End {
        &mut self.connections[id.connection].ends[id.end]
    }

    fn later(&mut self, due: FabricDue) {
        let delay = self.delay(self.profile.net_nanos);
        self.clock.schedule(delay, Due::Fabric(due));
    }

    pub(super) fn fabric_op(&mut self, process: usize, op: FabricOp) {
        match op {
            FabricOp::Connect { peer, address } => self.connect(process, peer, &address),
            FabricOp::Admit { peer, window } => {
                if let Some(id) = self.standing(process, peer, "an admission") {
                    self.end(id).window = Some(window);
                }
            }
            FabricOp::BearSilence { peer, millis } => {
                // Here both ends are told when a connection breaks.
                if let Some(id) = self.standing(process, peer, "patience") {
                    self.end(id).silence_ms = Some(millis);
                }
            }
            FabricOp::Put { io, peer, from, to, imm } => {
                let to = Buf { offset: to, len: from.len };
                if let Some(sender) = self.standing(process, peer, "a put") {
                    self.put(sender, io, from, to, imm);
                }
            }
            FabricOp::Send { peer, bytes } => {
                if let Some(sender) = self.standing(process, peer, "a message") {
                    self.count_message(process, &bytes);
                    self.send(sender, bytes);
                }
            }
            FabricOp::HangUp { peer } => drop(self.hang_up(process, peer)),
            FabricOp::Cut { peer } => {
                if let Some(id) = self.hang_up(process, peer) {
                    self.lose_what_was_sent(id);
                }
            }
        }
    }

    fn hang_up(&mut self, process: usize, peer: PeerId) -> Option<EndId> {
        let Some(id) = self.processes[process].peers.remove(&peer) else {
            self.fault(process, &format!("hangs up on {peer:?}, which is not there"));
            return None;
        };
        self.note(&[20, process as u64, u64::from(peer.0)], || {
            format!("process {process} hangs up on {peer:?}")
        });
        self.end(id).state = State::HungUp;
        self.stop_arrivals(id);
        self.later(FabricDue::Closing(id));
        Some(id)
    }

    /// Drops a part of the messages and puts under way from this end.
    fn lose_what_was_sent(&mut self, id: EndId) {
        let coming = self.end(id.other()).coming.len() as u64;
        let arrive = self.rng.below(coming + 1) as usize;
        self.end(id.other()).coming.truncate(arrive);
        for number in 0..self.puts.len() {
            let on_its_way = self.puts[number].sender == id && !self.puts[number].over;
            if on_its_way && self.rng.percent(50) {
                self.forget_put(number);
            }
        }
    }

    /// The process's end, when it was told that the connection stands, and not that it is over.
    fn standing(&mut self, process: usize, peer: PeerId, what: &str) -> Option<EndId> {
        let id = self.processes[process].peers.get(&peer).copied();
        let id = id.filter(|&id| self.end(id).state == State::Up);
        if id.is_none() {
            self.fault(process, &format!("{what} to {peer:?}, which is not connected"));
        }
        id
    }

    fn connect(&mut self, process: usize, peer: PeerId, address: &str) {
        self.note(&[21, process as u64, u64::from(peer.0)], || {
            format!("process {process} connects {peer:?} to {address}")
        });
        if peer.0 >= PeerId::FIRST_ACCEPTED || self.processes[process].peers.contains_key(&peer) {
            self.fault(process, &format!("connects with {peer:?}, which is not a free id"));
            return;
        }
        let listens =
            |p: &super::process::Process| p.alive && p.address.as_deref() == Some(address);
        let listener = self.processes.iter().position(listens);
        let state = State::Waiting;
        let end = |process, peer| {
            let coming = VecDeque::new();
            End { process, peer, state, window: None, silence_ms: None, coming }
        };
        let accepted = listener.map_or(PeerId(0), |listener| {
            let listener = &mut self.processes[listener];
            listener.accepted += 1;
            PeerId(PeerId::FIRST_ACCEPTED + listener.accepted - 1)
        });
        let ends = [end(process, peer), end(listener.unwrap_or(process), accepted)];
        self.connections.push(Connection { ends });
        let dialer = EndId { connection: self.connections.len() - 1, end: 0 };
        self.processes[process].peers.insert(peer, dialer);
        let Some(listener) = listener else {
            self.end(dialer.other()).state = State::Over;
            self.later(FabricDue::Cut(dialer));
            return;
        };
        self.processes[listener].peers.insert(accepted, dialer.other());
        self.later(FabricDue::Up(dialer));
        self.later(FabricDue::Up(dialer.other()));
    }

    fn send(&mut self, sender: EndId, bytes: Vec<u8>) {
        let receiver = sender.other();
        let process = self.end(sender).process;
        let peer = self.end(receiver).process;
        if bytes.len() > MAX_MESSAGE_BYTES {
            self.fault(process, &format!("a message of {} bytes", bytes.len()));
        }
        let told = self.watch.said(sender, [process, peer], &bytes);
        self.note(&[22, process as u64, receiver.connection as u64, bytes.len() as u64], || {
            let message = told.message.as_ref();
            let words = message.map_or("?".to_owned(), |message| format!("{message:?}"));
            format!("process {process} says on connection {}: {words}", sender.connection)
        });
        for buf in told.free {
            self.poison(process, buf);
        }
        if let Some(fault) = told.fault {
            self.fault(process, &fault);
        }
        if let Some(Message::Granted { .. }) = told.message
            && let Ok((epoch, _)) = Message::decode(&bytes)
            && !is_granted(&self.processes[process].notes, epoch)
        {
            self.fault(process, "grants what it has not noted");
        }
        let bytes = self.altered(bytes);
        if matches!(self.end(receiver).state, State::Waiting | State::Up) {
            self.end(receiver).coming.push_back(bytes);
            self.later(FabricDue::Message(receiver));
        }
    }

    /// Returns the message as it arrives: some mutations alter it.
    fn altered(&self, bytes: Vec<u8>) -> Vec<u8> {
        match Message::decode(&bytes) {
            Ok((epoch, Message::ResolveLeftovers { tag, .. }))
                if self.profile.mutation == Some(Mutation::ForgetLeft) =>
            {
                Message::ResolveLeftovers { tag, commit: Vec::new() }.encode(epoch)
            }
            Ok((epoch, Message::BeginSet { mut set }))
                if self.profile.mutation == Some(Mutation::UnrecordedOver) =>
            {
                set.log &= !set.touched.is_all();
                Message::BeginSet { set }.encode(epoch)
            }
            Ok((epoch, Message::Refused { tag, reason, .. }))
                if self.profile.mutation == Some(Mutation::PretendGrant)
                    && reason.contains("ring memory") =>
            {
                Message::Ok { tag }.encode(epoch)
            }
            // That is answered as well, and nothing is done.
            Ok((epoch, Message::Flush { tag }))
                if self.profile.mutation == Some(Mutation::EarlyFlush) =>
            {
                Message::Connect { tag, peers: Vec::new() }.encode(epoch)
            }
            _ => bytes,
        }
    }

    /// Poisons bytes that are no longer needed.
    fn poison(&mut self, process: usize, buf: Buf) {
        if let Some(conflict) = self.processes[process].claims.conflict(buf, Use::Write, "an end") {
            self.fault(process, &conflict);
        }
        self.processes[process].bytes(buf).fill(POISON);
    }

    /// A process has no use for a part of its arena: all of it goes.
    pub(super) fn give_back(&mut self, process: usize, range: &Range<u64>) {
        let len = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
        self.note(&[60, process as u64, range.start, len.into()], || {
            format!("process {process} gives back {}+{len}", range.start)
        });
        self.poison(process, Buf { offset: range.start, len });
    }

    /// The process that would be told of this.
    pub(super) fn fabric_hears(&self, due: FabricDue) -> Option<usize> {
        let end = |id: EndId| self.connections[id.connection].ends[id.end].process;
        match due {
            FabricDue::Up(id) | FabricDue::Message(id) | FabricDue::Cut(id) => Some(end(id)),
            FabricDue::Closing(id) => Some(end(id.other())),
            FabricDue::PutDone(number) => Some(end(self.puts[number].sender)),
            FabricDue::PutPlaced(number) => Some(end(self.puts[number].sender.other())),
            FabricDue::PutRead(_) | FabricDue::PutLand(_) => None,
        }
    }

    pub(super) fn fabric_due(&mut self, due: FabricDue) {
        match due {
            FabricDue::Up(id) => self.up(id),
            FabricDue::Message(id) => self.message(id),
            FabricDue::Closing(id) => {
                let on_its_way = |put: &Put| put.sender == id && !put.over;
                if self.end(id.other()).coming.is_empty() && !self.puts.iter().any(on_its_way) {
                    self.cut(id.other());
                } else {
                    self.later(FabricDue::Closing(id));
                }
            }
            FabricDue::Cut(id) => self.cut(id),
            FabricDue::PutRead(number) => self.put_read(number),
            FabricDue::PutDone(number) => {
                let sender = self.puts[number].sender;
                let reached = self.end(sender.other()).state == State::Up;
                self.put_done(number, reached || self.puts[number].over);
            }
            FabricDue::PutLand(number) => self.put_land(number),
            FabricDue::PutPlaced(number) => self.put_placed(number),
        }
    }

    fn up(&mut self, id: EndId) {
        let End { process, peer, state, .. } = *self.end(id);
        if state != State::Waiting || !self.processes[process].alive {
            return;
        }
        self.end(id).state = State::Up;
        self.note(&[24, process as u64, u64::from(peer.0)], || {
            format!("process {process} has {peer:?} on connection {}", id.connection)
        });
        for _ in 0..self.end(id).coming.len() {
            self.later(FabricDue::Message(id));
        }
        let dialler = self.end(id.other()).process;
        let limit = self.processes[dialler].limit;
        let event = match id.end {
            0 => FabricEvent::Connected { peer },
            _ => FabricEvent::Accepted { peer, limit },
        };
        self.handle(process, Event::Fabric(event));
    }

    fn message(&mut self, id: EndId) {
        let End { process, peer, state, .. } = *self.end(id);
        if state != State::Up {
            return;
        }
        let Some(bytes) = self.end(id).coming.pop_front() else { return };
        self.note(&[25, process as u64, u64::from(peer.0), bytes.len() as u64], || {
            format!("process {process} hears from connection {}", id.connection)
        });
        self.handle(process, Event::Fabric(FabricEvent::Message { peer, bytes }));
    }

    /// Drops all messages and puts under way to this end.
    fn stop_arrivals(&mut self, id: EndId) {
        self.end(id).coming.clear();
        if self.profile.mutation == Some(Mutation::LandLate) {
            return;
        }
        for number in 0..self.puts.len() {
            if self.puts[number].sender == id.other() && !self.puts[number].over {
                self.forget_put(number);
            }
        }
    }

    /// This end is told that the connection is over, and then the other.
    fn cut(&mut self, id: EndId) {
        let End { process, peer, state, .. } = *self.end(id);
        if !matches!(state, State::Waiting | State::Up) || !self.processes[process].alive {
            return;
        }
        self.stop_arrivals(id);
        while let Some(number) = self.puts.iter().position(|put| put.sender == id && !put.done) {
            let ok = self.rng.percent(30);
            self.put_done(number, ok);
        }
        if self.end(id).state != state {
            // It has hung up while it heard of its puts.
            return;
        }
        self.end(id).state = State::Over;
        self.processes[process].peers.remove(&peer);
        self.later(FabricDue::Cut(id.other()));
        if state == State::Up || id.end == 0 {
            self.note(&[28, process as u64, u64::from(peer.0)], || {
                format!("process {process} loses {peer:?} on connection {}", id.connection)
            });
            let why = Refusal::plain("the connection was closed");
            self.handle(process, Event::Fabric(FabricEvent::Lost { peer, why }));
        }
    }

    /// Returns the timeouts of ends of connections for a silent peer, in milliseconds.
    pub fn silences(&self) -> impl Iterator<Item = u32> {
        let ends = self.connections.iter().flat_map(|connection| &connection.ends);
        ends.filter_map(|end| end.silence_ms)
    }

    /// The connections between two processes break.
    pub fn disconnect(&mut self, a: usize, b: usize) {
        for connection in self.connections_between(a, b) {
            self.break_connection(connection);
        }
    }

    /// A connection breaks: both ends hear of it, each in its own time.
    pub fn break_connection(&mut self, connection: usize) {
        self.note(&[29, connection as u64], || format!("BREAK connection {connection}"));
        self.later(FabricDue::Cut(EndId { connection, end: 0 }));
        self.later(FabricDue::Cut(EndId { connection, end: 1 }));
    }

    /// The connections that stand between two processes.
    pub fn connections_between(&self, a: usize, b: usize) -> Vec<usize> {
        let between = |connection: &Connection| {
            let [first, second] = &connection.ends;
            let processes = [first.process, second.process];
            let up = first.state == State::Up && second.state == State::Up;
            up && (processes == [a, b] || processes == [b, a])
        };
        let numbers = self.connections.iter().enumerate();
        numbers.filter(|(_, connection)| between(connection)).map(|(number, _)| number).collect()
    }

    /// A client says something.
    fn count_message(&mut self, process: usize, bytes: &[u8]) {
        let is_client = matches!(self.processes[process].machine, AnyMachine::Block(_));
        if is_client && let Some(&kind) = bytes.first() {
            *self.signs.sent.entry(kind).or_default() += 1;
        }
    }

    /// Drops all messages and puts under way from the process to these processes.
    pub fn lose_what_is_under_way(&mut self, process: usize, to: impl Fn(usize) -> bool) {
        for connection in 0..self.connections.len() {
            for end in [0, 1] {
                let id = EndId { connection, end };
                let other = self.end(id.other()).process;
                if self.end(id).process == process && to(other) {
                    self.note(&[30, process as u64, other as u64], || {
                        format!("ALL that {process} has sent to {other} IS LOST")
                    });
                    self.stop_arrivals(id.other());
                }
            }
        }
    }

    /// The process is dead: its peers hear of it, each in its own time.
    pub(super) fn abandon_connections(&mut self, process: usize) {
        let ends = (0..self.connections.len())
            .flat_map(|connection| [0, 1].map(|end| EndId { connection, end }));
        for id in ends.collect::<Vec<_>>() {
            if self.end(id).process == process {
                self.end(id).state = State::Over;
                self.stop_arrivals(id);
                self.later(FabricDue::Cut(id.other()));
            }
        }
    }
}
