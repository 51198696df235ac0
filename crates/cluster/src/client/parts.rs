//! Journals for parts of stripes alone: a slice-set that gives a whole stripe new content is stored
//! without a record. Nothing else is in its range, so it puts nothing at risk that nobody writes.
//!
//! What is left to do: superblocks say that there are such slice-sets before one is opened, a flush
//! has nodes make durable what they stored of them, and where an older record may still be replayed
//! one is recorded all the same: that is simpler than to have it wait for a trim.

use std::collections::BTreeMap;

use braid_array::format::Superblock;
use braid_array::format::superblock::feature;

use super::{Client, Key};
use crate::set::Set;

/// What the client knows of slice-sets that no journal records: whether there may be any (`only`),
/// the version of the latest, and up to which version all are durable. A flush advances that. Where
/// an older record of the same slice may still be replayed, a whole stripe is recorded as well; so
/// the latest recorded version of each slice is kept until a trim.
#[derive(Debug)]
pub(super) struct PartialParityLog {
    /// Whole stripes are not recorded.
    pub(super) only: bool,
    /// The superblocks of the last client say so.
    pub(super) were_only: bool,
    /// And that slice-sets may be stored in part without a record.
    pub(super) left: bool,
    /// By area, the latest slice-set of which there may be a record.
    recorded: BTreeMap<Key, u64>,
    /// The latest slice-set that has none.
    unrecorded: u64,
    /// What was stored of slice-sets up to this version is durable: before the first flush nothing
    /// is, whoever stored it.
    pub(super) flushed: Option<u64>,
}

impl PartialParityLog {
    pub(super) fn new(superblock: &Superblock) -> Self {
        Self {
            only: false,
            were_only: superblock.has(feature::NODE_PPL),
            left: superblock.has(feature::NODE_UNRECORDED),
            recorded: BTreeMap::new(),
            unrecorded: 0,
            flushed: None,
        }
    }

    /// Is all durable that has no record?
    pub(super) fn all_is_durable(&self) -> bool {
        !self.only || self.flushed.is_some_and(|flushed| flushed >= self.unrecorded)
    }

    /// No record up to this version counts any more.
    pub(super) fn trimmed(&mut self, version: u64) {
        self.recorded.retain(|_, latest| *latest > version);
    }
}

impl Client {
    /// Is a slice-set of a whole stripe recorded here?
    pub(super) fn is_whole_recorded(&self, key: Key) -> bool {
        let parts = &self.journals.parts;
        !parts.only || parts.recorded.contains_key(&key) && !braid_array::broken("log-over-log")
    }

    /// Is there all that a slice-set needs of journals, which is to be recorded or not?
    pub(super) fn may_open(&mut self, log: bool, len: u32) -> bool {
        match log {
            true => self.has_room_to_record(len),
            false => self.keeper.may_store_unrecorded(),
        }
    }

    /// A slice-set of a write is being opened.
    pub(super) fn note_opened(&mut self, set: &Set) {
        if !self.journals.are_used() {
            return;
        }
        if !set.log {
            self.journals.parts.unrecorded = set.version;
            return;
        }
        self.take_room_to_record(set.version, set.len);
        let key = (set.stripe, set.offset / self.slice_bytes());
        if self.journals.parts.only {
            self.journals.parts.recorded.insert(key, set.version);
        }
    }

    /// All slice-sets up to this version are stored.
    pub(super) fn stored_up_to(&self) -> u64 {
        let oldest = self.open.values().map(|open| open.set.version).min();
        oldest.map_or(self.version, |oldest| oldest - 1)
    }
}
