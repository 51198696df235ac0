//! Members: properties of the file of each, and the ways in which I/O on it is done.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use braid_array::{IoError, IoOp, Outcome, SECTOR_BYTES};
use braid_rescue::map_file::MapFile;
use rustix::fs::{AtFlags, FileType, SealFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;

use super::at_once::answers_at_once;
use super::backends::{Backends, WantedRead};
use super::changed::Changes;
use super::mapped::Mapped;
use super::range::Zeroed;
use crate::lock::LockedFile;
use crate::member::{MemberFile, Overlay, Run, is_nbd};
use crate::sysfs::BlockDevice;
use braid_array::figures::IoFigures;

/// A member, and properties of its file.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) file: Arc<LockedFile>,
    /// Start of the member in its file, in bytes.
    pub(super) start: u64,
    /// Others may use the file, too: other parts of it, the member below an overlay, or a disk at a
    /// server.
    pub(super) shared: bool,
    /// Thread that reads it, if not the driver.
    pub(super) reader: Option<Sender<WantedRead>>,
    /// Overlay for its changes, if any.
    overlay: Option<Arc<Overlay>>,
    /// Ranges of its file that count as unreadable.
    lost: Option<Arc<MapFile>>,
    /// Known size of a file that can be truncated while it is in use.
    size: Option<KnownSize>,
    /// Short I/O on it is done at once, by the engine's thread.
    pub(super) at_once: bool,
    /// Memory of our own.
    pub(super) mapped: Option<Arc<Mapped>>,
    /// A durable write has to be followed by a flush.
    pub(super) drops_dsync: bool,
    /// A device that says it can zero ranges by giving up their place.
    unmaps: bool,
    /// fallocate said that it cannot punch holes here.
    pub(super) cannot_punch: bool,
    /// fallocate said that it cannot zero ranges here.
    pub(super) cannot_zero: bool,
    pub(super) path: PathBuf,
    /// Counters of its I/O.
    pub(super) figures: IoFigures,
    /// Files and devices below the member, for the locks on them.
    _below: Vec<LockedFile>,
}

/// The size of a file, when it was looked at last.
#[derive(Clone, Copy, Debug, Default)]
struct KnownSize {
    turn: u64,
    bytes: Option<u64>,
}

impl Member {
    pub(super) fn new(member: MemberFile, backends: &Backends) -> Self {
        let size = can_shrink(&member).then(KnownSize::default);
        let overlaid = member.overlay.is_some();
        // What is to be durable in an overlay takes a flush of its own.
        let drops_dsync = overlaid || !member.block_device && !keeps_dsync(&member.file);
        // A device's node is in memory, and what it stands for is not.
        let is_file = !member.block_device && member.backend.is_none();
        let at_once = is_file && !overlaid && answers_at_once(&member.file);
        let mapped = map(&member).map(Arc::new);
        let unmaps = member.block_device && can_unmap(&member.file);
        let cannot_punch = false;
        let cannot_zero = false;
        let start = member.start_bytes();
        // Another process has its own connection to a server.
        let shared = overlaid || member.part.is_some() || is_nbd(&member.path);
        let MemberFile { file, path, backend, overlay, lost, below: _below, .. } = member;
        let reader = backend.map(|backend| backends.reader(backend));
        let overlay = overlay.map(|overlay| Arc::new(*overlay));
        let file = Arc::new(file);
        Self {
            file,
            start,
            shared,
            reader,
            overlay,
            lost,
            size,
            at_once,
            mapped,
            drops_dsync,
            unmaps,
            cannot_punch,
            cannot_zero,
            path,
            figures: IoFigures::default(),
            _below,
        }
    }

    /// The answer to an operation that needs no I/O, or is not to be tried.
    pub(super) fn answer(&mut self, op: IoOp, turn: u64) -> Option<Result<Outcome, IoError>> {
        if self.ends_before(op, turn) {
            return Some(Err(IoError::SHRUNK));
        }
        if self.has_lost(op) {
            return Some(Err(IoError::MEDIUM));
        }
        match (&self.overlay, op) {
            // Its file is no place to write to.
            (None, op) if self.reader.is_some() => match op {
                IoOp::Read { .. } => None,
                IoOp::Flush => Some(Ok(Outcome::Done)),
                _ => Some(Err(IoError::GONE)),
            },
            // That sectors are not needed any more is of no use there.
            (Some(_), IoOp::Discard { .. }) => Some(Ok(Outcome::Done)),
            _ => None,
        }
    }

    /// Returns the operation that zeroes a range of a member being rebuilt, if possible without
    /// allocating space: `op`, which writes zeroes, or an unmap. `None` where a file has a hole
    /// there, which reads as zeroes without a write. Zeroes that are not durable yet become so by
    /// the flush after the other writes.
    pub(super) fn without_place(&self, op: IoOp, sector: u64, len_bytes: u32) -> Option<IoOp> {
        if self.overlay.is_some() || self.reader.is_some() {
            return Some(op);
        }
        if self.unmaps {
            let sectors = u64::from(len_bytes) / SECTOR_BYTES;
            return Some(IoOp::WriteZeroes { sector, sectors, unmap: true, fua: false });
        }
        let start = self.start + sector * SECTOR_BYTES;
        let end = start + u64::from(len_bytes);
        let is_hole = match rustix::fs::seek(&*self.file, SeekFrom::Data(start)) {
            Ok(data) => data >= end,
            Err(errno) => errno == Errno::NXIO,
        };
        // It may have been truncated.
        let is_there = || self.file.metadata().is_ok_and(|data| data.len() >= end);
        (!(is_hole && is_there())).then_some(op)
    }

