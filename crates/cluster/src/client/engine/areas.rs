//! Slices of stripes with activity.

use std::collections::{BTreeMap, VecDeque};

use braid_array::Instant;

use super::extent::Piece;
use super::gather::{Fragment, Gather, Patience};
use crate::client::Key;

/// Activity in a slice of a stripe.
#[derive(Debug, Default)]
pub(super) struct Area {
    /// Slice-sets that are open or wait to be opened.
    pub(super) sets: u32,
    /// The latest is one of the whole stripe.
    pub(super) whole: bool,
    /// Decodings, comparisons and copies under way.
    pub(super) readers: u32,
    /// Slice-sets that are being stored: their requests are answered.
    pub(super) committing: u32,
    /// Reads that wait until they are stored.
    pub(super) late_reads: Vec<Piece>,
    /// Writes that come next, in order.
    pub(super) gathers: VecDeque<Gather>,
    /// Listed among the areas to look at.
    pub(super) listed: bool,
}

impl Area {
    /// Returns whether slice-sets or readers use the slice and must not be disturbed.
    pub(super) const fn is_used(&self) -> bool {
        self.sets > 0 || self.readers > 0
    }
}

/// The slices in use, and those of them with writes that may begin.
#[derive(Debug, Default)]
pub(super) struct Areas {
    map: BTreeMap<Key, Area>,
    listed: VecDeque<Key>,
}

impl Areas {
    pub(super) fn get(&self, key: Key) -> Option<&Area> {
        self.map.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Area> {
        self.map.get_mut(&key)
    }

    pub(super) fn entry(&mut self, key: Key) -> &mut Area {
        self.map.entry(key).or_default()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Area)> {
        self.map.iter()
    }

    /// Returns whether a slice-set changes this slice, or waits to change it.
    pub(super) fn is_written(&self, key: Key) -> bool {
        self.get(key).is_some_and(|area| area.sets > 0)
    }

    pub(super) fn is_used(&self, key: Key) -> bool {
        self.get(key).is_some_and(Area::is_used)
    }

    /// Puts a slice on the list of those to look at.
    pub(super) fn list(&mut self, key: Key) {
        if let Some(area) = self.map.get_mut(&key)
            && !area.listed
        {
            area.listed = true;
            self.listed.push_back(key);
        }
    }

    pub(super) fn listed(&self) -> &VecDeque<Key> {
        &self.listed
    }

    /// Takes the next one off that list.
    pub(super) fn next_listed(&mut self) -> Option<Key> {
        let key = self.listed.pop_front()?;
        if let Some(area) = self.map.get_mut(&key) {
            area.listed = false;
        }
        Some(key)
    }

    /// Adds a write to the gathered writes of a slice.
    pub(super) fn gather(&mut self, key: Key, fragment: Fragment, patience: Patience) {
        let area = self.entry(key);
        match area.gathers.back_mut() {
            Some(last) if !last.overlaps(&fragment) => last.add(fragment, patience),
            _ => {
                let mut gather = Gather::new(patience);
                gather.add(fragment, patience);
                area.gathers.push_back(gather);
            }
        }
        self.list(key);
    }

    /// Returns the time when a gathered write begins next if nothing else happens; `lone_at` if it
    /// is the only one.
    pub(super) fn deadline(&self, now: Instant, lone_at: Option<Instant>) -> Option<Instant> {
        let due = |key: &Key| {
            let patience = &self.get(*key)?.gathers.front()?.patience;
            let lone_at = lone_at.map(|at| at.max(patience.lone)).filter(|&at| at > now);
            patience.next(now).into_iter().chain(lone_at).min()
        };
        self.listed.iter().filter_map(due).min()
    }

    /// Returns whether the stripe before this one is being written as a whole. Its writer continues
    /// in this stripe as soon as that write is answered.
    pub(super) fn is_next(&self, key: Key) -> bool {
        key.before().and_then(|before| self.get(before)).is_some_and(|area| area.whole)
    }

    /// Forgets a slice without activity.
    pub(super) fn tidy(&mut self, key: Key) {
        if self.get(key).is_some_and(|area| !area.is_used() && area.gathers.is_empty()) {
            self.map.remove(&key);
        }
    }

    pub(super) fn reader_begins(&mut self, key: Key) {
        self.entry(key).readers += 1;
    }

    pub(super) fn reader_gone(&mut self, key: Key) {
        if let Some(area) = self.map.get_mut(&key) {
            area.readers -= 1;
        }
        self.list(key);
    }

    /// Ends a slice-set.
    pub(super) fn set_over(&mut self, key: Key, now: Instant) {
        let Some(area) = self.map.get_mut(&key) else { return };
        area.sets -= 1;
        if area.sets > 0 {
            return;
        }
        self.list(key);
        self.answered(key, now);
    }

    /// Notes that a stripe is answered. The writer of a whole stripe then gets a moment to send
    /// more.
    pub(super) fn answered(&mut self, key: Key, now: Instant) {
        let whole = self.map.get_mut(&key).is_some_and(|area| std::mem::take(&mut area.whole));
        if !whole {
            return;
        }
        let next = self.map.get_mut(&key.after());
        if let Some(gather) = next.and_then(|area| area.gathers.front_mut()) {
            gather.patience.extend(Patience::some(now));
        }
    }
}
