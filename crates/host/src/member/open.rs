//! Opening a member: its kind of file, exclusive use, its size, and the alignment of its I/O.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use braid_array::SECTOR_BYTES;
use braid_array::refusal::Next;
use rustix::fs::{AtFlags, MemfdFlags, OFlags, SealFlags, StatxFlags};
use rustix::io::Errno;

use super::backend::{self, BackendDisk};
use super::below::{BackingPlace, lock_all, places};
use super::error::OpenError;
use super::identity::identity;
use super::look::partitions;
use super::patience::LockWait;
use super::probe::probe;
use super::{AlignedBytes, DevicePart, MemberFile, MemberName, Overlay, in_use};
use crate::handover::{self, What};
use crate::lock::LockedFile;
use crate::served_array::ServedArray;
use crate::sysfs::BlockDevice;
use crate::system::describe;
use crate::users::{self, Process};

/// Access for which a member is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode<'a> {
    /// Read-only.
    ReadOnly,
    /// For reading and writing.
    ReadWrite,
    /// For reading and writing, but all writes go to a file in this directory.
    Overlay(&'a Path),
}

/// Opens a member and locks it: against every other user when `exclusive`, else only against
/// exclusive users (`cat`).
///
/// # Errors
/// [`OpenError`], a line for people. Nothing was written.
pub fn open(path: &Path, mode: Mode<'_>, exclusive: bool) -> Result<MemberFile, OpenError> {
    // Of what is only read there may be several readers.
    let exclusive = exclusive && !matches!(mode, Mode::Overlay(_));
    let mut member = open_unlocked(path, mode, exclusive)?;
    match lock_member(&member, mode, exclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let (user, next) = lock_holder(&member.file, &MemberName::of(path).file);
            return Err(OpenError::new(path, format!("in use by {user}"), next));
        }
        Err(error) => {
            let reason = format!("cannot be locked: {}", describe(&error.into()));
            return Err(OpenError::new(path, reason, "keep members where flock works"));
        }
    }
    // Who has a part of a file leaves the other parts to others.
    let locked = lock_all(&member, |file, whole| lock(file, exclusive && whole));
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
    if let Mode::Overlay(dir) = mode {
        member.overlay = Some(Box::new(Overlay::open(dir, &member)?));
    }
    Ok(member)
}

/// Locks a file. A lock may belong to a dead process or to udev, which give no notice of its end,
/// so locking is tried again for a while.
fn lock(file: &LockedFile, exclusive: bool) -> rustix::io::Result<()> {
    let mut patience = LockWait::new(Instant::now());
    loop {
        let locked = file.lock(exclusive);
        if locked != Err(Errno::WOULDBLOCK) {
            return locked;
        }
        // Who only has it open may be about to let go of it: a process that was just forked.
        if patience.is_over(Instant::now(), &users::lockers(file)) {
            return locked;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Locks a member. The other parts of a file are left to others; of the same bytes one may be the
/// writer, or all readers.
fn lock_member(member: &MemberFile, mode: Mode<'_>, exclusive: bool) -> rustix::io::Result<()> {
    let all = 0..0;
    let (exclusive, bytes) = match &member.part {
        Some(part) => (false, part),
        None => (exclusive, &all),
    };
    lock(&member.file, exclusive)?;
    // Who shares the file may not read what the writer of a part writes.
    if exclusive { Ok(()) } else { member.file.lock_range(bytes, mode == Mode::ReadWrite) }
}

/// Returns the holder of a file's lock, and the next step.
fn lock_holder(file: &File, path: &Path) -> (String, Next) {
    match users::lock_holders(file, path).into_iter().next() {
        Some(holder) => described(&holder),
        None => ("another process".into(), format!("see fuser {}", path.display()).into()),
    }
}

/// Returns the holder of a lock on a member that was not locked here, as far as the system tells,
/// and the next step.
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

/// Returns memory as a file, sealed against truncation, so its size needs no checks.
pub(crate) fn memory_file(name: &str, bytes: u64) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create(name, flags)?);
    file.set_len(bytes)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK)?;
    Ok(file)
}

/// Returns a member in memory of this name. Its content reads as zeroes, and is gone when it is
/// closed.
///
/// # Errors
/// When the system has no room, or on a size below a sector.
pub fn memory(name: PathBuf, bytes: u64) -> io::Result<MemberFile> {
    if bytes < SECTOR_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too small"));
    }
    Ok(MemberFile::plain(memory_file("braid", bytes)?, name, bytes))
}

