//! Superblocks of the candidates in, decisions and their reasons out.

use crate::MemberId;
use crate::format::{BadBlocks, Bitmap, Superblock};

/// What a machine is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The array-wide fields of the newest superblock.
    pub superblock: Superblock,
    /// The members to attach; the index is the [`MemberId`].
    pub members: Vec<MemberConfig>,
    /// The bitmap, when the array has one: the union of the members' bits that count.
    pub bitmap: Option<Bitmap>,
    /// Serve reads only, write nothing to any member.
    pub read_only: bool,
    /// Start a degraded array that is not clean (parity levels).
    pub force: bool,
    /// Smallest I/O that every member takes, a power of two from 512 to 4096.
    pub block_bytes: u32,
}

/// One member to attach.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// Path, for messages and status.
    pub device: String,
    /// Usable size of the whole device.
    pub device_sectors: u64,
    /// Its own superblock.
    pub superblock: Superblock,
    /// Its bad-block log.
    pub bad_blocks: BadBlocks,
    /// What it is in this array.
    pub standing: Standing,
}

/// What an attached member is at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Holds its role completely.
    InSync {
        /// Role.
        role: u16,
    },
    /// Holds its role below `offset` (device sectors); recovery goes on from there.
    Rebuilding {
        /// Role.
        role: u16,
        /// Everything below is rebuilt.
        offset: u64,
        /// Stands beside the holder of the role, which it is to replace.
        replacement: bool,
        /// Was in sync before it left: only what the bitmap marks must be copied.
        by_bitmap: bool,
    },
    /// Spare.
    Spare,
}

impl Config {
    /// The ids of the members.
    pub fn member_ids(&self) -> impl Iterator<Item = MemberId> {
        (0..self.members.len()).map(|i| MemberId(u16::try_from(i).unwrap_or(u16::MAX)))
    }
}
