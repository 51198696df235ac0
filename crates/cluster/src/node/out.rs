//! Requests of a node to its executor, and their context until they are answered.

mod answers;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use braid_array::action::Compute;
use braid_array::events::ArrayEvent;
use braid_array::fabric::{FabricOp, NoteOp, PeerId, VolumeOp};
use braid_array::{Action, Buf, Instant, IoId, IoOp, MemberId};
use slab::Slab;

use self::answers::Line;
pub(super) use self::answers::refused;
use super::ids::{ArrayId, ClientId};
use crate::ids::{Epoch, Position, Slot};
use crate::wire::Message;

/// Context of an operation in flight.
#[derive(Clone, Debug)]
pub(super) enum Flight {
    /// A task of the slice-set at a position.
    Task { client: ClientId, position: Position, task: u16 },
    /// Comparison of the content that a task stores with the stored content.
    Same { client: ClientId, position: Position, task: u16 },
    /// A read into a slot.
    Read { client: ClientId, slot: Slot },
    /// Digest of the content of a slot.
    Digest { client: ClientId, slot: Slot },
    /// The put of content that was read.
    ReadPut { client: ClientId, slot: Slot },
    /// Store of a copy that came from the copied member's node.
    StoreCopied { client: ClientId, tag: u32, slot: Slot },
    /// A flush that a client asked for.
    Flush { client: ClientId, tag: u32 },
    /// A few bytes on their way from the store into a page, for a message or a `look`.
    MetaRead { client: ClientId, tag: u32, page: Buf, bytes: u32, look: bool },
    /// The same from the page into a message.
    MetaLoad { client: ClientId, tag: u32, page: Buf, look: bool },
    /// A few bytes on their way from a page into the store.
    MetaWrite { client: ClientId, tag: u32, page: Buf, sector: u64 },
    /// An operation of the journal.
    Journal { client: ClientId },
    /// Bytes that were read of the journal, on their way to the scan.
    JournalLoad { client: ClientId },
    /// The CRC of content that is recorded.
    JournalSum { client: ClientId, record: usize },
    /// The header of the journal.
    JournalTrim { client: ClientId },
    /// An operation of a decision on a client's leftovers.
    Resolve { orphan: ClientId },
    /// The last flush before a volume is closed.
    LastFlush { volume: Arc<str> },
    /// The vote file of an array is being read.
    VoteRead { array: ArrayId },
    /// The same, written.
    VoteWrite { array: ArrayId },
    /// The same, removed.
    VoteRemove { array: ArrayId },
    /// A look at the store.
    Survey { client: ClientId, tag: u32 },
    /// The same, for volumes to search.
    Search { client: ClientId },
    /// An operation on a volume.
    Volume { volume: Arc<str> },
}

impl Flight {
    /// Returns whether the operation concerns the content of a volume.
    pub(super) const fn is_of_storage(&self) -> bool {
        matches!(
            self,
            Self::Task { .. }
                | Self::Read { .. }
                | Self::StoreCopied { .. }
                | Self::Flush { .. }
                | Self::MetaRead { .. }
                | Self::MetaWrite { .. }
                | Self::LastFlush { .. }
                | Self::Journal { .. }
                | Self::JournalTrim { .. }
                | Self::Resolve { .. }
        )
    }

    /// Returns the client whose memory or volume the operation uses.
    pub(super) const fn client(&self) -> Option<ClientId> {
        match self {
            Self::Task { client, .. }
            | Self::Same { client, .. }
            | Self::Read { client, .. }
            | Self::Digest { client, .. }
            | Self::ReadPut { client, .. }
            | Self::StoreCopied { client, .. }
            | Self::Flush { client, .. }
            | Self::Survey { client, .. }
            | Self::Search { client }
            | Self::MetaRead { client, .. }
            | Self::MetaLoad { client, .. }
            | Self::Journal { client }
            | Self::JournalLoad { client }
            | Self::JournalSum { client, .. }
            | Self::JournalTrim { client }
            | Self::MetaWrite { client, .. } => Some(*client),
            Self::Resolve { orphan } => Some(*orphan),
            Self::LastFlush { .. }
            | Self::VoteRead { .. }
            | Self::VoteWrite { .. }
            | Self::VoteRemove { .. }
            | Self::Volume { .. } => None,
        }
    }
}

/// Actions not yet polled and operations not yet answered.
#[derive(Debug, Default)]
pub(super) struct NodeOut {
    actions: VecDeque<Action>,
    flights: Slab<Flight>,
    /// Connections to clients.
    lines: BTreeMap<ClientId, Line>,
    /// When each operation on a volume began that is not answered.
    storing: BTreeMap<IoId, Instant>,
    pub(super) now: Instant,
    next_peer: u32,
    /// Bytes of all slices that have come, for any client.
    pub(super) received_bytes: u64,
    /// The operation that is being answered found no room.
    pub(super) no_room: bool,
    /// Clients with slice-sets to record.
    to_record: Vec<ClientId>,
}

