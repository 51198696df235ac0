//! Reasons why a superblock is not taken.

/// The reason why bytes are not a superblock, or not one to trust.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// No magic: nothing of md's is here.
    #[error("no md superblock")]
    NoMagic,
    /// The place where it would be cannot be read.
    #[error("sector {sector} cannot be read: {reason}")]
    Read {
        /// Sector.
        sector: u64,
        /// The reason.
        reason: String,
    },
    /// Fewer bytes than a superblock of this version has.
    #[error("md superblock is cut off after {bytes} bytes")]
    Truncated {
        /// Bytes there are.
        bytes: usize,
    },
    /// md's magic, with a version that does not belong at this place.
    #[error("md superblock of unknown version {major}.{minor}")]
    WrongVersion {
        /// Major version.
        major: u32,
        /// Minor version; 0 for 1.x, which does not store it.
        minor: u32,
    },
    /// The checksum does not fit: the superblock is damaged or was torn in writing.
    #[error("md superblock checksum is wrong (stored {stored:x}, computed {computed:x})")]
    BadChecksum {
        /// Stored checksum.
        stored: u32,
        /// Computed checksum.
        computed: u32,
    },
    /// The checksum fits, and still a field makes no sense.
    #[error("md superblock field {field} {reason}")]
    Malformed {
        /// The field, by its name in `md_p.h`.
        field: &'static str,
        /// The fault of the field.
        reason: String,
    },
}

/// Features of an array that is not run here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("uses {names}, which braid does not run")]
pub struct Unsupported {
    /// The bits of the feature map; there are features without.
    pub bits: u32,
    /// Their names, separated by commas.
    pub names: String,
}
