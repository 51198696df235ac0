//! md's journal device: what superblocks say of it.

/// The tail of the journal: the first record that still counts, in sectors
/// of the device's data area. The lane [moves](Self::move_tail) it when what was recorded before is
/// in place; the superblock says so after the next flush of all members, and only then is what lay
/// before it free.
#[derive(Clone, Copy, Debug)]
pub(super) struct JournalDevice {
    /// As the lane has it.
    tail: u64,
    /// What lies before it is in place, and durable.
    pub(super) durable_tail: u64,
    /// As the superblock has it.
    pub(super) told_tail: u64,
}

impl JournalDevice {
    pub(super) const fn new(tail: u64) -> Self {
        Self { tail, durable_tail: tail, told_tail: tail }
    }

    /// What was recorded before is in place.
    pub(super) const fn move_tail(&mut self, tail: u64) {
        self.tail = tail;
    }

    /// The tail as a flush of all members begins.
    pub(super) const fn tail(&self) -> u64 {
        self.tail
    }
}
