//! Requests of an export to an array.

use crate::{Buf, SECTOR_BYTES};

/// The export's name for a request; comes back with its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// The operation on the range of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fill the buffer from the array.
    Read,
    /// Write the buffer. The buffer is a stable copy that belongs to the machine until completion.
    Write {
        /// Durable before it completes.
        fua: bool,
    },
    /// Make the range read as zeroes.
    WriteZeroes {
        /// Durable before it completes.
        fua: bool,
        /// Members may give the space back.
        unmap: bool,
    },
    /// The contents are no longer needed.
    Discard,
    /// All writes completed so far are durable when this completes. Range is ignored.
    Flush,
}

/// A request. The range may be of any length for `WriteZeroes` and `Discard`, and at most
/// [`Request::MAX_BYTES`] for `Read` and `Write`, whose buffer has exactly that length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the export, unique among the requests in flight.
    pub id: RequestId,
    /// The operation.
    pub op: Op,
    /// First sector of the array.
    pub sector: u64,
    /// Number of sectors.
    pub sectors: u64,
    /// The data of a read or write; ignored otherwise.
    pub buf: Buf,
}

impl Request {
    /// The largest read or write a machine takes; exports split larger ones.
    pub const MAX_BYTES: u32 = 1 << 20;

    /// Returns how much of a range that begins at this byte of the array goes with one request,
    /// when so much of it is left: all, or as much as ends where a block of 4 KiB does. So no such
    /// block is written by two requests, of which a crash may leave one.
    #[must_use]
    pub fn first_bytes(offset: u64, left: u64) -> u32 {
        let most = u64::from(Self::MAX_BYTES);
        if left <= most {
            return left as u32;
        }
        let beyond = (offset + most) % Self::WHOLE_BYTES;
        (most - beyond) as u32
    }

    /// Bytes that md's journal has as a whole, or not at all.
    const WHOLE_BYTES: u64 = 4096;

    /// Checks that the request fits an array of this size that takes blocks of so many bytes.
    ///
    /// # Errors
    /// [`RequestError::OutOfRange`], [`RequestError::Malformed`].
    pub fn fits(&self, array_sectors: u64, block_bytes: u32) -> Result<(), RequestError> {
        if self.op == Op::Flush {
            return Ok(());
        }
        let end = self.sector.checked_add(self.sectors).ok_or(RequestError::OutOfRange)?;
        if end > array_sectors {
            return Err(RequestError::OutOfRange);
        }
        let block = u64::from(block_bytes) / SECTOR_BYTES;
        let whole = self.sector.is_multiple_of(block) && self.sectors.is_multiple_of(block);
        if self.sectors == 0 || !whole {
            return Err(RequestError::Malformed);
        }
        let carries_data = matches!(self.op, Op::Read | Op::Write { .. });
        let bytes = self.sectors.saturating_mul(SECTOR_BYTES);
        let max = u64::from(Self::MAX_BYTES);
        if carries_data && (bytes > max || bytes != u64::from(self.buf.len)) {
            return Err(RequestError::Malformed);
        }
        Ok(())
    }
}

impl Op {
    /// Writes, zeroing and discards.
    #[must_use]
    pub const fn changes_data(self) -> bool {
        matches!(self, Self::Write { .. } | Self::WriteZeroes { .. } | Self::Discard)
    }
}

/// The reason why a request failed. An export maps these to its own errors (EIO, EPERM, EINVAL).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The range ends beyond the array.
    #[error("range ends beyond the array")]
    OutOfRange,
    /// Empty, not a multiple of the array's block size, too long, or the buffer does not fit.
    #[error("malformed request")]
    Malformed,
    /// The array is read-only.
    #[error("the array is read-only")]
    ReadOnly,
    /// More members are gone than the level can do without.
    #[error("the array has lost too many members")]
    Failed,
    /// These sectors cannot be read from any member.
    #[error("unreadable sectors with no redundancy left")]
    Medium,
    /// The file systems of members have no room for what was to be written.
    #[error("no room on the members for what was to be written")]
    NoSpace,
    /// A read that nobody waits for any more may still write into the buffer: it is to be asked
    /// again, with another one. Executors do that; programs do not see it.
    #[error("the buffer is still in use by a member that does not answer")]
    BufferHeld,
}

/// A table is full: submit again after the next completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_ranges_are_cut_where_blocks_of_4_kib_begin() {
        const MOST: u64 = Request::MAX_BYTES as u64;
        assert_eq!(Request::first_bytes(512, MOST), Request::MAX_BYTES);
        assert_eq!(Request::first_bytes(512, MOST + 512), Request::MAX_BYTES - 512);
        assert_eq!(Request::first_bytes(4096, 2 * MOST), Request::MAX_BYTES);
        assert_eq!(Request::first_bytes(3584, 2 * MOST), Request::MAX_BYTES - 3584);
    }
}
