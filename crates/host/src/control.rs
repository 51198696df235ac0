//! Commands to a running array: a Unix socket in the run directory, one for each array.
//!
//! A user that may connect may do everything, so only the owner has access to the socket.

use std::io::{self, BufRead, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Gid, Mode, Uid};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

use crate::access::Access;
use crate::handover::{self, Handover, What};
use crate::run_dir::{self, connect, socket};

mod add;
mod add_node;
mod circle;
mod client;
mod connections;
mod news;
mod replace;
mod rooms;
mod served;
mod server;
mod spill;
mod verbs;
pub mod wire;

pub use crate::run_dir::{beside, make_run_dir, run_dir, socket_path};
pub use client::{ANSWER_WITHIN, Client, ControlError, list, member_path, sockets};
pub use news::News;
pub use served::{ExportChange, NextProgram, Served, Shown, StopAnswer, StopRequest};
pub use server::{ControlServer, say_ended, say_upgraded};

/// Reason for which a socket is not listened on.
#[derive(Debug)]
pub(crate) enum ListenError {
    /// Creating it failed. `AddrInUse`: another process listens there. `TimedOut`: another process
    /// holds the lock of the run directory.
    Socket(io::Error),
    /// Setting its owner or group failed.
    Owner(io::Error),
}

impl From<io::Error> for ListenError {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

impl From<Errno> for ListenError {
    fn from(error: Errno) -> Self {
        Self::Socket(error.into())
    }
}

/// Listens on a Unix socket that may be connected to as `access` says, by its owner alone as a
/// rule. The socket file of a process that died is replaced. Others that start serving from the
/// same run directory wait meanwhile, wherever the socket is.
///
/// # Errors
/// [`ListenError`].
pub(crate) fn listen(
    run_dir: &Path,
    path: &Path,
    access: &Access,
) -> Result<(UnixListener, SocketFile), ListenError> {
    if let Some(socket) = handover::take(&What::Socket(path.to_owned())) {
        // It has listened all the time, also where somebody has taken its file away.
        let listener = UnixListener::from(socket);
        let mut file = SocketFile::of(path, &listener)?;
        file.inherited = true;
        return Ok((listener, file));
    }
    // Two that start at once must not both find the old socket dead.
    let _guard = run_dir::lock(run_dir)?;
    if !remove_stale(path)? {
        return Err(ListenError::Socket(io::ErrorKind::AddrInUse.into()));
    }
    let socket = socket()?;
    // The file gets no more than the socket has, so it begins as its owner's alone. The umask would
    // do as much, but for all threads of the process at once. A kernel that refuses this leaves
    // what follows.
    let _ = rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR);
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    let socket = UnixListener::from(socket);
    let file = SocketFile::of(path, &socket)?;
    // Nobody can connect before `listen`, whatever the file says. The mode comes last all the same:
    // the owner and group before these have no use of it.
    let owner = access.owner().map(Uid::from_raw);
    let group = access.group().map(Gid::from_raw);
    if owner.is_some() || group.is_some() {
        rustix::fs::chownat(CWD, path, owner, group, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| ListenError::Owner(error.into()))?;
    }
    rustix::fs::chmod(path, Mode::from_raw_mode(access.mode()))?;
    rustix::net::listen(&socket, 128)?;
    Ok((socket, file))
}

/// Socket file of a listening socket; removed on drop, unless another process's file has taken its
/// place.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode of that file; `None` where there is none.
    made: Option<(u64, u64)>,
    /// The socket, to be handed over.
    listener: UnixListener,
    /// Inherited from the previous program.
    inherited: bool,
}

impl SocketFile {
    fn of(path: &Path, listener: &UnixListener) -> io::Result<Self> {
        let listener = listener.try_clone()?;
        let made = match file_number(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            number => Some(number?),
        };
        Ok(Self { path: path.to_owned(), made, listener, inherited: false })
    }

    /// Returns whether the previous program may still get the socket back.
    pub(crate) fn is_on_loan(&self) -> bool {
        self.inherited && handover::is_pending()
    }

    /// Gives the socket to the process that comes after this one.
    pub(crate) fn hand_over(&self, to: &mut Handover) -> io::Result<()> {
        to.give(What::Socket(self.path.clone()), self.listener.try_clone()?.into());
        Ok(())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_on_loan() {
            return;
        }
        if file_number(&self.path).is_ok_and(|there| Some(there) == self.made) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn file_number(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Timeout where no process can be expected to be slow.
const MOMENT: Duration = Duration::from_millis(100);

/// Removes a socket file that is not listened on. Returns whether the path is free then.
fn remove_stale(path: &Path) -> io::Result<bool> {
    match connect(path, MOMENT) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
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

/// Returns whether a process listens on this array's socket, as far as can be told. Removes the
/// file if not.
fn is_running(run_dir: &Path, name: &str) -> bool {
    let path = socket_path(run_dir, name);
    match connect(&path, MOMENT) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // Asked again under the lock: it may just be starting. Who only looks waits for
            // nobody, and what cannot be removed is of no consequence.
            let free = run_dir::try_lock(run_dir).and_then(|_guard| remove_stale(&path));
            free.is_ok_and(|free| !free)
        }
        Err(error) => error.kind() != io::ErrorKind::NotFound,
        Ok(_) => true,
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
