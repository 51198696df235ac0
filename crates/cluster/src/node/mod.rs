//! The node machine, [`Node`]: dumb storage with a pipeline engine.

mod answered;
mod connections;
mod driving;
mod ending;
mod ids;
mod journal;
mod notes;
mod out;
mod pipeline;
mod requests;
mod sessions;
mod volumes;
mod votes;

use crate::ids::NodeId;
use braid_array::action::{Command, CommandId, Event};
use braid_array::array::Scratch;
use braid_array::{Action, Instant, Machine, Refusal};

pub use self::ending::CLEAN_END;
pub use self::notes::NOTE_ENDING;
use self::out::NodeOut;
use self::pipeline::Pipes;
use self::sessions::ClientSessions;
pub use self::sessions::PARTING_TAG;
use self::volumes::Volumes;
use self::votes::{Searches, Votes};

/// Advice for a volume that cannot be read, written or flushed.
const STORAGE: &str = "look at the storage of this node";

/// Memory for rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingUse {
    /// In use by pipelines.
    pub used_bytes: u64,
    /// Total memory.
    pub limit_bytes: u64,
}

/// Whether the node serves.
#[derive(Debug)]
enum Life {
    Serving,
    /// Volumes are being closed; the first failure, if there was one.
    Stopping {
        id: CommandId,
        trouble: Option<Refusal>,
    },
    Stopped,
}

/// A storage node, or a witness, as a machine: a node keeps volumes for clients, takes its part of
/// each slice-set as the client's [`Pipeline`](crate::Pipeline) prescribes, and answers reads.
/// Volumes, vote files and bytes are the executor's.
///
/// The node owns machines that do not know one another, and passes messages between them:
/// *sessions* (the connections and their peers), *volumes* that are open, *votes* and the
/// *searches* before one is forgotten, and *pipelines* of clients, each with its journal. Requests
/// to the executor, and answers to clients, go to *out*.
///
/// Order of calls: [`new`](Self::new), then [`as_witness`](Self::as_witness) or
/// [`with_limit`](Self::with_limit) where these apply; then the calls of [`Machine`], `poll` and
/// `handle`. A node serves no block requests, has no deadline, and knows one command,
/// `Command::Stop`: the node hangs up on all peers, closes the volumes, answers, and is stopped.
///
/// One turn handles one event, in the one machine that it is for. Consequences for other machines
/// (a grant that ends older clients, a decision that is stored) are delivered at once, in order.
/// Next, a client that is gone is retired if nothing of it is in flight any more, searches continue
/// with the results of the volumes, and a stopping node checks whether everything is closed.
///
/// Order of messages on a client's connection: be granted the array, open a volume, set up a
/// pipeline and have it connected to the other nodes; then slice-sets, reads and flushes. Leftovers
/// of a client that is gone stay until its successor resolves them. A client that breaks the rules
/// loses its connection, and its pipeline ends. No client can harm others, or this process.
///
/// Memory is bounded: every pipeline has one ring, of which the base is granted when it is set up,
/// and the rest when the client asks for it. A request that does not fit is refused.
#[derive(Debug)]
pub struct Node {
    id: NodeId,
    witness: bool,
    out: NodeOut,
    sessions: ClientSessions,
    volumes: Volumes,
    votes: Votes,
    searches: Searches,
    pipes: Pipes,
    life: Life,
}

impl Node {
    /// Creates a node that gives this part of the arena to pipelines, except for a few pages of its
    /// own. The id is unique among nodes. The incarnation is a random number other than 0, drawn at
    /// each start.
    #[must_use]
    pub fn new(ring_space: Scratch, id: NodeId, incarnation: u64) -> Self {
        let mut space = ring_space;
        Self {
            id,
            witness: false,
            out: NodeOut::default(),
            sessions: ClientSessions::default(),
            volumes: Volumes::new(id, &mut space),
            votes: Votes::new(id, incarnation),
            searches: Searches::default(),
            pipes: Pipes::new(space),
            life: Life::Serving,
        }
    }

    /// Turns the node into a witness, which keeps no volumes and only votes.
    #[must_use]
    pub fn as_witness(self) -> Self {
        Self { witness: true, ..self }
    }

    /// Limits the memory of pipelines to less than the address range: rings are granted in part.
    #[must_use]
    pub const fn with_limit(mut self, bytes: u64) -> Self {
        self.pipes.set_limit(bytes);
        self
    }

    /// Returns the use of ring memory by pipelines.
    #[must_use]
    pub fn ring_use(&self) -> RingUse {
        self.pipes.ring_use()
    }

    /// Returns whether a client waits for a vote to be forgotten.
    #[must_use]
    pub fn is_forgetting(&self) -> bool {
        self.searches.any()
    }

    fn command(&mut self, id: CommandId, command: &Command) {
        let refusal = match (command, &self.life) {
            (Command::Stop, Life::Serving) => return self.stop(id),
            (Command::Stop, _) => Refusal::new("the node is stopping already", "wait for it"),
            _ => {
                let next = "say it to the client that serves the array";
                Refusal::new("a node has no array", next)
            }
        };
        self.out.push(Action::Reply { id, result: Err(refusal) });
    }

    fn stop(&mut self, id: CommandId) {
        self.life = Life::Stopping { id, trouble: None };
        for peer in self.sessions.peers() {
            // Ending a client takes its connections to other nodes away.
            if self.sessions.conn(peer).is_some() {
                self.out.hang_up(peer);
                self.lost(peer, "the node stops");
            }
        }
        for orphan in self.pipes.abandon_leftovers(&self.out) {
            self.resolved(orphan);
        }
    }

    fn finish_stop(&mut self) {
        let Life::Stopping { id, trouble } = &mut self.life else { return };
        if !self.sessions.is_empty() || !self.volumes.is_empty() {
            return;
        }
        let result = trouble.take().map_or(Ok(()), Err);
        self.out.push(Action::Reply { id: *id, result });
        self.life = Life::Stopped;
    }
}

impl Machine for Node {
    fn handle(&mut self, now: Instant, event: Event) {
        self.out.now = now;
        match event {
            Event::Done { io, result } => self.io_done(io, result),
            Event::Loaded { io, bytes } => self.loaded(io, bytes),
            Event::Volume { io, result } => self.volume_answered(io, result),
            Event::Survey { io, result } => self.surveyed(io, result),
            Event::Fabric(event) => self.fabric(event),
            Event::Command { id, command } => self.command(id, &command),
            Event::Tick => {}
        }
        self.drive_volumes();
        self.finish_stop();
    }

    fn poll(&mut self) -> Option<Action> {
        let action = self.out.poll();
        if action.is_some() {
            return action;
        }
        self.pipes.drive_journals(&mut self.out);
        self.out.poll()
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn idle(&self) -> bool {
        self.out.is_quiet() && self.volumes.is_idle() && self.pipes.are_idle(&self.out)
    }

    fn invariants(&self) -> Result<(), String> {
        self.pipes.check(&self.out)?;
        self.sessions.check(&self.out, |client| self.pipes.has_leftovers(client))?;
        if !self.idle() && self.out.is_quiet() && self.sessions.peers().is_empty() {
            return Err("it waits, and nothing is in flight and nobody connected".to_owned());
        }
        self.volumes.check(&self.out)
    }
}
