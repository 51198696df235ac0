//! md's on-disk format: superblocks 0.90 and 1.x, bad-block log, write-intent bitmap,
//! partial parity log and journal; and beside it, checksums of the data.
//! Decoders take hostile bytes; encoders write what Linux md writes.

pub mod backup;
pub mod bad_blocks;
pub mod bitmap;
mod bitmap_superblock;
mod bytes;
pub mod integrity;
pub mod journal;
pub mod moved;
pub mod ppl;
pub mod reshaped;
pub(crate) mod striped;
pub mod superblock;
mod superblock_bytes;
mod superblock_error;
mod superblock_v0;
mod superblock_v1;
pub mod suspended;

pub use bad_blocks::{BadBlocks, BadBlocksError};
pub use bitmap::{Bitmap, BitmapError, BitmapSuperblock};
pub use moved::MoveNote;
pub use superblock::{DevRole, Superblock, SuperblockError, Unsupported, Version, locations};
pub(crate) use superblock_v1::MAGIC as SUPERBLOCK_MAGIC;
