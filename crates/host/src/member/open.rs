//! Opening a member: what kind of file it is, whether nobody else uses it, how large it is and
//! how its I/O has to be aligned.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use braid_array::SECTOR_BYTES;
use braid_array::refusal::Next;
use rustix::fs::{AtFlags, MemfdFlags, OFlags, SealFlags, StatxFlags};
use rustix::io::Errno;

use super::below::{Place, lock_all, places};
use super::identity::{Identity, identity};
use super::{AlignedBytes, MemberFile, in_use};
use crate::lock::LockedFile;
use crate::served_array::ServedArray;
use crate::sysfs::BlockDevice;
use crate::system::describe;
use crate::users::{self, Process};

/// What a member is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing will be written to it.
    ReadOnly,
    /// Will be written to.
    ReadWrite,
}

/// Why a member cannot be used: which, the reason, the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}; {}", .path.display(), .next.advice)]
pub struct OpenError {
    /// The member.
    pub path: PathBuf,
    /// What stands against it.
    pub reason: String,
    /// What to do.
    pub next: Next,
    /// It cannot be written to, but could be read.
    pub readable: bool,
}

impl OpenError {
    fn new(path: &Path, reason: impl Into<String>, next: impl Into<Next>) -> Self {
        Self { path: path.to_owned(), reason: reason.into(), next: next.into(), readable: false }
    }

    fn read_only(path: &Path, reason: &str, next: &'static str) -> Self {
        Self { readable: true, ..Self::new(path, reason, next) }
    }

    fn in_use(path: &Path, user: &in_use::User) -> Self {
        Self::new(path, user.to_string(), user.next())
    }

    fn from_io(path: &Path, error: &io::Error) -> Self {
        let (reason, next): (String, &str) = match Errno::from_io_error(error) {
            Some(Errno::NOENT) => ("no such file or device".into(), "check the path"),
            Some(Errno::ACCESS | Errno::PERM) => {
                ("permission denied".into(), "run as a user who may access it, or as root")
            }
            Some(Errno::ROFS) => {
                return Self::read_only(path, "on a read-only file system", "remount it writable");
            }
            Some(Errno::BUSY | Errno::TXTBSY) => {
                let identity = std::fs::metadata(path).ok().map(|data| Identity::of(&data));
                return match identity.and_then(in_use::user) {
                    Some(user) => Self::in_use(path, &user),
                    None => Self::new(path, "in use by the kernel", "see lsblk for what uses it"),
                };
            }
            Some(Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM) => {
                ("no device behind this name".into(), "check the device")
            }
            _ => (describe(error), "check the device"),
        };
        Self::new(path, reason, next)
    }
}

/// Opens a member and locks it: against every other user when `exclusive`, else only against
/// exclusive users (`cat`).
///
/// # Errors
/// [`OpenError`], a line for people. Nothing was written.
pub fn open(path: &Path, mode: Mode, exclusive: bool) -> Result<MemberFile, OpenError> {
    let mut member = open_unlocked(path, mode, exclusive)?;
    match lock(&member.file, path, exclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let (user, next) = lock_holder(&member.file, path);
            return Err(OpenError::new(path, format!("in use by {user}"), next));
        }
        Err(error) => {
            let reason = format!("cannot be locked: {}", describe(&error.into()));
            return Err(OpenError::new(path, reason, "keep members where flock works"));
        }
    }
    // Who has a part of a file leaves the other parts to others.
    let locked = lock_all(&member, |file, on, whole| lock(file, on, exclusive && whole));
    member.below = locked.map_err(|(on, file)| {
        let (user, next) = lock_holder(&file, &on);
        OpenError::new(path, format!("lies on {}, in use by {user}", on.display()), next)
    })?;
    if exclusive {
        let places = places(&member).map_err(|error| OpenError::from_io(path, &error))?;
        if let Some(user) = in_use::other_user(&places) {
            return Err(OpenError::in_use(path, &user));
        }
    }
    Ok(member)
}

/// How long a process that was killed may keep its files: while the kernel ends its I/O.
const LAST_IO: Duration = Duration::from_secs(3);

/// How long udev may look at a device that has just appeared; it locks it meanwhile
/// (<https://systemd.io/BLOCK_DEVICE_LOCKING>).
const UDEV_LOOKS: Duration = Duration::from_secs(20);
/// What its processes are called.
const UDEV: [&str; 2] = ["(udev-worker)", "systemd-udevd"];

