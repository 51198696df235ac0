//! Member devices: local files and block devices, and parts of them.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use braid_array::SECTOR_BYTES;
use braid_rescue::map_file::{MapFile, MapFileError};

use crate::lock::LockedFile;

mod backend;
mod below;
mod error;
mod fit;
mod fuzz;
mod identity;
mod in_use;
mod inside;
mod look;
mod name;
mod open;
mod overlay;
mod patience;
mod probe;
mod scan;
mod signature;

pub use backend::fuzz_image;
pub(crate) use backend::{Backend, is_nbd};
pub(crate) use below::lies_on;
pub use error::OpenError;
pub use fuzz::fuzz_overlay;
pub(crate) use identity::identity_at;
pub use identity::{Identity, identity};
pub use inside::inside;
pub use look::{as_image, partitions, what_it_is};
pub use name::{DevicePart, MemberName};
pub(crate) use open::memory_file;
pub use open::{Mode, check_distinct, locked_by, memory, open, peek, peek_through};
pub(crate) use overlay::{Dirty, Overlay, Run};
pub use probe::{probe, probe_with_log};
pub use scan::scan;
pub use signature::{Signature, data, signature};

/// An opened and exclusively locked member.
#[derive(Debug)]
pub struct MemberFile {
    /// The descriptor all I/O goes through. Opened with O_DIRECT where the file system has it.
    pub file: LockedFile,
    /// Absolute path, for messages. A part is named as by [`MemberName`].
    pub path: PathBuf,
    /// The bytes of the file that are the member, where it is not all of it.
    pub part: Option<Range<u64>>,
    /// Size of the member.
    pub sectors: u64,
    /// Opened with O_DIRECT.
    pub direct: bool,
    /// Offsets, lengths and memory must be multiples of this: 512 to 4096; 512 without O_DIRECT.
    pub block_bytes: u32,
    /// A block device rather than a regular file.
    pub block_device: bool,
    /// Source of its bytes, if they are not in the file as they are.
    pub(crate) backend: Option<Arc<dyn Backend>>,
    /// Devices and files below it, kept open for the locks on them.
    pub below: Vec<LockedFile>,
    /// Overlay for its changes, if any.
    pub(crate) overlay: Option<Box<Overlay>>,
    /// Ranges of its file that count as unreadable.
    pub(crate) lost: Option<Arc<MapFile>>,
    /// Store beside it, which holds its checksums.
    pub(crate) beside: Option<Box<Self>>,
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
    /// A file as it is, all of it: so many bytes, read and written without O_DIRECT.
    pub(crate) fn plain(file: std::fs::File, path: PathBuf, bytes: u64) -> Self {
        Self {
            file: file.into(),
            path,
            part: None,
            sectors: bytes / SECTOR_BYTES,
            direct: false,
            block_bytes: 512,
            block_device: false,
            backend: None,
            below: Vec::new(),
            overlay: None,
            lost: None,
            beside: None,
        }
    }

    /// Returns the start of the member in its file, in bytes.
    #[must_use]
    pub fn start_bytes(&self) -> u64 {
        self.part.as_ref().map_or(0, |part| part.start)
    }

    /// Marks the parts of an image that ddrescue did not rescue as unreadable, by the map that it
    /// kept. The image may be a part of the file.
    ///
    /// # Errors
    /// Error in the map.
    pub fn lose(&mut self, map: &[u8]) -> Result<(), MapFileError> {
        let end = self.start_bytes() + self.sectors * SECTOR_BYTES;
        self.lost = Some(Arc::new(MapFile::parse(map, end)?));
        Ok(())
    }

    /// Returns whether some of these bytes count as unreadable.
    pub(crate) fn is_lost(&self, offset: u64, len: usize) -> bool {
        let start = self.start_bytes() + offset;
        let Some(lost) = &self.lost else { return false };
        lost.is_missing(&(start..start.saturating_add(len as u64)))
    }

    /// Reads `len` bytes.
    ///
    /// # Errors
    /// When the device fails or ends before `offset + len`.
    pub fn read_at(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        if self.is_lost(offset, len) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let (covering, head) = self.read_covering(offset, len)?;
        Ok(covering.as_slice()[head..head + len].to_vec())
    }

    /// Writes `bytes`, which are not durable before [`Self::sync`]. A partly written block keeps
    /// its other bytes.
    ///
    /// # Errors
    /// When the device fails or ends before `offset + bytes.len()`.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut covering, head) = self.read_covering(offset, bytes.len())?;
        covering.as_mut_slice()[head..head + bytes.len()].copy_from_slice(bytes);
        let start = offset - head as u64;
        if let Some(overlay) = &self.overlay {
            return overlay.write(start / SECTOR_BYTES, covering.as_slice());
        }
        self.file.write_all_at(covering.as_slice(), self.start_bytes() + start)
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// When the device fails.
    pub fn sync(&self) -> io::Result<()> {
        match &self.overlay {
            Some(overlay) => overlay.flush(),
            None => self.file.sync_data(),
        }
    }

    /// Reads at a byte of the file, or of the disk in it.
    fn read_raw(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        match &self.backend {
            Some(backend) => backend.read_exact_at(bytes, at).map(|()| bytes.len()),
            None => self.file.read_at(bytes, at),
        }
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
            let from = self.start_bytes() + start + done as u64;
            match self.read_raw(&mut bytes.as_mut_slice()[done..], from) {
                Ok(0) => return Err(beyond()),
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.len = whole;
        if let Some(overlay) = &self.overlay {
            overlay.read_over(start / SECTOR_BYTES, bytes.as_mut_slice())?;
        }
        Ok((bytes, head))
    }
}

#[cfg(test)]
mod tests;
