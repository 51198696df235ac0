//! Who uses a file or device already, so that nobody else may write to it: a mount, swap, or a
//! device of the kernel's that holds it; of its own, or through loop devices and partitions.
//!
//! As the kernel tells (proc(5) documents `/proc/self/mountinfo` and `/proc/swaps`, the kernel's
//! ABI `holders` and `loop` below `/sys/block`). Mounts in other namespaces do not show there, but
//! whoever mounts, swaps to or holds a block device has claimed it, and so nobody else can.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use braid_array::SECTOR_BYTES;
use rustix::fs::{OFlags, major, makedev, minor};
use rustix::io::Errno;

use super::below::{Backing, DEEPEST, Place};
use super::identity::Identity;
use crate::users::{self, Mounted, Mounts};

/// What somebody uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    how: How,
    /// The device by which it is used, where that is another one.
    through: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum How {
    Mounted(PathBuf),
    Swap,
    Held(PathBuf),
    /// The kernel does not say for what.
    Claimed,
}

impl User {
    const CLAIMED: Self = Self { how: How::Claimed, through: None };

    /// What to do about it.
    pub(super) const fn next(&self) -> &'static str {
        match self.how {
            How::Mounted(_) => "unmount it first",
            How::Swap => "turn it off with swapoff first",
            How::Held(_) | How::Claimed => "stop what uses it, see lsblk",
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.how {
            How::Mounted(on) => write!(f, "is mounted on {}", on.display())?,
            How::Swap => f.write_str("is in use as swap space")?,
            How::Held(by) => write!(f, "is held by {}", by.display())?,
            How::Claimed => f.write_str("is in use by the kernel")?,
        }
        match &self.through {
            Some(device) => write!(f, " through {}", device.display()),
            None => Ok(()),
        }
    }
}

/// Who uses a file or device, as far as can be seen.
pub(super) fn user(identity: Identity) -> Option<User> {
    System::look().user(identity, &(0..u64::MAX), &[], 0)
}

/// Who uses the bytes of a member by way of other devices than those that it lies on itself.
pub(super) fn other_user(places: &[Place]) -> Option<User> {
    let own: Vec<Identity> = places.iter().map(|place| place.identity).collect();
    let system = System::look();
    places.iter().find_map(|place| {
        let direct = system.direct(place.identity).map(|how| User { how, through: None });
        direct.or_else(|| system.through_loops(place.identity, &place.bytes, &own, 0))
    })
}

/// A loop device. Its bytes are those of the file or device that it shows.
struct Loop {
    backing: Backing,
    part: Part,
}

/// A device, and bytes of it or of what it lies on.
struct Part {
    device: u64,
    path: PathBuf,
    bytes: Range<u64>,
}

impl Part {
    /// The device with this entry in sysfs.
    fn of(entry: &Path, bytes: Range<u64>) -> Option<Self> {
        let device = parse_number(fs::read_to_string(entry.join("dev")).ok()?.trim_end())?;
        // The kernel writes "!" for a slash in a device name.
        let name = entry.file_name()?.to_str()?.replace('!', "/");
        Some(Self { device, path: Path::new("/dev").join(name), bytes })
    }
}

/// What the kernel tells at the moment. What cannot be read is taken for empty: then only what is
/// claimed is known to be in use.
struct System {
    mounts: Mounts,
    swaps: Vec<Identity>,
    loops: Vec<Loop>,
}

impl System {
    fn look() -> Self {
        Self {
            mounts: Mounts::read(),
            swaps: users::swaps().iter().filter_map(|path| identity_of(path)).collect(),
            loops: loops(),
        }
    }

    /// Who uses it, and not by way of another device.
    fn direct(&self, identity: Identity) -> Option<How> {
        let number = identity.device_number().map(|number| (major(number), minor(number)));
        // Of some file systems only the source tells the device: btrfs numbers itself.
        let is_source = |mount: &Mounted| {
            mount.source.starts_with("/dev") && identity_of(&mount.source) == Some(identity)
        };
        let mounted = |mount: &&Mounted| {
            number.is_some_and(|number| mount.device == number || is_source(mount))
        };
        if let Some(mount) = self.mounts.iter().find(mounted) {
            return Some(How::Mounted(mount.at.clone()));
        }
        self.swaps.contains(&identity).then_some(How::Swap)
    }

    /// Who uses these bytes of it, itself or by way of what lies on it. `own` devices do not
    /// count.
    fn user(
        &self,
        identity: Identity,
        bytes: &Range<u64>,
        own: &[Identity],
        depth: usize,
    ) -> Option<User> {
        if let Some(how) = self.direct(identity) {
            return Some(User { how, through: None });
        }
        if depth >= DEEPEST {
            return None;
        }
        let device = identity.device_number();
        let above = device.and_then(|device| self.above(device, bytes, own, depth));
        above.or_else(|| self.through_loops(identity, bytes, own, depth))
    }

