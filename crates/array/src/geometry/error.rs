//! Why a shape is refused.

use crate::level::{LayoutError, Level};

/// Why a shape is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// Number of roles.
    #[error("{level} cannot have {raid_disks} members: use {min} to {max}")]
    Members {
        /// Level.
        level: Level,
        /// What was asked for.
        raid_disks: u32,
        /// The fewest.
        min: u32,
        /// The most.
        max: u32,
    },
    /// The size of every member decides where bytes lie.
    #[error("{level} needs all its {raid_disks} members, {known} are there: attach the others")]
    MemberSizes {
        /// Level.
        level: Level,
        /// Number of roles.
        raid_disks: u32,
        /// Members of known size.
        known: usize,
    },
    /// Chunk.
    #[error("{level} cannot have chunks of {chunk_sectors} sectors: use {rule}")]
    Chunk {
        /// Level.
        level: Level,
        /// What was asked for.
        chunk_sectors: u32,
        /// What can be.
        rule: &'static str,
    },
    /// A layout of another level.
    #[error("the layout is not one of {level}: choose one that is")]
    Layout {
        /// Level.
        level: Level,
    },
    /// A raid10 layout and a number of members that do not go together.
    #[error(transparent)]
    Raid10(#[from] LayoutError),
    /// raid0 of three or more sizes whose superblock does not say how the later zones lie.
    #[error("raid0 with members of unequal size needs a layout: say original or alternate")]
    Raid0Layout,
    /// A member or the array.
    #[error("a member of {sectors} sectors is too small: it needs at least {least_sectors}")]
    TooSmall {
        /// What there is.
        sectors: u64,
        /// What is needed.
        least_sectors: u64,
    },
    /// A member or the array.
    #[error("the array would exceed 8 EiB: use fewer or smaller members")]
    TooLarge,
}
