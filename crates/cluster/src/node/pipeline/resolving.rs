//! A decision on leftovers that is being stored.

use crate::ids::SetVersion;
use crate::node::ids::ClientId;

/// A client's decision on the leftovers of another, on its way into the store.
#[derive(Debug)]
pub(super) struct Resolving {
    pub(super) by: ClientId,
    pub(super) tag: u32,
    pub(super) commit: Vec<SetVersion>,
    /// Operations that are not answered.
    pub(super) unanswered: usize,
    pub(super) flushing: bool,
    pub(super) ok: bool,
    /// All operations that failed found no room.
    pub(super) no_room: bool,
}
