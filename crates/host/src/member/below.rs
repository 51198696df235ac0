//! What a member lies on: a partition on a disk, a loop device on a file. One thing under two
//! names would be taken for two members, and a lock on one name keeps nobody from the other.
//!
//! As sysfs tells (the kernel's ABI documents sysfs-block and sysfs-block-loop): below
//! `/sys/dev/block/MAJOR:MINOR`, which for a partition lies in the directory of its disk, `start`
//! in sectors, or `loop/backing_file`, `loop/offset` and `loop/sizelimit` in bytes.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use braid_array::SECTOR_BYTES;
use rustix::fs::{major, makedev, minor};

use super::MemberFile;
use super::identity::{Identity, identity};
use crate::lock::LockedFile;

/// More than anybody stacks.
pub(super) const DEEPEST: usize = 8;

/// A file or device, and the part of it that is a member's.
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
    pub(super) bytes: Range<u64>,
    /// All of it.
    pub(super) whole: bool,
    /// Below a loop device. Of a disk and its partitions the kernel itself lets only one be
    /// opened exclusively, of a loop device and its file both.
    pub(super) below_loop: bool,
}

impl Place {
    /// Are there bytes that belong to both?
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.identity == other.identity
            && self.bytes.start < other.bytes.end
            && other.bytes.start < self.bytes.end
    }
}

/// The member, what it lies on, what that lies on, and so on as far as is known.
pub(super) fn places(member: &MemberFile) -> io::Result<Vec<Place>> {
    let mut places = vec![Place {
        path: member.path.clone(),
        identity: identity(&member.file)?,
        bytes: 0..member.sectors * SECTOR_BYTES,
        whole: true,
        below_loop: false,
    }];
    descend(&mut places);
    Ok(places)
}

fn descend(places: &mut Vec<Place>) {
    while places.len() < DEEPEST
        && let Some(below) = places.last().and_then(below)
    {
        places.push(below);
    }
}

/// The real paths of a file or device and of what it lies on, without opening any of it. Empty
/// where there is no such file.
pub(crate) fn lies_on(path: &Path) -> Vec<PathBuf> {
    let Ok(path) = fs::canonicalize(path) else { return Vec::new() };
    let Ok(metadata) = fs::metadata(&path) else { return Vec::new() };
    let identity = Identity::of(&metadata);
    let mut places = vec![Place { path, identity, bytes: 0..1, whole: true, below_loop: false }];
    descend(&mut places);
    places.into_iter().map(|place| place.path).collect()
}

/// Where a place lies; `None` where it lies on nothing else, or on what cannot be seen from here
/// (the file of a loop device may be deleted, or in another mount namespace).
fn below(place: &Place) -> Option<Place> {
    let number = place.identity.device_number()?;
    let entry = format!("/sys/dev/block/{}:{}", major(number), minor(number));
    let entry = fs::canonicalize(entry).ok()?;
    if entry.join("partition").exists() { disk(place, &entry) } else { backing(place, &entry) }
}

/// The disk that a partition is a part of.
fn disk(place: &Place, entry: &Path) -> Option<Place> {
    let start = number(&entry.join("start"))?.checked_mul(SECTOR_BYTES)?;
    let disk = entry.parent()?;
    let numbers = fs::read_to_string(disk.join("dev")).ok()?;
    let (major, minor) = numbers.trim_end().split_once(':')?;
    let number = makedev(major.parse().ok()?, minor.parse().ok()?);
    // The kernel writes "!" for a slash in a device name.
    let name = disk.file_name()?.to_str()?.replace('!', "/");
    Some(Place {
        path: Path::new("/dev").join(name),
        identity: Identity::of_device(number),
        bytes: moved(&place.bytes, start)?,
        whole: false,
        below_loop: false,
    })
}

/// The file or device that a loop device shows.
fn backing(place: &Place, entry: &Path) -> Option<Place> {
    let found = Backing::of(entry)?;
    let identity = found.identity()?;
    let Backing { path, offset, limit } = found;
    Some(Place {
        path,
        identity,
        bytes: moved(&place.bytes, offset)?,
        whole: place.whole && offset == 0 && limit == 0,
        below_loop: true,
    })
}

/// What a loop device shows.
pub(super) struct Backing {
    pub(super) path: PathBuf,
    offset: u64,
    /// 0 for all of it.
    limit: u64,
}

impl Backing {
    /// Of the device with this entry in sysfs, if it is a loop device.
    pub(super) fn of(entry: &Path) -> Option<Self> {
        let entry = entry.join("loop");
        let mut path = fs::read(entry.join("backing_file")).ok()?;
        path.pop_if(|byte| *byte == b'\n');
        let path = PathBuf::from(OsString::from_vec(path));
        let (offset, limit) = (number(&entry.join("offset"))?, number(&entry.join("sizelimit"))?);
        Some(Self { path, offset, limit })
    }

    /// Which file or device it is, where it can be seen from here.
    pub(super) fn identity(&self) -> Option<Identity> {
        let metadata = fs::metadata(&self.path).ok()?;
        let kind = metadata.file_type();
        (kind.is_file() || kind.is_block_device()).then(|| Identity::of(&metadata))
    }

    /// The bytes of the file or device that it shows.
    pub(super) fn bytes(&self) -> Range<u64> {
        let end = if self.limit == 0 { u64::MAX } else { self.offset.saturating_add(self.limit) };
        self.offset..end
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim_end().parse().ok()
}

fn moved(bytes: &Range<u64>, by: u64) -> Option<Range<u64>> {
    Some(bytes.start.checked_add(by)?..bytes.end.checked_add(by)?)
}

/// Locks what a member's loop devices lie on with `lock`, which is told whether the member has all
/// of it. What cannot be opened by this user stays unlocked: the device's own lock has to do.
///
/// # Errors
/// What somebody else has locked.
pub(super) fn lock_all(
    member: &MemberFile,
    lock: impl Fn(&LockedFile, bool) -> rustix::io::Result<()>,
) -> Result<Vec<LockedFile>, (PathBuf, LockedFile)> {
    let mut locked = Vec::new();
    for place in places(member).unwrap_or_default().into_iter().filter(|place| place.below_loop) {
        let Ok(file) = File::open(&place.path).map(LockedFile::from) else { continue };
        match lock(&file, place.whole) {
            Ok(()) => locked.push(file),
            Err(rustix::io::Errno::WOULDBLOCK) => return Err((place.path, file)),
            Err(_) => {}
        }
    }
    Ok(locked)
}
