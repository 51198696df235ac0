//! The node machine, [`Node`]: dumb storage with a pipeline engine.

mod copy;
mod forget;
mod ids;
mod invariants;
mod journal;
mod limit;
mod look;
mod meta;
mod orphans;
mod out;
mod part;
mod pipe;
mod reads;
mod record;
mod request;
mod ring;
mod scan;
mod session;
mod share;
mod slot;
mod survey;
#[cfg(test)]
mod tests;
mod thin;
mod volumes;
mod votes;
mod wiring;

use std::collections::BTreeMap;

use braid_array::action::{Command, CommandId, Event, IoError, IoErrorKind};
use braid_array::array::Scratch;
use braid_array::fabric::{FabricEvent, PeerId};
use braid_array::{Action, Instant, Machine, Outcome, Refusal};

use self::ids::ClientId;
use self::meta::Meta;
use self::out::{Flight, Out};
use self::pipe::Pipe;
use self::ring::Rings;
pub use self::session::PARTING_TAG;
use self::session::{Client, Conn};
use self::volumes::Volumes;
pub use self::votes::NOTE_ENDING;
use self::votes::Votes;

/// What to do when a volume cannot be read, written or flushed.
const STORAGE: &str = "look at the storage of this node";

/// Memory for rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingUse {
    /// In use by pipelines.
    pub used_bytes: u64,
    /// What there is.
    pub limit_bytes: u64,
}

/// Whether it serves.
#[derive(Debug)]
enum Life {
    Serving,
    /// Volumes are being closed; what went wrong with them.
    Stopping {
        id: CommandId,
        trouble: Option<Refusal>,
    },
    Stopped,
}

/// A storage node, or a witness, as a machine: it keeps volumes for clients, takes its part of each
/// slice-set as the client's [`Pipeline`](crate::Pipeline) says, and answers reads. It owns the
/// connections, the clients with their pipelines, the open volumes, the votes, and the memory of
/// rings. Volumes, vote files and bytes are the executor's.
///
/// Order of calls: [`new`](Self::new), then [`as_witness`](Self::as_witness) or
/// [`with_limit`](Self::with_limit) where these apply; then the calls of [`Machine`], `poll` and
/// `handle`. A node serves no block requests, has no deadline, and knows one command,
/// `Command::Stop`: it hangs up on everybody, closes the volumes, answers, and is stopped.
///
/// Order of messages on a client's connection: be granted the array, open a volume, set up a
/// pipeline and have it connected to the other nodes; then slice-sets, reads and flushes. What a
/// client that is gone leaves prepared stays until its successor resolves it. A client that breaks
/// the rules loses its connection, and its pipeline ends; it cannot do harm to others, nor to this
/// process.
///
/// Memory is bounded: every pipeline has one ring, of which the base is granted when it is set up,
/// and the rest when the client asks for it; what does not fit is refused.
#[derive(Debug)]
pub struct Node {
    id: u64,
    incarnation: u64,
    witness: bool,
    out: Out,
    conns: BTreeMap<PeerId, Conn>,
    clients: BTreeMap<ClientId, Client>,
    /// Which pipeline is whose.
    sessions: BTreeMap<u64, ClientId>,
    volumes: Volumes,
    votes: Votes,
    rings: Rings,
    meta: Meta,
    next_client: u32,
    next_peer: u32,
    life: Life,
}

impl Node {
    /// A node that gives this part of the arena to pipelines, save for a few pages of its own. No
    /// other has its id. The incarnation is a random number, not 0, that is drawn at each start.
    #[must_use]
    pub fn new(ring_space: Scratch, id: u64, incarnation: u64) -> Self {
        let mut space = ring_space;
        let meta = Meta::new(&mut space);
        Self {
            id,
            incarnation,
            witness: false,
            out: Out::default(),
            conns: BTreeMap::new(),
            clients: BTreeMap::new(),
            sessions: BTreeMap::new(),
            volumes: Volumes::default(),
            votes: Votes::default(),
            rings: Rings::new(space),
            meta,
            next_client: 0,
            next_peer: 0,
            life: Life::Serving,
        }
    }

    /// One that keeps no volumes, and only votes.
    #[must_use]
    pub fn as_witness(self) -> Self {
        Self { witness: true, ..self }
    }

