//! The file or device that a move in place saves to what it is about to overwrite.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use braid_array::action::{Command, NewMember};
use braid_array::format::backup::BackupHeader;
use braid_array::format::superblock::feature;
use braid_array::{MemberId, Refusal, SECTOR_BYTES};
use rustix::fs::{FallocateFlags, fallocate, major, minor};

use super::add::new_member;
use super::served::{Served, find_member};
use crate::member::{self, MemberFile, Mode};
use crate::system::describe;

impl Served {
    /// Makes a file of so many sectors, or takes an empty one or a device. A header on it tells of
    /// the array, and of nothing that is saved.
    pub(super) fn spill(&self, path: &Path, sectors: u64) -> Result<(), Refusal> {
        let status = self.status()?;
        if let Some(spill) = status.spill.as_ref().filter(|spill| !spill.is_over)
            && status.superblock.has(feature::RESHAPE_ACTIVE)
        {
            let reason = format!("what is overwritten is saved to {} already", spill.device);
            return Err(Refusal::new(reason, "leave --spill out"));
        }
        if find_member(&status, path).is_some() {
            let reason = format!("{} is a member", path.display());
            return Err(Refusal::new(reason, "name a file on another disk"));
        }
        if self.lies_below(path) {
            let reason = format!("{} lies on {} itself", path.display(), self.name);
            return Err(Refusal::new(reason, "name a file on another disk"));
        }
        let failed = |error: &io::Error| {
            let reason = format!("{}: {}", path.display(), describe(error));
            Refusal::new(reason, "name a file on another disk, that does not exist")
        };
        make(path, sectors * SECTOR_BYTES).map_err(|error| failed(&error))?;
        let device = member::open(path, Mode::ReadWrite, true)
            .map_err(|error| Refusal::new(error.to_string(), error.next))?;
        self.check_blocks(&device)?;
        if let Some(found) = member::signature(&device).map_err(|error| failed(&error))? {
            let reason = format!("{} holds {}", path.display(), found.what);
            return Err(Refusal::new(reason, "name another one"));
        }
        let set_uuid = status.superblock.set_uuid;
        let header = BackupHeader { set_uuid, mtime: 0, start: 0, length: 0 };
        write(&device, &header).map_err(|error| failed(&error))?;
        let new = new_member(MemberId(0), device.path.display().to_string(), false)?;
        let new = NewMember { device_sectors: device.sectors, ..new };
        self.command_with(Command::Spill(Box::new(new)), Some(device))
    }

    /// Returns whether what is at this path, or the file system that it is on, is content of the
    /// array, as far as the system tells.
    fn lies_below(&self, path: &Path) -> bool {
        let directory = path.parent().and_then(|parent| fs::metadata(parent).ok());
        let below = directory.map(|directory| {
            let number = directory.dev();
            PathBuf::from(format!("/dev/block/{}:{}", major(number), minor(number)))
        });
        let mut places = below.iter().map(PathBuf::as_path).chain([path]);
        places.any(|place| self.circle(place).is_some())
    }
}

/// Writes a header, durably.
fn write(device: &MemberFile, header: &BackupHeader) -> io::Result<()> {
    device.write_at(0, &header.encode())?;
    device.sync()
}

/// Makes a file, with room for all of it, unless there is a block device.
fn make(path: &Path, bytes: u64) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device()) {
        return Ok(());
    }
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(path);
    let file = match made {
        // One that is empty is as good.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let file = OpenOptions::new().write(true).open(path)?;
            if file.metadata()?.len() > 0 { Err(error) } else { Ok(file) }
        }
        made => made,
    }?;
    match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes)?,
        allocated => allocated?,
    }
    file.sync_all()?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
}
