//! Addresses behind the arena, at which memory of others can be mapped.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Size of the reserved addresses, which take no memory.
pub(super) const RESERVED_BYTES: u64 = 1 << 40;
/// Pages are as large as that at most.
pub(super) const ALIGNMENT: u64 = 1 << 30;

/// Ranges of the reserved addresses that are in use.
#[derive(Debug, Default)]
pub(super) struct ReservedRanges(Mutex<Vec<Range<u64>>>);

impl ReservedRanges {
    /// The first place in `all` where so much is free.
    pub(super) fn take(&self, all: Range<u64>, bytes: u64) -> Option<Range<u64>> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut start = all.start;
        let mut at = 0;
        while let Some(next) = taken.get(at)
            && next.start - start < bytes
        {
            start = next.end.next_multiple_of(ALIGNMENT);
            at += 1;
        }
        let end = start.checked_add(bytes).filter(|&end| end <= all.end)?;
        taken.insert(at, start..end);
        Some(start..end)
    }

    pub(super) fn give_back(&self, range: &Range<u64>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|taken| taken != range);
    }
}
