//! Asking a storage node, one question after the other: volumes and what lies at their beginning.
//! For commands; an array that runs talks to its nodes through the engine.

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use braid_array::fabric::MAX_MESSAGE_BYTES;
use braid_array::format::{Superblock, SuperblockError, Version};
use braid_cluster::assemble::{Candidate, SUPERBLOCK_SECTOR};
use braid_cluster::wire::Message;

use crate::fabric::frame::{HEADER_BYTES, Header, Hello, Kind};
use crate::member::describe;

#[cfg(test)]
mod tests;

/// How long an answer may take. A node may have to make room for a volume.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a node did not do what was asked: the reason, then the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}; {next}")]
pub struct RemoteError {
    /// What stands against it.
    pub reason: String,
    /// What to do.
    pub next: String,
}

impl RemoteError {
    fn new(reason: impl Into<String>, next: impl Into<String>) -> Self {
        Self { reason: reason.into(), next: next.into() }
    }

    /// From `reason; next step`.
    fn of_text(text: &str, next: &str) -> Self {
        let (reason, next) = text.split_once("; ").unwrap_or((text, next));
        Self::new(reason, next)
    }

    fn broken(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                let reason = format!("gives no answer for {} seconds", PATIENCE.as_secs());
                Self::new(reason, "see whether the node is overloaded, and try again")
            }
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                Self::new("has ended the connection", "see the log of the node")
            }
            _ => {
                let reason = format!("cannot be talked to: {}", describe(error));
                Self::new(reason, "check the network")
            }
        }
    }

    fn nonsense(error: impl Display) -> Self {
        let reason = format!("gives an answer that means nothing ({error})");
        Self::new(reason, "check that it is a braid node of this version")
    }
}

/// A connection to a node. It has at most one volume open, which is closed when it is dropped.
#[derive(Debug)]
pub struct Remote {
    stream: TcpStream,
    epoch: u32,
    tag: u32,
}

impl Remote {
    /// Connects to `HOST:PORT`.
    ///
    /// # Errors
    /// [`RemoteError`]: nobody is there, or somebody who is no node of this version.
    pub fn connect(address: &str, epoch: u32) -> Result<Self, RemoteError> {
        let hello = Hello { kind: Kind::Tcp, blob: Vec::new() };
        let (stream, _) = crate::fabric::connect(address, &hello)
            .map_err(|error| RemoteError::of_text(&error, "check that it is a braid node"))?;
        let patient = stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        patient.map_err(|error| RemoteError::broken(&error))?;
        Ok(Self { stream, epoch, tag: 0 })
    }

    /// Where the node really is: two names may stand for one.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.stream.peer_addr().ok()
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

    /// Opens a volume, and tells its size.
    ///
    /// # Errors
    /// [`RemoteError`]; there is none, or somebody else writes to it.
    pub fn open_volume(&mut self, name: &str, write: bool) -> Result<u64, RemoteError> {
        let name = name.to_owned();
        match self.ask(|tag| Message::OpenVolume { tag, name, write })? {
            Message::Volume { bytes, .. } => Ok(bytes),
            _ => Err(out_of_turn()),
        }
    }

    /// Is there a volume of this name? If so it is open for reading after this.
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

    /// Ends the connection. When this returns the node has heard of it, so a volume that was open
    /// for writing is free again.
    pub fn close(mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        // The node closes its side then; how it does so does not matter any more.
        let _ = io::copy(&mut self.stream, &mut io::sink());
    }

    /// As `exchange`, with refusals as errors.
    fn ask(&mut self, make: impl FnOnce(u32) -> Message) -> Result<Message, RemoteError> {
        match self.exchange(make)? {
            Message::Refused { reason, .. } => {
                Err(RemoteError::of_text(&reason, "see the log of the node"))
            }
            message => Ok(message),
        }
    }

    /// Sends a request and waits for the answer to it.
    fn exchange(&mut self, make: impl FnOnce(u32) -> Message) -> Result<Message, RemoteError> {
        self.tag += 1;
        let request = make(self.tag).encode(self.epoch);
        let header = Header::Message { bytes: request.len() as u32 };
        let sent = [header.encode().as_slice(), &request].concat();
        self.stream.write_all(&sent).map_err(|error| RemoteError::broken(&error))?;
        match self.receive()? {
            (tag, message) if tag == self.tag => Ok(message),
            _ => Err(out_of_turn()),
        }
    }

    fn receive(&mut self) -> Result<(u32, Message), RemoteError> {
        let mut head = [0; HEADER_BYTES];
        let mut payload = [0; MAX_MESSAGE_BYTES];
        self.stream.read_exact(&mut head).map_err(|error| RemoteError::broken(&error))?;
        let Header::Message { bytes } = Header::decode(&head).map_err(RemoteError::nonsense)?
        else {
            return Err(out_of_turn());
        };
        let payload = payload.get_mut(..bytes as usize).ok_or_else(out_of_turn)?;
        self.stream.read_exact(payload).map_err(|error| RemoteError::broken(&error))?;
        let (_, message) = Message::decode(payload).map_err(RemoteError::nonsense)?;
        let tag = match &message {
            Message::Volume { tag, .. }
            | Message::Meta { tag, .. }
            | Message::Ok { tag }
            | Message::Refused { tag, .. } => *tag,
            _ => return Err(out_of_turn()),
        };
        Ok((tag, message))
    }
}

fn out_of_turn() -> RemoteError {
    RemoteError::nonsense("out of turn")
}

/// Opens a volume and reads its superblock. Who keeps the connection keeps the volume open.
///
/// # Errors
/// [`RemoteError`]. That there is no superblock to trust is none.
pub fn probe(
    address: &str,
    volume: &str,
    write: bool,
    epoch: u32,
) -> Result<(Remote, Candidate), RemoteError> {
    let mut remote = Remote::connect(address, epoch)?;
    let bytes = remote.open_volume(volume, write)?;
    let superblock = match Version::V1_2.location(bytes / braid_array::SECTOR_BYTES) {
        None => Err(SuperblockError::NoMagic),
        Some(sector) => {
            let read = remote.read(sector, braid_array::format::superblock::READ_BYTES)?;
            Superblock::decode(Version::V1_2, SUPERBLOCK_SECTOR, &read)
        }
    };
    let (address, volume) = (address.to_owned(), volume.to_owned());
    Ok((remote, Candidate { address, volume, bytes, superblock }))
}
