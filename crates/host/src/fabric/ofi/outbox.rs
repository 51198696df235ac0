//! Outgoing data of one peer: puts and messages that the device has, and those it has no room for
//! yet.

use std::collections::VecDeque;
use std::sync::Arc;

use braid_array::fabric::MAX_MESSAGE_BYTES;
use braid_array::{Buf, IoId};

use super::domain::RemoteRegion;
use super::endpoint::Endpoint;
use super::info::OfiError;
use slab::Slab;

/// Messages that can be on their way in either direction at a time.
const MESSAGES: u32 = 64;

/// Bytes of messages that a peer may leave unread before it is hung up on.
const MAX_WAITING_BYTES: usize = 16 << 20;

/// The memory in which messages lie: those that come in, then those that go out.
pub(super) const MESSAGE_MEMORY_BYTES: usize = 2 * MESSAGES as usize * MAX_MESSAGE_BYTES;

/// Returns the slots for incoming messages.
pub(super) fn inbound_slots() -> impl Iterator<Item = u32> {
    0..MESSAGES
}

/// Returns the place of a message of this length.
pub(super) const fn slot(number: u32, bytes: usize) -> Buf {
    Buf { offset: number as u64 * MAX_MESSAGE_BYTES as u64, len: bytes as u32 }
}

/// A put or message to be sent.
#[derive(Debug)]
pub(super) enum OutgoingTransfer {
    /// A buffer.
    Put { io: IoId, from: Buf, to: u64, imm: u32 },
    /// A message.
    Message(Vec<u8>),
}

impl OutgoingTransfer {
    fn message_bytes(&self) -> usize {
        if let Self::Message(bytes) = self { bytes.len() } else { 0 }
    }
}

/// An operation that the device has.
#[derive(Clone, Copy, Debug)]
enum TakenOperation {
    Put(IoId),
    /// Message in this slot.
    Message(u32),
}

/// Numbers of messages and puts, sent or received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) messages: u64,
    pub(super) puts: u64,
}

/// Puts and messages to one peer, in order: those that the device has (`taken`), and those that
/// wait because it takes no more, because no slot for messages is free, or because the peer has not
/// admitted us yet. [`push`](Self::push) adds one, [`work`](Self::work) gives the device more, and
/// [`gone`](Self::gone) reports that the device is done with one. More than 16 MiB of waiting
/// messages end the connection. Puts without an answer at the end are [`owed`](Self::owed) to the
/// engine.
#[derive(Debug)]
pub(super) struct Outbox {
    endpoint: Arc<Endpoint>,
    /// Window that the peer lets us put into; earlier puts wait for it.
    remote: Option<RemoteRegion>,
    taken: Slab<TakenOperation>,
    /// Slots for messages that go out.
    free: Vec<u32>,
    waiting: VecDeque<OutgoingTransfer>,
    /// Bytes of the messages among them.
    waiting_bytes: usize,
    sent: Counts,
}

impl Outbox {
    /// Creates the outbox for a peer that has not admitted us yet.
    pub(super) fn new(endpoint: Arc<Endpoint>) -> Self {
        let free = (MESSAGES..2 * MESSAGES).collect();
        let taken = Slab::default();
        let waiting = VecDeque::new();
        let sent = Counts::default();
        Self { endpoint, remote: None, taken, free, waiting, waiting_bytes: 0, sent }
    }

    /// The peer admits us here.
    pub(super) fn admitted(&mut self, remote: RemoteRegion) {
        self.remote = Some(remote);
    }

    /// Puts something out, in its turn.
    ///
    /// # Errors
    /// When the device refuses it for good.
    pub(super) fn push(&mut self, outgoing: OutgoingTransfer) -> Result<(), OfiError> {
        self.waiting_bytes += outgoing.message_bytes();
        self.waiting.push_back(outgoing);
        // Who came before has been refused, and will be tried when something has happened.
        if self.waiting.len() == 1 { self.work() } else { Ok(()) }
    }

    /// Gives the device as many waiting operations as it takes.
    ///
    /// # Errors
    /// As for `push`.
    pub(super) fn work(&mut self) -> Result<(), OfiError> {
        while let Some(outgoing) = self.waiting.pop_front() {
            let started = self.start(&outgoing);
            if !matches!(started, Ok(true)) {
                self.waiting.push_front(outgoing);
                started?;
                break;
            }
            self.waiting_bytes -= outgoing.message_bytes();
        }
        if self.waiting_bytes > MAX_WAITING_BYTES {
            let reason = "it does not take what it is sent".into();
            return Err(OfiError { call: "fi_sendmsg", reason });
        }
        Ok(())
    }

    fn start(&mut self, outgoing: &OutgoingTransfer) -> Result<bool, OfiError> {
        let (started, index) = match outgoing {
            OutgoingTransfer::Put { io, from, to, imm } => {
                let Some(remote) = self.remote else { return Ok(false) };
                let index = self.taken.insert(TakenOperation::Put(*io));
                (self.endpoint.put(*from, remote, *to, *imm, index), index)
            }
            OutgoingTransfer::Message(bytes) => {
                let Some(&free) = self.free.last() else { return Ok(false) };
                let index = self.taken.insert(TakenOperation::Message(free));
                let buf = slot(free, bytes.len());
                let memory = self.endpoint.messages().memory();
                // SAFETY: the slot is free: neither the device nor anybody else uses it.
                unsafe { memory.bytes_mut(buf) }.copy_from_slice(bytes);
                (self.endpoint.send(buf, index), index)
            }
        };
        match (matches!(started, Ok(true)), self.taken[index]) {
            (true, TakenOperation::Put(_)) => self.sent.puts += 1,
            (true, TakenOperation::Message(_)) => {
                self.free.pop();
                self.sent.messages += 1;
            }
            (false, _) => {
                self.taken.remove(index);
            }
        }
        started
    }

    /// The device is done with this. Tells which put it was, if it was one.
    pub(super) fn gone(&mut self, number: usize) -> Option<IoId> {
        // A provider that fails may tell numbers that it was not given.
        match self.taken.try_remove(number)? {
            TakenOperation::Put(io) => Some(io),
            TakenOperation::Message(slot) => {
                self.free.push(slot);
                None
            }
        }
    }

    /// Returns whether nothing waits and the device has nothing.
    pub(super) fn is_idle(&self) -> bool {
        self.taken.is_empty() && self.waiting.is_empty()
    }

    /// The device has nothing.
    pub(super) fn has_nothing_under_way(&self) -> bool {
        self.taken.is_empty()
    }

    /// Returns whether operations wait for the device.
    pub(super) fn is_stuck(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the numbers that the device was given so far.
    pub(super) const fn sent(&self) -> Counts {
        self.sent
    }

    /// The puts without an answer. This closes our share of the endpoint.
    pub(super) fn owed(self) -> Vec<IoId> {
        let Self { taken, waiting, .. } = self;
        let taken = taken.iter().filter_map(|(_, taken)| match taken {
            TakenOperation::Put(io) => Some(*io),
            TakenOperation::Message(_) => None,
        });
        let waiting = waiting.iter().filter_map(|outgoing| match outgoing {
            OutgoingTransfer::Put { io, .. } => Some(*io),
            OutgoingTransfer::Message(_) => None,
        });
        taken.chain(waiting).collect()
    }
}
