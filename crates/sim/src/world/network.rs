//! Connections between processes, and what is under way on them.

use std::collections::VecDeque;
use std::ops::Range;

use braid_array::fabric::PeerId;
use braid_array::{Buf, IoId};

use super::claims::ClaimId;
use super::due::{EndId, FabricDue};
use super::watch::Watch;

/// State of an end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndState {
    /// Not told yet that the connection stands.
    Waiting,
    Up,
    HungUp,
    Over,
}

/// An end of a connection, at a process.
#[derive(Debug)]
pub(super) struct ConnectionEnd {
    pub(super) process: usize,
    pub(super) peer: PeerId,
    pub(super) state: EndState,
    /// Where the other end may put.
    pub(super) window: Option<Range<u64>>,
    /// So long it bears to hear nothing from the other.
    pub(super) silence_ms: Option<u32>,
    /// Messages that have not reached this end.
    pub(super) coming: VecDeque<Vec<u8>>,
}

/// A connection between two processes.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) ends: [ConnectionEnd; 2],
}

/// A buffer on its way.
#[derive(Debug)]
pub(super) struct Put {
    pub(super) sender: EndId,
    pub(super) io: IoId,
    pub(super) from: Buf,
    pub(super) to: Buf,
    pub(super) imm: u32,
    pub(super) bytes: Vec<u8>,
    pub(super) source: Option<ClaimId>,
    pub(super) target: Option<ClaimId>,
    /// The sender was told.
    pub(super) done: bool,
    /// The receiver was told, or never will be.
    pub(super) over: bool,
}

/// All connections and puts so far, by number.
#[derive(Debug, Default)]
pub struct Network {
    /// Examines messages and puts.
    pub watch: Watch,
    pub(super) connections: Vec<Connection>,
    pub(super) puts: Vec<Put>,
}

impl Network {
    pub(super) fn end(&mut self, id: EndId) -> &mut ConnectionEnd {
        &mut self.connections[id.connection].ends[id.end]
    }

    /// The process that would be told of this.
    pub(super) fn hears(&self, due: FabricDue) -> Option<usize> {
        let end = |id: EndId| self.connections[id.connection].ends[id.end].process;
        match due {
            FabricDue::Up(id) | FabricDue::Message(id) | FabricDue::Cut(id) => Some(end(id)),
            FabricDue::Closing(id) => Some(end(id.other())),
            FabricDue::PutDone(number) => Some(end(self.puts[number].sender)),
            FabricDue::PutPlaced(number) => Some(end(self.puts[number].sender.other())),
            FabricDue::PutRead(_) | FabricDue::PutLand(_) => None,
        }
    }

    /// Returns whether nothing is under way any more from this end, which has hung up.
    pub(super) fn is_drained(&mut self, id: EndId) -> bool {
        let on_its_way = |put: &Put| put.sender == id && !put.over;
        let on_their_way = self.puts.iter().any(on_its_way);
        self.end(id.other()).coming.is_empty() && !on_their_way
    }

    /// Returns the timeouts of ends of connections for a silent peer, in milliseconds.
    pub fn silences(&self) -> impl Iterator<Item = u32> {
        let ends = self.connections.iter().flat_map(|connection| &connection.ends);
        ends.filter_map(|end| end.silence_ms)
    }

    /// The connections that stand between two processes.
    pub fn between(&self, a: usize, b: usize) -> Vec<usize> {
        let between = |connection: &Connection| {
            let [first, second] = &connection.ends;
            let processes = [first.process, second.process];
            let up = first.state == EndState::Up && second.state == EndState::Up;
            up && (processes == [a, b] || processes == [b, a])
        };
        let numbers = self.connections.iter().enumerate();
        numbers.filter(|(_, connection)| between(connection)).map(|(number, _)| number).collect()
    }

    /// Returns the number by which a process knows a connection.
    pub(super) fn peer_of(&self, connection: usize, process: usize) -> Option<PeerId> {
        let ends = &self.connections.get(connection)?.ends;
        ends.iter().find(|end| end.process == process).map(|end| end.peer)
    }
}
