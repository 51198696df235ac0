//! Parts of requests: where they lie, and who wants them.

use super::{Buf, Cell, Key, RequestId};

/// A part of a request that lies in one slice of one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) stripe: u64,
    /// Data index.
    pub(super) index: u32,
    /// First byte, from the beginning of the block.
    pub(super) at: u32,
    pub(super) len: u32,
}

impl Extent {
    /// Where it lies in the blocks of its stripe.
    pub(super) const fn place(&self) -> Spot {
        (self.stripe, self.at, self.len)
    }
}

/// A block that somebody wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    /// Data index.
    pub(super) index: u32,
    pub(super) into: Buf,
    pub(super) whom: Whom,
}

/// Who wants a block that is brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whom {
    Request(RequestId),
    /// The slice-set at a position: the block is lost, and goes into sums.
    Set(u16),
}

/// Stripe, first byte in its blocks, length.
pub(super) type Spot = (u64, u32, u32);

/// What a node is asked to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Which block: row of the stripe and node.
    pub(super) cell: Cell,
    pub(super) extent: Extent,
    pub(super) into: Buf,
    pub(super) whose: Whose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Request(RequestId),
    Decode(u32),
    /// The comparison of this slice.
    Compare(Key),
    /// The same, which does with digests as long as these fit.
    Digest(Key),
    /// The copy of a member: which block of it.
    Copy(u32),
    /// The same, read back.
    ReadBack,
}
