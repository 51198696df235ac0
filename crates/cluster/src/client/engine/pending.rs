//! A slice-set before it has a position.

use super::extent::Extent;
use super::gather::Stretch;
use crate::client::Key;
use crate::set::{Roles, WriteStrategy};

/// A slice-set that waits for a position.
#[derive(Debug)]
pub(super) struct PendingSet {
    pub(super) key: Key,
    /// The client makes the parities; undecided until the slice-set is first in line.
    pub(super) by_client: Option<bool>,
    pub(super) range: Stretch,
    /// Changes no data: the superblocks already record its purpose.
    pub(super) background: bool,
    /// Number of the write that the keeper was told of; `None` for background work.
    pub(super) write: Option<u64>,
    /// Roles that get their blocks from the others, one slice-set for each.
    pub(super) restores: Roles,
    /// Number of aborts.
    pub(super) tries: u32,
}

impl PendingSet {
    pub(super) fn new(key: Key, range: Stretch) -> Self {
        Self {
            key,
            by_client: None,
            range,
            background: false,
            write: None,
            restores: Roles::NONE,
            tries: 0,
        }
    }

    /// Cuts a first part of this length off. The keeper has not been told of it as a write yet.
    pub(super) fn cut_off(&mut self, len: u32) -> Self {
        Self { range: self.range.cut_off(len), write: None, ..*self }
    }

    /// The part of its stripe, of each block.
    pub(super) fn extent(&self) -> Extent {
        Extent { stripe: self.key.stripe, index: 0, at: self.range.offset, len: self.range.len }
    }

    /// Notes that the role of this strategy has its blocks. Returns whether another role lacks its
    /// own.
    pub(super) fn goes_on_after(&mut self, strategy: WriteStrategy) -> bool {
        if let WriteStrategy::Restore(role) = strategy {
            self.restores.remove(role);
        }
        !self.restores.is_empty()
    }
}
