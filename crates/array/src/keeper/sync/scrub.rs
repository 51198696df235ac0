//! Findings of the latest check or repair.

use super::unread::UnreadPlaces;
use crate::events::SyncAction;
use crate::keeper::Unread;

/// The next check or repair, and what the latest one has found.
#[derive(Debug, Default)]
pub(in crate::keeper) struct Scrub {
    /// Asked for by the administrator.
    pub(in crate::keeper) requested: Option<SyncAction>,
    pub(in crate::keeper) mismatch_sectors: u64,
    /// Sectors of the array that could not be compared with anything.
    pub(in crate::keeper) uncompared_sectors: u64,
    pub(in crate::keeper) checked_once: bool,
    /// Sectors that a repair took from parity where that may not fit.
    pub(in crate::keeper) trusted: UnreadPlaces,
}

impl Scrub {
    pub(in crate::keeper) const fn request(&mut self, repair: bool) {
        self.requested = Some(if repair { SyncAction::Repair } else { SyncAction::Check });
    }

    /// Begins a check or repair: it has found nothing yet.
    pub(super) fn begin(&mut self, action: SyncAction) {
        self.mismatch_sectors = 0;
        self.uncompared_sectors = 0;
        self.checked_once = true;
        if action == SyncAction::Repair {
            self.trusted = UnreadPlaces::default();
        }
    }

    /// An array that this one is part of is checked, and nothing of this one can be.
    pub(in crate::keeper) const fn skip(&mut self, array_sectors: u64) {
        self.mismatch_sectors = 0;
        self.uncompared_sectors = array_sectors;
        self.checked_once = true;
    }

    /// A repair made these readable from parity, and no resync has made that fit.
    pub(in crate::keeper) fn note_trusted(&mut self, trusted: Vec<Unread>) {
        for Unread { array_sector, sectors, members } in trusted {
            self.trusted.add(array_sector, sectors, &members);
        }
    }
}
