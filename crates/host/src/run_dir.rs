//! The run directory: where running arrays have their control sockets, and where their logs lie.
//!
//! The path is `/run/braid` for root, `$XDG_RUNTIME_DIR/braid` for others, unless `BRAID_RUN_DIR`
//! or the caller says otherwise. Others may look into it, but not write. Socket files are made and
//! replaced under a lock on a file in it that only its owner can open: a lock on a directory, or on
//! a file that others can open, could be held for ever by any user.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, fchown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::lock::LockedFile;
use crate::users;

/// Run directory of root.
const OF_ROOT: &str = "/run/braid";
/// Directory of root's logs, which outlast the next boot.
const LOGS_OF_ROOT: &str = "/var/log/braid";
const SOCKET: &str = ".sock";
const LOCK: &str = ".lock";
/// Lock of the commands that change the shape of an array in more than one step.
const SHAPE_LOCK: &str = ".shape";
/// Limit on waiting for others that start an array at the same moment.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// The directory in which the sockets of running arrays lie: the one given, else `BRAID_RUN_DIR`,
/// else the user's own.
#[must_use]
pub fn run_dir(given: Option<&Path>) -> PathBuf {
    let dir = given.map(Path::to_owned).or_else(|| variable("BRAID_RUN_DIR")).unwrap_or_else(own);
    std::path::absolute(&dir).unwrap_or(dir)
}

fn own() -> PathBuf {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return PathBuf::from(OF_ROOT);
    }
    variable("XDG_RUNTIME_DIR").map_or_else(
        || std::env::temp_dir().join(format!("braid-{}", user.as_raw())),
        |dir| dir.join("braid"),
    )
}

/// Returns the path of the log of a background process of this name. For root's own run directory
/// the log is in `/var/log/braid`, made if it is missing. Otherwise, or where that cannot be
/// written, as on a system whose disk is mounted read-only, the log is beside the sockets.
#[must_use]
pub fn log_path(run_dir: &Path, name: &str) -> PathBuf {
    let is_roots = run_dir == Path::new(OF_ROOT) && rustix::process::geteuid().is_root();
    let lasting = is_roots.then(|| Path::new(LOGS_OF_ROOT));
    log_in(run_dir, lasting, &format!("{name}.log"))
}

/// Returns the path of the log that a background process of this name has left, if there is one.
#[must_use]
pub fn existing_log(run_dir: &Path, name: &str) -> Option<PathBuf> {
    let lasting = (run_dir == Path::new(OF_ROOT)).then(|| Path::new(LOGS_OF_ROOT));
    let paths = lasting.into_iter().chain([run_dir]).map(|dir| dir.join(format!("{name}.log")));
    paths.into_iter().find(|path| path.is_file())
}

fn log_in(run_dir: &Path, lasting: Option<&Path>, file: &str) -> PathBuf {
    let can_be_written = |path: &PathBuf| {
        let dir = path.parent().unwrap_or(path);
        let made = DirBuilder::new().recursive(true).mode(0o755).create(dir);
        let opened = made.and_then(|()| File::options().append(true).create(true).open(path));
        opened.is_ok()
    };
    let lasting = lasting.map(|dir| dir.join(file)).filter(can_be_written);
    lasting.unwrap_or_else(|| run_dir.join(file))
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns the run directory of root, if `run_dir` is this user's own and another one: users see
/// only arrays of their own in theirs.
#[must_use]
pub fn beside(run_dir: &Path) -> Option<&'static Path> {
    let of_root = Path::new(OF_ROOT);
    (run_dir == own() && run_dir != of_root).then_some(of_root)
}

/// Returns the path of an array's control socket.
#[must_use]
pub fn socket_path(run_dir: &Path, name: &str) -> PathBuf {
    run_dir.join(format!("{name}{SOCKET}"))
}

/// Returns the array whose control socket has this file name.
pub(crate) fn array_of_socket(file_name: &str) -> Option<&str> {
    file_name.strip_suffix(SOCKET)
}

/// Returns whether an array has been served from this directory.
pub(crate) fn is_one(dir: &Path) -> bool {
    dir.join(LOCK).exists()
}

