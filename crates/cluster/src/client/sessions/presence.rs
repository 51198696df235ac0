//! Whether a node is there, as [`silence`](super::silence) has to know it.

use braid_array::Instant;

/// What is known of whether a node is there.
#[derive(Debug, Default)]
pub(in crate::client) struct Presence {
    /// It was asked, and has not answered: as some node had said nothing since then.
    pub(in crate::client) asked_of: Option<Instant>,
    /// When it last answered that.
    pub(in crate::client) answered: Instant,
    /// When it last said anything.
    pub(in crate::client) heard: Instant,
    /// When its storage has said nothing for too long.
    pub(in crate::client) storage_due: Option<Instant>,
}
