//! Users of a file, a mount or a block device, as far as /proc and /sys let this user see.
//!
//! Only names and numbers are compared. The file itself is neither opened nor looked up: a file
//! system whose process is gone or stopped would not answer.

use std::fmt;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

mod block;
mod locks;
mod mounts;
mod processes;
#[cfg(test)]
mod tests;

use crate::sysfs::BlockDevice;
pub(crate) use block::swaps;
pub use mounts::is_our_mount;
pub(crate) use mounts::{MountLine, Mounts, OURS};
pub use processes::Process;
pub(crate) use processes::{listening, listening_at, with_socket};

/// A user of a file, a mount or a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// A process that has it open, or works in it.
    Process(Process),
    /// A loop device that shows it, with its users.
    Loop {
        /// `/dev/loopN`.
        device: PathBuf,
        /// Its users, as far as known.
        users: Vec<Self>,
    },
    /// A file system that is mounted there.
    Mount(PathBuf),
    /// A device that is made of it (device mapper, md).
    Device(PathBuf),
    /// The kernel, which swaps to it.
    Swap,
    /// A client on a TCP connection.
    Peer(SocketAddr),
    /// A process that cannot be seen from here, such as one in another container.
    Unseen,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(process) => write!(f, "{process}"),
            Self::Loop { device, users } if users.is_empty() => write!(f, "{}", device.display()),
            Self::Loop { device, users } => {
                write!(f, "{} ({})", device.display(), listed(users))
            }
            Self::Mount(at) => write!(f, "a file system mounted on {}", at.display()),
            Self::Device(device) => write!(f, "{}", device.display()),
            Self::Swap => f.write_str("swap"),
            Self::Peer(address) => write!(f, "the client at {address}"),
            Self::Unseen => f.write_str(UNSEEN),
        }
    }
}

impl User {
    /// Returns the file systems on top of it, however deep.
    pub(crate) fn mounts(&self) -> Vec<&Path> {
        match self {
            Self::Mount(at) => vec![at],
            Self::Loop { users, .. } => users.iter().flat_map(Self::mounts).collect(),
            _ => Vec::new(),
        }
    }
}

const UNSEEN: &str = "somebody who cannot be seen from here";

/// More than these are counted only.
const LISTED: usize = 4;

/// All of them in one line: `a, b and c`.
#[must_use]
pub fn listed(users: &[User]) -> String {
    let mut words: Vec<String> = users.iter().take(LISTED).map(User::to_string).collect();
    if users.len() > LISTED {
        words.push(format!("{} more", users.len() - LISTED));
    }
    match words.split_last() {
        None => UNSEEN.to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// Describes the holder of a file's lock (flock).
#[must_use]
pub fn lock_holder(file: &File, path: &Path) -> String {
    lock_holders(file, path).first().map_or_else(|| UNSEEN.to_owned(), Process::to_string)
}

/// Returns the holders of a file's lock (flock): the processes that took it, or else those that
/// have the file open.
#[must_use]
pub fn lock_holders(file: &File, path: &Path) -> Vec<Process> {
    let alive = lockers(file);
    // The process that took a lock may have ended and left it to a child.
    if !alive.is_empty() {
        return alive;
    }
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let others = |process: &Process| process.pid != std::process::id();
    processes::using(|open| open == real).filter(others).collect()
}

/// The processes that have locked a file (flock) and are still there.
#[must_use]
pub fn lockers(file: &File) -> Vec<Process> {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let holders = file.metadata().map_or_else(|_| Vec::new(), |data| locks::holders(&locks, &data));
    holders.into_iter().map(Process::of).filter(Process::is_known).collect()
}

/// Returns the users of the file system mounted on `mountpoint`, which is its real path.
#[must_use]
pub fn of_mount(mountpoint: &Path) -> Vec<User> {
    let mounts = Mounts::read();
    let mut users = block::loops_on(&mounts, |file| file.starts_with(mountpoint));
    users.extend(mounts.copies(mountpoint).into_iter().map(User::Mount));
    users.extend(processes::using(|path| path.starts_with(mountpoint)).map(User::Process));
    users
}

/// Returns the users of the block device of this name.
pub(crate) fn of_device(name: &str) -> Vec<User> {
    BlockDevice::called(name).map_or_else(Vec::new, |device| block::of(&device))
}