/// Opens a member for looking at it, even while it is in use. Its content may change meanwhile.
///
/// # Errors
/// As for [`open`].
pub fn peek(path: &Path) -> Result<MemberFile, OpenError> {
    open_unlocked(path, Mode::ReadOnly, false)
}

impl MemberFile {
    /// Opens the same file once more for reading, without a lock of its own: the first one has to
    /// stay for that.
    ///
    /// # Errors
    /// As for [`open`], and when another file has taken the name.
    pub fn twin(&self) -> Result<Self, OpenError> {
        let fail = |error: io::Error| OpenError::from_io(&self.path, &error);
        let mut twin = peek(&self.path)?;
        // A disk at a server stands for itself by a socket, of which each has its own.
        let may_change = !backend::is_nbd(&self.path);
        if may_change
            && identity(&twin.file).map_err(fail)? != identity(&self.file).map_err(fail)?
        {
            return Err(OpenError::new(&self.path, "was replaced", "try again"));
        }
        twin.sectors = self.sectors;
        twin.lost.clone_from(&self.lost);
        match &self.overlay {
            Some(overlay) => twin.through(&overlay.dir),
            None => Ok(twin),
        }
    }

    /// Adds its changes, if there is an overlay of it in this directory.
    ///
    /// # Errors
    /// When that cannot be read, or is not of this member as it is now.
    pub fn through(mut self, dir: &Path) -> Result<Self, OpenError> {
        self.overlay = Overlay::look(dir, &self)?.map(Box::new);
        Ok(self)
    }
}

/// Opens a member as `peek` does, with its changes if there is an overlay of it in this directory.
///
/// # Errors
/// As for [`open`].
pub fn peek_through(path: &Path, dir: &Path) -> Result<MemberFile, OpenError> {
    peek(path)?.through(dir)
}

fn open_unlocked(path: &Path, mode: Mode<'_>, claim: bool) -> Result<MemberFile, OpenError> {
    let fail = |error: io::Error| OpenError::from_io(path, &error);
    let MemberName { file: name, part } = MemberName::of(path);
    if backend::is_nbd(&name) {
        let (disk, socket) = backend::connect(&name)?;
        return of_disk(path, socket, disk, mode);
    }
    // Looked at before it is opened: opening a FIFO or a tape has effects.
    let kind = check_kind(path, &std::fs::metadata(&name).map_err(fail)?)?;
    if part.is_some() && mode == Mode::ReadWrite && kind == OpenedKind::BlockDevice {
        let next = "name the device of the partition, or make a loop device of it";
        return Err(OpenError::read_only(path, "a part of a device is for reading", next));
    }
    let mut flags = OFlags::empty();
    // Of a part the kernel knows nothing.
    if claim && kind == OpenedKind::BlockDevice && part.is_none() {
        flags |= OFlags::EXCL;
    }
    let inherited = if claim { inherited(path).map_err(fail)? } else { None };
    let (file, direct) = match inherited {
        Some(inherited) => inherited,
        None => open_file(&name, mode, flags).map_err(fail)?,
    };
    // Another file may have taken the name since.
    if check_kind(path, &file.metadata().map_err(fail)?)? != kind {
        return Err(OpenError::new(path, "was replaced while it was opened", "try again"));
    }
    if mode == Mode::ReadWrite
        && kind == OpenedKind::BlockDevice
        && is_read_only(&file).map_err(fail)?
    {
        let next = "make it writable with blockdev --setrw";
        return Err(OpenError::read_only(path, "is a read-only device", next));
    }
    let bytes = size_bytes(&file, kind).map_err(fail)?;
    // A description of an image may be shorter than a sector.
    if kind == OpenedKind::File
        && let Some(disk) = disk_in(&name, &file, bytes)?
    {
        return of_disk(path, file, disk, mode);
    }
    if bytes < SECTOR_BYTES {
        let reason = match bytes {
            0 => "is empty".to_owned(),
            bytes => format!("has {bytes} bytes, not even a sector"),
        };
        return Err(OpenError::new(path, reason, "name a member with room for data"));
    }
    let block_device = kind == OpenedKind::BlockDevice;
    let part = part.map(|part| range_of(path, &name, part, bytes)).transpose()?;
    let size = part.as_ref().map_or(bytes, |part| part.end - part.start);
    let absolute = std::path::absolute(path).map_err(fail)?;
    let plain = MemberFile::plain(file, absolute, size);
    let mut member = MemberFile { part, direct, block_device, ..plain };
    choose_alignment(&mut member, mode)?;
    Ok(member)
}

