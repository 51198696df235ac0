//! The exports over which arrays are measured. One more is a variant here with what is said of it
//! below, and nothing else knows which there are.

use std::path::PathBuf;

use braid_array::level::Level;

use super::anchors::Anchor;
use super::case::{CHUNK_BYTES, Case, member_bytes, members, word};
use crate::compare::under_fio::{Served, Target, Under};
use crate::failure::Failure;
use crate::rig::{Array, ArraySpec, LoopDevice, Room};

/// A way to an array for other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Export {
    /// NBD over a Unix socket.
    Nbd,
    /// A file over FUSE.
    Fuse,
    /// A loop device over that file.
    FuseLoop,
    /// A disk of a virtual machine's.
    VhostUser,
}

impl Export {
    pub(super) const ALL: [Self; 4] = [Self::Nbd, Self::Fuse, Self::FuseLoop, Self::VhostUser];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nbd => "NBD",
            Self::Fuse => "FUSE",
            Self::FuseLoop => "FUSE and loop",
            Self::VhostUser => "vhost-user",
        }
    }

    /// What others serve in the same way, without RAID; the first one is what arrays are compared
    /// with.
    pub(super) const fn beside(self) -> &'static [Anchor] {
        match self {
            Self::Nbd => &[Anchor::Nbdkit, Anchor::DaemonNbd],
            Self::Fuse => &[Anchor::DaemonFuse],
            Self::FuseLoop => &[Anchor::MemoryLoop],
            Self::VhostUser => &[Anchor::DaemonVhostUser],
        }
    }

    pub(super) const fn anchor(self) -> Anchor {
        self.beside()[0]
    }

    /// Serves a new array on memory of its own, as the servers beside it have, that holds so much.
    pub(super) fn serve(
        self,
        level: Level,
        room: &Room,
        area_bytes: u64,
    ) -> Result<Served, Failure> {
        let room = room.in_memory()?;
        let name = Case::Over(level, self).name();
        let bytes = member_bytes(level, area_bytes);
        let memory = PathBuf::from(format!("mem:{bytes}"));
        let spec = ArraySpec {
            name,
            level: word(level).to_owned(),
            chunk_bytes: (level != Level::Raid1).then_some(CHUNK_BYTES),
            members: vec![memory; members(level)],
            nbd: self == Self::Nbd,
            vhost_user: self == Self::VhostUser,
            ..ArraySpec::default()
        };
        let array = Array::start(&room, &spec)?;
        let mut under = Under::default();
        let target = match self {
            Self::Nbd => Target::Nbd(array.nbd_uri().unwrap_or_default()),
            Self::Fuse => Target::Path(array.file()),
            Self::FuseLoop => {
                let device = under.device.insert(LoopDevice::over(&room, &array.file())?);
                Target::Path(device.device.clone())
            }
            Self::VhostUser => Target::VhostUser(array.vhost_user_socket().unwrap_or_default()),
        };
        let server = Some(array.pid());
        let commands = array.commands().to_vec();
        under.array = Some(array);
        Ok(Served { target, server, commands, under })
    }
}
