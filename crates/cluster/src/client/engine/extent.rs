//! Parts of requests: their location and their requesters.

use braid_array::code::Cell;
use braid_array::{Buf, RequestId};

use crate::client::Key;
use crate::ids::{Position, Slot, StripeNo};

/// A part of a request, or of a unit of background work, that lies in one slice of one block.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct Extent {
    pub(in crate::client) stripe: StripeNo,
    /// Data index.
    pub(in crate::client) index: u32,
    /// First byte, from the beginning of the block.
    pub(in crate::client) at: u32,
    pub(in crate::client) len: u32,
}

impl Extent {
    /// Returns the location in the blocks of the stripe.
    pub(in crate::client) const fn range(&self) -> Range {
        (self.stripe, self.at, self.len)
    }
}

/// A block that a request or slice-set wants.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct WantedBlock {
    /// Data index.
    pub(in crate::client) index: u32,
    pub(in crate::client) into: Buf,
    pub(in crate::client) whom: Whom,
}

/// Requester of a block that is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::client) enum Whom {
    Request(RequestId),
    /// The slice-set at a position: the block is lost, and goes into sums.
    Set(Position),
}

/// Stripe, first byte in its blocks, length.
pub(in crate::client) type Range = (StripeNo, u32, u32);

/// A read that a node is asked for.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct Piece {
    /// The block: row of the stripe and node.
    pub(in crate::client) cell: Cell,
    pub(in crate::client) extent: Extent,
    pub(in crate::client) into: Buf,
    pub(in crate::client) whose: Whose,
}

/// Purpose of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Whose {
    Request(RequestId),
    Decode(u32),
    /// The comparison of this slice.
    Compare(Key),
    /// The same, which does with digests as long as these fit.
    Digest(Key),
    /// The copy of a member: which block of it, and the slot at the copy target.
    Copy {
        number: u32,
        into: Slot,
    },
    /// The same, read back.
    ReadBack,
}
