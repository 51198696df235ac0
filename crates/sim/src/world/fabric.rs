//! The simulated fabric: exactly the guarantees of `braid_array::fabric`, and no others.
//!
//! Messages of a connection arrive in order, after any delay. The steps of a put happen at separate
//! times: its bytes are read, the sender is notified, the bytes land, and the receiver is notified.
//! Until then the target of the put holds poison.

use std::collections::VecDeque;

use braid_array::action::Event;
use braid_array::fabric::{FabricEvent, FabricOp, MAX_MESSAGE_BYTES, PeerId};
use braid_array::{AnyMachine, Buf, Refusal};
use braid_cluster::wire::Message;

use super::due::{EndId, FabricDue};
use super::ground::Ground;
use super::network::{Connection, ConnectionEnd, EndState, Network, Put};
use super::votes::is_granted;
use crate::fault::Mutation;

mod puts;

impl Network {
    pub(super) fn fabric_op(&mut self, ground: &mut Ground, process: usize, op: FabricOp) {
        match op {
            FabricOp::Connect { peer, address } => self.connect(ground, process, peer, &address),
            FabricOp::Admit { peer, window } => {
                if let Some(id) = self.standing(ground, process, peer, "an admission") {
                    self.end(id).window = Some(window);
                }
            }
            FabricOp::BearSilence { peer, millis } => {
                // Here both ends are told when a connection breaks.
                if let Some(id) = self.standing(ground, process, peer, "patience") {
                    self.end(id).silence_ms = Some(millis);
                }
            }
            FabricOp::Put { io, peer, from, to, imm } => {
                let to = Buf { offset: to, len: from.len };
                if let Some(sender) = self.standing(ground, process, peer, "a put") {
                    self.put(ground, sender, io, from, to, imm);
                }
            }
            FabricOp::Send { peer, bytes } => {
                if let Some(sender) = self.standing(ground, process, peer, "a message") {
                    if matches!(ground.processes[process].machine, AnyMachine::Block(_)) {
                        ground.signs.count(&bytes);
                    }
                    self.send(ground, sender, bytes);
                }
            }
            FabricOp::HangUp { peer } => drop(self.hang_up(ground, process, peer)),
            FabricOp::Cut { peer } => {
                if let Some(id) = self.hang_up(ground, process, peer) {
                    self.lose_what_was_sent(ground, id);
                }
            }
        }
    }

    fn hang_up(&mut self, ground: &mut Ground, process: usize, peer: PeerId) -> Option<EndId> {
        let Some(id) = ground.processes[process].peers.remove(&peer) else {
            ground.fault(process, &format!("hangs up on {peer:?}, which is not there"));
            return None;
        };
        ground.note(&[20, process as u64, u64::from(peer.0)], || {
            format!("process {process} hangs up on {peer:?}")
        });
        self.end(id).state = EndState::HungUp;
        self.stop_arrivals(ground, id);
        ground.later(FabricDue::Closing(id));
        Some(id)
    }

    /// Drops a part of the messages and puts under way from this end.
    fn lose_what_was_sent(&mut self, ground: &mut Ground, id: EndId) {
        let coming = self.end(id.other()).coming.len() as u64;
        let arrive = ground.rng.below(coming + 1) as usize;
        self.end(id.other()).coming.truncate(arrive);
        for number in 0..self.puts.len() {
            let on_its_way = self.puts[number].sender == id && !self.puts[number].over;
            if on_its_way && ground.rng.percent(50) {
                self.forget_put(ground, number);
            }
        }
    }

    /// The process's end, when it was told that the connection stands, and not that it is over.
    fn standing(
        &mut self,
        ground: &mut Ground,
        process: usize,
        peer: PeerId,
        what: &str,
    ) -> Option<EndId> {
        let id = ground.processes[process].peers.get(&peer).copied();
        let id = id.filter(|&id| self.end(id).state == EndState::Up);
        if id.is_none() {
            ground.fault(process, &format!("{what} to {peer:?}, which is not connected"));
        }
        id
    }

