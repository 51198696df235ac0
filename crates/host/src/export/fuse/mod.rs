//! The array as one file in a directory of its own, through FUSE, and its parts as files in another
//! directory beside it. `losetup` makes a block device of it.
//!
//! The kernel caches only mapped pages: the file is opened with direct I/O. Requests are taken off
//! the kernel's device and answered there by operations in the engine's ring, beside the I/O on
//! members: [`server`] moves them, [`connection`] has the kernel's side of a mount, [`jobs`] make
//! requests for whole blocks of them, [`gate`] says which of them may write. [`proto`] and [`tree`]
//! know the protocol and the file system, and do no I/O.
//!
//! Data to be written land page-aligned in the engine's memory and go to the members from there;
//! data read are sent from where they were read to.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::access::Access;
use crate::handover::{self, What};
use crate::notify::kept;
use crate::system::describe;
use crate::users;
use attach::{detach, unmount};
use mountpoint::{free_mountpoint, real_path};

mod attach;
mod connection;
mod error;
mod gate;
mod jobs;
#[cfg(test)]
mod jobs_tests;
mod mount_table;
mod mountpoint;
pub mod proto;
#[cfg(test)]
mod proto_tests;
mod server;
#[cfg(test)]
mod tests;
mod tree;

pub use attach::{attach, resume};
pub(crate) use connection::MAX_MOUNTS;
pub(crate) use error::MountError;
pub(crate) use mount_table::{MountTable, NewMount};
pub(crate) use mountpoint::check_mountpoint;
pub(crate) use server::FuseServer;
pub use tree::{FileOperation, FileOutcome, PartFiles, Tree};

/// Settings of a mount.
#[derive(Debug)]
pub(crate) struct MountSetup<'a> {
    /// Name of the file.
    pub(crate) name: &'a str,
    /// An empty directory.
    pub(crate) mountpoint: &'a Path,
    /// Files that lie on the array.
    pub(crate) parts: PartFiles,
    /// Refuse to open for writing.
    pub(crate) read_only: bool,
    /// Users that may open the file.
    pub(crate) access: &'a Access,
}

/// A mounted array on the mounting side, until it is unmounted or detached, which a drop does. The
/// engine has the [`NewMount`] that it serves.
#[derive(Debug)]
pub(crate) struct Mount {
    mountpoint: PathBuf,
    stands: bool,
    /// Inherited from the previous process.
    inherited: bool,
}

/// Mounts an array. The file can be opened from then on; the open waits until the engine serves it.
///
/// # Errors
/// [`MountError`], a line for people.
pub(crate) fn mount(setup: &MountSetup<'_>) -> Result<(Mount, NewMount), MountError> {
    let access = setup.access;
    let found = inherited(setup.mountpoint);
    let inherited = found.is_some();
    let (mountpoint, device) = match found {
        // It is mounted, and nobody answers who looks at it.
        Some(inherited) => inherited,
        None => mount_anew(setup.mountpoint, access.is_for_others())?,
    };
    // The server gives it the size that the array has then.
    let tree = Tree::new(vec![(setup.name.to_owned(), 0)], setup.read_only);
    let mut tree = tree.open_to(access);
    tree.set_parts(setup.parts.clone());
    let mounted = NewMount { device, tree, mountpoint: mountpoint.clone() };
    Ok((Mount { mountpoint, stands: true, inherited }, mounted))
}

/// Takes the device of a mount that exists already: inherited from the previous program, or left by
/// a process that has died, whose unanswered requests are repeated.
fn inherited(mountpoint: &Path) -> Option<(PathBuf, OwnedFd)> {
    let real = real_path(mountpoint)?;
    if let Some(device) = handover::take(&What::Mount(real.clone())) {
        return Some((real, device));
    }
    let name = kept_name(&real);
    let device = kept::take(&name)?;
    // Somebody may have unmounted it.
    if users::is_our_mount(&real) && resume(&device).is_ok() {
        return Some((real, device));
    }
    // Or this kernel cannot ask again. Who waits for an answer gets an error when nobody has it.
    kept::forget(&name);
    if users::is_our_mount(&real) {
        let _ = detach(&real);
    }
    None
}

/// Returns the name under which the service manager keeps a mount's device.
fn kept_name(mountpoint: &Path) -> String {
    format!("mount-{:08x}", crc32c::crc32c(mountpoint.as_os_str().as_bytes()))
}

fn mount_anew(mountpoint: &Path, others: bool) -> Result<(PathBuf, OwnedFd), MountError> {
    let mountpoint = free_mountpoint(mountpoint)?;
    let device = attach(&mountpoint, users::OURS, others).map_err(|error| {
        let next = "see whether /dev/fuse exists and fusermount3 is installed, or run as root";
        MountError::new(&mountpoint, format!("cannot be mounted on: {}", describe(&error)), next)
    })?;
    kept::keep(&kept_name(&mountpoint), &device);
    Ok((mountpoint, device))
}

impl Mount {
    /// Returns the directory of the mount.
    #[must_use]
    pub(crate) fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Takes the mount away. Nothing that was asked over it is under way then.
    ///
    /// # Errors
    /// When the file is in use; it stays mounted and usable then, and comes back as `Mount`.
    pub(crate) fn unmount(mut self) -> Result<(), (Box<Self>, MountError)> {
        let error = |reason: String, next: String| MountError::new(&self.mountpoint, reason, next);
        let found = match unmount(&self.mountpoint) {
            Ok(()) => {
                self.stands = false;
                kept::forget(&kept_name(&self.mountpoint));
                return Ok(());
            }
            Err(Errno::BUSY) => error(
                format!("is in use by {}", users::listed(&users::of_mount(&self.mountpoint))),
                format!("see losetup -l and fuser -vm {}", self.mountpoint.display()),
            ),
            Err(errno) => error(format!("cannot be unmounted: {errno}"), "unmount it".into()),
        };
        Err((Box::new(self), found))
    }

    /// Takes the mount out of sight even if it is in use. Users get errors when the engine ends.
    pub(crate) fn detach(self) {}
}

impl Drop for Mount {
    fn drop(&mut self) {
        // The program that this one goes back to answers there.
        if self.inherited && handover::is_pending() {
            return;
        }
        // Somebody else may have unmounted it, and mounted something there.
        if self.stands {
            kept::forget(&kept_name(&self.mountpoint));
        }
        if self.stands && users::is_our_mount(&self.mountpoint) {
            let _ = detach(&self.mountpoint);
        }
    }
}