impl NodeOut {
    pub(super) fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Queues the client for recording, which happens once all slice-sets prepared in this turn are
    /// known.
    pub(super) fn record_later(&mut self, client: ClientId) {
        if !self.to_record.contains(&client) {
            self.to_record.push(client);
        }
    }

    pub(super) fn next_to_record(&mut self) -> Option<ClientId> {
        self.to_record.pop()
    }

    /// Returns whether no operation is in flight.
    pub(super) fn is_quiet(&self) -> bool {
        self.flights.is_empty()
    }

    /// Removes an operation that is answered, and returns its context.
    pub(super) fn answered(&mut self, io: IoId) -> Option<Flight> {
        let index = usize::try_from(io.0).ok()?;
        self.storing.remove(&io);
        self.flights.try_remove(index)
    }

    /// Returns whether an operation in flight uses this client's memory or volume.
    pub(super) fn uses(&self, client: ClientId) -> bool {
        self.flights.iter().any(|(_, flight)| flight.client() == Some(client))
    }

    /// Returns the number of this client's tasks in flight.
    pub(super) fn tasks(&self, client: ClientId) -> usize {
        let task = |flight: &Flight| matches!(flight, Flight::Task { .. } | Flight::Same { .. });
        let of = |flight: &Flight| task(flight) && flight.client() == Some(client);
        self.flights.iter().filter(|(_, flight)| of(flight)).count()
    }

    /// Returns the number of pages in use.
    pub(super) fn pages(&self) -> usize {
        let has_one = |flight: &Flight| {
            matches!(
                flight,
                Flight::MetaRead { .. } | Flight::MetaLoad { .. } | Flight::MetaWrite { .. }
            )
        };
        self.flights.iter().filter(|(_, flight)| has_one(flight)).count()
    }

    pub(super) fn push(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(super) fn io(&mut self, flight: Flight, member: MemberId, op: IoOp) {
        let io = self.depart(flight);
        self.storing.insert(io, self.now);
        self.push(Action::Io { io, member, op });
    }

    /// Returns the age of the oldest unanswered operation on a volume, in milliseconds.
    pub(super) fn storage_silent_ms(&self) -> u32 {
        let oldest = self.storing.values().min().map_or(self.now.0, |since| since.0);
        u32::try_from((self.now.0 - oldest) / 1_000_000).unwrap_or(u32::MAX)
    }

    pub(super) fn compute(&mut self, flight: Flight, compute: Compute) {
        let io = self.depart(flight);
        self.push(Action::Compute { io, compute });
    }

    pub(super) fn load(&mut self, flight: Flight, buf: Buf) {
        let io = self.depart(flight);
        self.push(Action::Load { io, buf });
    }

    pub(super) fn put(&mut self, flight: Flight, peer: PeerId, from: Buf, to: u64, imm: u32) {
        let io = self.depart(flight);
        self.push(Action::Fabric(FabricOp::Put { io, peer, from, to, imm }));
    }

    /// Connects to another node.
    pub(super) fn connect(&mut self, address: String) -> PeerId {
        let peer = PeerId(self.next_peer);
        self.next_peer = (self.next_peer + 1) % PeerId::FIRST_ACCEPTED;
        self.push(Action::Fabric(FabricOp::Connect { peer, address }));
        peer
    }

    pub(super) fn admit(&mut self, peer: PeerId, window: Range<u64>) {
        self.push(Action::Fabric(FabricOp::Admit { peer, window }));
    }

    pub(super) fn bear_silence(&mut self, peer: PeerId, millis: u32) {
        self.push(Action::Fabric(FabricOp::BearSilence { peer, millis }));
    }

    pub(super) fn volume(&mut self, volume: Arc<str>, op: VolumeOp) {
        let io = self.depart(Flight::Volume { volume });
        self.push(Action::Volume { io, op });
    }

    pub(super) fn note(&mut self, flight: Flight, op: NoteOp) {
        let io = self.depart(flight);
        self.push(Action::Note { io, op });
    }

    pub(super) fn survey(&mut self, flight: Flight, after: String, most: usize) {
        let io = self.depart(flight);
        self.push(Action::Survey { io, after, most });
    }

    /// Logs a remark.
    pub(super) fn remark(&mut self, kind: &'static str, text: String) {
        self.push(Action::Notify(ArrayEvent::Remark { kind, text: text.into() }));
    }

    pub(super) fn send(&mut self, peer: PeerId, epoch: Epoch, message: &Message) {
        let bytes = message.encode(epoch);
        self.push(Action::Fabric(FabricOp::Send { peer, bytes }));
    }

    pub(super) fn hang_up(&mut self, peer: PeerId) {
        self.push(Action::Fabric(FabricOp::HangUp { peer }));
    }

    fn depart(&mut self, flight: Flight) -> IoId {
        IoId(self.flights.insert(flight) as u64)
    }
}
