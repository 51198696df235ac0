//! A connection to a storage node for one question after the other: volumes and the metadata at
//! their beginning. Commands use this; a running array talks to its nodes through the engine.

mod error;
mod line;
mod probe;

use std::time::{Duration, Instant};

use braid_array::fabric::FabricEvent;
use braid_array::refusal::{Next, Refusal};
use braid_cluster::client::Voter;
use braid_cluster::ids::{Epoch, NodeId};
use braid_cluster::node::PARTING_TAG;
use braid_cluster::view::View;
use braid_cluster::wire::{Message, SessionInfo, VolumeInfo};

pub use self::error::{RemoteError, RemoteErrorKind};
use self::line::Line;
pub use self::probe::{bad_blocks, is_blank, probe, superblock};
use crate::fabric::Network;

#[cfg(test)]
mod tests;

/// Limit on waiting for an answer. A node may have to make room for a volume.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most that a node reads or writes of a volume in one message.
pub const MAX_META_BYTES: u32 = 4096;

/// Epoch of requests that come from no client of an array, and so have no place among them.
const NO_EPOCH: Epoch = Epoch::BEFORE_ANY;

/// Description that a node gives of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSurvey {
    /// Its version.
    pub version: String,
    /// Bytes that its store holds in all.
    pub total_bytes: u64,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Of these, the ones that volumes may still take.
    pub promised_bytes: u64,
    /// Bytes of memory for data on its way.
    pub ring_bytes: u64,
    /// Bytes of that memory in use.
    pub ring_used_bytes: u64,
    /// Clients that have a volume open.
    pub clients: u32,
    /// Set for a witness: no volumes, only votes.
    pub witness: bool,
    /// The volumes, in order of their names.
    pub volumes: Vec<VolumeInfo>,
    /// Arrays of which it keeps a vote, by their UUIDs.
    pub votes: Vec<[u8; 16]>,
}

/// Answer of a node that has granted an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Epoch of the grant.
    pub epoch: Epoch,
    /// Incarnation with which a member there would be in sync now.
    pub incarnation: u64,
    /// Its number.
    pub node: NodeId,
}

/// A connection to a node. At most one volume is open on it. Dropping the connection closes the
/// volume.
#[derive(Debug)]
pub struct Remote {
    line: Line,
    patience: Duration,
    /// Time by which all answers have to be there, if one was set.
    until: Option<Instant>,
    tag: u32,
    /// Number of the node that has the open volume; `used` and `volume_bytes` describe the volume.
    node: Option<NodeId>,
    used: bool,
    volume_bytes: u64,
    /// Reason for which nothing more can be asked.
    over: Option<RemoteError>,
}

impl Remote {
    /// Connects to `HOST:PORT`.
    ///
    /// # Errors
    /// [`RemoteError`] when nothing answers, or no node of this version and fabric.
    pub fn connect(address: &str, network: impl Into<Network>) -> Result<Self, RemoteError> {
        Self::connect_within(address, network, PATIENCE)
    }

    /// Connects as `connect` does. Neither that nor any later answer may take longer than
    /// `patience`. Neither that nor any later answer may take longer than `patience`.
    ///
    /// # Errors
    /// As `connect`.
    pub fn connect_within(
        address: &str,
        network: impl Into<Network>,
        patience: Duration,
    ) -> Result<Self, RemoteError> {
        let mut line = Line::open(address, network.into())
            .map_err(|Refusal { reason, next }| RemoteError::new(reason, next))?;
        match line.event(patience).map_err(|error| RemoteError::of_system(&error, patience))? {
            FabricEvent::Connected { .. } => Ok(Self {
                line,
                patience,
                until: None,
                tag: 0,
                node: None,
                used: false,
                volume_bytes: 0,
                over: None,
            }),
            FabricEvent::Lost { why: Refusal { reason, next }, .. } => {
                Err(RemoteError::unreachable(reason, next.or("check that it is a braid node")))
            }
            _ => Err(out_of_turn()),
        }
    }

    /// All later answers are to be there by then.
    pub const fn wait_until(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// Returns the time that is left for the next answer.
    fn left(&self) -> Duration {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        self.until.map_or(self.patience, left)
    }

    /// Makes a volume that reads as zeroes, and opens it.
    ///
    /// # Errors
    /// [`RemoteError`]; there is such a volume, or no room.
    pub fn create_volume(&mut self, name: &str, bytes: u64) -> Result<(), RemoteError> {
        let name = name.to_owned();
        match self.ask(|tag| Message::CreateVolume { tag, name, bytes })? {
            Message::Volume { .. } => Ok(()),
            _ => Err(out_of_turn()),
        }
    }

    /// Opens a volume, and returns its size.
    ///
    /// # Errors
    /// [`RemoteError`]; also when there is no such volume, or another client writes to it.
    pub fn open_volume(&mut self, name: &str, write: bool) -> Result<u64, RemoteError> {
        let name = name.to_owned();
        match self.ask(|tag| Message::OpenVolume { tag, name, write })? {
            Message::Volume { bytes, .. } => Ok(bytes),
            _ => Err(out_of_turn()),
        }
    }

    /// The number of the node, once a volume is open: two addresses may lead to one.
    #[must_use]
    pub const fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// Returns whether a client wrote to the open volume when it was opened.
    #[must_use]
    pub const fn used(&self) -> bool {
        self.used
    }

    /// Size of the open volume.
    #[must_use]
    pub const fn volume_bytes(&self) -> u64 {
        self.volume_bytes
    }

    /// Returns whether there is a volume of this name. If so it is open for reading after this.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn has_volume(&mut self, name: &str) -> Result<bool, RemoteError> {
        let name = name.to_owned();
        match self.exchange(|tag| Message::OpenVolume { tag, name, write: false })? {
            Message::Volume { .. } => Ok(true),
            Message::Refused { .. } => Ok(false),
            _ => Err(out_of_turn()),
        }
    }

