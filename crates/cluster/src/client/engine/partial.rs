//! Journals for parts of stripes alone: a slice-set that gives a whole stripe new content is stored
//! without a record. A tear of it puts no other data at risk, as its range holds only its own data.
//!
//! Three duties remain. Superblocks announce such slice-sets before one is opened. A flush makes
//! nodes store them durably. Where an older record may still be replayed, a whole stripe is
//! recorded as well: that is simpler than to wait for a trim.

use std::collections::BTreeMap;

use braid_array::format::Superblock;
use braid_array::format::superblock::feature;

use crate::client::Key;

/// The client's knowledge of slice-sets that no journal records: whether there may be any (`only`),
/// the version of the latest, and the version up to which all are durable. A flush advances that.
/// Where an older record of the same slice may still be replayed, a whole stripe is recorded as
/// well, so the latest recorded version of each slice is kept until a trim.
#[derive(Debug)]
pub(in crate::client) struct PartialParityLog {
    /// Whole stripes are not recorded.
    pub(in crate::client) only: bool,
    /// The superblocks of the last client declare the same.
    pub(in crate::client) were_only: bool,
    /// The superblocks declare that slice-sets may be stored in part without a record.
    pub(in crate::client) left: bool,
    /// By slice, the latest slice-set that may have a record.
    recorded: BTreeMap<Key, u64>,
    /// The latest slice-set without a record.
    unrecorded: u64,
    /// Slice-sets up to this version are durable where stored. `None` before the first flush: then
    /// nothing is known to be durable.
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

    /// Returns whether everything without a record is durable.
    pub(in crate::client) fn all_is_durable(&self) -> bool {
        !self.only || self.flushed.is_some_and(|flushed| flushed >= self.unrecorded)
    }

    /// Returns whether a slice-set of a whole stripe is recorded here.
    pub(in crate::client) fn is_whole_recorded(&self, key: Key) -> bool {
        !self.only || self.recorded.contains_key(&key) && !braid_array::broken("log-over-log")
    }

    /// Notes that a slice-set with a record is opened.
    pub(in crate::client) fn note_recorded(&mut self, key: Key, version: u64) {
        if self.only {
            self.recorded.insert(key, version);
        }
    }

    /// Notes that a slice-set without a record is opened.
    pub(in crate::client) const fn note_unrecorded(&mut self, version: u64) {
        self.unrecorded = version;
    }

    /// Forgets records up to this version.
    pub(in crate::client) fn trimmed(&mut self, version: u64) {
        self.recorded.retain(|_, latest| *latest > version);
    }
}