    /// Returns the state of an operation on an overlay, if the member has one.
    pub(super) fn changes(&self, op: IoOp) -> Option<Box<Changes>> {
        let overlay = self.overlay.as_ref()?;
        Some(Box::new(Changes::of(overlay, self.start, op)))
    }

    /// Returns the sectors to be zeroed in the overlay, if there is one.
    pub(super) fn zeroed(&self, sector: u64, sectors: u64) -> Option<Zeroed> {
        let overlay = Arc::clone(self.overlay.as_ref()?);
        Some(Zeroed { overlay, sector, sectors, is_stored: false })
    }

    /// Returns whether this is a read of sectors that count as unreadable. Sectors written since do
    /// not.
    fn has_lost(&self, op: IoOp) -> bool {
        let (Some(lost), IoOp::Read { sector, buf }) = (&self.lost, op) else { return false };
        let end = sector + u64::from(buf.len) / SECTOR_BYTES;
        let bytes = |sector: u64| self.start + sector * SECTOR_BYTES;
        let mut at = sector;
        while at < end {
            let all = Run { changed: false, sectors: end - at };
            let run = self.overlay.as_ref().map_or(all, |overlay| overlay.run(at, end - at));
            if !run.changed && lost.is_missing(&(bytes(at)..bytes(at + run.sectors))) {
                return true;
            }
            at += run.sectors;
        }
        false
    }

    /// Returns whether the file was truncated to before the end of this write. The write would make
    /// the file grow again, and the range cut off in between would then read as zeroes, without an
    /// error. The file's size is read once a turn: a later truncation in that turn could as well
    /// come between a look and its write.
    fn ends_before(&mut self, op: IoOp, turn: u64) -> bool {
        let Some(known) = &mut self.size else { return false };
        let (sector, bytes) = match op {
            IoOp::Write { sector, buf, .. } => (sector, u64::from(buf.len)),
            IoOp::WriteZeroes { sector, sectors, .. } => (sector, sectors * SECTOR_BYTES),
            _ => return false,
        };
        if known.turn != turn {
            *known = KnownSize { turn, bytes: length_of(&self.file).map(|length| length.bytes) };
        }
        known.bytes.is_some_and(|size| size < self.start + sector * SECTOR_BYTES + bytes)
    }
}

/// Returns whether the storage of a member may become smaller without an error. Devices refuse I/O
/// behind their end, and memory of our own is sealed.
fn can_shrink(member: &MemberFile) -> bool {
    let is_file = !member.block_device && member.backend.is_none();
    is_file && member.overlay.is_none() && !is_sealed(&member.file)
}

/// Returns whether the file is memory sealed against truncation.
fn is_sealed(file: &LockedFile) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
}

/// Maps a member that is memory of our own.
fn map(member: &MemberFile) -> Option<Mapped> {
    let bytes = member.sectors * SECTOR_BYTES;
    // SAFETY: it is sealed, and was as long as that when it was opened.
    is_sealed(&member.file).then(|| unsafe { Mapped::new(&member.file, bytes) })?
}

/// Tells whether a device says that it can zero ranges by giving up their place.
fn can_unmap(device: &LockedFile) -> bool {
    let number = device.metadata().map(|data| data.rdev());
    let device = number.ok().and_then(BlockDevice::of);
    device.is_some_and(|device| device.zeroes_by_unmapping())
}

/// Length of what a member lies on.
#[derive(Clone, Copy, Debug)]
pub(super) struct StorageLength {
    pub(super) block_device: bool,
    pub(super) bytes: u64,
}

/// Returns the length of a file or device, where it tells.
pub(super) fn length_of(file: &LockedFile) -> Option<StorageLength> {
    // As far as the system knows by itself: who keeps a file may never answer.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::TYPE | StatxFlags::SIZE;
    let stat = rustix::fs::statx(file, "", flags, wanted).ok()?;
    let block_device = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::BlockDevice;
    let bytes =
        if block_device { rustix::fs::seek(file, SeekFrom::End(0)).ok()? } else { stat.stx_size };
    Some(StorageLength { block_device, bytes })
}

/// Returns whether writes with `RWF_DSYNC` to this file are durable when they complete. FUSE file
/// systems do not get the flag, and others may ignore it; so only file systems known to heed it are
/// trusted. A flush too many costs time, one too few data.
fn keeps_dsync(file: &LockedFile) -> bool {
    const KNOWN: [u32; 6] = [
        0xef53,      // ext2, ext3, ext4
        0x5846_5342, // XFS
        0x9123_683e, // btrfs
        0xf2f5_2010, // F2FS
        0xca45_1a4e, // bcachefs
        0x0102_1994, // tmpfs, where nothing is durable
    ];
    file.file_system().is_some_and(|kind| KNOWN.contains(&kind))
}
