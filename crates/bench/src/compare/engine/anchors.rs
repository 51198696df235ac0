//! What has no RAID and is measured beside arrays: files and loop devices as they are, and other
//! servers of memory.

use crate::compare::under_fio::{Served, Target, Under};
use crate::failure::Failure;
use crate::rig::{LoopDevice, Nbdkit, Room, StorageDaemon};

/// Something without RAID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    /// A file in memory.
    MemoryFile,
    /// A loop device over one.
    MemoryLoop,
    /// A file where members are files.
    File,
    /// A loop device over one.
    Loop,
    /// Memory served by nbdkit.
    Nbdkit,
    /// A file in memory, served over NBD by qemu's storage daemon.
    DaemonNbd,
    /// The same over FUSE.
    DaemonFuse,
    /// The same over vhost-user.
    DaemonVhostUser,
}

impl Anchor {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::MemoryFile => "bare file in memory",
            Self::MemoryLoop => "bare loop device in memory",
            Self::File => "bare file",
            Self::Loop => "bare loop device",
            Self::Nbdkit => "nbdkit memory",
            Self::DaemonNbd => "qemu-storage-daemon over NBD",
            Self::DaemonFuse => "qemu-storage-daemon over FUSE",
            Self::DaemonVhostUser => "qemu-storage-daemon over vhost-user",
        }
    }

    /// What it is compared with itself.
    pub(super) const fn anchor(self) -> Self {
        match self {
            Self::MemoryFile | Self::MemoryLoop | Self::Nbdkit | Self::DaemonFuse => {
                Self::MemoryFile
            }
            Self::DaemonNbd => Self::Nbdkit,
            Self::DaemonVhostUser => Self::DaemonVhostUser,
            Self::File => Self::File,
            Self::Loop => Self::Loop,
        }
    }

    /// Its program is a server; what is none is so much faster that a plot cannot show both.
    pub(super) const fn is_served(self) -> bool {
        matches!(self, Self::Nbdkit | Self::DaemonNbd | Self::DaemonFuse | Self::DaemonVhostUser)
    }

    /// Serves so much.
    pub(super) fn serve(self, room: &Room, area_bytes: u64) -> Result<Served, Failure> {
        let name = self.name();
        let room = match self {
            Self::File | Self::Loop => room.clone(),
            _ => room.in_memory()?,
        };
        let mut under = Under::default();
        let mut server = None;
        if self == Self::Nbdkit {
            let nbdkit = under.nbdkit.insert(Nbdkit::memory(&room, name, area_bytes)?);
            let server = Some(nbdkit.pid());
            let target = Target::Nbd(nbdkit.uri());
            return Ok(Served { target, server, commands: Vec::new(), under });
        }
        let files = room.member_files(name, 1, area_bytes)?;
        let file = files.paths[0].clone();
        under.files = Some(files);
        let target = match self {
            Self::MemoryLoop | Self::Loop => {
                let device = under.device.insert(LoopDevice::over(&room, &file)?);
                Target::Path(device.device.clone())
            }
            Self::DaemonNbd => {
                let daemon = under.daemon.insert(StorageDaemon::nbd(&room, name, &file)?);
                server = Some(daemon.pid());
                Target::Nbd(daemon.uri())
            }
            Self::DaemonFuse => {
                let daemon = under.daemon.insert(StorageDaemon::fuse(&room, name, &file)?);
                server = Some(daemon.pid());
                Target::Path(daemon.file().to_owned())
            }
            Self::DaemonVhostUser => {
                let daemon = under.daemon.insert(StorageDaemon::vhost_user(&room, name, &file)?);
                server = Some(daemon.pid());
                Target::VhostUser(daemon.file().to_owned())
            }
            Self::MemoryFile | Self::File | Self::Nbdkit => Target::Path(file),
        };
        Ok(Served { target, server, commands: Vec::new(), under })
    }
}
