//! Directories that may be mounted on: empty ones. Mounts left by dead processes of ours are taken
//! away first.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rustix::io::Errno;

use super::attach::detach;
use super::error::MountError;
use crate::system::describe;
use crate::users;

/// Checks that a directory can be mounted on. A mount of ours is not looked into: it is dead, or
/// served, or waits for the next process that serves it.
///
/// # Errors
/// [`MountError`], a line for people.
pub(crate) fn check_mountpoint(path: &Path) -> Result<(), MountError> {
    if real_path(path).is_some_and(|real| users::is_our_mount(&real)) {
        return Ok(());
    }
    free_directory(path).map(drop)
}

/// The real path of an empty directory that nothing is mounted on. Mounts of processes of ours that
/// died are taken away.
pub(super) fn free_mountpoint(path: &Path) -> Result<PathBuf, MountError> {
    clear_dead_mounts(path);
    free_directory(path)
}

fn free_directory(path: &Path) -> Result<PathBuf, MountError> {
    let error = |reason: String, next: String| Err(MountError::new(path, reason, next));
    let shown = path.display();
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => return error("is not a directory".into(), "name an empty directory".into()),
        Err(io) => {
            return match Errno::from_io_error(&io) {
                Some(Errno::NOENT) => {
                    error("no such directory".into(), format!("make it: mkdir -p {shown}"))
                }
                Some(Errno::NOTCONN) => error(
                    "still holds the mount of a process that died".into(),
                    format!("take it away: fusermount3 -u {shown}"),
                ),
                _ => error(
                    format!("cannot be used: {}", describe(&io)),
                    "name an empty directory".into(),
                ),
            };
        }
    };
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let parent = real.parent().and_then(|parent| std::fs::metadata(parent).ok());
    if parent.is_none_or(|parent| parent.dev() != metadata.dev()) {
        let next = format!("unmount it: umount {shown}, or name another directory");
        return error("something is already mounted here".into(), next);
    }
    match std::fs::read_dir(&real).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(real),
        Ok(false) => error("is not an empty directory".into(), "name an empty directory".into()),
        Err(io) => {
            error(format!("cannot be read: {}", describe(&io)), "name an empty directory".into())
        }
    }
}

/// Takes away mounts that processes of ours left here when they died. No process will serve them
/// again, so their remaining users lose nothing. A mount that cannot be taken away is found right
/// after.
fn clear_dead_mounts(path: &Path) {
    let Some(real) = real_path(path) else { return };
    while users::is_our_mount(&real) && is_dead(&real) {
        let left = users::of_mount(&real);
        if detach(&real).is_err() {
            return;
        }
        let shown = real.display();
        tracing::warn!("{shown}: took away the mount of a process that died");
        if !left.is_empty() {
            tracing::warn!("{shown}: the dead mount is still used by {}", users::listed(&left));
        }
    }
}

/// Returns whether a mount is no longer served. The check asks how full the file system is, which
/// the kernel does not cache, unlike attributes of files. A process that is alive may take its time
/// to answer.
fn is_dead(mountpoint: &Path) -> bool {
    let mountpoint = mountpoint.to_owned();
    let (answer, answered) = mpsc::channel();
    let ask = move || {
        // Nobody may wait any longer.
        let _ = answer.send(rustix::fs::statfs(&mountpoint).err());
    };
    let asked = std::thread::Builder::new().name("statfs".into()).spawn(ask);
    asked.is_ok() && answered.recv_timeout(ALIVE_WITHIN) == Ok(Some(Errno::NOTCONN))
}

/// A mount of which nothing is heard for so long counts as alive: one that is dead says so at once.
const ALIVE_WITHIN: Duration = Duration::from_secs(2);

/// The real path of something that cannot be looked at itself.
pub(super) fn real_path(path: &Path) -> Option<PathBuf> {
    let parent = std::fs::canonicalize(path.parent()?).ok()?;
    Some(parent.join(path.file_name()?))
}
