//! Errors of mounting.

use std::path::{Path, PathBuf};

use braid_array::refusal::Next;

/// Failure of a mount or of an unmount: the mountpoint, the reason, the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}; {}", .mountpoint.display(), .next.advice)]
pub(crate) struct MountError {
    /// The directory.
    pub(crate) mountpoint: PathBuf,
    /// Cause of the failure.
    pub(crate) reason: String,
    /// Next step for the user.
    pub(crate) next: Next,
}

impl MountError {
    pub(super) fn new(mountpoint: &Path, reason: impl Into<String>, next: impl Into<Next>) -> Self {
        Self { mountpoint: mountpoint.to_owned(), reason: reason.into(), next: next.into() }
    }
}
