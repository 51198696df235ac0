//! Messages between clients and nodes, as bytes: all numbers little-endian, the kind first, then
//! the epoch of the sender, then the fields in the order in which they are declared. Strings and
//! lists have a length of 16 bits in front. Decoding takes hostile bytes.

use crate::ids::{Epoch, SetVersion};
use crate::pipeline::Slots;
use crate::set::{Roles, Set};
use braid_array::{Refusal, Role};

mod codec;
mod declare;
mod message;
#[cfg(test)]
mod tests;

use codec::Field;
pub use codec::WireError;
pub use message::Message;

/// The version of this protocol. Processes of another version part when they meet.
pub const PROTOCOL_VERSION: u16 = 11;

/// The longest name of a volume.
pub const MAX_NAME_BYTES: usize = 64;

/// Returns whether a volume can have this name: letters, digits, `.`, `_` and `-`, no dot in front.
#[must_use]
pub fn valid_volume_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.starts_with('.') && name.chars().all(fits)
}

/// Returns the refusal of a node whose store has no room.
pub(crate) fn no_room() -> Refusal {
    Refusal::new("its store has no room", "make room there")
}

/// One node, in the form in which another is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// Its role in the array.
    pub role: Role,
    /// Where it listens, `HOST:PORT`.
    pub address: String,
    /// Where its ring begins in its arena.
    pub ring: u64,
}

/// A volume, in a node's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// A client writes to it.
    pub written: bool,
}

/// Possessions of a client at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its number; later clients of the node have higher ones.
    pub number: u32,
    /// Age of the client.
    pub age_ms: u64,
    /// Connected; otherwise the client is gone, and its leftovers are to be resolved or still end.
    pub connected: bool,
    /// A volume is open.
    pub volume: bool,
    /// The array that the client was granted, and the epoch of the grant.
    pub grant: Option<([u8; 16], Epoch)>,
    /// Bytes of its ring that it may use; 0 without a pipeline.
    pub ring_bytes: u64,
}

/// Volumes and votes in one `NodeInfo` at most, and sessions in one `Sessions`.
pub const MAX_LISTED: usize = 64;

/// A slice-set of a client that is gone, in its state at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The client's epoch and its number for the slice-set.
    pub version: SetVersion,
    /// The slice-set, if it is prepared; otherwise it was stored.
    pub prepared: Option<Set>,
    /// The preparation or the store has succeeded.
    pub ok: bool,
}

/// A record of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// The client's epoch and its number for the slice-set.
    pub version: SetVersion,
    /// Roles that have a part in it.
    pub holders: Roles,
    /// Void: earlier records of the slice-set do not count.
    pub void: bool,
}

/// Usual limit of a message on a slice-set, in bytes: such a message is encoded without growing.
const USUAL_BYTES: usize = 64;

impl Message {
    /// As bytes.
    #[must_use]
    pub fn encode(&self, epoch: Epoch) -> Vec<u8> {
        let mut out = Vec::with_capacity(USUAL_BYTES);
        self.put(&mut out, epoch);
        out
    }

    /// From bytes: the epoch of the sender and the message.
    ///
    /// # Errors
    /// [`WireError`] for anything that `encode` does not make.
    pub fn decode(mut bytes: &[u8]) -> Result<(Epoch, Self), WireError> {
        let input = &mut bytes;
        let kind = u8::get(input)?;
        let epoch = Epoch::get(input)?;
        let message = Self::get(kind, input)?;
        if input.is_empty() { Ok((epoch, message)) } else { Err(WireError::Long) }
    }
}

impl Slots {
    /// Bytes of all of them.
    #[must_use]
    pub fn total_bytes(self) -> u64 {
        u64::from(self.count) * u64::from(self.bytes)
    }
}
