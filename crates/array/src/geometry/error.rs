//! Reasons why a shape is refused.

use crate::level::{LayoutError, Level};
use crate::refusal::{Advised, Next};

/// The reason why a shape is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// Number of roles.
    #[error("{level} cannot have {raid_disks} members")]
    Members {
        /// Level.
        level: Level,
        /// The number that was asked for.
        raid_disks: u32,
        /// The fewest.
        min: u32,
        /// The most.
        max: u32,
    },
    /// The size of every member decides where bytes lie.
    #[error("{level} needs all its {raid_disks} members, {known} are there")]
    MemberSizes {
        /// Level.
        level: Level,
        /// Number of roles.
        raid_disks: u32,
        /// Members of known size.
        known: usize,
    },
    /// Chunk.
    #[error("{level} cannot have chunks of {chunk_sectors} sectors")]
    Chunk {
        /// Level.
        level: Level,
        /// The chunk that was asked for.
        chunk_sectors: u32,
        /// The rule for chunks.
        rule: &'static str,
    },
    /// A layout of another level.
    #[error("the layout is not one of {level}")]
    Layout {
        /// Level.
        level: Level,
    },
    /// A raid10 layout and a number of members that do not go together.
    #[error(transparent)]
    Raid10(#[from] LayoutError),
    /// raid0 of three or more sizes whose superblock does not say how the later zones lie.
    #[error("raid0 with members of unequal size needs a layout")]
    Raid0Layout,
    /// A member or the array.
    #[error("a member of {sectors} sectors is too small")]
    TooSmall {
        /// The sectors that there are.
        sectors: u64,
        /// The sectors that are needed.
        least_sectors: u64,
    },
    /// A member or the array.
    #[error("the array would exceed 8 EiB")]
    TooLarge,
}

impl Advised for GeometryError {
    fn next(&self) -> Next {
        match self {
            Self::Members { min, max, .. } => format!("use {min} to {max}").into(),
            Self::MemberSizes { .. } => "attach the others".into(),
            Self::Chunk { rule, .. } => format!("use {rule}").into(),
            Self::Layout { .. } => "choose one that is".into(),
            Self::Raid10(error) => error.next(),
            Self::Raid0Layout => "say original or alternate".into(),
            Self::TooSmall { least_sectors, .. } => {
                format!("it needs at least {least_sectors} sectors").into()
            }
            Self::TooLarge => "use fewer or smaller members".into(),
        }
    }
}
