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

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Stdio;

use braid_array::Refusal;
use braid_host::size;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::leftovers::{Guard, Leftover};
use super::spaces::{self, MAX_HOSTS, SpaceHost, inside, namespace};
use crate::failure::{About, Failure};
use crate::tool::Tool;

const BURST: &str = "burst 128kb cburst 128kb quantum 60000";
/// Next step where something of it cannot be made.
const CHECK: &str = "check that the kernel has it";
/// Queue for each peer; what overflows it is dropped.
const QUEUE_BYTES: u32 = 1 << 20;
/// Bytes that a link has carried since the lab is up, as its network devices count: the headers of
/// a segment that the kernel hands down in one piece count once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes that the host sent.
    pub sent: u64,
    /// Bytes that it received.
    pub received: u64,
}

/// Blueprint of a lab.
#[derive(Clone, Debug, Args)]
pub struct Blueprint {
    /// Name of the lab: letters and digits
    pub name: String,
    /// Hosts n0, n1 ...
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub nodes: u16,
    /// Hosts c0, c1 ...
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub clients: u16,
    /// Rate of every link, in bits a second [default: as fast as it goes]
    #[arg(long = "link", value_name = "RATE", value_parser = parse_rate)]
    pub link_bit_s: Option<u64>,
}

/// Reads a rate in bits a second. The error says what would have been right.
pub fn parse_rate(text: &str) -> Result<u64, Refusal> {
    let plain = text.strip_suffix("bit").unwrap_or(text);
    // Units of a rate are powers of 1000, as those of a size in bytes are.
    let unit = if plain.ends_with(|last: char| last.is_ascii_alphabetic()) { "B" } else { "" };
    let rate = size::parse(&format!("{plain}{unit}")).ok();
    rate.filter(|rate| (1_000_000..=1_000_000_000_000).contains(rate))
        .ok_or_else(|| Refusal::new("not a rate from 1M to 1000G bits a second", "write 500M, say"))
}

/// A lab that is up; it is taken down when this goes.
#[derive(Debug)]
pub struct Lab {
    name: String,
    guard: Guard,
}

impl Lab {
    /// Brings it up. Needs root and iproute2.
    pub fn up(blueprint: &Blueprint) -> Result<Self, Failure> {
        let name = &blueprint.name;
        let refuse =
            |reason: &str, next: &'static str| Err(Failure::refused(called(name), reason, next));
        if name.is_empty() || name.len() > 32 || !name.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return refuse("not a name for a lab", "use up to 32 letters and digits");
        }
        let fits = |hosts: u16| (1..=MAX_HOSTS).contains(&hosts);
        if !fits(blueprint.clients) || !fits(blueprint.nodes) {
            return refuse("too many hosts or too few", "use 1 to 64 clients and nodes");
        }
        if !rustix::process::geteuid().is_root() {
            let next = "become root, or measure on loopback";
            return Err(Failure::gap(called(name), "network namespaces need root", next));
        }
        if !spaces::of_lab(name).is_empty() {
            return refuse("it is up already", "take it down, or use another name");
        }
        let lab = Self { name: name.clone(), guard: Guard::new(Leftover::Lab(name.clone())) };
        blueprint.build()?;
        Ok(lab)
    }

    /// Name of the lab.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Leaves it up.
    pub fn keep(self) {
        self.guard.keep();
    }
}

impl Blueprint {
    /// Its clients, then its nodes.
    pub fn hosts(&self) -> Vec<SpaceHost> {
        let clients = (0..self.clients).map(SpaceHost::Client);
        clients.chain((0..self.nodes).map(SpaceHost::Node)).collect()
    }

    fn build(&self) -> Result<(), Failure> {
        let name = &self.name;
        let hosts = self.hosts();
        let switch = namespace(name, "sw");
        let mut add = format!("netns add {switch}\n");
        for host in &hosts {
            let _ = writeln!(add, "netns add {}", namespace(&self.name, host));
        }
        self.batch("ip", None, &add)?;
        for space in hosts.iter().map(|host| namespace(&self.name, host)) {
            inside(&space, quiet).about(called(name), CHECK)?;
        }
        inside(&switch, quiet).about(called(name), CHECK)?;
        self.batch("ip", Some(&switch), &self.bridge(&hosts))?;
        let mut ports = String::new();
        for host in &hosts {
            let space = namespace(&self.name, host);
            self.batch("ip", Some(&space), &link(*host, &hosts))?;
            if let Some(rate) = self.link_bit_s {
                self.batch("tc", Some(&space), &shape("eth0", rate, "dst", &hosts))?;
                ports += &shape(&format!("p-{host}"), rate, "src", &hosts);
            }
        }
        self.batch("tc", Some(&switch), &ports)
    }