    /// One that gives pipelines this much memory, of more addresses: rings are granted in part.
    #[must_use]
    pub const fn with_limit(mut self, bytes: u64) -> Self {
        self.rings.set_limit(bytes);
        self
    }

    /// How much memory pipelines use.
    #[must_use]
    pub fn ring_use(&self) -> RingUse {
        RingUse { used_bytes: self.rings.used_bytes(), limit_bytes: self.rings.bytes() }
    }

    fn fabric(&mut self, event: FabricEvent) {
        match event {
            FabricEvent::Accepted { peer, limit } => match self.life {
                Life::Serving => drop(self.conns.insert(peer, Conn::New(limit))),
                Life::Stopping { .. } | Life::Stopped => self.out.hang_up(peer),
            },
            FabricEvent::Connected { peer } => self.connected(peer),
            FabricEvent::Lost { peer, why } => self.lost(peer, &why.reason),
            FabricEvent::Placed { peer, imm } => self.placed(peer, imm),
            FabricEvent::Message { peer, bytes } => self.message(peer, &bytes),
        }
    }

    /// For the log: the store has failed.
    fn remark_on_storage(&mut self, flight: &Flight, error: IoError) {
        let volume = flight.client().and_then(|id| self.clients.get(&id)?.held.clone());
        let volume = volume.map_or_else(String::new, |held| format!(" {}", held.name));
        let why = match (error.kind, error.errno) {
            (IoErrorKind::Full, _) => "there is no room for what was written; make room".to_owned(),
            (IoErrorKind::Shrunk, _) => format!("its file has become smaller; {STORAGE}"),
            (_, Some(errno)) => format!("an operation has failed, errno {errno}; {STORAGE}"),
            (_, None) => format!("an operation has failed; {STORAGE}"),
        };
        self.out.remark("storage", format!("volume{volume}: {why}"));
    }

    fn done(&mut self, flight: Flight, failure: Option<IoError>) {
        let (client, ok) = (flight.client(), failure.is_none());
        if let Some(error) = failure.filter(|_| flight.is_of_storage()) {
            self.remark_on_storage(&flight, error);
            let pipe = client.and_then(|client| pipe_of(&mut self.clients, &self.out, client));
            if let Some(pipe) = pipe.filter(|_| error.kind == IoErrorKind::Full) {
                pipe.no_room = true;
            }
        }
        match flight {
            Flight::Task { client, position, task } => {
                if let Some(pipe) = pipe_of(&mut self.clients, &self.out, client) {
                    pipe.done(position, task, ok, &mut self.out);
                }
            }
            Flight::Read { client, slot } | Flight::Digest { client, slot } => {
                if let Some(pipe) = pipe_of(&mut self.clients, &self.out, client) {
                    pipe.read_done(slot, ok, &mut self.out);
                }
            }
            Flight::ReadPut { client, slot } => {
                if let Some(pipe) = pipe_of(&mut self.clients, &self.out, client) {
                    pipe.read_put(slot, &mut self.out);
                }
                self.go_on_giving(client);
            }
            Flight::Flush { client, tag } if ok => self.out.confirm(client, tag),
            Flight::Flush { client, tag } => {
                self.out.refuse(client, tag, Refusal::new("the volume cannot be flushed", STORAGE));
            }
            Flight::MetaRead { client, tag, page, bytes } => {
                self.meta_read((client, tag), page, bytes, ok);
            }
            Flight::MetaWrite { client, tag, page, sector } => {
                self.meta_written((client, tag), page, sector, ok);
            }
            Flight::Take { client, tag, slot } => self.copy_stored(client, tag, slot, ok),
            Flight::LastFlush { volume } => self.last_flush(&volume, ok),
            Flight::Resolve { orphan } => self.resolve_io_done(orphan, ok),
            Flight::VoteRead { array } => self.vote_read(array, None),
            Flight::VoteWrite { array } => self.vote_written(array, ok),
            Flight::VoteRemove { array } => self.vote_removed(array, ok),
            Flight::Journal { client } => self.journal_done(client, ok),
            Flight::JournalTrim { client } => self.journal_trimmed(client, ok),
            Flight::MetaLoad { .. }
            | Flight::JournalLoad { .. }
            | Flight::JournalSum { .. }
            | Flight::Volume { .. }
            | Flight::Survey { .. }
            | Flight::Search { .. }
            | Flight::Same { .. } => {}
        }
        if let Some(client) = client {
            self.run_ready(client);
        }
    }

