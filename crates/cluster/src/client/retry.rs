//! Time limits of attempts to reach a node, and pauses between them.

/// Time limit of a step of a negotiation.
pub(super) const PATIENCE_MILLIS: u64 = 10_000;
/// Pause before a node that refuses is asked again at the start.
pub(super) const RETRY_MILLIS: u64 = 100;
/// Pause between the loss and the first attempt; each further pause is longer.
const FIRST_MILLIS: u64 = 1_000;
const LAST_MILLIS: u64 = 10_000;

/// Returns the pause after this many attempts.
pub(super) fn pause_millis(tries: u32) -> u64 {
    FIRST_MILLIS.checked_shl(tries.min(10)).unwrap_or(LAST_MILLIS).min(LAST_MILLIS)
}
