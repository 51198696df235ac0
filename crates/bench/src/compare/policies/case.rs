//! Cases and loads.

use std::fmt;

use crate::compare::prepared::Requests;
use crate::compare::words::names;

pub(super) const CHUNK_BYTES: u64 = 512 << 10;
pub(super) const MEMBERS: usize = 4;
/// Data of a stripe of RAID 5.
pub(super) const STRIPE_BYTES: u64 = CHUNK_BYTES * (MEMBERS as u64 - 1);

names! {
    /// Policy about the write hole. A journal that is written back answers small writes, and brings
    /// them in place later.
    pub(super) enum Policy {
        Resync = "resync",
        Bitmap = "bitmap",
        Ppl = "ppl",
        Journal = "journal",
        WrittenBack = "journal written back",
    }

    /// Place of members, and of the journal.
    pub(super) enum PolicyPlace {
        Memory = "memory",
        Files = "files",
    }

    /// Load on an array.
    pub(super) enum PolicyLoad {
        Writes = "write 4K x32",
        OneByOne = "write 4K x1",
        Mixed = "70% read 4K x32",
        Stripes = "whole stripes x8",
    }
}

/// An array with a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PolicyCase {
    pub(super) policy: Policy,
    pub(super) place: PolicyPlace,
}

impl Policy {
    pub(super) const fn has_journal(self) -> bool {
        matches!(self, Self::Journal | Self::WrittenBack)
    }

    /// Word for `braid create --consistency-policy`.
    pub(super) const fn word(self) -> &'static str {
        if self.has_journal() { "journal" } else { self.name() }
    }
}

impl PolicyPlace {
    pub(super) fn cases(self) -> [PolicyCase; 5] {
        Policy::ALL.map(|policy| PolicyCase { policy, place: self })
    }
}

impl PolicyCase {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        PolicyPlace::ALL.into_iter().flat_map(PolicyPlace::cases)
    }
}

impl fmt::Display for PolicyCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.policy, self.place)
    }
}

impl PolicyLoad {
    /// Memory has no cache that would have to be flushed.
    pub(super) fn requests(self, place: PolicyPlace) -> Requests {
        let (read_percent, bytes, depth) = match self {
            Self::Stripes => (0, STRIPE_BYTES, 8),
            Self::Writes => (0, 4096, 32),
            Self::OneByOne => (0, 4096, 1),
            Self::Mixed => (70, 4096, 32),
        };
        let writes_a_flush = (place == PolicyPlace::Files).then_some(depth);
        Requests { read_percent, bytes, depth, writes_a_flush }
    }
}
