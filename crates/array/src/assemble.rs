//! Superblocks of the candidates in, decisions and their reasons out.
//!
//! The rules are those of mdadm's assembly and of the kernel's `super_1_validate` and `run`
//! functions: the newest event count tells the truth, and its table of roles says who belongs to
//! the array. Where those two differ or guess, the careful answer is taken. Nothing is written
//! here; a [`Config`] starts a machine, which writes.

mod bitmap;
mod candidate;
mod check;
mod described;
mod found_log;
mod judge;
mod lineage;
mod pieces;
mod refused;
mod reshape;
mod start;
mod start_log;
mod steps;
mod table;
mod verdict;

pub use candidate::{Candidate, bad_blocks_place, read_bad_blocks, read_bitmap};
pub use check::not_in_blocks;
pub(crate) use check::{adopted, check_places, check_shape};
pub use described::{Described, DescribedMember};
pub use found_log::{FoundLog, LogPlace, log_place, parity_geometry};
pub(crate) use found_log::{geometry_of, shape_of};
pub(crate) use lineage::{Lineage, lineage};
pub use pieces::{ArrayPiece, Pieces};
pub use reshape::{Backup, BackupError, Halfway, ReadMember, Settlement, SettlingWrite};
pub use start_log::StartLog;
pub use steps::{decide, decide_saving};
pub use verdict::Verdict;

pub use crate::options::Options;

use crate::format::{BadBlocks, Bitmap, Superblock};
use crate::refusal::Next;
use crate::{MemberId, Role};

/// The result of looking at all candidates.
#[derive(Clone, Debug)]
pub struct Assembly {
    /// Device and verdict of each candidate, in the order given.
    pub verdicts: Vec<(String, Verdict)>,
    /// The superblock that counts: the newest of the array; `None` when no candidate has one.
    pub newest: Option<Box<Superblock>>,
    /// Whether the array can be started, and how.
    pub start: Start,
}

/// Whether the array can be started, and how.
#[derive(Clone, Debug)]
pub enum Start {
    /// Yes.
    Ready {
        /// With this.
        config: Box<Config>,
        /// Roles without an in-sync member.
        degraded: u16,
        /// An unclean stop: sync sectors from here on must be resynced.
        resync_from: Option<u64>,
        /// Recovery of these copies only what the bitmap marks.
        by_bitmap: bool,
    },
    /// The array stopped in the middle of a reshape, and can be read.
    Halfway(Box<Halfway>),
    /// No.
    Refused {
        /// The reason, in one line.
        reason: String,
        /// The one safe next step.
        next: Next,
        /// `force` would start it, at a price that `reason` names.
        could_force: bool,
    },
}

/// Everything that a machine is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The newest superblock, with the array-wide fields as they are to be taken: after `force`,
    /// with the roles of the members that were forced in.
    pub superblock: Superblock,
    /// The members to attach; the index is the [`MemberId`].
    pub members: Vec<MemberConfig>,
    /// The bitmap, when the array has one: the union of the members' bits that count, or all bits
    /// set when no member's counts. In a clean array that is complete, set bits ask for nothing.
    pub bitmap: Option<Bitmap>,
    /// The log against the write hole, and what it has to bring in place.
    pub log: StartLog,
    /// Serve reads only, write nothing to any member.
    pub read_only: bool,
    /// Start a degraded array that is not clean (parity levels).
    pub force: bool,
    /// Smallest I/O that the array and every member take, a power of two from 512 to 4096.
    pub block_bytes: u32,
    /// The device that a move in place saves to; its id is the next after those of the members.
    pub spill: Option<SpillConfig>,
}

/// A device beside the members that a move in place saves to.
#[derive(Clone, Debug)]
pub struct SpillConfig {
    /// Path, for messages and status.
    pub device: String,
    /// Size.
    pub sectors: u64,
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
    /// Standing of the member in this array.
    pub standing: Standing,
}

/// Standing of an attached member at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Holds its role completely.
    InSync {
        /// Role.
        role: Role,
    },
    /// Holds its role below `offset`; recovery goes on from there.
    Rebuilding {
        /// Role.
        role: Role,
        /// Sectors of the data area below this are rebuilt.
        offset: u64,
        /// Stands beside the holder of the role, which it is to replace.
        replacement: bool,
        /// Content that the member had: within that it lacks only what the bitmap marks.
        had: Had,
    },
    /// Spare.
    Spare,
    /// Holds the journal.
    Journal,
    /// Failed while another program served the array, and is listed on: no I/O goes there.
    Faulty {
        /// Role, if it had one.
        role: Option<Role>,
    },
}

/// The part of its role that a member that is being rebuilt had at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Had {
    /// The sectors of its data area below this; 0 of one that never had any.
    Below(u64),
    /// All of it: it was in sync before it left.
    All,
}

impl Had {
    /// Nothing of it.
    pub const NOTHING: Self = Self::Below(0);

    /// Returns whether the part that the member had ends before this sector.
    pub(crate) const fn ends_before(self, end: u64) -> bool {
        match self {
            Self::Below(had) => had < end,
            Self::All => false,
        }
    }
}

impl Config {
    /// The ids of the members.
    pub fn member_ids(&self) -> impl Iterator<Item = MemberId> {
        (0..self.members.len()).map(|i| MemberId(u16::try_from(i).unwrap_or(u16::MAX)))
    }
}