    fn connect(&mut self, ground: &mut Ground, process: usize, peer: PeerId, address: &str) {
        ground.note(&[21, process as u64, u64::from(peer.0)], || {
            format!("process {process} connects {peer:?} to {address}")
        });
        if peer.0 >= PeerId::FIRST_ACCEPTED || ground.processes[process].peers.contains_key(&peer) {
            ground.fault(process, &format!("connects with {peer:?}, which is not a free id"));
            return;
        }
        let listens =
            |p: &super::process::Process| p.alive && p.address.as_deref() == Some(address);
        let listener = ground.processes.iter().position(listens);
        let state = EndState::Waiting;
        let end = |process, peer| {
            let coming = VecDeque::new();
            ConnectionEnd { process, peer, state, window: None, silence_ms: None, coming }
        };
        let accepted = listener.map_or(PeerId(0), |listener| {
            let listener = &mut ground.processes[listener];
            listener.accepted += 1;
            PeerId(PeerId::FIRST_ACCEPTED + listener.accepted - 1)
        });
        let ends = [end(process, peer), end(listener.unwrap_or(process), accepted)];
        self.connections.push(Connection { ends });
        let dialer = EndId { connection: self.connections.len() - 1, end: 0 };
        ground.processes[process].peers.insert(peer, dialer);
        let Some(listener) = listener else {
            self.end(dialer.other()).state = EndState::Over;
            ground.later(FabricDue::Cut(dialer));
            return;
        };
        ground.processes[listener].peers.insert(accepted, dialer.other());
        ground.later(FabricDue::Up(dialer));
        ground.later(FabricDue::Up(dialer.other()));
    }

    fn send(&mut self, ground: &mut Ground, sender: EndId, bytes: Vec<u8>) {
        let receiver = sender.other();
        let process = self.end(sender).process;
        let peer = self.end(receiver).process;
        if bytes.len() > MAX_MESSAGE_BYTES {
            ground.fault(process, &format!("a message of {} bytes", bytes.len()));
        }
        let told = self.watch.said(sender, [process, peer], &bytes);
        ground.note(&[22, process as u64, receiver.connection as u64, bytes.len() as u64], || {
            let message = told.message.as_ref();
            let words = message.map_or("?".to_owned(), |message| format!("{message:?}"));
            format!("process {process} says on connection {}: {words}", sender.connection)
        });
        for buf in told.free {
            ground.poison(process, buf);
        }
        if let Some(fault) = told.fault {
            ground.fault(process, &fault);
        }
        if let Some(Message::Granted { .. }) = told.message
            && let Ok((epoch, _)) = Message::decode(&bytes)
            && !is_granted(&ground.processes[process].notes, epoch)
        {
            ground.fault(process, "grants what it has not noted");
        }
        let bytes = altered(ground.profile.mutation, bytes);
        if matches!(self.end(receiver).state, EndState::Waiting | EndState::Up) {
            self.end(receiver).coming.push_back(bytes);
            ground.later(FabricDue::Message(receiver));
        }
    }

    /// A message or put goes on. Returns what is said of it, and to whom.
    pub(super) fn arrive(&mut self, ground: &mut Ground, due: FabricDue) -> Option<(usize, Event)> {
        match due {
            FabricDue::Up(id) => self.up(ground, id),
            FabricDue::Message(id) => self.message(ground, id),
            FabricDue::PutRead(number) => {
                self.put_read(ground, number);
                None
            }
            FabricDue::PutDone(number) => {
                let Put { sender, over, .. } = self.puts[number];
                let reached = self.end(sender.other()).state == EndState::Up;
                self.put_done(ground, number, reached || over)
            }
            FabricDue::PutLand(number) => self.put_land(ground, number),
            FabricDue::PutPlaced(number) => self.put_placed(ground, number),
            FabricDue::Closing(_) | FabricDue::Cut(_) => None,
        }
    }