/// Locks a file. Nobody tells when one is free that a dead process had, or udev, so that is tried
/// again.
fn lock(file: &LockedFile, path: &Path, exclusive: bool) -> rustix::io::Result<()> {
    let began = Instant::now();
    loop {
        let locked = file.lock(exclusive);
        if locked != Err(Errno::WOULDBLOCK) {
            return locked;
        }
        let holders = users::lock_holders(file, path);
        let patience = if holders.is_empty() {
            LAST_IO
        } else if holders.iter().all(is_udev) {
            UDEV_LOOKS
        } else {
            return locked;
        };
        if began.elapsed() > patience {
            return locked;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_udev(holder: &Process) -> bool {
    holder.program.as_deref().is_some_and(|program| UDEV.contains(&program))
}

/// Who has locked a file, and what to do about it.
fn lock_holder(file: &File, path: &Path) -> (String, Next) {
    match users::lock_holders(file, path).into_iter().next() {
        Some(holder) => described(&holder),
        None => ("another process".into(), format!("see fuser {}", path.display()).into()),
    }
}

/// Who has locked a member that was not locked here, as far as the system tells; and what to do
/// about it.
#[must_use]
pub fn locked_by(member: &MemberFile) -> Option<(String, Next)> {
    users::lockers(&member.file).first().map(described)
}

fn described(holder: &Process) -> (String, Next) {
    match ServedArray::of_process(holder.pid) {
        Some(array) => (array.to_string(), array.how_to_stop()),
        None => (holder.to_string(), "end that process, or wait for its end".into()),
    }
}

/// Memory as a file, which nobody can cut off: so nobody has to look whether somebody did.
pub(crate) fn memory_file(name: &str, bytes: u64) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create(name, flags)?);
    file.set_len(bytes)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK)?;
    Ok(file)
}

/// A member of memory, which reads as zeroes and is gone when it is closed. `name` is what it is
/// called.
///
/// # Errors
/// When the system has no room, or on a size below a sector.
pub fn memory(name: PathBuf, bytes: u64) -> io::Result<MemberFile> {
    if bytes < SECTOR_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too small"));
    }
    Ok(MemberFile {
        file: memory_file("braid", bytes)?.into(),
        path: name,
        sectors: bytes / SECTOR_BYTES,
        direct: false,
        block_bytes: 512,
        block_device: false,
        below: Vec::new(),
    })
}

/// Opens a member to look at it, whoever uses it; what is read may change meanwhile.
///
/// # Errors
/// As for [`open`].
pub fn peek(path: &Path) -> Result<MemberFile, OpenError> {
    open_unlocked(path, Mode::ReadOnly, false)
}

fn open_unlocked(path: &Path, mode: Mode, claim: bool) -> Result<MemberFile, OpenError> {
    let fail = |error: io::Error| OpenError::from_io(path, &error);
    // Looked at before it is opened: opening a FIFO or a tape has effects.
    let kind = check_kind(path, &std::fs::metadata(path).map_err(fail)?)?;
    let mut flags = OFlags::empty();
    if claim && kind == Kind::BlockDevice {
        flags |= OFlags::EXCL;
    }
    let (file, direct) = open_file(path, mode, flags).map_err(fail)?;
    // Another file may have taken the name since.
    if check_kind(path, &file.metadata().map_err(fail)?)? != kind {
        return Err(OpenError::new(path, "was replaced while it was opened", "try again"));
    }
    if mode == Mode::ReadWrite && kind == Kind::BlockDevice && is_read_only(&file).map_err(fail)? {
        let next = "make it writable with blockdev --setrw";
        return Err(OpenError::read_only(path, "is a read-only device", next));
    }
    let bytes = size_bytes(&file, kind).map_err(fail)?;
    if bytes < SECTOR_BYTES {
        let reason = match bytes {
            0 => "is empty".to_owned(),
            bytes => format!("has {bytes} bytes, not even a sector"),
        };
        return Err(OpenError::new(path, reason, "name a member with room for data"));
    }
    let block_device = kind == Kind::BlockDevice;
    let mut member = MemberFile {
        file: file.into(),
        path: std::path::absolute(path).map_err(fail)?,
        sectors: bytes / SECTOR_BYTES,
        direct,
        block_bytes: 512,
        block_device,
        below: Vec::new(),
    };
    choose_alignment(&mut member, mode)?;
    Ok(member)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    BlockDevice,
}

fn check_kind(path: &Path, metadata: &Metadata) -> Result<Kind, OpenError> {
    let kind = metadata.file_type();
    if kind.is_file() {
        Ok(Kind::File)
    } else if kind.is_block_device() {
        Ok(Kind::BlockDevice)
    } else {
        let what = if kind.is_dir() { "is a directory" } else { "is no file and no block device" };
        Err(OpenError::new(path, what, "name a regular file or a block device"))
    }
}

/// Opens with O_DIRECT; without where the file system refuses it. Tells which.
fn open_file(path: &Path, mode: Mode, flags: OFlags) -> io::Result<(File, bool)> {
    match open_with(path, mode, flags | OFlags::DIRECT) {
        Ok(file) => Ok((file, true)),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
            Ok((open_with(path, mode, flags)?, false))
        }
        Err(error) => Err(error),
    }
}

