//! Reasons why there can be no such array, and what to do instead.

use crate::format::Version;
use crate::format::superblock::MAX_DEV;
use crate::geometry::GeometryError;
use crate::level::Level;
use crate::name::NAME_BYTES;
use crate::refusal::{Advised, Next};

/// The reason why there can be no such array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// Level, layout, chunk and members do not go together.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// A device has no room for metadata and data.
    #[error(
        "device {index} has {device_sectors} sectors, too few for metadata and a chunk of data"
    )]
    DeviceTooSmall {
        /// Its place among all devices given, missing ones counted.
        index: usize,
        /// Its size.
        device_sectors: u64,
    },
    /// Data cannot begin there.
    #[error("a data offset of {data_offset} sectors")]
    DataOffset {
        /// Asked for.
        data_offset: u64,
        /// The least, behind the metadata.
        least_sectors: u64,
    },
    /// The size asked for does not fit the smallest device.
    #[error(
        "a size of {size_sectors} sectors exceeds the {available_sectors} of the smallest device"
    )]
    SizeTooLarge {
        /// Asked for.
        size_sectors: u64,
        /// Sectors that are there.
        available_sectors: u64,
    },
    /// The size asked for holds no chunk.
    #[error("a size of {size_sectors} sectors is less than a chunk of {unit_sectors}")]
    SizeTooSmall {
        /// Asked for.
        size_sectors: u64,
        /// The least.
        unit_sectors: u64,
    },
    /// Checksums lie behind the data.
    #[error("checksums lie behind the data, where superblocks of version {} are", version.name())]
    NoPlaceForChecksums {
        /// Version.
        version: Version,
    },
    /// Something that a level without redundancy does not have.
    #[error("{level} has no {what}")]
    NotRedundant {
        /// Level.
        level: Level,
        /// The thing that was asked for.
        what: &'static str,
    },
    /// More members are missing than the level can do without.
    #[error("{level} cannot do without {missing} of its members")]
    TooFew {
        /// Level.
        level: Level,
        /// Number of missing members.
        missing: usize,
    },
    /// More devices than a superblock has room for.
    #[error("more than {MAX_DEV} devices")]
    TooManyDevices,
    /// The bitmap does not fit, or its chunk is not a power of two from 4 KiB on.
    #[error("a bitmap with this chunk does not fit")]
    Bitmap,
    /// A log that this level cannot have, or not with what else was asked for.
    #[error("{level} cannot have {what}")]
    Log {
        /// Level.
        level: Level,
        /// The log that was asked for.
        what: &'static str,
    },
    /// The journal's device is too small.
    #[error("the journal has {device_sectors} sectors, it needs {needed_sectors}")]
    JournalTooSmall {
        /// Its size.
        device_sectors: u64,
        /// The least.
        needed_sectors: u64,
    },
    /// Longer than a superblock has room for.
    #[error("the name has {bytes} bytes, more than {NAME_BYTES}")]
    NameTooLong {
        /// Its length.
        bytes: usize,
    },
}

impl Advised for CreateError {
    fn next(&self) -> Next {
        match self {
            Self::Geometry(error) => error.next(),
            Self::DeviceTooSmall { .. } => "use a larger member".into(),
            Self::DataOffset { least_sectors, .. } => {
                format!("use a multiple of 8 sectors from {least_sectors} on").into()
            }
            Self::SizeTooLarge { available_sectors, .. } => {
                format!("use at most {available_sectors} sectors").into()
            }
            Self::SizeTooSmall { unit_sectors, .. } => {
                format!("use at least {unit_sectors} sectors").into()
            }
            Self::NoPlaceForChecksums { .. } => "use version 1.2, or make none".into(),
            Self::NotRedundant { .. } => "leave it out, or use another level".into(),
            Self::TooFew { .. } => "name more members".into(),
            Self::TooManyDevices => "use fewer spares".into(),
            Self::Log { .. } => "leave it out, or use a level that can".into(),
            Self::JournalTooSmall { .. } => "use a larger device".into(),
            Self::Bitmap => "use a larger power of two, or the default".into(),
            Self::NameTooLong { .. } => "use a shorter name".into(),
        }
    }
}
