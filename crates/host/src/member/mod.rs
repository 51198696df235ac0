//! Member devices: local files and block devices.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use braid_array::SECTOR_BYTES;

use crate::lock::LockedFile;

mod below;
mod identity;
mod in_use;
mod open;
mod probe;
mod scan;
mod signature;

pub(crate) use below::lies_on;
pub use identity::{Identity, identity};
pub(crate) use open::memory_file;
pub use open::{Mode, OpenError, check_distinct, locked_by, memory, open, peek};
pub use probe::{probe, probe_with_log};
pub use scan::scan;
pub use signature::{Signature, data, signature};

/// An opened and exclusively locked member.
#[derive(Debug)]
pub struct MemberFile {
    /// The descriptor all I/O goes through. Opened with O_DIRECT where the file system has it.
    pub file: LockedFile,
    /// For messages; absolute.
    pub path: PathBuf,
    /// Size of the device.
    pub sectors: u64,
    /// Opened with O_DIRECT.
    pub direct: bool,
    /// Offsets, lengths and memory must be multiples of this: 512 to 4096; 512 without O_DIRECT.
    pub block_bytes: u32,
    /// A block device rather than a regular file.
    pub block_device: bool,
    /// What it lies on, kept open for the locks on it.
    pub below: Vec<LockedFile>,
}

/// Memory for O_DIRECT: zeroed, at a multiple of 4096.
#[derive(Debug)]
pub struct AlignedBytes {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    const ALIGN: usize = 4096;

    /// `len` zero bytes.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let memory = vec![0; len + Self::ALIGN];
        let start = memory.as_ptr().align_offset(Self::ALIGN);
        Self { memory, start, len }
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    /// The bytes.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// Plain, blocking I/O at any offset and of any length, for metadata and for looking at members.
/// The engine does its own.
impl MemberFile {
    /// Reads `len` bytes.
    ///
    /// # Errors
    /// When the device fails or ends before `offset + len`.
    pub fn read_at(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let (covering, head) = self.read_covering(offset, len)?;
        Ok(covering.as_slice()[head..head + len].to_vec())
    }

    /// Writes `bytes`. Not durable before [`Self::sync`]. A part of a block is filled up with what
    /// the device holds.
    ///
    /// # Errors
    /// When the device fails or ends before `offset + bytes.len()`.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut covering, head) = self.read_covering(offset, bytes.len())?;
        covering.as_mut_slice()[head..head + bytes.len()].copy_from_slice(bytes);
        let start = offset - head as u64;
        self.file.write_all_at(covering.as_slice(), start)
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// When the device fails.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The whole blocks that cover a range, and where in them the range begins.
    fn read_covering(&self, offset: u64, len: usize) -> io::Result<(AlignedBytes, usize)> {
        let beyond =
            || io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the end of the device");
        let block = u64::from(self.block_bytes);
        let end = offset.checked_add(len as u64).ok_or_else(beyond)?;
        let size = self.sectors * SECTOR_BYTES;
        if end > size {
            return Err(beyond());
        }
        let start = offset - offset % block;
        // A file may end in the middle of a block; its tail cannot be read with O_DIRECT whole.
        let stop = end.next_multiple_of(block).min(size);
        let whole = usize::try_from(stop - start).map_err(|_| beyond())?;
        let head = usize::try_from(offset - start).map_err(|_| beyond())?;
        let mut bytes = AlignedBytes::new(whole.next_multiple_of(self.block_bytes as usize));
        let mut done = 0;
        while done < whole {
            match self.file.read_at(&mut bytes.as_mut_slice()[done..], start + done as u64) {
                Ok(0) => return Err(beyond()),
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.len = whole;
        Ok((bytes, head))
    }
}

#[cfg(test)]
mod tests;
