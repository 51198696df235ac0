//! Blocks of a member that do not fit their checksums.

use std::collections::BTreeSet;

/// Blocks that are remembered until they are written again.
const REMEMBERED: usize = 1 << 16;

/// The blocks that were found not to fit, and what became of them.
#[derive(Debug, Default)]
pub(super) struct Rot {
    mismatches: u64,
    healed: u64,
    /// Found, and not written since.
    blocks: BTreeSet<u64>,
}

impl Rot {
    /// A block does not fit. Returns whether that is new: it may be read more than once before it
    /// is written again.
    pub(super) fn found(&mut self, block: u64) -> bool {
        let is_new = if self.blocks.len() < REMEMBERED {
            self.blocks.insert(block)
        } else {
            !self.blocks.contains(&block)
        };
        self.mismatches += u64::from(is_new);
        is_new
    }

    /// A block has its content by a write.
    pub(super) fn written(&mut self, block: u64) {
        self.healed += u64::from(!self.blocks.is_empty() && self.blocks.remove(&block));
    }

    /// Number of blocks that did not fit.
    pub(super) const fn mismatches(&self) -> u64 {
        self.mismatches
    }

    /// Number of these that were written since.
    pub(super) const fn healed(&self) -> u64 {
        self.healed
    }
}
