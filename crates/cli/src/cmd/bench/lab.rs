//! A lab on one machine: clients and nodes, each in a network namespace of its own, on one bridge
//! in another. Nothing is added to the network of the machine, and no way leads out of the lab.
//!
//! ```text
//!     c0 eth0 ──── p-c0 ┐                    every link has the same rate in both directions:
//!     n0 eth0 ──── p-n0 ┤ bridge (sw)        what a host sends is shaped at its own end,
//!     n1 eth0 ──── p-n1 ┘                    what it receives at the bridge's end
//! ```
//!
//! Links are shaped by htb with a class for each peer, each of which may borrow the whole rate, so
//! that the streams of a link share it equally, as they would in a switch. Bursts are longer than
//! the longest segment that the kernel hands down in one piece (64 KiB), which it would otherwise
//! cut up at ten times the CPU time. Rates count Ethernet headers.

use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::leftovers::{Guard, Leftover};
use crate::failure::{Failure, system_error};

const NAMESPACES: &str = "/run/netns";
/// Labs of processes are called after them.
const PROCESS: &str = "bench";
const BURST: &str = "burst 128kb cburst 128kb quantum 60000";
/// For each peer: what overflows it is dropped.
const QUEUE_BYTES: u32 = 1 << 20;
/// As many clients, and as many nodes.
pub(super) const MAX_HOSTS: u16 = 64;

/// A machine of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Host {
    /// `c0`, `c1` ...
    Client(u16),
    /// `n0`, `n1` ...
    Node(u16),
}

impl Host {
    /// Its address, the same in every lab.
    pub(super) const fn address(self) -> Ipv4Addr {
        match self {
            Self::Client(number) => Ipv4Addr::new(10, 77, 0, number as u8 + 1),
            Self::Node(number) => Ipv4Addr::new(10, 77, 1, number as u8 + 1),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(number) => write!(f, "c{number}"),
            Self::Node(number) => write!(f, "n{number}"),
        }
    }
}

impl FromStr for Host {
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

/// What a link has carried since the lab is up, as its network devices count: the headers of a
/// segment that the kernel hands down in one piece count once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    /// Bytes that the host sent.
    pub(super) sent: u64,
    /// Bytes that it received.
    pub(super) received: u64,
}

/// What a lab looks like.
#[derive(Clone, Debug)]
pub(super) struct Blueprint {
    pub(super) name: String,
    pub(super) clients: u16,
    pub(super) nodes: u16,
    /// Of every link, in bits a second; `None`: as fast as it goes.
    pub(super) link_bit_s: Option<u64>,
}

/// A lab that is up; it is taken down when this goes.
#[derive(Debug)]
pub(super) struct Lab {
    name: String,
    guard: Guard,
}

impl Lab {
    /// Brings it up. Needs root and iproute2.
    pub(super) fn up(blueprint: &Blueprint) -> Result<Self, Failure> {
        let name = &blueprint.name;
        let refuse =
            |reason: &str, next: &'static str| Err(Failure::refused("lab", name, reason, next));
        if name.is_empty() || name.len() > 32 || !name.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return refuse("not a name for a lab", "use up to 32 letters and digits");
        }
        let fits = |hosts: u16| (1..=MAX_HOSTS).contains(&hosts);
        if !fits(blueprint.clients) || !fits(blueprint.nodes) {
            return refuse("too many hosts or too few", "use 1 to 64 clients and nodes");
        }
        if !rustix::process::geteuid().is_root() {
            return refuse("network namespaces need root", "become root, or measure on loopback");
        }
        if !namespaces(name).is_empty() {
            return refuse("it is up already", "take it down, or use another name");
        }
        let lab = Self { name: name.clone(), guard: Guard::new(Leftover::Lab(name.clone())) };
        blueprint.build()?;
        Ok(lab)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Leaves it up.
    pub(super) fn keep(self) {
        self.guard.keep();
    }
}

impl Blueprint {
    pub(super) fn hosts(&self) -> Vec<Host> {
        let clients = (0..self.clients).map(Host::Client);
        clients.chain((0..self.nodes).map(Host::Node)).collect()
    }