    fn bridge(&self, hosts: &[SpaceHost]) -> String {
        let mut script = String::from(
            "link set lo up\n\
             link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
             link set br0 up\n",
        );
        for host in hosts {
            let space = namespace(&self.name, host);
            let mac = mac(*host);
            let _ = write!(
                script,
                "link add p-{host} type veth peer name eth0 address {mac} netns {space}\n\
                 link set p-{host} master br0\nlink set p-{host} up\n"
            );
        }
        script
    }

    /// Runs a script of `ip` or `tc`.
    fn batch(&self, tool: &str, space: Option<&str>, script: &str) -> Result<(), Failure> {
        let mut command = Tool::find(tool, "iproute2")?.command();
        command.args(space.map(|space| ["-n", space]).iter().flatten()).args(["-batch", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let output = command.spawn().and_then(|mut child| {
            // A tool that ends early says why on its stderr.
            let _ = child.stdin.take().map(|mut stdin| stdin.write_all(script.as_bytes()));
            child.wait_with_output()
        });
        let output = output.about(called(&self.name), CHECK)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let reason =
            format!("{tool} refuses: {}", said.lines().next().unwrap_or("no reason given"));
        Err(Failure::refused(called(&self.name), reason, CHECK))
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

/// A lab in a failure.
fn called(name: &str) -> String {
    format!("lab {name}")
}

/// The address of a host's link. All know all of them: what the kernel finds out by itself goes
/// into one table for all namespaces, which is too small for what 32 hosts know of each other.
fn mac(host: SpaceHost) -> String {
    let [.., kind, number] = host.address().octets();
    format!("02:00:00:00:{kind:02x}:{number:02x}")
}

fn link(host: SpaceHost, hosts: &[SpaceHost]) -> String {
    let ip = host.address();
    let mut script = format!("link set lo up\naddr add {ip}/16 dev eth0\nlink set eth0 up\n");
    for other in hosts.iter().filter(|other| **other != host) {
        let ip = other.address();
        let mac = mac(*other);
        let _ = writeln!(script, "neigh add {ip} lladdr {mac} dev eth0 nud permanent");
    }
    script
}

/// The script that shapes a device; `key` is the address that tells the peer of a packet.
fn shape(device: &str, rate: u64, key: &str, hosts: &[SpaceHost]) -> String {
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

/// Reads what the links of a lab have carried.
pub fn traffic(name: &str) -> io::Result<Vec<(SpaceHost, Traffic)>> {
    let counters = || fs::read_to_string("/proc/thread-self/net/dev");
    let mut found = parse_counters(&inside(&namespace(name, "sw"), counters)?);
    found.sort_unstable_by_key(|&(host, _)| host);
    Ok(found)
}

/// The ports of the bridge in the kernel's table of network devices. A port receives what its host
/// sends.
fn parse_counters(table: &str) -> Vec<(SpaceHost, Traffic)> {
    let port = |line: &str| {
        let (device, numbers) = line.split_once(':')?;
        let host = device.trim().strip_prefix("p-")?.parse().ok()?;
        let number = |place| numbers.split_whitespace().nth(place)?.parse().ok();
        Some((host, Traffic { sent: number(0)?, received: number(8)? }))
    };
    table.lines().filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        for (text, rate) in [("500M", 500_000_000), ("1.5g", 1_500_000_000), ("2000000", 2_000_000)]
        {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        assert_eq!(parse_rate("500mbit"), Ok(500_000_000));
        for text in ["", "M", "0", "1K", "-5M", "+5M", "5 M", "2000G", "99999999999999999G"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_port_receives_what_its_host_sends() {
        let table = "Inter-|   Receive          |  Transmit\n face |bytes    packets |bytes\n    \
            lo:       5       1    0    0    0     0          0         0        6 1 0 0\n  \
            p-c0: 1000 2 0 0 0 0 0 0 70 1 0 0 0 0 0 0\n  \
            p-n0:70 1 0 0 0 0 0 0 1000 2 0 0 0 0 0 0\n";
        let found = parse_counters(table);
        let expected = [
            (SpaceHost::Client(0), Traffic { sent: 1000, received: 70 }),
            (SpaceHost::Node(0), Traffic { sent: 70, received: 1000 }),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn every_host_knows_all_others() {
        let hosts = [SpaceHost::Client(0), SpaceHost::Node(0), SpaceHost::Node(1)];
        let script = link(hosts[0], &hosts);
        assert_eq!(script.matches("neigh add").count(), 2);
        assert!(script.contains("neigh add 10.77.1.2 lladdr 02:00:00:00:01:02 dev eth0"));
    }

    #[test]
    fn every_peer_has_a_class_of_its_own() {
        let hosts = [SpaceHost::Client(0), SpaceHost::Node(0), SpaceHost::Node(1)];
        let script = shape("eth0", 500_000_000, "dst", &hosts);
        assert_eq!(script.matches("filter add").count(), 3);
        assert!(script.contains("rate 125000000bit ceil 500000000bit"), "{script}");
        assert!(script.contains("match ip dst 10.77.1.2/32 flowid 1:12"), "{script}");
    }
}
