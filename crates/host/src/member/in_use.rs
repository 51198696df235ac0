//! Detection of other users of a file or device, which rule out writing to it: a mount, swap, or
//! another device of the kernel's on top of it. Use through loop devices and partitions counts as
//! well.
//!
//! The kernel is the source (proc(5) documents `/proc/self/mountinfo` and `/proc/swaps`). Mounts in
//! other namespaces are not listed there, but a block device that is mounted, swapped to or held is
//! claimed, so a second claim fails.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, major, makedev, minor};
use rustix::io::Errno;

use super::below::{self, BackingPlace};
use super::identity::Identity;
use crate::sysfs::{ALL, Backing, BlockDevice, DEEPEST, Layering, LoopDevice, Upon, loops, upon};
use crate::users::{self, MountLine, Mounts};

/// A user of a file or device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemberUser {
    how: HowUsed,
    /// The device by which it is used, where that is another one.
    through: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HowUsed {
    Mounted(PathBuf),
    Swap,
    Held(PathBuf),
    /// Claimed; the kernel does not tell the purpose.
    Claimed,
}

impl MemberUser {
    /// Returns the next step for the user.
    pub(super) const fn next(&self) -> &'static str {
        match self.how {
            HowUsed::Mounted(_) => "unmount it first",
            HowUsed::Swap => "turn it off with swapoff first",
            HowUsed::Held(_) | HowUsed::Claimed => "stop what uses it, see lsblk",
        }
    }
}

impl fmt::Display for MemberUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.how {
            HowUsed::Mounted(on) => write!(f, "is mounted on {}", on.display())?,
            HowUsed::Swap => f.write_str("is in use as swap space")?,
            HowUsed::Held(by) => write!(f, "is held by {}", by.display())?,
            HowUsed::Claimed => f.write_str("is in use by the kernel")?,
        }
        match &self.through {
            Some(device) => write!(f, " through {}", device.display()),
            None => Ok(()),
        }
    }
}

/// Returns the user of a file or device, as far as can be seen.
pub(super) fn user(identity: Identity) -> Option<MemberUser> {
    System::look().user(identity, &ALL, &[], 0)
}

/// Returns the user of a member's bytes through devices other than those below the member.
pub(super) fn other_user(places: &[BackingPlace]) -> Option<MemberUser> {
    let own: Vec<Identity> = places.iter().map(|place| place.identity).collect();
    let system = System::look();
    places.iter().find_map(|place| {
        let direct = system.direct(place.identity).map(|how| MemberUser { how, through: None });
        direct.or_else(|| system.above(place.identity, None, &place.bytes, &own, 0))
    })
}

/// Snapshot of the kernel's lists. An unreadable list counts as empty; then only claims are
/// detected.
struct System {
    mounts: Mounts,
    swaps: Vec<Identity>,
    loops: Vec<LoopDevice>,
}

impl System {
    fn look() -> Self {
        Self {
            mounts: Mounts::read(),
            swaps: users::swaps().iter().filter_map(|path| identity_of(path)).collect(),
            loops: loops(),
        }
    }

    /// Returns the direct user of it, not through another device.
    fn direct(&self, identity: Identity) -> Option<HowUsed> {
        let number = identity.device_number().map(|number| (major(number), minor(number)));
        // Of some file systems only the source tells the device: btrfs numbers itself.
        let is_source = |mount: &MountLine| {
            mount.source.starts_with("/dev") && identity_of(&mount.source) == Some(identity)
        };
        let mounted = |mount: &&MountLine| {
            number.is_some_and(|number| mount.device == number || is_source(mount))
        };
        if let Some(mount) = self.mounts.iter().find(mounted) {
            return Some(HowUsed::Mounted(mount.at.clone()));
        }
        self.swaps.contains(&identity).then_some(HowUsed::Swap)
    }

    /// Returns the user of these bytes of it, direct or through devices on top.
    fn user(
        &self,
        identity: Identity,
        bytes: &Range<u64>,
        own: &[Identity],
        depth: usize,
    ) -> Option<MemberUser> {
        if let Some(how) = self.direct(identity) {
            return Some(MemberUser { how, through: None });
        }
        if depth >= DEEPEST {
            return None;
        }
        let device = identity.device_number().and_then(BlockDevice::of);
        self.above(identity, device.as_ref(), bytes, own, depth)
    }

    /// Returns the user of these bytes of it through devices on top: on `device`, if given, and
    /// through loop devices. Loop devices among `own` do not count.
    fn above(
        &self,
        identity: Identity,
        device: Option<&BlockDevice>,
        bytes: &Range<u64>,
        own: &[Identity],
        depth: usize,
    ) -> Option<MemberUser> {
        let shows_it = |one: &LoopDevice| {
            !own.contains(&Identity::of_device(one.number)) && self.shows(&one.backing, identity)
        };
        upon(device, bytes, &self.loops, shows_it).find_map(|Upon { way, device, bytes }| {
            let path = device.path();
            let on_it = Identity::of_device(device.number);
            if let Some(user) = self.user(on_it, &bytes, own, depth + 1) {
                return Some(MemberUser { through: user.through.or(Some(path)), ..user });
            }
            match way {
                Layering::Partition => None,
                Layering::Holder => Some(MemberUser { how: HowUsed::Held(path), through: None }),
                Layering::Loop => {
                    let claimed = MemberUser { how: HowUsed::Claimed, through: Some(path) };
                    is_claimed(&device, &bytes).then_some(claimed)
                }
            }
        })
    }

    /// Returns whether a loop device shows this file or device. A process that serves another file
    /// system is not asked, as it may not answer.
    fn shows(&self, backing: &Backing, identity: Identity) -> bool {
        let elsewhere = self.mounts.of_file(&backing.path).is_some_and(|mount| {
            let (major, minor) = mount.device;
            mount.is_fuse() && identity.file_system() != Some(makedev(major, minor))
        });
        !elsewhere && below::identity_of(backing) == Some(identity)
    }
}

/// Returns whether a loop device, or a partition of it with some of these bytes, is claimed. Claims
/// it for a moment to find out.
fn is_claimed(device: &BlockDevice, bytes: &Range<u64>) -> bool {
    let claimed = |path: &Path| {
        let flags = OFlags::EXCL.bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        opened.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::BUSY))
    };
    // Who has claimed a partition has, in a way, claimed all of the device.
    match device.partitions(&ALL).next() {
        Some(_) => device.partitions(bytes).any(|part| claimed(&part.device.path())),
        None => claimed(&device.path()),
    }
}

fn identity_of(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|metadata| Identity::of(&metadata))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_told_with_what_lies_between() {
        let through = Some(PathBuf::from("/dev/loop1"));
        let user = MemberUser { how: HowUsed::Mounted("/mnt".into()), through };
        assert_eq!(user.to_string(), "is mounted on /mnt through /dev/loop1");
        let user = MemberUser { how: HowUsed::Held("/dev/md0".into()), through: None };
        assert_eq!(user.to_string(), "is held by /dev/md0");
    }
}
