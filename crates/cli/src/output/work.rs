//! What background work there is to show, as md tells it: work that stands still is pending.

use braid_array::events::SyncAction;
use braid_array::status::{ArrayState, Status, SyncStatus};

use super::shape;

/// Background work of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// None.
    None,
    /// It goes on.
    Running(SyncStatus),
    /// It stands still, or cannot begin.
    Pending(SyncAction),
}

impl Work {
    pub(crate) fn of(status: &Status) -> Self {
        let sync = status.sync;
        // An array that is served read-only stays out of sync.
        let waits = status.state == ArrayState::ReadOnly
            && shape::has_redundancy(status.superblock.level)
            && !shape::is_clean(&status.superblock);
        match sync.action {
            SyncAction::Idle if waits => Self::Pending(SyncAction::Resync),
            SyncAction::Idle => Self::None,
            action if sync.held() => Self::Pending(action),
            _ => Self::Running(sync),
        }
    }
}
