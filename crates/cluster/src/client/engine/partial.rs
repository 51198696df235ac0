//! Journals for parts of stripes alone: a slice-set that gives a whole stripe new content is stored
//! without a record. Nothing else is in its range, so it puts nothing at risk that nobody writes.
//!
//! What is left to do: superblocks say that there are such slice-sets before one is opened, a flush
//! has nodes make durable what they stored of them, and where an older record may still be replayed
//! one is recorded all the same: that is simpler than to have it wait for a trim.

use std::collections::BTreeMap;

use braid_array::format::Superblock;
use braid_array::format::superblock::feature;

use crate::client::Key;

/// What the client knows of slice-sets that no journal records: whether there may be any (`only`),
/// the version of the latest, and up to which version all are durable. A flush advances that. Where
/// an older record of the same slice may still be replayed, a whole stripe is recorded as well; so
/// the latest recorded version of each slice is kept until a trim.
#[derive(Debug)]
pub(in crate::client) struct PartialParityLog {
    /// Whole stripes are not recorded.
    pub(in crate::client) only: bool,
    /// The superblocks of the last client say so.
    pub(in crate::client) were_only: bool,
    /// And that slice-sets may be stored in part without a record.
    pub(in crate::client) left: bool,
    /// By area, the latest slice-set of which there may be a record.
    recorded: BTreeMap<Key, u64>,
    /// The latest slice-set that has none.
    unrecorded: u64,
    /// What was stored of slice-sets up to this version is durable: before the first flush nothing
    /// is, whoever stored it.
    pub(in crate::client) flushed: Option<u64>,
}

impl PartialParityLog {
    pub(in crate::client) fn new(superblock: &Superblock) -> Self {
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
    pub(in crate::client) fn all_is_durable(&self) -> bool {
        !self.only || self.flushed.is_some_and(|flushed| flushed >= self.unrecorded)
    }

    /// Is a slice-set of a whole stripe recorded here?
    pub(in crate::client) fn is_whole_recorded(&self, key: Key) -> bool {
        !self.only || self.recorded.contains_key(&key) && !braid_array::broken("log-over-log")
    }

    /// A slice-set is opened that has a record.
    pub(in crate::client) fn note_recorded(&mut self, key: Key, version: u64) {
        if self.only {
            self.recorded.insert(key, version);
        }
    }

    /// The same of one that has none.
    pub(in crate::client) const fn note_unrecorded(&mut self, version: u64) {
        self.unrecorded = version;
    }

    /// No record up to this version counts any more.
    pub(in crate::client) fn trimmed(&mut self, version: u64) {
        self.recorded.retain(|_, latest| *latest > version);
    }
}
