//! The array as one file in a directory of its own, through FUSE. `losetup` makes a block device
//! of it.
//!
//! The kernel caches nothing but what is mapped: the file is opened with direct I/O. Each request
//! goes through the door and is answered from the engine's thread, so as many are under way as the
//! kernel sends.

use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use braid_array::RequestError;
use braid_array::refusal::Next;
use fuser::{
    BackgroundSession, Config, MountOption, ReplyData, ReplyEmpty, ReplyWrite, Session, SessionACL,
};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::door::Door;
use crate::system::describe;
use crate::users;
use byte_file::{ByteFile, Done};
pub use file_system::{Content, FileSystem};

mod byte_file;
mod file_system;
#[cfg(test)]
mod tests;

/// What to mount.
#[derive(Debug)]
pub struct Setup<'a> {
    /// Name of the file.
    pub name: &'a str,
    /// An empty directory.
    pub mountpoint: &'a Path,
    /// The way to the array.
    pub door: Door,
    /// Size of the array.
    pub size_bytes: u64,
    /// Requests through the door are multiples of this.
    pub block_bytes: u32,
    /// Refuse to open for writing.
    pub read_only: bool,
}

/// Why there is no mount, or none that could be taken away: which, the reason, the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}; {}", .mountpoint.display(), .next.advice)]
pub struct MountError {
    /// The directory.
    pub mountpoint: PathBuf,
    /// What stands against it.
    pub reason: String,
    /// What to do.
    pub next: Next,
}

impl MountError {
    fn new(mountpoint: &Path, reason: impl Into<String>, next: impl Into<Next>) -> Self {
        Self { mountpoint: mountpoint.to_owned(), reason: reason.into(), next: next.into() }
    }
}

/// A mounted array.
#[derive(Debug)]
pub struct Mount {
    mountpoint: PathBuf,
    session: BackgroundSession,
}

impl Content for Arc<ByteFile> {
    fn size(&self) -> u64 {
        ByteFile::size(self)
    }

    fn read(&self, range: Range<u64>, reply: ReplyData) {
        ByteFile::read(self, &range, move |bytes| match bytes {
            Ok(bytes) => reply.data(bytes),
            Err(error) => reply.error(errno(error)),
        });
    }

    fn write(&self, offset: u64, data: Vec<u8>, fua: bool, reply: ReplyWrite) {
        let written = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let done: Done = Box::new(move |result| match result {
            Ok(()) => reply.written(written),
            Err(error) => reply.error(errno(error)),
        });
        ByteFile::write(self, offset, data, fua, done);
    }

    fn flush(&self, reply: ReplyEmpty) {
        ByteFile::flush(self, answer(reply));
    }

    fn zero(&self, range: Range<u64>, unmap: bool, reply: ReplyEmpty) {
        ByteFile::zero(self, range, unmap, answer(reply));
    }
}

const fn errno(error: RequestError) -> fuser::Errno {
    match error {
        RequestError::OutOfRange | RequestError::NoSpace => fuser::Errno::ENOSPC,
        RequestError::Malformed => fuser::Errno::EINVAL,
        RequestError::ReadOnly => fuser::Errno::EROFS,
        RequestError::Failed | RequestError::Medium | RequestError::BufferHeld => fuser::Errno::EIO,
    }
}

/// Answers with success or the error, when it is known.
fn answer(reply: ReplyEmpty) -> Done {
    Box::new(move |result| match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    })
}

/// Threads that take requests from the kernel.
const THREADS: usize = 2;

/// Mounts an array. When this returns the file can be opened.
///
/// # Errors
/// [`MountError`], a line for people.
pub fn mount(setup: Setup<'_>) -> Result<Mount, MountError> {
    let mountpoint = check_mountpoint(setup.mountpoint)?;
    let file = ByteFile::new(setup.door, setup.size_bytes, setup.block_bytes);
    let files = FileSystem::new(vec![(setup.name.to_owned(), file)], setup.read_only);
    let mut config = Config::default();
    // The kernel checks the mode of the file: with `allow_other`, nobody else does.
    config.mount_options =
        vec![MountOption::FSName("braid".into()), MountOption::DefaultPermissions];
    if rustix::process::geteuid().is_root() {
        // The kernel's own threads (a loop device) are not the user who mounted.
        config.acl = SessionACL::All;
    }
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let fail = |error: io::Error| {
        let next = "see whether /dev/fuse exists and fusermount3 is installed, or run as root";
        MountError::new(&mountpoint, format!("cannot be mounted on: {}", describe(&error)), next)
    };
    let session = Session::new(files, &mountpoint, &config).and_then(Session::spawn);
    Ok(Mount { session: session.map_err(fail)?, mountpoint })
}

