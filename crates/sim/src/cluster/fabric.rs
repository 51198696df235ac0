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

use super::due::{EndId, FabricDue};
use super::network::{Connection, ConnectionEnd, EndState, Put};
use super::votes::is_granted;
use super::world::ClusterWorld;
use crate::fault::Mutation;

mod puts;

impl ClusterWorld {
    pub(super) fn fabric_op(&mut self, process: usize, op: FabricOp) {
        match op {
            FabricOp::Connect { peer, address } => self.connect(process, peer, &address),
            FabricOp::Admit { peer, window } => {
                if let Some(id) = self.standing(process, peer, "an admission") {
                    self.network.end(id).window = Some(window);
                }
            }
            FabricOp::BearSilence { peer, millis } => {
                // Here both ends are told when a connection breaks.
                if let Some(id) = self.standing(process, peer, "patience") {
                    self.network.end(id).silence_ms = Some(millis);
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
                    if matches!(self.processes[process].machine, AnyMachine::Block(_)) {
                        self.signs.count(&bytes);
                    }
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
        self.network.end(id).state = EndState::HungUp;
        self.stop_arrivals(id);
        self.later(FabricDue::Closing(id));
        Some(id)
    }

    /// Drops a part of the messages and puts under way from this end.
    fn lose_what_was_sent(&mut self, id: EndId) {
        let coming = self.network.end(id.other()).coming.len() as u64;
        let arrive = self.rng.below(coming + 1) as usize;
        self.network.end(id.other()).coming.truncate(arrive);
        for number in 0..self.network.puts.len() {
            let on_its_way =
                self.network.puts[number].sender == id && !self.network.puts[number].over;
            if on_its_way && self.rng.percent(50) {
                self.forget_put(number);
            }
        }
    }

    /// The process's end, when it was told that the connection stands, and not that it is over.
    fn standing(&mut self, process: usize, peer: PeerId, what: &str) -> Option<EndId> {
        let id = self.processes[process].peers.get(&peer).copied();
        let id = id.filter(|&id| self.network.end(id).state == EndState::Up);
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
        let state = EndState::Waiting;
        let end = |process, peer| {
            let coming = VecDeque::new();
            ConnectionEnd { process, peer, state, window: None, silence_ms: None, coming }
        };
        let accepted = listener.map_or(PeerId(0), |listener| {
            let listener = &mut self.processes[listener];
            listener.accepted += 1;
            PeerId(PeerId::FIRST_ACCEPTED + listener.accepted - 1)
        });
        let ends = [end(process, peer), end(listener.unwrap_or(process), accepted)];
        self.network.connections.push(Connection { ends });
        let dialer = EndId { connection: self.network.connections.len() - 1, end: 0 };
        self.processes[process].peers.insert(peer, dialer);
        let Some(listener) = listener else {
            self.network.end(dialer.other()).state = EndState::Over;
            self.later(FabricDue::Cut(dialer));
            return;
        };
        self.processes[listener].peers.insert(accepted, dialer.other());
        self.later(FabricDue::Up(dialer));
        self.later(FabricDue::Up(dialer.other()));
    }

    fn send(&mut self, sender: EndId, bytes: Vec<u8>) {
        let receiver = sender.other();
        let process = self.network.end(sender).process;
        let peer = self.network.end(receiver).process;
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
            let conflict = self.processes[process].poison(buf);
            conflict.into_iter().for_each(|conflict| self.fault(process, &conflict));
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
        let bytes = altered(self.profile.mutation, bytes);
        if matches!(self.network.end(receiver).state, EndState::Waiting | EndState::Up) {
            self.network.end(receiver).coming.push_back(bytes);
            self.later(FabricDue::Message(receiver));
        }
    }

    /// A process has no use for a part of its arena: all of it goes.
    pub(super) fn give_back(&mut self, process: usize, range: &Range<u64>) {
        let len = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
        self.note(&[60, process as u64, range.start, len.into()], || {
            format!("process {process} gives back {}+{len}", range.start)
        });
        let conflict = self.processes[process].poison(Buf { offset: range.start, len });
        conflict.into_iter().for_each(|conflict| self.fault(process, &conflict));
    }

    /// A message or put goes on. Returns what is said of it, and to whom.
    pub(super) fn arrive(&mut self, due: FabricDue) -> Option<(usize, Event)> {
        match due {
            FabricDue::Up(id) => self.up(id),
            FabricDue::Message(id) => self.message(id),
            FabricDue::PutRead(number) => {
                self.put_read(number);
                None
            }
            FabricDue::PutDone(number) => {
                let Put { sender, over, .. } = self.network.puts[number];
                let reached = self.network.end(sender.other()).state == EndState::Up;
                self.put_done(number, reached || over)
            }
            FabricDue::PutLand(number) => self.put_land(number),
            FabricDue::PutPlaced(number) => self.put_placed(number),
            FabricDue::Closing(_) | FabricDue::Cut(_) => None,
        }
    }

    fn up(&mut self, id: EndId) -> Option<(usize, Event)> {
        let ConnectionEnd { process, peer, state, .. } = *self.network.end(id);
        if state != EndState::Waiting || !self.processes[process].alive {
            return None;
        }
        self.network.end(id).state = EndState::Up;
        self.note(&[24, process as u64, u64::from(peer.0)], || {
            format!("process {process} has {peer:?} on connection {}", id.connection)
        });
        for _ in 0..self.network.end(id).coming.len() {
            self.later(FabricDue::Message(id));
        }
        let dialler = self.network.end(id.other()).process;
        let limit = self.processes[dialler].limit;
        let event = match id.end {
            0 => FabricEvent::Connected { peer },
            _ => FabricEvent::Accepted { peer, limit },
        };
        Some((process, Event::Fabric(event)))
    }

    fn message(&mut self, id: EndId) -> Option<(usize, Event)> {
        let ConnectionEnd { process, peer, state, .. } = *self.network.end(id);
        if state != EndState::Up {
            return None;
        }
        let bytes = self.network.end(id).coming.pop_front()?;
        self.note(&[25, process as u64, u64::from(peer.0), bytes.len() as u64], || {
            format!("process {process} hears from connection {}", id.connection)
        });
        Some((process, Event::Fabric(FabricEvent::Message { peer, bytes })))
    }

    /// Drops all messages and puts under way to this end.
    fn stop_arrivals(&mut self, id: EndId) {
        self.network.end(id).coming.clear();
        if self.profile.mutation == Some(Mutation::LandLate) {
            return;
        }
        for number in 0..self.network.puts.len() {
            if self.network.puts[number].sender == id.other() && !self.network.puts[number].over {
                self.forget_put(number);
            }
        }
    }

    /// The connections between two processes break.
    pub fn disconnect(&mut self, a: usize, b: usize) {
        for connection in self.network.between(a, b) {
            self.break_connection(connection);
        }
    }

    /// Drops all messages and puts under way from the process to these processes.
    pub fn lose_what_is_under_way(&mut self, process: usize, to: impl Fn(usize) -> bool) {
        for connection in 0..self.network.connections.len() {
            for end in [0, 1] {
                let id = EndId { connection, end };
                let other = self.network.end(id.other()).process;
                if self.network.end(id).process == process && to(other) {
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
        let ends = (0..self.network.connections.len())
            .flat_map(|connection| [0, 1].map(|end| EndId { connection, end }));
        for id in ends.collect::<Vec<_>>() {
            if self.network.end(id).process == process {
                self.network.end(id).state = EndState::Over;
                self.stop_arrivals(id);
                self.later(FabricDue::Cut(id.other()));
            }
        }
    }

    /// Begins to tell this end that the connection is over, if it can be told. Returns its state.
    pub(super) fn begin_cut(&mut self, id: EndId) -> Option<EndState> {
        let ConnectionEnd { process, state, .. } = *self.network.end(id);
        if !matches!(state, EndState::Waiting | EndState::Up) || !self.processes[process].alive {
            return None;
        }
        self.stop_arrivals(id);
        Some(state)
    }

    /// Ends a put of this end, which can be known to have arrived or not, as long as there is one.
    pub(super) fn end_put_of(&mut self, id: EndId) -> Option<(usize, Event)> {
        let unfinished = |put: &Put| put.sender == id && !put.done;
        let number = self.network.puts.iter().position(unfinished)?;
        let ok = self.rng.percent(30);
        self.put_done(number, ok)
    }

    /// Tells this end, which was in this state, that the connection is over, and then the other.
    pub(super) fn end_cut(&mut self, id: EndId, before: EndState) -> Option<(usize, Event)> {
        let ConnectionEnd { process, peer, state, .. } = *self.network.end(id);
        if state != before {
            // It has hung up while it heard of its puts.
            return None;
        }
        self.network.end(id).state = EndState::Over;
        self.processes[process].peers.remove(&peer);
        self.later(FabricDue::Cut(id.other()));
        if state != EndState::Up && id.end != 0 {
            return None;
        }
        self.note(&[28, process as u64, u64::from(peer.0)], || {
            format!("process {process} loses {peer:?} on connection {}", id.connection)
        });
        let why = Refusal::plain("the connection was closed");
        Some((process, Event::Fabric(FabricEvent::Lost { peer, why })))
    }
}

/// Returns the message as it arrives: some mutations alter it.
fn altered(mutation: Option<Mutation>, bytes: Vec<u8>) -> Vec<u8> {
    match Message::decode(&bytes) {
        Ok((epoch, Message::ResolveLeftovers { tag, .. }))
            if mutation == Some(Mutation::ForgetLeft) =>
        {
            Message::ResolveLeftovers { tag, commit: Vec::new() }.encode(epoch)
        }
        Ok((epoch, Message::BeginSet { mut set }))
            if mutation == Some(Mutation::UnrecordedOver) =>
        {
            set.log &= !set.touched.is_all();
            Message::BeginSet { set }.encode(epoch)
        }
        Ok((epoch, Message::Refused { tag, reason, .. }))
            if mutation == Some(Mutation::PretendGrant) && reason.contains("ring memory") =>
        {
            Message::Ok { tag }.encode(epoch)
        }
        // That is answered as well, and nothing is done.
        Ok((epoch, Message::Flush { tag })) if mutation == Some(Mutation::EarlyFlush) => {
            Message::Connect { tag, peers: Vec::new() }.encode(epoch)
        }
        _ => bytes,
    }
}