    fn build(&self) -> Result<(), Failure> {
        let hosts = self.hosts();
        let switch = namespace(&self.name, "sw");
        let mut add = format!("netns add {switch}\n");
        for host in &hosts {
            let _ = writeln!(add, "netns add {}", namespace(&self.name, host));
        }
        self.batch("ip", None, &add)?;
        for space in hosts.iter().map(|host| namespace(&self.name, host)) {
            inside(&space, quiet).map_err(|error| self.system(&error))?;
        }
        inside(&switch, quiet).map_err(|error| self.system(&error))?;
        self.batch("ip", Some(&switch), &self.bridge(&hosts))?;
        let mut ports = String::new();
        for host in &hosts {
            let space = namespace(&self.name, host);
            let links = format!(
                "link set lo up\naddr add {}/16 dev eth0\nlink set eth0 up\n",
                host.address()
            );
            self.batch("ip", Some(&space), &links)?;
            if let Some(rate) = self.link_bit_s {
                self.batch("tc", Some(&space), &shape("eth0", rate, "dst", &hosts))?;
                ports += &shape(&format!("p-{host}"), rate, "src", &hosts);
            }
        }
        self.batch("tc", Some(&switch), &ports)
    }

    fn bridge(&self, hosts: &[Host]) -> String {
        let mut script = String::from(
            "link set lo up\n\
             link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
             link set br0 up\n",
        );
        for host in hosts {
            let space = namespace(&self.name, host);
            let _ = write!(
                script,
                "link add p-{host} type veth peer name eth0 netns {space}\n\
                 link set p-{host} master br0\nlink set p-{host} up\n"
            );
        }
        script
    }

    /// Runs a script of `ip` or `tc`.
    fn batch(&self, tool: &str, space: Option<&str>, script: &str) -> Result<(), Failure> {
        let mut command = Command::new(tool);
        command.args(space.map(|space| ["-n", space]).iter().flatten()).args(["-batch", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut run = || {
            let mut child = command.spawn()?;
            // A tool that ends early says why on its stderr.
            let _ = child.stdin.take().map(|mut stdin| stdin.write_all(script.as_bytes()));
            child.wait_with_output()
        };
        let output = run().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let reason = format!("there is no command {tool}");
                Failure::refused("lab", &self.name, reason, "install the package iproute2")
            }
            _ => self.system(&error),
        })?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let reason =
            format!("{tool} refuses: {}", said.lines().next().unwrap_or("no reason given"));
        Err(Failure::refused("lab", &self.name, reason, "check that the kernel has it"))
    }

    fn system(&self, error: &io::Error) -> Failure {
        Failure::refused("lab", &self.name, system_error(error), "check that the kernel has it")
    }
}

/// Settings of a new namespace: no IPv6, which talks by itself, and a congestion control whose
/// streams share a link equally.
fn quiet() -> io::Result<()> {
    let off = |name: &str| fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
    if Path::new("/proc/sys/net/ipv6").exists() {
        off("all")?;
        off("default")?;
    }
    fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno")
}

/// The script that shapes a device; `key` is the address that tells the peer of a packet.
fn shape(device: &str, rate: u64, key: &str, hosts: &[Host]) -> String {
    let share = (rate / (hosts.len() as u64 + 1)).max(8);
    let class = |parent: &str, id: &str, rate: u64, ceil: u64| {
        format!(
            "class add dev {device} parent {parent} classid 1:{id} \
             htb rate {rate}bit ceil {ceil}bit {BURST}\n"
        )
    };
    // Class f takes what no filter does, such as ARP.
    let mut script = format!("qdisc add dev {device} root handle 1: htb default f\n");
    script += &class("1:", "1", rate, rate);
    script += &class("1:1", "f", share, rate);
    for (number, host) in (0x10..).zip(hosts) {
        let id = format!("{number:x}");
        script += &class("1:1", &id, share, rate);
        let _ = write!(
            script,
            "qdisc add dev {device} parent 1:{id} bfifo limit {QUEUE_BYTES}\n\
             filter add dev {device} parent 1: protocol ip prio 1 u32 \
             match ip {key} {}/32 flowid 1:{id}\n",
            host.address()
        );
    }
    script
}

/// What the links of a lab have carried.
pub(super) fn traffic(name: &str) -> io::Result<Vec<(Host, Traffic)>> {
    let counters = || fs::read_to_string("/proc/thread-self/net/dev");
    let mut found = parse_counters(&inside(&namespace(name, "sw"), counters)?);
    found.sort_unstable_by_key(|&(host, _)| host);
    Ok(found)
}

