//! Size of an array that may grow while it is served.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The size of an array, as the engine saw it last. All that show the array have a clone, so that
/// each client is told the present size.
#[derive(Clone, Debug)]
pub(crate) struct ArraySize(Arc<AtomicU64>);

impl ArraySize {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the bytes of all whole blocks. Bytes beyond the last whole block cannot be asked
    /// for.
    pub(crate) fn in_blocks(&self, block_bytes: u32) -> u64 {
        let bytes = self.bytes();
        bytes - bytes % u64::from(block_bytes)
    }

    /// Sets the size, which only the engine does. Returns whether it was another one before.
    pub(super) fn set(&self, bytes: u64) -> bool {
        let changes = self.bytes() != bytes;
        if changes {
            self.0.store(bytes, Ordering::Relaxed);
        }
        changes
    }
}
