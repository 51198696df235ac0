//! An array over nodes as it is set up to be measured, and what is counted while it is.

use braid_array::level::{Layout, Level};
use braid_cluster::Family;
use braid_cluster::family::XOR2D_NAME;
use braid_cluster::view::majority;
use serde::{Deserialize, Serialize};

use super::bounds;
use super::words::{Pattern, Policy, Storage, WriteSchedule};
use crate::compare::words::size;
use crate::rig::lab::Traffic;
use crate::rig::spaces::SpaceHost;

/// Name of the layout of a dispersed GlusterFS volume: any code that survives two losses and is
/// made by the client has its bounds.
pub(super) const DISPERSE: &str = "disperse";

/// The array, and what it is on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Setting {
    /// Name as it is typed.
    pub level: String,
    /// Layout as it is typed; `None`: as `braid create` has it.
    pub layout: Option<String>,
    /// Count.
    pub nodes: u16,
    /// Each with a volume of its own.
    pub clients: u16,
    /// The array's chunk.
    pub block_bytes: u64,
    /// Policy after an unclean stop.
    #[serde(default = "resync")]
    pub policy: Policy,
    /// Places of nodes' volumes.
    pub storage: Storage,
    /// Fabric: `tcp`, `ofi` ...
    pub fabric: String,
    /// Rate of every link, in both directions, in bits a second; `None`: loopback, as fast as it
    /// goes.
    pub link_bit_s: Option<u64>,
}

/// Policy of measurements from before there was a choice.
pub(super) const fn resync() -> Policy {
    Policy::Resync
}

/// Counters of one measurement, before and after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Raw {
    pub(super) setting: Setting,
    /// One of [`WriteSchedule`], or `gluster`.
    pub(super) schedule: String,
    pub(super) pattern: Pattern,
    /// Length that was meant, after it had warmed up.
    pub(super) seconds: f64,
    /// Line in the same round.
    pub(super) line: LineRate,
    pub(super) clients: Vec<Done>,
    pub(super) before: Counters,
    pub(super) after: Counters,
    /// The most memory that any node has used so far.
    pub(super) node_memory_bytes: Option<u64>,
}

/// Work of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Answered within the measurement.
    pub window_bytes: u64,
    /// Length of the measurement.
    pub window_seconds: f64,
    /// Answered from the beginning to the end.
    pub total_bytes: u64,
}

/// Rate of one plain TCP stream on the same link, and what nodes did meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LineRate {
    pub(super) bytes_s: f64,
    /// Cores.
    pub(super) idle_nodes_cpu: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Counters {
    /// Traffic by link; `None` where links are not counted.
    pub(super) traffic: Option<Vec<(SpaceHost, Traffic)>>,
    /// CPU seconds.
    pub(super) clients_cpu_s: Option<f64>,
    pub(super) nodes_cpu_s: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) data_bytes_s: f64,
    /// Bytes on all clients' links, in the direction in which the data go, for each byte of data.
    pub(super) client_bytes: Option<f64>,
    /// Among nodes.
    pub(super) node_bytes: Option<f64>,
    /// CPU seconds for each byte of data.
    pub(super) client_cpu_s: Option<f64>,
    pub(super) nodes_cpu_s: Option<f64>,
}

impl Setting {
    /// The code of the array; `None` if there is none of this name over so many nodes.
    pub fn family(&self) -> Option<Family> {
        let level: Level = self.level.parse().ok()?;
        let family = match self.layout.as_deref() {
            Some(XOR2D_NAME | DISPERSE) if level == Level::Raid6 => Family::Xor2d,
            Some(name) => Family::Md { level, layout: Layout::parse(level, name).ok()? },
            None => Family::Md { level, layout: Layout::default_for(level) },
        };
        family.code(self.nodes, 0).ok().map(|_| family)
    }

    /// The name of its layout, for people.
    pub fn layout_name(&self) -> Option<String> {
        match self.layout.as_deref() {
            Some(DISPERSE) => Some(DISPERSE.to_owned()),
            _ => self.family()?.layout_name(),
        }
    }

    /// Data of a stripe.
    pub fn stripe_bytes(&self) -> u64 {
        let code = self.family().and_then(|family| family.code(self.nodes, 0).ok());
        code.map_or(1, |code| code.data().len() as u64) * self.block_bytes
    }

