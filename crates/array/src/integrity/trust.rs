//! Trust in a table, by the header of its area and the superblock of its member.

use crate::format::Superblock;
use crate::format::integrity::{HeaderError, IntegrityHeader, SuperblockDigest};

/// The worth of a table when its member is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The member has no area.
    Absent,
    /// What pages without a mark say is true.
    Trusted(IntegrityHeader),
    /// The same, unless md was here: without redundancy md writes no superblocks, so nothing tells.
    /// A block that does not fit may be one that md wrote.
    Unwitnessed(IntegrityHeader),
    /// Somebody else was here: all pages are to be marked before anything else.
    Foreign(IntegrityHeader),
    /// The area cannot be used. It may be made anew, unless a later Braid wrote it.
    Damaged(TrustError),
}

/// The reason why an area cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// Its header cannot be understood.
    #[error("{0}")]
    Header(#[from] HeaderError),
    /// The superblock is none.
    #[error("the superblock is cut off after {bytes} bytes")]
    Superblock {
        /// Bytes there are.
        bytes: usize,
    },
    /// It belongs to other data.
    #[error("the integrity area is that of another {what}")]
    Other {
        /// The difference.
        what: &'static str,
    },
}

impl TrustError {
    /// Returns whether the area is to be left as it is: a later Braid understands it.
    #[must_use]
    pub const fn is_of_later_version(&self) -> bool {
        matches!(self, Self::Header(HeaderError::Unknown { .. }))
    }
}

impl Trust {
    /// Judges by the superblock, also as it was read, and by both copies of the header.
    #[must_use]
    pub fn of(superblock: &Superblock, bytes: &[u8], copies: [&[u8]; 2]) -> Self {
        let header = match IntegrityHeader::newest(copies) {
            Ok(header) => header,
            Err(HeaderError::Absent) => return Self::Absent,
            Err(why) => return Self::Damaged(why.into()),
        };
        if let Some(what) = difference(superblock, &header) {
            return Self::Damaged(TrustError::Other { what });
        }
        let Some(digest) = SuperblockDigest::of(superblock.version, bytes) else {
            return Self::Damaged(TrustError::Superblock { bytes: bytes.len() });
        };
        if !header.accepts(&digest) {
            Self::Foreign(header)
        } else if superblock.level <= 0 {
            Self::Unwitnessed(header)
        } else {
            Self::Trusted(header)
        }
    }
}

/// Returns what an area belongs to that is not as in the superblock.
fn difference(superblock: &Superblock, header: &IntegrityHeader) -> Option<&'static str> {
    let parts = [
        (superblock.set_uuid == header.set_uuid, "array"),
        (superblock.device_uuid == header.device_uuid, "member"),
        (superblock.data_offset == header.data_offset, "place of the data"),
        (superblock.data_size == header.area.data_sectors(), "length of the data"),
    ];
    parts.into_iter().find(|(is_same, _)| !is_same).map(|(_, what)| what)
}
