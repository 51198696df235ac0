//! The integrity area of a member: checksums of its data, beside md's data. md knows nothing of
//! the area, and superblocks do not tell of one.
//!
//! ```text
//! byte    0 header, copy 0          4096 header, copy 1          8192 marks, 512 bytes a sector
//! from the next multiple of 4096 on: table, 4096 bytes a page
//! ```
//!
//! A block is 4 KiB of the member's data, counted from where they begin; the last one may be
//! shorter. A page of the table has the checksums of 960 blocks, and there is a mark for each page:
//! a marked page proves nothing. The area is 1/960 of the data, and lies behind them on the member,
//! from the next whole block of the device on, or in a file of its own.
//!
//! All of it is read as hostile bytes. A header that is not whole does not count, a sector of marks
//! that is not whole has all its pages marked, and a page that is not whole knows nothing. So
//! nothing that is lost here is more than lost knowledge.

mod area;
mod digest;
mod header;
mod marks;
mod siphash;
mod table;

pub use area::IntegrityArea;
pub use digest::SuperblockDigest;
pub use header::{HeaderError, IntegrityHeader, KnownCount, MAX_SEQUENCE};
pub use marks::{MARKS_PAGE_BYTES, MarksError, PageMarks};
pub use table::{TablePage, block_sum};

/// Bytes of a block, of which one checksum is kept.
pub const BLOCK_BYTES: u64 = 4096;
/// Sectors of a block.
pub const BLOCK_SECTORS: u64 = BLOCK_BYTES / crate::SECTOR_BYTES;
/// Blocks of which a page of the table has the checksums.
pub const PAGE_BLOCKS: u64 = 960;
/// Bytes of a copy of the header.
pub const COPY_BYTES: usize = 4096;
/// Bytes of a page of the table.
pub const TABLE_PAGE_BYTES: u64 = 4096;

/// The name of an area, drawn when it is made. Marks and pages count in the area of that name only,
/// so what another one left behind, or meant for elsewhere, proves nothing.
pub type AreaId = [u8; 16];
