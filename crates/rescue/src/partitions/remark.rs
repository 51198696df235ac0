//! Remarks on a partition table that is not as it should be, and can be used all the same.

use crate::image::Unreadable;

/// The reason for which a copy of a GPT, or a sector of an MBR's chain, is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// Nothing of that kind lies there.
    #[error("no signature at byte {at_bytes}")]
    Absent {
        /// Where it should be.
        at_bytes: u64,
    },
    /// The copy cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The copy was damaged, or torn in writing.
    #[error("the checksum of the {what} at byte {at_bytes} is wrong")]
    Checksum {
        /// `header` or `entries`.
        what: &'static str,
        /// Where it begins.
        at_bytes: u64,
    },
    /// The checksum fits, and still a field makes no sense.
    #[error("{field} of the header at byte {at_bytes} is {value}")]
    Field {
        /// The field, by its name in the UEFI specification.
        field: &'static str,
        /// Its value.
        value: u64,
        /// Where the header begins.
        at_bytes: u64,
    },
}

/// Facts that users of a table should know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Remark {
    /// The primary GPT is not used.
    #[error("the backup at the end of the disk is used: the primary GPT is not: {why}")]
    BackupUsed {
        /// The error in the primary one.
        why: Flaw,
    },
    /// The primary GPT is used, and there is no second one to trust.
    #[error("the GPT has no backup: {why}")]
    BackupBroken {
        /// The error in it.
        why: Flaw,
    },
    /// The image is larger or smaller than the disk was.
    #[error("the backup GPT should be at byte {at_bytes}, which is not where the disk ends")]
    BackupElsewhere {
        /// Where the primary GPT says that it is.
        at_bytes: u64,
    },
    /// Neither copy has entries to trust; what can be read of them is shown.
    #[error("the entries of the GPT are damaged, and are shown as they are: {why}")]
    EntriesDamaged {
        /// The error.
        why: Flaw,
    },
    /// Linux takes a GPT only with an MBR that says so.
    #[error("the first sector does not announce the GPT: Linux does not use it")]
    NotProtected,
    /// The first sector has an MBR with partitions of its own, and that counts.
    #[error("there is a GPT too; the MBR counts, as the GPT is not announced in it")]
    GptToo,
    /// An entry that is no range of bytes.
    #[error("entry {number} is left out: it ends before it begins, or beyond any disk")]
    NoRange {
        /// The partition's number.
        number: u32,
    },
    /// A partition ends beyond the end of the image.
    #[error("partition {number} ends {bytes} bytes beyond the end")]
    BeyondEnd {
        /// Its number.
        number: u32,
        /// Bytes that are missing.
        bytes: u64,
    },
    /// Two partitions share bytes.
    #[error("partitions {first} and {second} overlap")]
    Overlap {
        /// The number of the one that begins first.
        first: u32,
        /// The number of the other.
        second: u32,
    },
    /// The chain of logical partitions leads back to where it was.
    #[error("the logical partitions lead back to byte {at_bytes}; what follows is not known")]
    Loop {
        /// The sector that was there before.
        at_bytes: u64,
    },
    /// The chain of logical partitions ends where none should.
    #[error("the logical partitions are cut off: {why}")]
    CutOff {
        /// The error.
        why: Flaw,
    },
    /// More logical partitions than Linux has numbers for, or too many without one between.
    #[error("the chain of logical partitions is longer than Linux follows")]
    TooLong,
}
