//! Ids and helpers that all of the node machine uses.

use std::sync::Arc;

use braid_array::SECTOR_BYTES;
use braid_array::fabric::{Survey, Volume};
use braid_array::format::Version;
use braid_array::format::superblock::uuid_text;

/// First bytes of a superblock.
const MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
const MAJOR: [u8; 4] = 1_u32.to_le_bytes();

/// The node's name for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClientId(pub(super) u32);

/// An array, by its id.
pub(super) type ArrayId = [u8; 16];

/// Violation of the protocol by a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Violation(pub(super) &'static str);

/// The volume that a client has open.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) name: Arc<str>,
    pub(super) volume: Volume,
    pub(super) write: bool,
    /// This client made it.
    pub(super) made: bool,
}

pub(super) fn text_of(array: ArrayId) -> String {
    uuid_text(Version::V1_2, array)
}

/// Returns whether this superblock says that the array is clean; `None` if it is no superblock.
pub(super) fn says_clean(superblock: &[u8]) -> Option<bool> {
    const MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
    const RESYNC_OFFSET: usize = 208;
    let resync_offset = superblock.get(RESYNC_OFFSET..)?.first_chunk()?;
    superblock.starts_with(&MAGIC).then_some(u64::from_le_bytes(*resync_offset) == u64::MAX)
}

/// Returns whether this is the beginning of a superblock of the array. The checksum is ignored: the
/// fields that are read never change while others are being written.
pub(super) fn is_of(array: &ArrayId, superblock: &[u8]) -> bool {
    superblock.get(0..4) == Some(&MAGIC)
        && superblock.get(4..8) == Some(&MAJOR)
        && superblock.get(16..32) == Some(array)
}

/// Returns the name after which a survey has to continue.
pub(super) fn next_name(found: &Survey) -> Option<&str> {
    if !found.more {
        return None;
    }
    let volume = found.volumes.last().map(|(name, _)| name.as_str());
    volume.max(found.notes.last().map(String::as_str))
}

/// Returns whether a range ends within this many bytes.
pub(super) fn within(sector: u64, bytes: u32, end_bytes: u64) -> bool {
    let start = sector.checked_mul(SECTOR_BYTES);
    let end = start.and_then(|start| start.checked_add(u64::from(bytes)));
    end.is_some_and(|end| end <= end_bytes)
}