    /// Returns what the links allow, in lines; `None` where they are no limit, and where there is
    /// no such schedule.
    pub fn bound(&self, schedule: WriteSchedule, pattern: Pattern) -> Option<f64> {
        // Loopback has no links.
        self.link_bit_s?;
        match pattern {
            Pattern::Write => bounds::write(self.family()?, self.nodes, schedule, self.clients),
            Pattern::Write4k | Pattern::Write4kDurable => None,
            // Each byte is sent once, whoever is lost.
            Pattern::WriteOneLost | Pattern::WriteTwoLost | Pattern::WriteAlone => {
                (self.clients == 1).then_some(1.0)
            }
            // One link carries what its node gets.
            Pattern::Rebuild => Some(1.0),
            read => bounds::read(self.family()?, self.nodes, read.lost(), self.clients),
        }
    }

    /// Returns whether it can be written in this way.
    pub fn has(&self, schedule: WriteSchedule) -> bool {
        self.family().is_some_and(|family| bounds::has(family, self.nodes, schedule))
    }

    /// Returns whether it can be repaired in this way.
    pub(super) fn has_policy(&self) -> bool {
        self.family().is_some_and(|family| match self.policy {
            Policy::Resync => true,
            Policy::Bitmap | Policy::Journal => family.is_redundant(),
            Policy::Ppl => family.has_parities(),
        })
    }

    /// Returns whether all can be read without so many nodes.
    pub fn survives(&self, lost: u16) -> bool {
        self.family().is_some_and(|family| bounds::survives(family, self.nodes, lost))
    }

    /// Returns whether enough nodes are left to vote without so many.
    pub(super) fn starts_without(&self, lost: u16) -> bool {
        usize::from(self.nodes - lost) >= majority(self.nodes.into())
    }

    /// `raid6`.
    pub(super) fn level_name(&self) -> String {
        let level = self.level.parse::<Level>();
        level.map_or_else(|_| self.level.clone(), |level| level.name().to_owned())
    }

    /// `raid6 xor2d`.
    pub fn array(&self) -> String {
        let words = [Some(self.level_name()), self.layout_name()];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// `raid6 xor2d, 5 nodes, 64K, 500 Mbit/s`: what tells it from all others.
    pub fn name(&self) -> String {
        let mut words = vec![self.array(), number(self.nodes, "node")];
        if self.layout.as_deref() != Some(DISPERSE) {
            words.push(size(self.block_bytes));
        }
        if self.clients != 1 {
            words.push(number(self.clients, "client"));
        }
        if self.policy != Policy::Resync {
            words.push(self.policy.name().to_owned());
        }
        if self.storage == Storage::Disk {
            words.push("on disk".to_owned());
        }
        if self.fabric != "tcp" {
            words.push(self.fabric.clone());
        }
        words.push(link(self.link_bit_s));
        words.join(", ")
    }
}

impl Raw {
    /// Computes what happened between the two counts.
    pub(super) fn sample(&self) -> Sample {
        let total: f64 = self.clients.iter().map(|done| done.total_bytes as f64).sum();
        let total = total.max(1.0);
        let rate = |done: &Done| done.window_bytes as f64 / done.window_seconds.max(f64::EPSILON);
        let mut to_nodes = 0.0;
        let mut to_clients = 0.0;
        let mut by_nodes = 0.0;
        let before = &self.before;
        let after = &self.after;
        let both = after.traffic.iter().flatten().zip(before.traffic.iter().flatten());
        for ((host, after), (_, before)) in both {
            let sent = after.sent.saturating_sub(before.sent) as f64;
            let received = after.received.saturating_sub(before.received) as f64;
            match host {
                SpaceHost::Client(_) => {
                    (to_nodes, to_clients) = (to_nodes + sent, to_clients + received);
                }
                SpaceHost::Node(_) => by_nodes += sent,
            }
        }
        let counted = |bytes: f64| after.traffic.is_some().then_some(bytes / total);
        let each = |before, after| difference(before, after).map(|cpu_s| cpu_s / total);
        Sample {
            data_bytes_s: self.clients.iter().map(rate).sum(),
            client_bytes: counted(if self.pattern.reads() { to_clients } else { to_nodes }),
            // Whatever nodes send and clients do not receive goes to other nodes.
            node_bytes: counted(by_nodes - to_clients),
            client_cpu_s: each(before.clients_cpu_s, after.clients_cpu_s),
            nodes_cpu_s: each(before.nodes_cpu_s, after.nodes_cpu_s),
        }
    }
}

/// Returns the growth of a counter that only grows.
pub(super) fn difference(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    Some((after? - before?).max(0.0))
}

/// `1 node`, `5 nodes`.
pub(super) fn number(count: u16, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    }
}