/// The ports of the bridge in the kernel's table of network devices. A port receives what its host
/// sends.
fn parse_counters(table: &str) -> Vec<(Host, Traffic)> {
    let port = |line: &str| {
        let (device, numbers) = line.split_once(':')?;
        let host = device.trim().strip_prefix("p-")?.parse().ok()?;
        let number = |place| numbers.split_whitespace().nth(place)?.parse().ok();
        Some((host, Traffic { sent: number(0)?, received: number(8)? }))
    };
    table.lines().filter_map(port).collect()
}

/// Takes a lab down: ends what runs in it, and removes it. What cannot be removed stays.
pub(super) fn take_down(name: &str) {
    for space in namespaces(name) {
        for pid in running_in(&space) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = Command::new("ip").args(["netns", "del", &space]).stderr(Stdio::null()).status();
    }
}

/// The name of the lab of a process.
pub(super) fn name_of(pid: u32) -> String {
    format!("{PROCESS}{pid}")
}

/// Takes down the labs of processes that are gone: a signal they could not catch has ended them.
pub(super) fn take_down_orphans() {
    for space in namespaces_named(|_| true) {
        let name = space.strip_suffix("-sw").unwrap_or("");
        let pid = name.strip_prefix(PROCESS).and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            take_down(name);
        }
    }
}

/// Moves the calling thread into a host of a lab.
pub(super) fn enter(name: &str, host: Host) -> io::Result<()> {
    enter_namespace(&namespace(name, host))
}

fn enter_namespace(space: &str) -> io::Result<()> {
    let file = File::open(Path::new(NAMESPACES).join(space))?;
    Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Does something in a namespace, on a thread that goes there.
fn inside<T: Send>(space: &str, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let visit = || enter_namespace(space).and_then(|()| act());
    let gone = || io::Error::other("a thread panicked");
    thread::scope(|scope| scope.spawn(visit).join().unwrap_or_else(|_| Err(gone())))
}

fn namespace(name: &str, host: impl fmt::Display) -> String {
    format!("{name}-{host}")
}

/// The namespaces of a lab.
fn namespaces(name: &str) -> Vec<String> {
    namespaces_named(|space| {
        let host = space.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
        host.is_some_and(|host| host == "sw" || host.parse::<Host>().is_ok())
    })
}

fn namespaces_named(wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let entries = fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<String> = names.filter(|name| wanted(name)).collect();
    found.sort();
    found
}

/// The processes of a host.
pub(super) fn processes(name: &str, host: Host) -> Vec<Pid> {
    running_in(&namespace(name, host))
}

fn running_in(space: &str) -> Vec<Pid> {
    let identity = |path: PathBuf| fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    let Some(wanted) = identity(Path::new(NAMESPACES).join(space)) else { return Vec::new() };
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
        for host in [Host::Client(0), Host::Node(12), Host::Node(63)] {
            assert_eq!(host.to_string().parse(), Ok(host));
        }
        for text in ["", "c", "x1", "n64", "n01", "n+1", "n-1", "sw", "é1"] {
            assert!(text.parse::<Host>().is_err(), "{text}");
        }
        assert_eq!(Host::Client(0).address().to_string(), "10.77.0.1");
        assert_eq!(Host::Node(4).address().to_string(), "10.77.1.5");
    }

    #[test]
    fn a_port_receives_what_its_host_sends() {
        let table = "Inter-|   Receive          |  Transmit\n face |bytes    packets |bytes\n    \
            lo:       5       1    0    0    0     0          0         0        6 1 0 0\n  \
            p-c0: 1000 2 0 0 0 0 0 0 70 1 0 0 0 0 0 0\n  \
            p-n0:70 1 0 0 0 0 0 0 1000 2 0 0 0 0 0 0\n";
        let found = parse_counters(table);
        let expected = [
            (Host::Client(0), Traffic { sent: 1000, received: 70 }),
            (Host::Node(0), Traffic { sent: 70, received: 1000 }),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn every_peer_has_a_class_of_its_own() {
        let hosts = [Host::Client(0), Host::Node(0), Host::Node(1)];
        let script = shape("eth0", 500_000_000, "dst", &hosts);
        assert_eq!(script.matches("filter add").count(), 3);
        assert!(script.contains("rate 125000000bit ceil 500000000bit"), "{script}");
        assert!(script.contains("match ip dst 10.77.1.2/32 flowid 1:12"), "{script}");
    }
}
