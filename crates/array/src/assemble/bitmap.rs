//! The bitmap that an array starts with.

use super::{Candidate, Verdict};
use crate::format::{Bitmap, Superblock};

/// The bitmap that counts, and whether its bits do.
pub(super) struct Merged {
    /// The bits of all members whose bitmap is current; all bits set when none is.
    pub(super) bitmap: Bitmap,
    /// Some member's bitmap is current.
    pub(super) current: bool,
}

/// Merges the bitmaps of the members that are in sync. `None` when the newest superblock knows of
/// no bitmap, or when none can be read.
pub(super) fn merge<'a>(
    newest: &Superblock,
    members: impl Iterator<Item = (&'a Candidate, &'a Verdict)> + Clone,
    sync_sectors: u64,
) -> Option<Merged> {
    newest.bitmap_sector()?;
    let readable = || {
        members
            .clone()
            .filter(|(_, verdict)| verdict.in_sync_role().is_some())
            .filter_map(|(candidate, _)| candidate.bitmap.as_ref()?.as_ref().ok())
            .filter_map(|bitmap| bitmap.resized(sync_sectors))
    };
    let mut current = readable().filter(|bitmap| !bitmap.stale(newest.set_uuid, newest.events));
    if let Some(mut bitmap) = current.next() {
        for other in current {
            bitmap.union(&other);
            let cleared = &mut bitmap.superblock.events_cleared;
            *cleared = (*cleared).max(other.superblock.events_cleared);
        }
        return Some(Merged { bitmap, current: true });
    }
    let mut bitmap = readable().next()?;
    bitmap.set_all();
    bitmap.superblock.uuid = newest.set_uuid;
    bitmap.superblock.events = newest.events;
    bitmap.superblock.events_cleared = newest.events;
    bitmap.superblock.state = 0;
    Some(Merged { bitmap, current: false })
}
