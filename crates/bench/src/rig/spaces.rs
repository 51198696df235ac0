//! The network namespaces of a lab, one for each host and one for the switch between them: entered,
//! looked into, and removed with what runs in them.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

const NAMESPACES: &str = "/run/netns";
/// Most clients, and most nodes.
pub const MAX_HOSTS: u16 = 64;

/// A machine of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum SpaceHost {
    /// `c0`, `c1` ...
    Client(u16),
    /// `n0`, `n1` ...
    Node(u16),
}

impl SpaceHost {
    /// Its address, the same in every lab.
    pub const fn address(self) -> Ipv4Addr {
        match self {
            Self::Client(number) => Ipv4Addr::new(10, 77, 0, number as u8 + 1),
            Self::Node(number) => Ipv4Addr::new(10, 77, 1, number as u8 + 1),
        }
    }
}

impl fmt::Display for SpaceHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(number) => write!(f, "c{number}"),
            Self::Node(number) => write!(f, "n{number}"),
        }
    }
}

impl From<SpaceHost> for String {
    fn from(host: SpaceHost) -> Self {
        host.to_string()
    }
}

impl TryFrom<String> for SpaceHost {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for SpaceHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| digits.parse().ok().filter(|&number| number < MAX_HOSTS);
        let host = match text.split_at_checked(1) {
            Some(("c", digits)) => number(digits).map(Self::Client),
            Some(("n", digits)) => number(digits).map(Self::Node),
            _ => None,
        };
        host.filter(|host| host.to_string() == text)
            .ok_or_else(|| format!("no host '{text}'; clients are c0, c1 ..., nodes n0, n1 ..."))
    }
}

/// Takes a lab down: ends what runs in it, and removes it. Whether nothing of it stays.
pub fn take_down(name: &str) -> bool {
    for space in of_lab(name) {
        for pid in running_in(&space) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = Command::new("ip").args(["netns", "del", &space]).stderr(Stdio::null()).status();
    }
    of_lab(name).is_empty()
}

/// File that stands for a namespace.
pub(super) fn file(space: &str) -> PathBuf {
    Path::new(NAMESPACES).join(space)
}

/// Calls `act` in a namespace, on a thread that enters it.
pub(super) fn inside<T: Send>(
    space: &str,
    act: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let visit = || {
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(File::open(file(space))?.as_fd(), network)?;
        act()
    };
    let gone = || io::Error::other("a thread panicked");
    thread::scope(|scope| scope.spawn(visit).join().unwrap_or_else(|_| Err(gone())))
}

pub(super) fn namespace(name: &str, host: impl fmt::Display) -> String {
    format!("{name}-{host}")
}

pub(super) fn of_lab(name: &str) -> Vec<String> {
    let entries = fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<String> = names.filter(|space| belongs(space, name)).collect();
    found.sort();
    found
}

fn belongs(space: &str, name: &str) -> bool {
    let host = space.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
    host.is_some_and(|host| host == "sw" || host.parse::<SpaceHost>().is_ok())
}

/// The processes of a host.
pub fn processes(name: &str, host: SpaceHost) -> Vec<Pid> {
    running_in(&namespace(name, host))
}

fn running_in(space: &str) -> Vec<Pid> {
    let identity = |path: PathBuf| fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    let Some(wanted) = identity(file(space)) else { return Vec::new() };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pid = |entry: fs::DirEntry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        (identity(entry.path().join("ns/net"))? == wanted).then_some(pid)
    };
    processes.filter_map(pid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_as_they_are_written() {
        for host in [SpaceHost::Client(0), SpaceHost::Node(12), SpaceHost::Node(63)] {
            assert_eq!(host.to_string().parse(), Ok(host));
        }
        for text in ["", "c", "x1", "n64", "n01", "n+1", "n-1", "sw", "é1"] {
            assert!(text.parse::<SpaceHost>().is_err(), "{text}");
        }
        assert_eq!(SpaceHost::Client(0).address().to_string(), "10.77.0.1");
        assert_eq!(SpaceHost::Node(4).address().to_string(), "10.77.1.5");
    }

    #[test]
    fn namespaces_are_told_apart_by_lab() {
        assert!(belongs("bench7-sw", "bench7") && belongs("bench7-n12", "bench7"));
        assert!(!belongs("bench77-sw", "bench7") && !belongs("bench7-other", "bench7"));
    }
}
