//! A slot for reads: memory of a client, and what goes on there.

use crate::ids::Slot;

/// What a client wants of a part of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Content,
    Digest,
    /// A copy in this slot of the node that is to take this one's place.
    Copy(Slot),
    /// The same, and that node is gone: it goes nowhere, though another one may be there by then.
    OrphanedCopy,
}

/// A read that the client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    pub(crate) sector: u64,
    pub(crate) bytes: u32,
    pub(crate) to: u64,
    pub(crate) wanted: Wanted,
}

/// A slot for reads. The client may know that its bytes have come, and use the slot again, before
/// the node knows that they have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadSlot {
    /// Not in use.
    Free,
    /// The store fills it.
    Reading(ReadRequest),
    /// What it holds becomes its digest.
    Digesting(ReadRequest),
    /// It is being put.
    Putting,
    /// The same, and the next one waits.
    Queued(ReadRequest),
}

/// What a slot holds that comes from the node whose place this one is to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopySlot {
    Free,
    /// A copy came, and the client has not said yet where it belongs.
    Placed,
    /// The client has said, and it has not come yet.
    Requested(StoreCopied),
    /// It is being stored.
    Storing,
}

/// Where a copy is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreCopied {
    pub(crate) tag: u32,
    pub(crate) slot: Slot,
    pub(crate) sector: u64,
    pub(crate) bytes: u32,
}
