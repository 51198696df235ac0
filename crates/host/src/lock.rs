//! Files that may be locked.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// An open file. A lock on it ends when this goes, and not later: closing a file does not end its
/// lock as long as the kernel or a process that was just forked still has the file.
#[derive(Debug)]
pub struct LockedFile {
    file: File,
    /// The kernel's number for the kind of file system that it is on.
    file_system: Option<u32>,
}

/// The kernel's number for file systems of FUSE.
const FUSE: u32 = 0x6573_5546;

impl LockedFile {
    /// Returns whether it lies on FUSE: some calls that wait for nobody elsewhere wait there for a
    /// process.
    pub(crate) fn is_on_fuse(&self) -> bool {
        self.file_system == Some(FUSE)
    }

    /// Returns the kernel's number for the kind of file system that it is on, where that is known.
    pub(crate) const fn file_system(&self) -> Option<u32> {
        self.file_system
    }

    /// Locks it against others, or all but those who share the lock, without waiting.
    ///
    /// # Errors
    /// `WOULDBLOCK` when another holder has locked it.
    pub(crate) fn lock(&self, exclusive: bool) -> Result<(), Errno> {
        flock(
            &self.file,
            if exclusive {
                FlockOperation::NonBlockingLockExclusive
            } else {
                FlockOperation::NonBlockingLockShared
            },
        )
    }

    /// Locks bytes of it, all of it for a range without length, without waiting. The lock excludes
    /// all others on some of the same bytes, or only their writers when `writer` is false.
    ///
    /// # Errors
    /// `WOULDBLOCK` when another holder has locked some of them.
    pub(crate) fn lock_range(&self, bytes: &Range<u64>, writer: bool) -> Result<(), Errno> {
        self.set_lock(if writer { libc::F_WRLCK } else { libc::F_RDLCK }, bytes)
    }

    /// Sets the lock of the open file on some bytes (fcntl(2), open file description locks).
    fn set_lock(&self, kind: libc::c_int, bytes: &Range<u64>) -> Result<(), Errno> {
        let offset = |at: u64| i64::try_from(at).map_err(|_| Errno::OVERFLOW);
        // SAFETY: a structure of numbers alone, for which all zeroes are valid.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = offset(bytes.start)?;
        lock.l_len = offset(bytes.end - bytes.start)?;
        // SAFETY: the descriptor is open, and the call reads `lock`, which outlives it.
        if unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        Err(match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
            Errno::ACCESS => Errno::WOULDBLOCK,
            errno => errno,
        })
    }
}

impl From<File> for LockedFile {
    fn from(file: File) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the numbers have 32 bits")]
        let file_system = rustix::fs::fstatfs(&file).ok().map(|stat| stat.f_type as u32);
        Self { file, file_system }
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl AsFd for LockedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Nothing to do when it was not locked.
        let _ = flock(&self.file, FlockOperation::Unlock);
        let _ = self.set_lock(libc::F_UNLCK, &(0..0));
    }
}
