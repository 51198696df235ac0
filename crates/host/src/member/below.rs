//! Devices below a member: a disk below a partition, a file below a loop device. The same bytes
//! under two names would be taken for two members, and a lock on one name does not exclude users of
//! the other.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use braid_array::SECTOR_BYTES;

use super::identity::{Identity, identity};
use super::{MemberFile, MemberName};
use crate::lock::LockedFile;
use crate::sysfs::{ALL, Backing, BlockDevice, DEEPEST};

/// A file or device, and the part of it that is a member's.
pub(super) struct BackingPlace {
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
    pub(super) bytes: Range<u64>,
    /// All of it.
    pub(super) whole: bool,
    /// Below a loop device. The kernel prevents a second exclusive open of a disk and its
    /// partitions, but not of a loop device and its file.
    pub(super) below_loop: bool,
}

impl BackingPlace {
    /// Returns whether both contain some of the same bytes.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.identity == other.identity
            && self.bytes.start < other.bytes.end
            && other.bytes.start < self.bytes.end
    }
}

/// Returns the member, the file or device below it, the one below that, and so on as far as is
/// known.
pub(super) fn places(member: &MemberFile) -> io::Result<Vec<BackingPlace>> {
    let start = member.start_bytes();
    let mut places = vec![BackingPlace {
        path: member.path.clone(),
        identity: identity(&member.file)?,
        bytes: start..start + member.sectors * SECTOR_BYTES,
        whole: member.part.is_none(),
        below_loop: false,
    }];
    descend(&mut places);
    Ok(places)
}

fn descend(places: &mut Vec<BackingPlace>) {
    while places.len() < DEEPEST
        && let Some(below) = places.last().and_then(below)
    {
        places.push(below);
    }
}

/// Returns the real paths of a file or device and of those below it, without opening any. Empty
/// where there is no such file.
pub(crate) fn lies_on(path: &Path) -> Vec<PathBuf> {
    let Ok(path) = fs::canonicalize(MemberName::of(path).file) else { return Vec::new() };
    let Ok(metadata) = fs::metadata(&path) else { return Vec::new() };
    let identity = Identity::of(&metadata);
    let mut places =
        vec![BackingPlace { path, identity, bytes: 0..1, whole: true, below_loop: false }];
    descend(&mut places);
    places.into_iter().map(|place| place.path).collect()
}

/// Returns the place below a place. `None` where there is none, or none that can be seen from here
/// (the file of a loop device may be deleted, or in another mount namespace).
fn below(place: &BackingPlace) -> Option<BackingPlace> {
    let device = BlockDevice::of(place.identity.device_number()?)?;
    if let Some((disk, start)) = device.disk() {
        return Some(BackingPlace {
            path: disk.path(),
            identity: Identity::of_device(disk.number),
            bytes: moved(&place.bytes, start)?,
            whole: false,
            below_loop: false,
        });
    }
    let backing = device.backing()?;
    Some(BackingPlace {
        identity: identity_of(&backing)?,
        bytes: moved(&place.bytes, backing.bytes.start)?,
        whole: place.whole && backing.bytes == ALL,
        below_loop: true,
        path: backing.path,
    })
}

/// Returns the identity of the file or device behind a loop device, where that can be seen from
/// here.
pub(super) fn identity_of(backing: &Backing) -> Option<Identity> {
    let metadata = fs::metadata(&backing.path).ok()?;
    let kind = metadata.file_type();
    (kind.is_file() || kind.is_block_device()).then(|| Identity::of(&metadata))
}

fn moved(bytes: &Range<u64>, by: u64) -> Option<Range<u64>> {
    Some(bytes.start.checked_add(by)?..bytes.end.checked_add(by)?)
}

/// Locks the files and devices below a member's loop devices with `lock`, whose argument tells
/// whether the member has all of one. Files that this user cannot open stay unlocked: the device's
/// own lock has to do.
///
/// # Errors
/// The file or device that another process has locked.
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
