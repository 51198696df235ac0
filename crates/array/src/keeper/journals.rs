//! What superblocks say of an array whose nodes have journals.

use super::metadata::Metadata;
use crate::format::superblock::feature;

/// Which feature bits superblocks need because of journals: writes may be recorded in a journal and
/// not be in their place (`NODE_JOURNALS`), journals do not record whole stripes (`NODE_PPL`), and
/// some whole stripes may be stored in part without a record (`NODE_UNRECORDED`). An array without
/// journals needs none: `journal_bytes` is 0 until [`Metadata::records_elsewhere`]. A clean
/// superblock carries none either, unless journals lack whole stripes and a part of the array waits
/// for a resync.
#[derive(Debug, Default)]
pub(super) struct JournalFeatures {
    /// What each journal holds; 0 without any.
    pub(super) journal_bytes: u64,
    /// Whole stripes are not recorded.
    parts_only: bool,
    /// Some may be on their way: since this update the superblocks say so.
    unrecorded: Option<u64>,
}

impl JournalFeatures {
    /// Nothing is being written, and a flush comes next.
    pub(super) const fn all_is_durable(&mut self) {
        self.unrecorded = None;
    }

    /// The bits of superblocks that do not say clean; or do, though something is not `in_line`:
    /// where whole stripes are not recorded, what is said of that has to be known longer.
    pub(super) fn features(&self, clean: bool, in_line: bool) -> u32 {
        if clean && (in_line || !self.parts_only) {
            return 0;
        }
        self.all_features()
    }

    /// All bits that are due.
    pub(super) fn all_features(&self) -> u32 {
        if self.journal_bytes == 0 {
            return 0;
        }
        let ppl = if self.parts_only { feature::NODE_PPL } else { 0 };
        let unrecorded = self.unrecorded.map_or(0, |_| feature::NODE_UNRECORDED);
        feature::NODE_JOURNALS | ppl | unrecorded
    }
}

impl Metadata {
    /// From now on what is written may be recorded in journals that hold this much each, and not
    /// where it belongs: superblocks that do not say clean say so. With `parts_only` whole stripes
    /// are not recorded.
    pub(super) fn records_elsewhere(&mut self, journal_bytes: u64, parts_only: bool) {
        // What the last client left is not durable yet.
        let unrecorded = self.superblock.has(feature::NODE_UNRECORDED).then_some(0);
        self.journals = JournalFeatures { journal_bytes, parts_only, unrecorded };
        if self.clean.active {
            self.clean.ticket = self.queue_superblock(false);
        }
    }

    /// A whole stripe is to be stored that is not recorded: the members are to know that there are
    /// such ones.
    pub(super) fn stores_unrecorded(&mut self) {
        if self.journals.unrecorded.is_none() {
            self.journals.unrecorded = Some(self.queue_superblock(false));
        }
    }

    /// Do they know?
    pub(super) fn may_store_unrecorded(&self) -> bool {
        self.journals.unrecorded.is_some_and(|ticket| self.is_done(ticket))
    }

    /// Whatever was stored and not recorded is durable, and nothing of that kind is on its way.
    pub(super) fn nothing_is_unrecorded(&mut self) {
        if self.journals.unrecorded.take().is_some() && self.clean.active {
            self.queue_superblock(false);
        }
    }
}
