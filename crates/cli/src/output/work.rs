//! Background work, in md's terms: stopped work is pending.

use braid_array::events::SyncAction;
use braid_array::status::{ArrayState, Status, SyncStatus};

use super::shape;

/// Background work of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// No work.
    None,
    /// Work in progress.
    Running(SyncStatus),
    /// Work that is paused or cannot begin.
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

/// `recovery 10.2%, 103.2 MiB/s, 12 s left`, with the shapes of a reshape; `None` when there is
/// none.
pub(crate) fn in_words(status: &Status) -> Option<String> {
    let sync = &status.sync;
    if sync.action == SyncAction::Idle {
        return None;
    }
    let total = u128::from(sync.total_sectors.max(1));
    let per_mille = u128::from(sync.done_sectors) * 1000 / total;
    let percent = per_mille / 10;
    let tenth = per_mille % 10;
    let shapes = shape::reshape_in_words(&status.superblock);
    let shapes = shapes.map_or_else(String::new, |shapes| format!(" ({shapes})"));
    Some(format!("{} {percent}.{tenth}%{shapes}, {}", sync.action.name(), pace(sync)))
}

/// `103.2 MiB/s, 12 s left`, or why it stands still.
pub(super) fn pace(sync: &SyncStatus) -> String {
    if sync.paused {
        return "paused".to_owned();
    }
    if sync.held() {
        return "held by --max 0".to_owned();
    }
    let tenths = sync.bytes_per_s.saturating_mul(10) >> 20;
    let speed = format!("{}.{} MiB/s", tenths / 10, tenths % 10);
    match sync.finish_s {
        None => speed,
        Some(s @ ..120) => format!("{speed}, {s} s left"),
        Some(s @ ..7200) => format!("{speed}, {} min left", s / 60),
        Some(s) => format!("{speed}, {} h {} min left", s / 3600, s % 3600 / 60),
    }
}
