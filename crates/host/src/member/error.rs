//! Errors of members.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use braid_array::refusal::Next;
use rustix::io::Errno;

use super::identity::Identity;
use super::in_use;
use crate::served_array::ServedArray;
use crate::system::describe;
use crate::users;

/// Reason for which a member cannot be used: the member, the reason, the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}; {}", .path.display(), .next.advice)]
pub struct OpenError {
    /// The member.
    pub path: PathBuf,
    /// Cause of the error.
    pub reason: String,
    /// Next step for the user.
    pub next: Next,
    /// Set when the member could be opened read-only.
    pub readable: bool,
    /// Set when there is nothing behind the name: a drive without a medium, for one.
    pub empty: bool,
}

impl OpenError {
    pub(super) fn new(path: &Path, reason: impl Into<String>, next: impl Into<Next>) -> Self {
        Self {
            path: path.to_owned(),
            reason: reason.into(),
            next: next.into(),
            readable: false,
            empty: false,
        }
    }

    pub(super) fn read_only(path: &Path, reason: &str, next: &'static str) -> Self {
        Self { readable: true, ..Self::new(path, reason, next) }
    }

    pub(super) fn in_use(path: &Path, user: &in_use::MemberUser) -> Self {
        Self::new(path, user.to_string(), user.next())
    }

    pub(super) fn from_io(path: &Path, error: &io::Error) -> Self {
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
                return match (identity.and_then(in_use::user), claimant(path)) {
                    (Some(user), _) => Self::in_use(path, &user),
                    (None, Some(array)) => {
                        Self::new(path, format!("in use by {array}"), array.how_to_stop())
                    }
                    _ => Self::new(path, "in use by the kernel", "see lsblk for what uses it"),
                };
            }
            Some(Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM) => {
                let reason = "no device behind this name";
                return Self { empty: true, ..Self::new(path, reason, "check the device") };
            }
            _ => (describe(error), "check the device"),
        };
        Self::new(path, reason, next)
    }
}

/// Returns the running array that has claimed a device: it has locked it as well.
fn claimant(path: &Path) -> Option<ServedArray> {
    let device = File::open(path).ok()?;
    users::lockers(&device).iter().find_map(|holder| ServedArray::of_process(holder.pid))
}
