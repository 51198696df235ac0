//! Logs of an array that is not running: they tell which parity, or which writes, are to be brought
//! in place. Nothing is written here.
//!
//! - `ppl`: the partial parity logs of RAID 5, one on each member
//! - `journal`: the journal of RAID 4, 5 and 6, on a device of its own

pub mod journal;
pub mod ppl;

/// Bytes that are asked for at once, at most.
const MAX_READ_BYTES: u32 = 1 << 20;

/// Reads sectors of a device: the first one, and how many bytes, whole sectors and a mebibyte at
/// most. The answer is so many bytes, or the reason why it cannot.
pub type ReadSectors<'a> = dyn FnMut(u64, u32) -> Result<Vec<u8>, String> + 'a;
