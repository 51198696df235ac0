//! Writes to an integrity area, and what has to be durable between them.

/// A step: the next one begins when it is over, but writes without a flush between them have no
/// order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntegrityStep {
    /// A write.
    Write(IntegrityWrite),
    /// All writes before are durable, those of data on that member too. Where each write was
    /// durable when it was answered (FUA), and so was the data, all have been answered.
    Flush,
}

/// A write of metadata of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntegrityWrite {
    /// A copy of the header.
    Header {
        /// Which of the two.
        copy: usize,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A page of marks, as they are when it is written.
    Marks(usize),
    /// A page of the table, as it is when it is written.
    Page(usize),
    /// The superblock that the header was told of.
    Superblock,
}

/// The steps of writes that have no order, and of a flush after them.
pub(super) fn flushed(writes: impl IntoIterator<Item = IntegrityWrite>) -> Vec<IntegrityStep> {
    writes.into_iter().map(IntegrityStep::Write).chain([IntegrityStep::Flush]).collect()
}
