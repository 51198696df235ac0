//! The members: what is known of the file of each, and how I/O on it is to be done.

use std::sync::Arc;

use braid_array::{IoOp, SECTOR_BYTES};
use rustix::fs::{AtFlags, FileType, SealFlags, SeekFrom, StatxFlags};

use super::at_once::answers_at_once;
use super::mapped::Mapped;
use crate::lock::LockedFile;
use crate::member::MemberFile;

/// A member, and what is known of its file.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) file: Arc<LockedFile>,
    /// For a file that can be truncated while it is in use: what is known of its size.
    size: Option<KnownSize>,
    /// Short I/O on it is done at once, by the engine's thread.
    pub(super) at_once: bool,
    /// Memory of our own.
    pub(super) mapped: Option<Arc<Mapped>>,
    /// A durable write has to be followed by a flush.
    pub(super) drops_dsync: bool,
    /// fallocate said that it cannot punch holes here.
    pub(super) cannot_punch: bool,
    /// fallocate said that it cannot zero ranges here.
    pub(super) cannot_zero: bool,
    /// For the locks on what the member lies on.
    _below: Vec<LockedFile>,
}

/// The size of a file, when it was looked at last.
#[derive(Clone, Copy, Debug, Default)]
struct KnownSize {
    turn: u64,
    bytes: Option<u64>,
}

impl Member {
    pub(super) fn new(member: MemberFile) -> Self {
        let size = can_shrink(&member).then(KnownSize::default);
        let drops_dsync = !member.block_device && !keeps_dsync(&member.file);
        // A device's node is in memory, and what it stands for is not.
        let at_once = !member.block_device && answers_at_once(&member.file);
        let mapped = map(&member).map(Arc::new);
        let file = Arc::new(member.file);
        let cannot_punch = false;
        let cannot_zero = false;
        let _below = member.below;
        Self { file, size, at_once, mapped, drops_dsync, cannot_punch, cannot_zero, _below }
    }

    /// Was the file truncated to before the end of this write? Writing would make it grow again,
    /// and what was cut off in between would then read as zeroes, without an error. The file is
    /// looked at once in a turn: who truncates it later in that turn could as well do so between a
    /// look and its write.
    pub(super) fn ends_before(&mut self, op: IoOp, turn: u64) -> bool {
        let Some(known) = &mut self.size else { return false };
        let (sector, bytes) = match op {
            IoOp::Write { sector, buf, .. } => (sector, u64::from(buf.len)),
            IoOp::WriteZeroes { sector, sectors, .. } => (sector, sectors * SECTOR_BYTES),
            _ => return false,
        };
        if known.turn != turn {
            *known = KnownSize { turn, bytes: size_bytes(&self.file) };
        }
        known.bytes.is_some_and(|size| size < sector * SECTOR_BYTES + bytes)
    }
}

/// May what a member is become smaller without a word? Devices refuse what is behind their end, and
/// memory of our own is sealed.
fn can_shrink(member: &MemberFile) -> bool {
    !member.block_device && !is_sealed(&member.file)
}

/// Is it memory that nobody can cut off?
fn is_sealed(file: &LockedFile) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
}

/// Maps a member that is memory of our own.
fn map(member: &MemberFile) -> Option<Mapped> {
    let bytes = member.sectors * SECTOR_BYTES;
    // SAFETY: it is sealed, and was as long as that when it was opened.
    is_sealed(&member.file).then(|| unsafe { Mapped::new(&member.file, bytes) })?
}

/// The size of a file or device, where it tells.
pub(super) fn size_bytes(file: &LockedFile) -> Option<u64> {
    // As far as the system knows by itself: who keeps a file may never answer.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::TYPE | StatxFlags::SIZE;
    let stat = rustix::fs::statx(file, "", flags, wanted).ok()?;
    let block_device = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::BlockDevice;
    if block_device { rustix::fs::seek(file, SeekFrom::End(0)).ok() } else { Some(stat.stx_size) }
}

/// Are writes with `RWF_DSYNC` to this file durable when they are answered? FUSE file systems do
/// not hear of the flag, and others may ignore it as well; so only those are trusted that are known
/// to heed it. A flush too many costs time, one too few data.
fn keeps_dsync(file: &LockedFile) -> bool {
    const KNOWN: [u32; 6] = [
        0xef53,      // ext2, ext3, ext4
        0x5846_5342, // XFS
        0x9123_683e, // btrfs
        0xf2f5_2010, // F2FS
        0xca45_1a4e, // bcachefs
        0x0102_1994, // tmpfs, where nothing is durable
    ];
    file_system(file).is_some_and(|kind| KNOWN.contains(&kind))
}

/// Which kind of file system a file is on, by the kernel's number.
pub(super) fn file_system(file: &LockedFile) -> Option<u32> {
    #[expect(clippy::cast_possible_truncation, reason = "the numbers have 32 bits")]
    rustix::fs::fstatfs(file).ok().map(|stat| stat.f_type as u32)
}
