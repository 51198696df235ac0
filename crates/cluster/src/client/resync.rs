//! After an unclean stop: every parity is made again from the data, stripe by stripe, by the nodes.

use super::{Action, ArrayEvent, BTreeSet, Client, Key, Phase};
use braid_array::events::{SyncAction, SyncEnd};

/// Slices that are made right at once.
const AT_ONCE: usize = 4;

/// How far it is.
#[derive(Debug, Default)]
pub(super) struct Resync {
    pub(super) started: bool,
    pub(super) paused: bool,
    /// The slice that comes next.
    pub(super) next: Key,
    under_way: BTreeSet<Key>,
    /// Slices done.
    pub(super) done: u64,
}

impl Client {
    pub(super) fn slices(&self) -> u64 {
        let per_stripe = self.params().chunk_bytes.div_ceil(self.slice_bytes());
        self.params().stripes * u64::from(per_stripe)
    }

    pub(super) fn resync_goes_on(&mut self) {
        if self.writes_over || !matches!(self.phase, Phase::Running) {
            return;
        }
        let per_stripe = self.params().chunk_bytes.div_ceil(self.slice_bytes());
        let stripes = self.params().stripes;
        while let Some(resync) = &mut self.resync {
            if !resync.started {
                resync.started = true;
                let begun = ArrayEvent::SyncStarted(SyncAction::Resync);
                self.actions.push_back(Action::Notify(begun));
            }
            if resync.next.0 == stripes && resync.under_way.is_empty() {
                self.resync = None;
                self.marks.synced();
                self.actions.push_back(Action::Notify(ended(SyncEnd::Complete)));
                return;
            }
            let full = resync.paused || resync.under_way.len() >= AT_ONCE;
            if full || resync.next.0 == stripes {
                return;
            }
            let key = resync.next;
            if self.areas.get(&key).is_some_and(|area| area.sets > 0 || area.readers > 0) {
                // Come back when it is free.
                return;
            }
            resync.next = if key.1 + 1 < per_stripe { (key.0, key.1 + 1) } else { (key.0 + 1, 0) };
            resync.under_way.insert(key);
            self.add_resync_job(key);
        }
    }

    /// The rest is left to whoever assembles the array next.
    pub(super) fn interrupt_resync(&mut self) {
        if self.resync.take().is_some_and(|resync| resync.started) {
            let reason = "the array is being stopped".into();
            let interrupted = ended(SyncEnd::Interrupted { reason });
            self.actions.push_back(Action::Notify(interrupted));
        }
    }

    /// A slice-set in this slice is over; perhaps it was one of the resync's.
    pub(super) fn resynced(&mut self, key: Key, fine: bool) {
        if let Some(resync) = &mut self.resync
            && resync.under_way.remove(&key)
        {
            resync.done += u64::from(fine);
        }
    }
}

const fn ended(end: SyncEnd) -> ArrayEvent {
    ArrayEvent::SyncFinished { action: SyncAction::Resync, mismatch_sectors: 0, end }
}
