//! Superblocks of an array whose nodes have journals.

use crate::format::superblock::feature;

/// The feature bits that superblocks need because of journals: writes may be recorded in a journal
/// and not be in their place (`NODE_JOURNALS`), journals do not record whole stripes (`NODE_PPL`),
/// and some whole stripes may be stored in part without a record (`NODE_UNRECORDED`). An array
/// without journals needs none: `journal_bytes` is 0 until the lane tells of journals. A clean
/// superblock carries none either, unless journals lack whole stripes and a part of the array waits
/// for a resync.
#[derive(Debug, Default)]
pub(super) struct JournalFeatures {
    /// Size of each journal; 0 without any.
    pub(super) journal_bytes: u64,
    /// Whole stripes are not recorded.
    pub(super) parts_only: bool,
    /// Some may be on their way: since this update the superblocks say so.
    pub(super) unrecorded: Option<u64>,
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