    /// Returns the node's description and its volumes.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn survey(&mut self) -> Result<NodeSurvey, RemoteError> {
        let mut all: Option<NodeSurvey> = None;
        let mut after = String::new();
        loop {
            let behind = after.clone();
            let Message::NodeInfo {
                version,
                total_bytes,
                free_bytes,
                promised_bytes,
                ring_bytes,
                ring_used_bytes,
                clients,
                witness,
                volumes,
                votes,
                next,
                ..
            } = self.ask(|tag| Message::NodeStatus { tag, after: behind })?
            else {
                return Err(out_of_turn());
            };
            let all = all.get_or_insert_with(|| NodeSurvey {
                version,
                total_bytes,
                free_bytes,
                promised_bytes,
                ring_bytes,
                ring_used_bytes,
                clients,
                witness,
                volumes: Vec::new(),
                votes: Vec::new(),
            });
            all.volumes.extend(volumes);
            all.votes.extend(votes);
            // It only ever goes forward.
            if next <= after {
                return Ok(all.clone());
            }
            after = next;
        }
    }

    /// Returns the sessions of clients with the node, without this one.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn sessions(&mut self) -> Result<Vec<SessionInfo>, RemoteError> {
        let mut all = Vec::new();
        let mut from = 0;
        loop {
            let Message::Sessions { sessions, next, .. } =
                self.ask(|tag| Message::ListSessions { tag, from })?
            else {
                return Err(out_of_turn());
            };
            all.extend(sessions);
            // It only ever goes forward.
            if next <= from {
                return Ok(all);
            }
            from = next;
        }
    }

    /// Makes the node take nothing more from the client that has this array, nor from any before
    /// it, and waits until their operations are over.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn fence(&mut self, array: [u8; 16], client: u64) -> Result<Granted, RemoteError> {
        let mut epoch = Epoch(1);
        loop {
            match self.ask_for(array, epoch, client)? {
                Ok(granted) => return Ok(granted),
                Err(granted) if granted >= epoch && granted < granted.next() => {
                    epoch = granted.next();
                }
                Err(_) => return Err(out_of_turn()),
            }
        }
    }

    /// Does the same as [`fence`](Self::fence), as a client of this epoch only: a client that was
    /// granted the array meanwhile keeps it. A volume is opened after that, on the same connection.
    ///
    /// # Errors
    /// [`RemoteError`]; another client was granted it.
    pub fn grant(
        &mut self,
        array: [u8; 16],
        epoch: Epoch,
        client: u64,
    ) -> Result<Granted, RemoteError> {
        self.ask_for(array, epoch, client)?.map_err(|_| {
            let next = "stop the array if that started it, and say this again";
            let why = Refusal::new("has granted the array to another client just now", next);
            RemoteError { why, kind: RemoteErrorKind::Busy }
        })
    }

    /// Or the epoch that was granted already.
    fn ask_for(
        &mut self,
        array: [u8; 16],
        epoch: Epoch,
        client: u64,
    ) -> Result<Result<Granted, Epoch>, RemoteError> {
        match self.ask(|tag| Message::Grant { tag, array, epoch, client })? {
            Message::Granted { incarnation, node, .. } => {
                Ok(Ok(Granted { epoch, incarnation, node }))
            }
            Message::Outvoted { granted, .. } => Ok(Err(granted)),
            _ => Err(out_of_turn()),
        }
    }

    /// Returns the vote that the node would give for an array. Nothing changes.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn vote(&mut self, array: [u8; 16]) -> Result<Voter, RemoteError> {
        match self.ask(|tag| Message::ReadVote { tag, array })? {
            Message::VoteIs { granted, view, incarnation, node, .. } => {
                Ok(Voter { granted, view: view.told(), incarnation, node })
            }
            _ => Err(out_of_turn()),
        }
    }

    /// Makes the node forget for good its grants of an array and all it was told of it. This must
    /// be the only request on the connection.
    ///
    /// # Errors
    /// [`RemoteError`]: the node knows nothing of the array, has a member of it, or a client has
    /// that.
    pub fn forget(&mut self, array: [u8; 16]) -> Result<(), RemoteError> {
        self.done(|tag| Message::Forget { tag, array })
    }

    /// Makes the node store the view of an array that it has granted.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn record(&mut self, view: View) -> Result<(), RemoteError> {
        match self.ask(|tag| Message::StoreView { tag, view })? {
            Message::Ok { .. } => Ok(()),
            _ => Err(out_of_turn()),
        }
    }

    /// Removes the volume that is open for writing, if no other client has it open.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn remove_volume(&mut self) -> Result<(), RemoteError> {
        self.done(|tag| Message::RemoveVolume { tag })
    }

    /// Ends the node.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn shut_down(&mut self) -> Result<(), RemoteError> {
        self.done(|tag| Message::Shutdown { tag })
    }

    /// Removes the volume that this connection has made.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn delete_volume(&mut self) -> Result<(), RemoteError> {
        self.done(|tag| Message::DeleteVolume { tag })
    }

    /// Reads from the open volume: whole sectors, at most 4096 bytes.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn read(&mut self, sector: u64, bytes: u32) -> Result<Vec<u8>, RemoteError> {
        match self.ask(|tag| Message::ReadMeta { tag, sector, bytes })? {
            Message::Meta { bytes: read, .. } if read.len() == bytes as usize => Ok(read),
            _ => Err(out_of_turn()),
        }
    }

    /// Writes to the open volume, durably: whole sectors, at most 4096 bytes.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn write(&mut self, sector: u64, bytes: Vec<u8>) -> Result<(), RemoteError> {
        self.done(|tag| Message::WriteMeta { tag, sector, bytes })
    }

    fn done(&mut self, make: impl FnOnce(u32) -> Message) -> Result<(), RemoteError> {
        match self.ask(make)? {
            Message::Ok { .. } => Ok(()),
            _ => Err(out_of_turn()),
        }
    }

    /// Sends a request as `exchange` does, with refusals as errors.
    fn ask(&mut self, make: impl FnOnce(u32) -> Message) -> Result<Message, RemoteError> {
        match self.exchange(make)? {
            Message::Refused { busy, reason, advice, .. } => {
                let next = Next::from(advice).or("see the log of the node");
                let kind = if busy { RemoteErrorKind::Busy } else { RemoteErrorKind::Refused };
                Err(RemoteError { kind, ..RemoteError::new(reason, next) })
            }
            message => Ok(message),
        }
    }

    /// Sends a request and waits for the answer to it. Once that has failed nothing more is asked.
    fn exchange(&mut self, make: impl FnOnce(u32) -> Message) -> Result<Message, RemoteError> {
        let result = match &self.over {
            Some(error) => Err(error.clone()),
            None => self.try_exchange(make),
        };
        self.over = result.as_ref().err().cloned();
        result
    }

    fn try_exchange(&mut self, make: impl FnOnce(u32) -> Message) -> Result<Message, RemoteError> {
        self.tag += 1;
        self.line.send(make(self.tag).encode(NO_EPOCH));
        let event = self.line.event(self.left());
        match event.map_err(|error| RemoteError::of_system(&error, self.patience))? {
            FabricEvent::Message { bytes, .. } => self.answer(&bytes),
            FabricEvent::Lost { why, .. } => {
                let reason = format!("has gone: {}", why.reason);
                Err(RemoteError::unreachable(reason, "see the log of the node"))
            }
            _ => Err(out_of_turn()),
        }
    }

    /// Returns the message if it answers the last request.
    fn answer(&mut self, bytes: &[u8]) -> Result<Message, RemoteError> {
        let (_, message) = Message::decode(bytes).map_err(RemoteError::nonsense)?;
        let message = unasked(message)?;
        if let Message::Volume { node, used, bytes, .. } = message {
            (self.node, self.used, self.volume_bytes) = (Some(node), used, bytes);
        }
        match &message {
            Message::Volume { tag, .. }
            | Message::Meta { tag, .. }
            | Message::NodeInfo { tag, .. }
            | Message::Sessions { tag, .. }
            | Message::Ok { tag }
            | Message::Granted { tag, .. }
            | Message::VoteIs { tag, .. }
            | Message::Outvoted { tag, .. }
            | Message::Refused { tag, .. }
                if *tag == self.tag =>
            {
                Ok(message)
            }
            _ => Err(out_of_turn()),
        }
    }
}

fn out_of_turn() -> RemoteError {
    RemoteError::nonsense("out of turn")
}

/// Turns a node's parting message, which answers no request, into its reason.
fn unasked(message: Message) -> Result<Message, RemoteError> {
    match message {
        Message::Outvoted { tag: PARTING_TAG, .. } => {
            let next = "stop the array if that client started it, or let that client end, and say \
                        this again";
            let why = Refusal::new("has granted the array to another client meanwhile", next);
            Err(RemoteError { why, kind: RemoteErrorKind::Busy })
        }
        Message::Refused { tag: PARTING_TAG, reason, advice, .. } => {
            Err(RemoteError::new(reason, Next::from(advice).or("see the log of the node")))
        }
        message => Ok(message),
    }
}