/// The real path of an empty directory that nothing is mounted on. Mounts of processes of ours that
/// died are taken away.
fn check_mountpoint(path: &Path) -> Result<PathBuf, MountError> {
    let error = |reason: String, next: String| Err(MountError::new(path, reason, next));
    let shown = path.display();
    clear_dead_mounts(path);
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => return error("is not a directory".into(), "name an empty directory".into()),
        Err(io) => {
            return match Errno::from_io_error(&io) {
                Some(Errno::NOENT) => {
                    error("no such directory".into(), format!("make it: mkdir {shown}"))
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

/// Takes away what processes of ours left mounted here when they died. Nobody will ever serve that
/// again, so those who still use it lose nothing. What cannot be taken away is found right after.
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

/// Does nobody serve this mount any more? What is known of its files may still be in the kernel's
/// memory; how full it is, is not. A process that is alive may take its time to tell.
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
fn real_path(path: &Path) -> Option<PathBuf> {
    let parent = std::fs::canonicalize(path.parent()?).ok()?;
    Some(parent.join(path.file_name()?))
}

/// Takes a mount out of sight even if it is in use.
fn detach(mountpoint: &Path) -> Result<(), Errno> {
    match rustix::mount::unmount(mountpoint, UnmountFlags::DETACH) {
        Err(Errno::PERM) => {
            run(Command::new("fusermount3").args(["-u", "-q", "-z", "--"]).arg(mountpoint))
        }
        result => result,
    }
}

impl Mount {
    /// Where it is.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Takes the mount away and waits until the last request is answered.
    ///
    /// # Errors
    /// When the file is in use; it stays mounted and usable then, and comes back as `Mount`.
    pub fn unmount(self) -> Result<(), (Box<Self>, MountError)> {
        let error = |reason: String, next: String| MountError::new(&self.mountpoint, reason, next);
        let found = match unmount_at(&self.mountpoint) {
            Ok(()) => {
                self.wait();
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

    /// Takes the mount out of sight even if it is in use. Users get errors when the process ends.
    pub fn detach(self) {
        let _ = detach(&self.mountpoint);
        self.abandon();
    }

    /// Waits for the end of the session, which comes as soon as the kernel has no use for the
    /// mount. A copy of it in another mount namespace would be such a use, with no end in sight.
    fn wait(self) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.session.guard.is_finished() {
            if Instant::now() > deadline {
                return self.abandon();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // How the session ended does not matter: nobody can ask it anything any more.
        let _ = self.session.join();
    }

    /// Leaves the session to the end of the process.
    fn abandon(self) {
        std::mem::forget(self.session);
    }
}

/// How long a mount may be in use before it counts as that: programs that look at each new device
/// (udev) and children between fork and exec are gone in a moment.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);

/// Unmounts. Gone already is as good.
fn unmount_at(mountpoint: &Path) -> Result<(), Errno> {
    let deadline = Instant::now() + BUSY_PATIENCE;
    loop {
        match try_unmount(mountpoint) {
            Err(Errno::BUSY) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

/// Unmounts, with fusermount3's help where the user may not.
fn try_unmount(mountpoint: &Path) -> Result<(), Errno> {
    match rustix::mount::unmount(mountpoint, UnmountFlags::empty()) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(Errno::PERM) => {
            run(Command::new("fusermount3").args(["-u", "-q", "--"]).arg(mountpoint))
        }
        Err(error) => Err(error),
    }
}

fn run(command: &mut Command) -> Result<(), Errno> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        // It says why on stderr only; in use is the reason that is left.
        Ok(_) => Err(Errno::BUSY),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}
