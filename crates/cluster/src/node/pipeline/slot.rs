//! Slots for reads: memory of a client, and its state.

use crate::ids::Slot;

/// Form in which a client wants a part of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WantedForm {
    Content,
    Digest,
    /// A copy in this slot of the node that is to replace this one.
    Copy(Slot),
    /// A copy whose target is gone, and that goes nowhere, even if another target is there by then.
    OrphanedCopy,
}

/// A read that the client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    pub(crate) sector: u64,
    pub(crate) bytes: u32,
    pub(crate) to: u64,
    pub(crate) wanted: WantedForm,
}

/// A slot for reads. The client may know that its bytes have come, and use the slot again, before
/// the node knows that they have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadSlot {
    /// Not in use.
    Free,
    /// The store fills it.
    Reading(ReadRequest),
    /// The digest of its content is being formed.
    Digesting(ReadRequest),
    /// Its content is being put.
    Putting,
    /// Its content is being put, and the next read waits.
    Queued(ReadRequest),
}

/// State of a slot for a copy from the node that this one is to replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopySlot {
    Free,
    /// A copy came, and the client has not said yet where it belongs.
    Placed,
    /// The client has said, and it has not come yet.
    Requested(StoreCopied),
    /// The copy is being stored.
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