    /// Who uses the partitions of a device and what holds it.
    fn above(
        &self,
        device: u64,
        bytes: &Range<u64>,
        own: &[Identity],
        depth: usize,
    ) -> Option<User> {
        let entry = entry_of(device)?;
        let parts = partitions(&entry, bytes).into_iter().find_map(|part| {
            let user = self.user(Identity::of_device(part.device), &part.bytes, own, depth + 1)?;
            Some(User { through: user.through.or(Some(part.path)), ..user })
        });
        parts.or_else(|| {
            let holder = Part::of(&entries(&entry.join("holders")).next()?, 0..u64::MAX)?;
            let identity = Identity::of_device(holder.device);
            Some(match self.user(identity, &holder.bytes, own, depth + 1) {
                Some(user) => User { through: user.through.or(Some(holder.path)), ..user },
                None => User { how: How::Held(holder.path), through: None },
            })
        })
    }

    /// Does a loop device show this file or device? A process that serves another file system is
    /// not asked: it may not answer.
    fn shows(&self, backing: &Backing, identity: Identity) -> bool {
        let elsewhere = self.mounts.of_file(&backing.path).is_some_and(|mount| {
            let (major, minor) = mount.device;
            mount.is_fuse() && identity.file_system() != Some(makedev(major, minor))
        });
        !elsewhere && backing.identity() == Some(identity)
    }

    /// Who uses loop devices that show some of these bytes.
    fn through_loops(
        &self,
        identity: Identity,
        bytes: &Range<u64>,
        own: &[Identity],
        depth: usize,
    ) -> Option<User> {
        let others = self.loops.iter().filter(|other| {
            !own.contains(&Identity::of_device(other.part.device))
                && self.shows(&other.backing, identity)
        });
        others.filter_map(|other| Some((&other.part, within(bytes, &other.part.bytes)?))).find_map(
            |(part, bytes)| {
                let device = Identity::of_device(part.device);
                let claimed = || is_claimed(part, &bytes).then_some(User::CLAIMED);
                let user = self.user(device, &bytes, own, depth + 1).or_else(claimed)?;
                Some(User { through: user.through.or_else(|| Some(part.path.clone())), ..user })
            },
        )
    }
}

/// The part of `bytes` that lies in `part`, counted from the beginning of that.
fn within(bytes: &Range<u64>, part: &Range<u64>) -> Option<Range<u64>> {
    let common = bytes.start.max(part.start)..bytes.end.min(part.end);
    (common.start < common.end).then(|| common.start - part.start..common.end - part.start)
}

/// The partitions of a device that have some of these bytes, each with the bytes of its own that
/// these are.
fn partitions(entry: &Path, bytes: &Range<u64>) -> Vec<Part> {
    let parts = entries(entry).filter(|part| part.join("partition").exists());
    let overlapping = parts.filter_map(|part| {
        let sectors = |file| fs::read_to_string(part.join(file)).ok()?.trim_end().parse().ok();
        let (start, size): (u64, u64) = (sectors("start")?, sectors("size")?);
        let end = start.checked_add(size)?.checked_mul(SECTOR_BYTES)?;
        Part::of(&part, within(bytes, &(start * SECTOR_BYTES..end))?)
    });
    overlapping.collect()
}

/// Has somebody claimed a loop device, or a partition of it with some of these bytes? Claims it for
/// a moment to find out.
fn is_claimed(device: &Part, bytes: &Range<u64>) -> bool {
    let claimed = |path: &Path| {
        let flags = OFlags::EXCL.bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        opened.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::BUSY))
    };
    let entry = entry_of(device.device);
    // Who has claimed a partition has, in a way, claimed all of the device.
    match entry.filter(|entry| !partitions(entry, &(0..u64::MAX)).is_empty()) {
        Some(entry) => partitions(&entry, bytes).iter().any(|part| claimed(&part.path)),
        None => claimed(&device.path),
    }
}

fn entry_of(device: u64) -> Option<PathBuf> {
    fs::canonicalize(format!("/sys/dev/block/{}:{}", major(device), minor(device))).ok()
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn identity_of(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|metadata| Identity::of(&metadata))
}

fn parse_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn loops() -> Vec<Loop> {
    let found = entries(Path::new("/sys/block")).filter_map(|entry| {
        let backing = Backing::of(&entry)?;
        let part = Part::of(&entry, backing.bytes())?;
        Some(Loop { backing, part })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_told_with_what_lies_between() {
        let through = Some(PathBuf::from("/dev/loop1"));
        let user = User { how: How::Mounted("/mnt".into()), through };
        assert_eq!(user.to_string(), "is mounted on /mnt through /dev/loop1");
        let user = User { how: How::Held("/dev/md0".into()), through: None };
        assert_eq!(user.to_string(), "is held by /dev/md0");
    }
}
