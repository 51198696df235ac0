//! Commands to a running array: a Unix socket in the run directory, one for each array.
//!
//! The directory is `/run/braid` for root, `$XDG_RUNTIME_DIR/braid` for others, unless
//! `BRAID_RUN_DIR` or the caller says otherwise. Whoever may connect may do everything, so the
//! socket is its owner's alone.

use std::fs::{DirBuilder, File};
use std::io::{self, BufRead, Read};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

mod add;
mod client;
mod server;
mod verbs;
pub mod wire;

pub use client::{Client, ControlError, list, member_path};
pub use server::{Server, StopRequest, Told};
pub use verbs::Served;

const SUFFIX: &str = ".sock";

/// The directory in which the sockets of running arrays lie: the one given, else `BRAID_RUN_DIR`,
/// else the user's own.
#[must_use]
pub fn run_dir(given: Option<&Path>) -> PathBuf {
    let from = |variable| std::env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from);
    let user = rustix::process::geteuid();
    let own = || {
        if user.is_root() {
            return PathBuf::from("/run/braid");
        }
        from("XDG_RUNTIME_DIR").map_or_else(
            || std::env::temp_dir().join(format!("braid-{}", user.as_raw())),
            |dir| dir.join("braid"),
        )
    };
    let dir = given.map(Path::to_owned).or_else(|| from("BRAID_RUN_DIR")).unwrap_or_else(own);
    std::path::absolute(&dir).unwrap_or(dir)
}

/// Where the control socket of an array lies.
#[must_use]
pub fn socket_path(run_dir: &Path, name: &str) -> PathBuf {
    run_dir.join(format!("{name}{SUFFIX}"))
}

/// May an array have this name? It becomes a file name.
#[must_use]
pub fn valid_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && !name.chars().any(|c| c == '/' || c.is_control())
}

/// Makes the run directory where it is missing, and checks that nobody else could have made it.
///
/// # Errors
/// When the directory cannot be made, or is somebody else's.
pub fn make_run_dir(dir: &Path) -> io::Result<()> {
    let user = rustix::process::geteuid();
    let mode = if user.is_root() { 0o755 } else { 0o700 };
    DirBuilder::new().recursive(true).mode(mode).create(dir)?;
    if std::fs::metadata(dir)?.uid() != user.as_raw() && !user.is_root() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "belongs to another user"));
    }
    Ok(())
}

/// Listens on a Unix socket that only its owner may connect to. The socket file of a process that
/// died is replaced; one that somebody still listens on is `AddrInUse`.
///
/// # Errors
/// When the socket cannot be made.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    // Two that start at once must not both find the old socket dead.
    let _guard = lock_directory(path)?;
    if !remove_stale(path)? {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Nobody can connect before `listen`.
    rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)?;
    rustix::net::listen(&socket, 128)?;
    Ok(UnixListener::from(socket))
}

/// Holds the directory of a socket file until the guard is dropped.
fn lock_directory(path: &Path) -> io::Result<File> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let guard = File::open(directory.unwrap_or_else(|| Path::new(".")))?;
    rustix::fs::flock(&guard, FlockOperation::LockExclusive)?;
    Ok(guard)
}

/// Removes a socket file that nobody listens on. Is the path free then, rather than listened on?
fn remove_stale(path: &Path) -> io::Result<bool> {
    match UnixStream::connect(path) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            std::fs::remove_file(path)?;
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// Does a process listen on this array's socket? Removes the file when not.
fn is_running(run_dir: &Path, name: &str) -> bool {
    let path = socket_path(run_dir, name);
    match UnixStream::connect(&path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // Asked again under the lock: it may just be starting. What cannot be removed is of
            // no consequence.
            lock_directory(&path).and_then(|_guard| remove_stale(&path)).is_ok_and(|free| !free)
        }
        other => other.is_ok(),
    }
}

/// Reads a line of at most `wire::MAX_LINE_BYTES`, without its end. `None` at the end of input.
fn read_line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let limit = wire::MAX_LINE_BYTES as u64 + 1;
    if from.take(limit).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.pop() == Some(b'\n') {
        return Ok(Some(line));
    }
    let message = "a line without an end";
    Err(io::Error::new(io::ErrorKind::InvalidData, message))
}

#[cfg(test)]
mod tests;
