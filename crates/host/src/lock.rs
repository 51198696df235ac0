//! Files that may be locked.

use std::fs::File;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// An open file. A lock on it ends when this goes, and not later: closing a file does not end its
/// lock as long as the kernel or a process that was just forked still has the file.
#[derive(Debug)]
pub struct LockedFile(File);

impl LockedFile {
    /// Locks it against others, or all but those who share the lock. Does not wait.
    ///
    /// # Errors
    /// `WOULDBLOCK` when somebody else has locked it.
    pub(crate) fn lock(&self, exclusive: bool) -> Result<(), Errno> {
        flock(
            &self.0,
            if exclusive {
                FlockOperation::NonBlockingLockExclusive
            } else {
                FlockOperation::NonBlockingLockShared
            },
        )
    }
}

impl From<File> for LockedFile {
    fn from(file: File) -> Self {
        Self(file)
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl AsFd for LockedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Nothing to do when it was not locked.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}
