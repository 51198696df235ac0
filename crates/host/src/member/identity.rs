//! Identity of a file or device, whatever its name.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::MemberName;

/// Identity by which two names are one file: the device number of a block device, device and inode
/// of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    block_device: bool,
    device: u64,
    inode: u64,
}

impl Identity {
    pub(super) fn of(metadata: &Metadata) -> Self {
        if metadata.file_type().is_block_device() {
            return Self::of_device(metadata.rdev());
        }
        Self { block_device: false, device: metadata.dev(), inode: metadata.ino() }
    }

    pub(super) const fn of_device(number: u64) -> Self {
        Self { block_device: true, device: number, inode: 0 }
    }

    /// The number of the file system that a file is on.
    pub(super) fn file_system(self) -> Option<u64> {
        (!self.block_device).then_some(self.device)
    }

    /// The number of a block device.
    pub(super) fn device_number(self) -> Option<u64> {
        self.block_device.then_some(self.device)
    }
}

/// Returns the identity of the file that has a member's name now.
///
/// # Errors
/// When there is no such file; the error names it.
pub(crate) fn identity_at(path: &Path) -> io::Result<Identity> {
    let metadata = std::fs::metadata(MemberName::of(path).file).map_err(|error| {
        let reason = format!("{} is not there any more: {error}", path.display());
        io::Error::new(error.kind(), reason)
    })?;
    Ok(Identity::of(&metadata))
}

/// The identity of an open file.
///
/// # Errors
/// When the file cannot be looked at.
pub fn identity(file: &File) -> io::Result<Identity> {
    Ok(Identity::of(&file.metadata()?))
}