/// A member that is read through a backend, for which the file stands: all of the disk, or a part.
fn of_disk(
    path: &Path,
    file: File,
    disk: BackendDisk,
    mode: Mode<'_>,
) -> Result<MemberFile, OpenError> {
    if mode == Mode::ReadWrite {
        let next = "have what is changed kept beside it: --overlay DIR";
        return Err(OpenError::read_only(path, "is for reading", next));
    }
    let MemberName { file: name, part } = MemberName::of(path);
    let part = part.map(|part| range_of(path, &name, part, disk.bytes)).transpose()?;
    let bytes = part.as_ref().map_or(disk.bytes, |part| part.end - part.start);
    if !(SECTOR_BYTES..i64::MAX as u64).contains(&bytes) {
        let reason = format!("is a disk of {bytes} bytes");
        return Err(OpenError::new(path, reason, "name a member with room for data"));
    }
    let at_server = backend::is_nbd(&name);
    let absolute = || std::path::absolute(path).map_err(|error| OpenError::from_io(path, &error));
    let name = if at_server { path.to_owned() } else { absolute()? };
    let backend = Some(disk.backend);
    Ok(MemberFile { part, backend, ..MemberFile::plain(file, name, bytes) })
}

/// Returns the disk that a file is an image of, if that is of another kind than raw. A raw member
/// may begin like an image, when one was put on the array; so a file with a superblock counts as
/// raw.
fn disk_in(path: &Path, file: &File, bytes: u64) -> Result<Option<BackendDisk>, OpenError> {
    let Some(kind) = backend::ImageKind::of(file) else { return Ok(None) };
    let raw = File::open(path).map_err(|error| OpenError::from_io(path, &error))?;
    let raw = MemberFile::plain(raw, path.to_owned(), bytes);
    if probe(&raw).superblock.is_ok() {
        return Ok(None);
    }
    backend::image(kind, path, file).map(Some)
}

/// The bytes of a part of a file or device of so many.
fn range_of(
    path: &Path,
    disk: &Path,
    part: DevicePart,
    bytes: u64,
) -> Result<Range<u64>, OpenError> {
    let (start, size) = match part {
        DevicePart::Partition(number) => partition(path, disk, number)?,
        DevicePart::Bytes { offset, size } => (offset, size),
    };
    if !start.is_multiple_of(SECTOR_BYTES) {
        let reason = format!("begins at {start}, in the middle of a sector");
        return Err(OpenError::new(path, reason, "write an offset that is a multiple of 512"));
    }
    let left = bytes.saturating_sub(start);
    if left < SECTOR_BYTES || size.is_some_and(|size| size < SECTOR_BYTES) {
        let reason = format!("has no sector there, of {bytes} bytes in all");
        return Err(OpenError::new(path, reason, "check the offset and the size"));
    }
    let size = size.unwrap_or(left).min(left);
    Ok(start..start + size / SECTOR_BYTES * SECTOR_BYTES)
}

