//! How long an attempt to reach a node may take, and when there is another.

/// How long a step of a negotiation may take.
pub(super) const PATIENCE_MILLIS: u64 = 10_000;
/// At the start a node that refuses is asked again after so long.
pub(super) const RETRY_MILLIS: u64 = 100;
/// The first attempt comes so long after the loss, each further one later than that before.
const FIRST_MILLIS: u64 = 1_000;
const LAST_MILLIS: u64 = 10_000;

/// How long to wait after so many attempts.
pub(super) fn pause_millis(tries: u32) -> u64 {
    FIRST_MILLIS.checked_shl(tries.min(10)).unwrap_or(LAST_MILLIS).min(LAST_MILLIS)
}