    fn command(&mut self, id: CommandId, command: &Command) {
        let refusal = match (command, &self.life) {
            (Command::Stop, Life::Serving) => None,
            (Command::Stop, _) => Some(("the node is stopping already", "wait for it")),
            _ => Some(("a node has no array", "say it to the client that serves the array")),
        };
        if let Some((reason, next)) = refusal {
            let result = Err(Refusal::new(reason, next));
            self.out.push(Action::Reply { id, result });
            return;
        }
        self.life = Life::Stopping { id, trouble: None };
        let accepted: Vec<PeerId> = self.conns.keys().copied().collect();
        for peer in accepted {
            // Ending a client takes its connections to other nodes away.
            if self.conns.contains_key(&peer) {
                self.out.hang_up(peer);
                self.lost(peer, "the node stops");
            }
        }
        self.abandon_orphans();
    }

    /// Something went wrong with a volume that is being closed.
    fn stop_trouble(&mut self, why: Refusal) {
        if let Life::Stopping { trouble, .. } = &mut self.life {
            trouble.get_or_insert(why);
        }
    }

    fn finish_stop(&mut self) {
        let Life::Stopping { id, trouble } = &mut self.life else { return };
        if !self.clients.is_empty() || !self.volumes.is_empty() {
            return;
        }
        let result = trouble.take().map_or(Ok(()), Err);
        self.out.push(Action::Reply { id: *id, result });
        self.life = Life::Stopped;
    }
}

/// The pipeline of a client that is still there.
fn pipe_of<'a>(
    clients: &'a mut BTreeMap<ClientId, Client>,
    out: &Out,
    id: ClientId,
) -> Option<&'a mut Pipe> {
    clients.get_mut(&id).filter(|_| out.is_here(id))?.pipe.as_mut()
}

impl Machine for Node {
    fn handle(&mut self, now: Instant, event: Event) {
        self.out.now = now;
        match event {
            Event::Done { io, result } => {
                let same = matches!(result, Ok(Outcome::Checked(found)) if found.differs() == 0);
                match self.out.answered(io) {
                    Some(Flight::Same { client, position, task }) => {
                        if let Some(pipe) = pipe_of(&mut self.clients, &self.out, client) {
                            pipe.compared((position, task), same, &mut self.out);
                        }
                        self.run_ready(client);
                    }
                    Some(Flight::JournalSum { client, record }) => {
                        if let Ok(Outcome::Crc(crc)) = result {
                            self.journal_summed(client, record, crc);
                        }
                        self.run_ready(client);
                    }
                    Some(flight) => self.done(flight, result.err()),
                    None => {}
                }
            }
            Event::Loaded { io, bytes } => match self.out.answered(io) {
                Some(Flight::MetaLoad { client, tag, page }) => {
                    self.meta_loaded(client, tag, page, bytes);
                    self.run_ready(client);
                }
                Some(Flight::VoteRead { array }) => self.vote_read(array, Some(&bytes)),
                Some(Flight::JournalLoad { client }) => {
                    self.journal_loaded(client, &bytes);
                    self.run_ready(client);
                }
                _ => {}
            },
            Event::Volume { io, result } => {
                if let Some(Flight::Volume { volume }) = self.out.answered(io) {
                    self.volume_answered(&volume, result);
                }
            }
            Event::Survey { io, result } => match self.out.answered(io) {
                Some(Flight::Survey { client, tag }) => {
                    self.surveyed(client, tag, result);
                    self.run_ready(client);
                }
                Some(Flight::Search { client }) => {
                    self.volumes_listed(client, result);
                    self.run_ready(client);
                }
                _ => {}
            },
            Event::Fabric(event) => self.fabric(event),
            Event::Command { id, command } => self.command(id, &command),
            Event::Tick => {}
        }
        self.finish_stop();
    }

    fn poll(&mut self) -> Option<Action> {
        self.out.poll()
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn idle(&self) -> bool {
        let quiet = |client: &Client| client.pipe.as_ref().is_none_or(Pipe::is_idle);
        self.out.is_quiet()
            && self.meta.is_idle()
            && self.clients.iter().filter(|(id, _)| self.out.is_here(**id)).all(|(_, c)| quiet(c))
    }

    fn invariants(&self) -> Result<(), String> {
        self.check()
    }
}
