//! Cases and loads.

use crate::compare::prepared::Requests;

pub(super) const CHUNK_BYTES: u64 = 512 << 10;
pub(super) const MEMBERS: usize = 4;
/// Data of a stripe of RAID 5.
pub(super) const STRIPE_BYTES: u64 = CHUNK_BYTES * (MEMBERS as u64 - 1);

/// Policy about the write hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Resync,
    Bitmap,
    Ppl,
    Journal,
    /// The journal answers small writes, and brings them in place later.
    WrittenBack,
}

/// Place of members, and of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyPlace {
    Memory,
    Files,
}

/// An array with a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PolicyCase {
    pub(super) policy: Policy,
    pub(super) place: PolicyPlace,
}

/// Load on an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyLoad {
    Stripes,
    Writes,
    OneByOne,
    Mixed,
}

impl Policy {
    pub(super) const ALL: [Self; 5] =
        [Self::Resync, Self::Bitmap, Self::Ppl, Self::Journal, Self::WrittenBack];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Resync => "resync",
            Self::Bitmap => "bitmap",
            Self::Ppl => "ppl",
            Self::Journal => "journal",
            Self::WrittenBack => "journal written back",
        }
    }

    pub(super) const fn has_journal(self) -> bool {
        matches!(self, Self::Journal | Self::WrittenBack)
    }

    /// Word for `braid create --consistency-policy`.
    pub(super) const fn word(self) -> &'static str {
        if self.has_journal() { "journal" } else { self.name() }
    }
}

impl PolicyPlace {
    pub(super) const ALL: [Self; 2] = [Self::Memory, Self::Files];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Files => "files",
        }
    }

    pub(super) fn cases(self) -> [PolicyCase; 5] {
        Policy::ALL.map(|policy| PolicyCase { policy, place: self })
    }
}

impl PolicyCase {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        PolicyPlace::ALL.into_iter().flat_map(PolicyPlace::cases)
    }

    pub(super) fn name(self) -> String {
        format!("{} on {}", self.policy.name(), self.place.name())
    }

    /// The name of what it is compared with.
    pub(super) fn baseline(self) -> String {
        Self { policy: Policy::Resync, ..self }.name()
    }
}

impl PolicyLoad {
    pub(super) const ALL: [Self; 4] = [Self::Writes, Self::OneByOne, Self::Mixed, Self::Stripes];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stripes => "whole stripes x8",
            Self::Writes => "write 4K x32",
            Self::OneByOne => "write 4K x1",
            Self::Mixed => "70% read 4K x32",
        }
    }

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
