//! Why something is not mounted.

use std::path::{Path, PathBuf};

use braid_array::refusal::Next;

/// Why there is no mount, or none that could be taken away: which, the reason, the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}; {}", .mountpoint.display(), .next.advice)]
pub(crate) struct MountError {
    /// The directory.
    pub(crate) mountpoint: PathBuf,
    /// What stands against it.
    pub(crate) reason: String,
    /// What to do.
    pub(crate) next: Next,
}

impl MountError {
    pub(super) fn new(mountpoint: &Path, reason: impl Into<String>, next: impl Into<Next>) -> Self {
        Self { mountpoint: mountpoint.to_owned(), reason: reason.into(), next: next.into() }
    }
}