/// Returns the start of a partition, and its size, by the partition table.
fn partition(path: &Path, disk: &Path, number: u32) -> Result<(u64, Option<u64>), OpenError> {
    let none = |reason: String| {
        OpenError::new(path, reason, format!("see what it holds: braid examine {}", disk.display()))
    };
    let table = partitions(&peek(disk)?);
    let table = table.map_err(|why| none(format!("has no partition {number}: {why}")))?;
    let found = table.partitions.iter().find(|partition| partition.number == number);
    let Some(found) = found.filter(|partition| !partition.kind.is_extended()) else {
        let data = table.partitions.iter().filter(|partition| !partition.kind.is_extended());
        let numbers: Vec<String> = data.map(|partition| partition.number.to_string()).collect();
        let numbers = if numbers.is_empty() { "none".to_owned() } else { numbers.join(", ") };
        return Err(none(format!("has no partition {number}, but {numbers}")));
    };
    Ok((found.start_bytes, Some(found.size_bytes)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenedKind {
    File,
    BlockDevice,
}

fn check_kind(path: &Path, metadata: &Metadata) -> Result<OpenedKind, OpenError> {
    let kind = metadata.file_type();
    if kind.is_file() {
        Ok(OpenedKind::File)
    } else if kind.is_block_device() {
        Ok(OpenedKind::BlockDevice)
    } else {
        let what = if kind.is_dir() { "is a directory" } else { "is no file and no block device" };
        Err(OpenError::new(path, what, "name a regular file or a block device"))
    }
}

/// Takes the previous process's descriptor of a member, which stayed claimed throughout. Returns
/// also whether it was opened with O_DIRECT.
fn inherited(path: &Path) -> io::Result<Option<(File, bool)>> {
    let what = What::Member(std::path::absolute(path)?);
    let Some(descriptor) = handover::take(&what) else { return Ok(None) };
    let direct = rustix::fs::fcntl_getfl(&descriptor)?.contains(OFlags::DIRECT);
    Ok(Some((File::from(descriptor), direct)))
}

/// Opens with O_DIRECT; without where the file system refuses it. Tells which.
fn open_file(path: &Path, mode: Mode<'_>, flags: OFlags) -> io::Result<(File, bool)> {
    match open_with(path, mode, flags | OFlags::DIRECT) {
        Ok(file) => Ok((file, true)),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
            Ok((open_with(path, mode, flags)?, false))
        }
        Err(error) => Err(error),
    }
}

fn open_with(path: &Path, mode: Mode<'_>, flags: OFlags) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(mode == Mode::ReadWrite)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// Returns whether a block device is read-only. The kernel lets it be opened for writing all the
/// same.
fn is_read_only(file: &File) -> io::Result<bool> {
    let device = BlockDevice::of(file.metadata()?.rdev());
    Ok(device.is_some_and(|device| device.is_read_only()))
}

fn size_bytes(file: &File, kind: OpenedKind) -> io::Result<u64> {
    match kind {
        OpenedKind::File => Ok(file.metadata()?.len()),
        // The same number as BLKGETSIZE64.
        OpenedKind::BlockDevice => Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?),
    }
}

/// Finds the alignment that I/O with O_DIRECT needs, by asking and then by trying. A file for
/// which no alignment up to 4096 will do is opened without O_DIRECT.
fn choose_alignment(member: &mut MemberFile, mode: Mode<'_>) -> Result<(), OpenError> {
    if !member.direct {
        return Ok(());
    }
    let asked = asked_alignment(&member.file, member.block_device);
    let size = member.sectors * SECTOR_BYTES;
    let works = |bytes: u32| size < u64::from(bytes) || aligned_read_works(&member.file, bytes);
    let begins_well = |&bytes: &u32| {
        let part = member.part.as_ref();
        let aligned = |at: u64| at.is_multiple_of(bytes.into());
        part.is_none_or(|part| aligned(part.start) && aligned(part.end))
    };
    let tried = [512, 1024, 2048, 4096].into_iter().find(|&b| b >= asked && works(b));
    let tried = tried.filter(begins_well);
    if let Some(bytes) = tried {
        member.block_bytes = bytes;
        return Ok(());
    }
    if member.block_device && member.part.is_none() {
        let reason = "has blocks of more than 4096 bytes";
        return Err(OpenError::new(&member.path, reason, "use a device with smaller ones"));
    }
    let plain = open_with(&MemberName::of(&member.path).file, mode, OFlags::empty())
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
    let mut seen: Vec<Vec<BackingPlace>> = Vec::new();
    for member in members {
        let places = places(member).map_err(|error| OpenError::from_io(&member.path, &error))?;
        if let Some(reason) = seen.iter().find_map(|other| shared(&places, other)) {
            return Err(OpenError::new(&member.path, reason, "name each member once"));
        }
        seen.push(places);
    }
    Ok(())
}

/// Describes the way in which a member shares bytes with another, if it does. The last place of
/// each is the lowest one.
fn shared(member: &[BackingPlace], other: &[BackingPlace]) -> Option<String> {
    let bottom = member.last().filter(|bottom| other.last().is_some_and(|o| o.overlaps(bottom)))?;
    let this = member.first()?;
    let that = other.first()?;
    let name = that.path.display();
    Some(if this.path == that.path {
        "was named twice".to_owned()
    } else if this.identity == that.identity {
        let real = |place: &BackingPlace| std::fs::canonicalize(&place.path).ok();
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