/// `500 Mbit/s`.
pub(super) fn link(bit_s: Option<u64>) -> String {
    bit_s.map_or_else(|| "loopback".to_owned(), |rate| format!("{} Mbit/s", rate / 1_000_000))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Five nodes on shaped links.
    pub(in super::super) fn setting() -> Setting {
        Setting {
            level: "raid6".into(),
            layout: Some("xor2d".into()),
            nodes: 5,
            clients: 1,
            block_bytes: 256 << 10,
            policy: Policy::Resync,
            storage: Storage::Memory,
            fabric: "tcp".into(),
            link_bit_s: Some(500_000_000),
        }
    }

    /// A measurement as it would be counted, at so many lines.
    pub(in super::super) fn raw(setting: Setting, schedule: &str, lines: f64) -> Raw {
        let counters = |sent: u64, cpu| Counters {
            traffic: setting.link_bit_s.map(|_| {
                let traffic = |sent, received| Traffic { sent, received };
                vec![
                    (SpaceHost::Client(0), traffic(sent, sent / 50)),
                    (SpaceHost::Node(0), traffic(sent * 4 / 5, sent * 3 / 5)),
                    (SpaceHost::Node(1), traffic(sent / 25, sent * 6 / 5)),
                ]
            }),
            clients_cpu_s: Some(cpu),
            nodes_cpu_s: Some(2.0 * cpu),
        };
        let window_bytes = (lines * 60e6) as u64;
        Raw {
            setting: setting.clone(),
            schedule: schedule.to_owned(),
            pattern: Pattern::Write,
            seconds: 1.0,
            line: LineRate { bytes_s: 60e6, idle_nodes_cpu: Some(0.0) },
            clients: vec![Done { window_bytes, window_seconds: 1.0, total_bytes: 100_000_000 }],
            before: counters(0, 1.0),
            after: counters(100_000_000, 3.0),
            node_memory_bytes: Some(100 << 20),
        }
    }

    #[test]
    fn what_nodes_send_goes_to_clients_or_to_other_nodes() {
        let write = raw(setting(), "encoder", 1.0);
        let expected = Sample {
            data_bytes_s: 60e6,
            client_bytes: Some(1.0),
            node_bytes: Some(0.82),
            client_cpu_s: Some(2e-8),
            nodes_cpu_s: Some(4e-8),
        };
        assert_eq!(write.sample(), expected);
        let read = Raw { pattern: Pattern::Read, ..write.clone() };
        assert_eq!(read.sample().client_bytes, Some(0.02));
        let mut unseen = write;
        unseen.after.traffic = None;
        assert_eq!(unseen.sample().client_bytes, None);
    }

    #[test]
    fn counters_are_kept_as_they_were_counted() {
        let written = raw(setting(), "encoder", 0.5);
        let text = serde_json::to_string(&written).expect("JSON");
        assert!(text.contains(r#"["n1",{"sent":4000000,"received":120000000}]"#), "{text}");
        assert_eq!(serde_json::from_str::<Raw>(&text).expect("the same"), written);
    }

    #[test]
    fn a_setting_has_a_name_and_a_code_or_none() {
        let setting = setting();
        assert_eq!(setting.name(), "raid6 xor2d, 5 nodes, 256K, 500 Mbit/s");
        assert_eq!(setting.stripe_bytes(), (12 * 256) << 10);
        let ppl = Setting { policy: Policy::Ppl, ..setting.clone() };
        assert_eq!(ppl.name(), "raid6 xor2d, 5 nodes, 256K, ppl, 500 Mbit/s");
        assert!(setting.survives(2) && setting.has(WriteSchedule::Mix));
        let mirror = Setting { level: "10".into(), layout: Some("n2".into()), ..setting.clone() };
        assert_eq!(mirror.array(), "raid10 near=2");
        let none = Setting { nodes: 3, ..setting.clone() };
        assert_eq!((none.family(), none.stripe_bytes() > 0), (None, true));
        let several =
            Setting { clients: 2, storage: Storage::Disk, link_bit_s: None, ..setting.clone() };
        assert_eq!(several.name(), "raid6 xor2d, 5 nodes, 256K, 2 clients, on disk, loopback");
        assert_eq!(several.bound(WriteSchedule::Client, Pattern::Write), None);
        let bound = setting.bound(WriteSchedule::Client, Pattern::Write).expect("a bound");
        assert!((bound - 0.6).abs() < 1e-9);
    }
}
