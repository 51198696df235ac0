//! Member devices: local files and block devices.

use std::fs::File;
use std::path::PathBuf;

/// An opened and exclusively locked member.
#[derive(Debug)]
pub struct MemberFile {
    /// The descriptor all I/O goes through. Opened with O_DIRECT where the file system has it.
    pub file: File,
    /// For messages.
    pub path: PathBuf,
    /// Size of the device.
    pub sectors: u64,
    /// Opened with O_DIRECT.
    pub direct: bool,
    /// Offsets, lengths and memory must be multiples of this: 512 to 4096; 512 without O_DIRECT.
    pub block_bytes: u32,
    /// A block device rather than a regular file.
    pub block_device: bool,
}
