//! Processes and the files they have open, as listed in /proc (proc(5)). Only root sees those of
//! other users' processes.

use std::fmt;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its program, where known.
    pub program: Option<String>,
}

impl Process {
    /// The process of this id.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).ok();
        Self { pid, program: program.map(|name| name.trim_end().to_owned()) }
    }

    /// Returns whether there is such a process, as far as can be seen.
    pub(super) const fn is_known(&self) -> bool {
        self.program.is_some()
    }

    /// Returns whether it has been stopped (SIGSTOP, a debugger).
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        // The state comes after the name in parentheses, which may contain anything.
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        state.starts_with(['T', 't'])
    }

    /// Returns the process at the other end of a Unix socket: the one that connected, or that
    /// listened. `None` where that cannot be seen from here.
    #[must_use]
    pub fn at_other_end(socket: &impl AsFd) -> Option<Self> {
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).ok()?;
        let fd = socket.as_fd().as_raw_fd();
        let to = (&raw mut peer).cast();
        // SAFETY: `to` points to `len` bytes of `peer`, which takes any bit pattern.
        let got =
            unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, to, &mut len) };
        let pid = u32::try_from(peer.pid).ok().filter(|pid| got == 0 && *pid > 0)?;
        Some(Self::of(pid))
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.program {
            Some(program) => write!(f, "{program} (process {})", self.pid),
            None => write!(f, "process {}", self.pid),
        }
    }
}

/// The processes that have a file open of which `is_it` holds, or work in such a directory.
pub(super) fn using(is_it: impl Fn(&Path) -> bool) -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(move |pid| paths_of(*pid).any(|path| is_it(&path))).map(Process::of)
}

/// Returns the files that a process has open, its working directory and its root.
fn paths_of(pid: u32) -> impl Iterator<Item = PathBuf> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let places = ["cwd", "root"].map(|place| process.join(place));
    open.map(|entry| entry.path()).chain(places).filter_map(|link| fs::read_link(link).ok())
}

/// The Unix sockets with a path on which a process listens.
#[must_use]
pub(crate) fn listening_at(pid: u32) -> Vec<PathBuf> {
    let own: Vec<String> =
        paths_of(pid).filter_map(|link| Some(socket_inode(link.to_str()?)?.to_owned())).collect();
    let sockets = listening(|_| true).into_iter();
    sockets.filter(|(inode, _)| own.contains(inode)).map(|(_, path)| path).collect()
}

/// Returns the listening Unix sockets at a path for which `is_it` holds, whether there is a file at
/// it or not; each with its inode.
pub(crate) fn listening(is_it: impl Fn(&Path) -> bool) -> Vec<(String, PathBuf)> {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let found = sockets.lines().skip(1).filter_map(listening_socket);
    found.filter(|(_, path)| is_it(path)).map(|(inode, path)| (inode.to_owned(), path)).collect()
}

/// The process that has a socket open.
pub(crate) fn with_socket(inode: &str) -> Option<Process> {
    using(|path| path.to_str().and_then(socket_inode) == Some(inode)).next()
}

/// `socket:[123]`.
fn socket_inode(link: &str) -> Option<&str> {
    link.strip_prefix("socket:[")?.strip_suffix(']')
}

/// A line of /proc/net/unix: the inode and the path of a socket that is listened on.
/// `0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/a b.sock`
pub(super) fn listening_socket(line: &str) -> Option<(&str, PathBuf)> {
    const ACCEPTS: &str = "00010000";
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.trim_start().split_once(' ')?;
        rest = after;
        Some(word)
    };
    let words = [word()?, word()?, word()?, word()?, word()?, word()?, word()?];
    let [_, _, _, flags, _, _, inode] = words;
    (flags == ACCEPTS && rest.starts_with('/')).then(|| (inode, PathBuf::from(rest)))
}