fn open_with(path: &Path, mode: Mode, flags: OFlags) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(mode == Mode::ReadWrite)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// Is a block device read-only? The kernel lets it be opened for writing all the same.
fn is_read_only(file: &File) -> io::Result<bool> {
    let device = BlockDevice::of(file.metadata()?.rdev());
    Ok(device.is_some_and(|device| device.is_read_only()))
}

fn size_bytes(file: &File, kind: Kind) -> io::Result<u64> {
    match kind {
        Kind::File => Ok(file.metadata()?.len()),
        // The same number as BLKGETSIZE64.
        Kind::BlockDevice => Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?),
    }
}

/// Finds the alignment that I/O with O_DIRECT needs, by asking and then by trying. A file for
/// which no alignment up to 4096 will do is opened without O_DIRECT.
fn choose_alignment(member: &mut MemberFile, mode: Mode) -> Result<(), OpenError> {
    if !member.direct {
        return Ok(());
    }
    let asked = asked_alignment(&member.file, member.block_device);
    let size = member.sectors * SECTOR_BYTES;
    let works = |bytes: u32| size < u64::from(bytes) || aligned_read_works(&member.file, bytes);
    let tried = [512, 1024, 2048, 4096].into_iter().find(|&b| b >= asked && works(b));
    if let Some(bytes) = tried {
        member.block_bytes = bytes;
        return Ok(());
    }
    if member.block_device {
        let reason = "has blocks of more than 4096 bytes";
        return Err(OpenError::new(&member.path, reason, "use a device with smaller ones"));
    }
    let plain = open_with(&member.path, mode, OFlags::empty())
        .map_err(|error| OpenError::from_io(&member.path, &error))?;
    if !same_file(&plain, &member.file) {
        let reason = "was replaced while it was opened";
        return Err(OpenError::new(&member.path, reason, "try again"));
    }
    member.file = plain.into();
    member.direct = false;
    Ok(())
}

/// The alignment the kernel asks for, 512 when it does not say.
fn asked_alignment(file: &File, block_device: bool) -> u32 {
    let logical = if block_device { rustix::fs::ioctl_blksszget(file).unwrap_or(512) } else { 512 };
    let statx = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let told = match statx {
        Ok(stat) if stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
            stat.stx_dio_offset_align.max(stat.stx_dio_mem_align)
        }
        _ => 512,
    };
    logical.max(told).max(512).next_power_of_two()
}

/// Reads one block at `bytes` into memory aligned to no more than `bytes`.
fn aligned_read_works(file: &File, bytes: u32) -> bool {
    let len = bytes as usize;
    // At `len` into 8192-aligned memory lies an address that is a multiple of `len` only.
    let mut memory = AlignedBytes::new(3 * 4096);
    match file.read_at(&mut memory.as_mut_slice()[len..2 * len], u64::from(bytes)) {
        Ok(_) => true,
        // A medium error is none of our business here: the alignment was fine.
        Err(error) => Errno::from_io_error(&error) != Some(Errno::INVAL),
    }
}

fn same_file(a: &File, b: &File) -> bool {
    matches!((identity(a), identity(b)), (Ok(a), Ok(b)) if a == b)
}

/// Checks that nothing comes under two names among `members`, and no part of it: a file as a loop
/// device, a disk as its partition.
///
/// # Errors
/// Names both.
pub fn check_distinct<'a>(
    members: impl IntoIterator<Item = &'a MemberFile>,
) -> Result<(), OpenError> {
    let mut seen: Vec<Vec<Place>> = Vec::new();
    for member in members {
        let places = places(member).map_err(|error| OpenError::from_io(&member.path, &error))?;
        if let Some(reason) = seen.iter().find_map(|other| shared(&places, other)) {
            return Err(OpenError::new(&member.path, reason, "name each member once"));
        }
        seen.push(places);
    }
    Ok(())
}

/// How a member shares bytes with another, if it does. What both lie on is the lowest of each.
fn shared(member: &[Place], other: &[Place]) -> Option<String> {
    let bottom = member.last().filter(|bottom| other.last().is_some_and(|o| o.overlaps(bottom)))?;
    let this = member.first()?;
    let that = other.first()?;
    let name = that.path.display();
    Some(if this.path == that.path {
        "was named twice".to_owned()
    } else if this.identity == that.identity {
        let real = |place: &Place| std::fs::canonicalize(&place.path).ok();
        match real(this).filter(|path| real(that).as_ref() == Some(path)) {
            Some(path) if path != this.path && path != that.path => {
                format!("is the same device as {name}, both are {}", path.display())
            }
            _ => format!("is the same device as {name}"),
        }
    } else if member.iter().any(|place| place.identity == that.identity) {
        format!("lies on {name}")
    } else if other.iter().any(|place| place.identity == this.identity) {
        format!("is what {name} lies on")
    } else {
        format!("lies on {}, as {name} does", bottom.path.display())
    })
}