    fn up(&mut self, ground: &mut Ground, id: EndId) -> Option<(usize, Event)> {
        let ConnectionEnd { process, peer, state, .. } = *self.end(id);
        if state != EndState::Waiting || !ground.processes[process].alive {
            return None;
        }
        self.end(id).state = EndState::Up;
        ground.note(&[24, process as u64, u64::from(peer.0)], || {
            format!("process {process} has {peer:?} on connection {}", id.connection)
        });
        for _ in 0..self.end(id).coming.len() {
            ground.later(FabricDue::Message(id));
        }
        let dialler = self.end(id.other()).process;
        let limit = ground.processes[dialler].limit;
        let event = match id.end {
            0 => FabricEvent::Connected { peer },
            _ => FabricEvent::Accepted { peer, limit },
        };
        Some((process, Event::Fabric(event)))
    }

    fn message(&mut self, ground: &mut Ground, id: EndId) -> Option<(usize, Event)> {
        let ConnectionEnd { process, peer, state, .. } = *self.end(id);
        if state != EndState::Up {
            return None;
        }
        let bytes = self.end(id).coming.pop_front()?;
        ground.note(&[25, process as u64, u64::from(peer.0), bytes.len() as u64], || {
            format!("process {process} hears from connection {}", id.connection)
        });
        Some((process, Event::Fabric(FabricEvent::Message { peer, bytes })))
    }

    /// Drops all messages and puts under way to this end.
    fn stop_arrivals(&mut self, ground: &mut Ground, id: EndId) {
        self.end(id).coming.clear();
        if ground.profile.mutation == Some(Mutation::LandLate) {
            return;
        }
        for number in 0..self.puts.len() {
            if self.puts[number].sender == id.other() && !self.puts[number].over {
                self.forget_put(ground, number);
            }
        }
    }

    /// Drops all messages and puts under way from the process to these processes.
    pub(super) fn lose_what_is_under_way(
        &mut self,
        ground: &mut Ground,
        process: usize,
        to: impl Fn(usize) -> bool,
    ) {
        for connection in 0..self.connections.len() {
            for end in [0, 1] {
                let id = EndId { connection, end };
                let other = self.end(id.other()).process;
                if self.end(id).process == process && to(other) {
                    ground.note(&[30, process as u64, other as u64], || {
                        format!("ALL that {process} has sent to {other} IS LOST")
                    });
                    self.stop_arrivals(ground, id.other());
                }
            }
        }
    }

    /// The process is dead: its peers hear of it, each in its own time.
    pub(super) fn abandon_connections(&mut self, ground: &mut Ground, process: usize) {
        let ends = (0..self.connections.len())
            .flat_map(|connection| [0, 1].map(|end| EndId { connection, end }));
        for id in ends.collect::<Vec<_>>() {
            if self.end(id).process == process {
                self.end(id).state = EndState::Over;
                self.stop_arrivals(ground, id);
                ground.later(FabricDue::Cut(id.other()));
            }
        }
    }

    /// Begins to tell this end that the connection is over, if it can be told. Returns its state.
    pub(super) fn begin_cut(&mut self, ground: &mut Ground, id: EndId) -> Option<EndState> {
        let ConnectionEnd { process, state, .. } = *self.end(id);
        if !matches!(state, EndState::Waiting | EndState::Up) || !ground.processes[process].alive {
            return None;
        }
        self.stop_arrivals(ground, id);
        Some(state)
    }

    /// Ends a put of this end, which can be known to have arrived or not, as long as there is one.
    pub(super) fn end_put_of(&mut self, ground: &mut Ground, id: EndId) -> Option<(usize, Event)> {
        let unfinished = |put: &Put| put.sender == id && !put.done;
        let number = self.puts.iter().position(unfinished)?;
        let ok = ground.rng.percent(30);
        self.put_done(ground, number, ok)
    }

    /// Tells this end, which was in this state, that the connection is over, and then the other.
    pub(super) fn end_cut(
        &mut self,
        ground: &mut Ground,
        id: EndId,
        before: EndState,
    ) -> Option<(usize, Event)> {
        let ConnectionEnd { process, peer, state, .. } = *self.end(id);
        if state != before {
            // It has hung up while it heard of its puts.
            return None;
        }
        self.end(id).state = EndState::Over;
        ground.processes[process].peers.remove(&peer);
        ground.later(FabricDue::Cut(id.other()));
        if state != EndState::Up && id.end != 0 {
            return None;
        }
        ground.note(&[28, process as u64, u64::from(peer.0)], || {
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