/// A Unix socket that is not connected.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    let family = AddressFamily::UNIX;
    let kind = SocketType::STREAM;
    Ok(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Connects. A process that is stopped accepts no more than a number of connections; then this
/// ends with `WouldBlock` after a time.
pub(crate) fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let socket = socket()?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Makes the run directory where it is missing, and checks that it belongs to this user, unless
/// that is root, and that not everybody may write to it.
///
/// # Errors
/// When the directory cannot be made, or fails one of these checks.
pub fn make_run_dir(dir: &Path) -> io::Result<()> {
    let user = rustix::process::geteuid();
    let mode = if user.is_root() { 0o755 } else { 0o700 };
    DirBuilder::new().recursive(true).mode(mode).create(dir)?;
    let found = std::fs::metadata(dir)?;
    let denied = |reason| Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    if found.uid() != user.as_raw() && !user.is_root() {
        return denied("belongs to another user");
    }
    if found.mode() & 0o002 != 0 {
        return denied("everybody may write to it");
    }
    Ok(())
}

/// Waits for the lock of a run directory, up to a limit.
///
/// # Errors
/// `TimedOut`, with the holder; or when its file cannot be opened.
pub(crate) fn lock(run_dir: &Path) -> io::Result<LockedFile> {
    lock_within(run_dir, LOCK_PATIENCE)
}

/// Takes the lock of a run directory if it is free.
pub(crate) fn try_lock(run_dir: &Path) -> io::Result<LockedFile> {
    lock_within(run_dir, Duration::ZERO)
}

pub(crate) fn lock_within(dir: &Path, patience: Duration) -> io::Result<LockedFile> {
    lock_file(dir, &dir.join(LOCK), patience)
}

/// Takes the lock of the commands that change the shape of this array.
///
/// # Errors
/// `TimedOut`, with the holder, while another command has it; or when its file cannot be opened.
pub fn lock_shape(run_dir: &Path, name: &str) -> io::Result<PassingLock> {
    PassingLock::of(run_dir, &format!("{name}{SHAPE_LOCK}"))
}

fn lock_file(dir: &Path, path: &Path, patience: Duration) -> io::Result<LockedFile> {
    let mut file = open_lock(dir, path)?;
    let begun = Instant::now();
    loop {
        match file.lock(true) {
            // Who had it has removed it: that lock is nobody's.
            Ok(()) if file.metadata()?.nlink() == 0 => file = open_lock(dir, path)?,
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if begun.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(Errno::WOULDBLOCK) => {
                let who = users::lock_holder(&file, path);
                let reason = format!("{} is locked by {who}", path.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A lock in a directory, of which nothing is left when it goes.
#[derive(Debug)]
pub struct PassingLock {
    path: PathBuf,
    _lock: LockedFile,
}

impl PassingLock {
    /// Takes the lock of the directory if it is free.
    pub(crate) fn take(dir: &Path) -> io::Result<Self> {
        Self::of(dir, LOCK)
    }

    /// Takes the lock on this file if it is free.
    fn of(dir: &Path, file: &str) -> io::Result<Self> {
        let path = std::path::absolute(dir.join(file))?;
        let lock = lock_file(dir, &path, Duration::ZERO)?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for PassingLock {
    /// Removes the file while the lock is still held. A file that cannot be removed is found by the
    /// next process.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Opens the file, and makes it where it is missing: for the owner of the directory alone.
fn open_lock(dir: &Path, path: &Path) -> io::Result<LockedFile> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    let user = rustix::process::geteuid();
    let owner = std::fs::metadata(dir)?.uid();
    let found = file.metadata()?;
    if found.uid() != owner && found.uid() == user.as_raw() {
        // Root in the directory of a user, who must get in as well.
        fchown(&file, Some(owner), None)?;
    } else if found.uid() != owner || found.mode() & 0o077 != 0 {
        let reason = format!("others may have {} open", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    Ok(LockedFile::from(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_root_outlast_the_run_directory_where_they_can() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("run");
        let lasting = dir.path().join("log/braid");
        let log = |lasting: Option<&Path>| log_in(&run_dir, lasting, "home.log");
        let beside = run_dir.join("home.log");
        assert_eq!(log(None), beside);
        assert_eq!(log(Some(&lasting)), lasting.join("home.log"));
        assert_eq!(log(Some(&lasting)), lasting.join("home.log"), "it is there already");
        // The directory is there, and nothing can be written in it.
        std::fs::remove_file(lasting.join("home.log")).unwrap();
        std::fs::create_dir(lasting.join("home.log")).unwrap();
        assert_eq!(log(Some(&lasting)), beside);
        std::fs::remove_dir_all(&lasting).unwrap();
        std::fs::write(&lasting, "").unwrap();
        assert_eq!(log(Some(&lasting)), beside);
        // Those of another directory stay in it, whoever asks.
        assert_eq!(log_path(&run_dir, "home"), run_dir.join("home.log"));
        assert_eq!(existing_log(&run_dir, "home"), None);
        assert!(!beside.exists(), "looking makes no log");
        std::fs::create_dir(&run_dir).unwrap();
        std::fs::write(&beside, "").unwrap();
        assert_eq!(existing_log(&run_dir, "home"), Some(beside));
    }
}
