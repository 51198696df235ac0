//! Options of the comparison, and its cases.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use braid_cluster::pipeline::Params;
use braid_host::size;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::gluster;
use super::rig::MeasurementKind;
use super::setting::Setting;
use super::words::{Pattern, Policy, Storage, WriteSchedule};
use crate::model::{Group, Job};
use crate::rig::lab::parse_rate;

const LINK_BIT_S: u64 = 500_000_000;
/// Seconds that a measurement takes beside its length: clients start, and their rate becomes
/// steady.
const AROUND_S: f64 = 1.3;
/// The same for the line.
const AROUND_LINE_S: f64 = 0.5;
/// Seconds to start the nodes, and for each of them.
const START_S: (f64, f64) = (0.4, 0.04);
const START_GLUSTER_S: f64 = 15.0;

/// Options of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterOptions {
    /// Measured one after the other.
    pub sweeps: Vec<ClusterSweep>,
    /// Length of one measurement, after it has warmed up.
    pub seconds: f64,
    /// Number of rounds.
    pub runs: u16,
}

/// Settings that differ in what is varied, as they are typed and kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Args)]
pub struct ClusterSweep {
    /// Level: 0 1 4 5 6 10 [default: the arrays that were published, and more nodes]
    #[arg(long, short, value_name = "LEVEL", default_value = "", hide_default_value = true)]
    #[arg(requires = "nodes", conflicts_with_all = ["quick", "members"])]
    pub level: String,
    /// Layout [default: xor2d for level 6, else as braid create has it]
    #[arg(long, short = 'p', value_name = "LAYOUT", requires = "level")]
    pub layout: Option<String>,
    /// How many nodes; several numbers are measured one after the other
    #[arg(long, short = 'n', value_name = "N", value_delimiter = ',', requires = "level")]
    pub nodes: Vec<u16>,
    /// How many clients, each with a volume of its own
    #[arg(long, value_name = "K", value_delimiter = ',', default_value = "1")]
    #[arg(requires = "level", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub clients: Vec<u16>,
    /// The array's chunk [default: the one that suits the array]
    #[arg(long = "block", value_name = "SIZE", value_delimiter = ',', requires = "level")]
    #[arg(value_parser = size::parse)]
    pub block_bytes: Vec<u64>,
    /// What the arrays do about unclean stops; several are compared
    #[arg(long, value_name = "POLICY", value_delimiter = ',', default_value = "resync")]
    #[arg(requires = "level")]
    #[serde(default = "resync")]
    pub policies: Vec<Policy>,
    /// Where the nodes keep their volumes
    #[arg(long, value_name = "STORAGE", value_delimiter = ',', default_value = "memory")]
    #[arg(requires = "level")]
    pub storage: Vec<Storage>,
    /// How data travels: tcp, ofi or ofi:PROVIDER
    #[arg(long, value_name = "FABRIC", default_value = "tcp", requires = "level")]
    pub fabric: String,
    /// Rate of every link, in both directions, in bits a second; K, M, G are powers of 1000
    /// [default: loopback, as fast as it goes]
    #[arg(long = "link", value_name = "RATE", value_parser = parse_rate, requires = "level")]
    pub link_bit_s: Option<u64>,
    /// What to compare
    #[arg(long, value_name = "SCHEDULE", value_delimiter = ',', requires = "level")]
    #[arg(default_value = "client,chain,encoder")]
    pub schedules: Vec<WriteSchedule>,
    /// Patterns measured beside writes, with one schedule: they do not depend on it.
    #[arg(skip)]
    pub others: Vec<Pattern>,
    /// A dispersed volume of GlusterFS beside it.
    #[arg(skip)]
    pub gluster: bool,
}

/// Case: an array with the schedule of its writes; without one, GlusterFS.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClusterCase {
    pub(super) setting: Setting,
    pub(super) schedule: Option<WriteSchedule>,
}

impl fmt::Display for ClusterCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let made_by = self.schedule.map_or(gluster::NAME, WriteSchedule::name);
        write!(f, "{}, {made_by}", self.setting.name())
    }
}

impl ClusterCase {
    /// The command that measures it, as it would be typed.
    pub(super) fn command(&self, kind: MeasurementKind, seconds: f64) -> String {
        let Self { setting, schedule } = self;
        let made_by = schedule.map_or("client --against gluster", WriteSchedule::name);
        let Setting { level, nodes, clients, block_bytes, policy, storage, fabric, .. } = setting;
        let mut words = vec![format!("braid bench cluster --level {level}")];
        if let (Some(layout), Some(_)) = (&setting.layout, schedule) {
            words.push(format!("--layout {layout}"));
        }
        words.push(format!("--nodes {nodes}"));
        words.extend(schedule.map(|_| format!("--block {}", size::typed(*block_bytes))));
        if *policy != Policy::Resync {
            words.push(format!("--policies {policy}"));
        }
        words.push(format!("--clients {clients} --storage {storage} --fabric {fabric}"));
        words.extend(setting.link_bit_s.map(|rate| format!("--link {}M", rate / 1_000_000)));
        let option = kind.pattern.facts().option;
        words.push(format!("--schedules {made_by} --seconds {seconds}{option}"));
        words.join(" ")
    }
}

impl ClusterSweep {
    /// Every array there is.
    pub fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        for &storage in &self.storage {
            for &nodes in &self.nodes {
                for &clients in &self.clients {
                    let setting = |block_bytes| Setting {
                        level: self.level.clone(),
                        layout: self.layout.clone(),
                        nodes,
                        clients,
                        block_bytes,
                        policy: self.policies.first().copied().unwrap_or(Policy::Resync),
                        storage,
                        fabric: self.fabric.clone(),
                        link_bit_s: self.link_bit_s,
                    };
                    let blocks = match setting(0).family() {
                        Some(family) if self.block_bytes.is_empty() => {
                            let chunk = Params::default_chunk_bytes(family, nodes);
                            chunk.map_or_else(|_| Vec::new(), |chunk| vec![u64::from(chunk)])
                        }
                        Some(_) => self.block_bytes.clone(),
                        None => Vec::new(),
                    };
                    settings.extend(blocks.into_iter().map(setting));
                }
            }
        }
        settings
    }

    /// Returns the cases of a pattern. Writes are made with every schedule, the rest with one.
    fn cases(&self, setting: &Setting, pattern: Pattern) -> Vec<ClusterCase> {
        let mut schedules = self.schedules.clone();
        schedules.retain(|&schedule| setting.has(schedule));
        if pattern != Pattern::Write {
            let encoder = schedules.contains(&WriteSchedule::Encoder);
            schedules.retain(|&schedule| !encoder || schedule == WriteSchedule::Encoder);
            let starts = !pattern.leaves_some_behind() || setting.starts_without(pattern.lost());
            schedules.truncate(usize::from(setting.survives(pattern.survived()) && starts));
        }
        let ours = schedules.into_iter().flat_map(|schedule| {
            let with = |&policy| Setting { policy, ..setting.clone() };
            let settings = self.policies.iter().map(with).filter(Setting::has_policy);
            settings.map(move |setting| ClusterCase { setting, schedule: Some(schedule) })
        });
        let mut cases: Vec<ClusterCase> = ours.collect();
        let comparable = setting.nodes == gluster::NODES && setting.clients == 1;
        if self.gluster && comparable && matches!(pattern, Pattern::Write | Pattern::Read) {
            cases.push(ClusterCase { setting: gluster::beside(setting), schedule: None });
        }
        cases
    }

    /// Patterns that are measured on the same cases make one group.
    fn groups(&self, setting: &Setting) -> Vec<(Vec<Pattern>, Vec<ClusterCase>)> {
        let mut groups: Vec<(Vec<Pattern>, Vec<ClusterCase>)> = Vec::new();
        for pattern in [Pattern::Write].into_iter().chain(self.others.iter().copied()) {
            let cases = self.cases(setting, pattern);
            match groups.last_mut() {
                Some((patterns, same)) if *same == cases => patterns.push(pattern),
                _ => groups.push((vec![pattern], cases)),
            }
        }
        groups.retain(|(_, cases)| !cases.is_empty());
        groups
    }
}

impl ClusterOptions {
    /// The published arrays over three blocks, and three numbers of nodes: less than a minute.
    pub fn quick() -> Self {
        let blocks = || vec![16 << 10, 64 << 10, 256 << 10];
        let sweeps = vec![
            ClusterSweep { block_bytes: blocks(), ..two_and_one(&[WriteSchedule::Chain]) },
            ClusterSweep { block_bytes: blocks(), ..five(&[WriteSchedule::Encoder]) },
            ClusterSweep { nodes: vec![4, 9, 34], ..five(&[WriteSchedule::Encoder]) },
        ];
        Self { sweeps, seconds: 0.5, runs: 1 }
    }

    /// Everything: blocks, nodes, clients, reads, disks, and another file system.
    pub fn full() -> Self {
        let made_by_nodes = [WriteSchedule::Chain, WriteSchedule::Encoder];
        let block_bytes: Vec<u64> = [4, 16, 64, 256, 512].map(|kib| kib << 10).into();
        let nodes = vec![4, 5, 6, 9, 12, 16, 24, 34];
        // What is compared beyond blocks and numbers of nodes has one block.
        let alike = |made_by| ClusterSweep { block_bytes: vec![64 << 10], ..five(made_by) };
        let on_disk = |sweep| ClusterSweep { storage: vec![Storage::Disk], ..sweep };
        let others = Pattern::ALL[1..8].to_vec();
        let small = vec![Pattern::Write4k, Pattern::Write4kDurable];
        let policies = vec![Policy::Bitmap, Policy::Ppl, Policy::Journal];
        let schedules = vec![WriteSchedule::Encoder];
        let read = ClusterSweep { others: vec![Pattern::Read], ..alike(&made_by_nodes) };
        let kept = ClusterSweep { others: small, policies, schedules, ..alike(&[]) };
        let mixed = alike(&[WriteSchedule::Encoder, WriteSchedule::Mix]);
        let sweeps = vec![
            ClusterSweep { block_bytes: block_bytes.clone(), ..two_and_one(&made_by_nodes) },
            ClusterSweep { block_bytes, ..five(&made_by_nodes) },
            ClusterSweep { nodes, ..five(&made_by_nodes) },
            ClusterSweep { others, gluster: shapes(), ..alike(&made_by_nodes) },
            on_disk(read),
            on_disk(kept),
            ClusterSweep { clients: vec![1, 2, 3, 4], ..mixed },
        ];
        Self { sweeps, seconds: 2.0, runs: 3 }
    }

    /// See [`crate::model::Comparison::groups`]. Settings common to several sweeps are measured
    /// once.
    pub(super) fn groups(&self) -> Vec<Group> {
        let mut known: BTreeSet<(String, Pattern)> = BTreeSet::new();
        let mut groups = Vec::new();
        for sweep in &self.sweeps {
            for setting in sweep.settings() {
                for (patterns, mut cases) in sweep.groups(&setting) {
                    cases.retain(|case| {
                        let new = |&pattern: &Pattern| known.insert((case.to_string(), pattern));
                        patterns.iter().map(new).fold(false, |any, new| any | new)
                    });
                    if !cases.is_empty() {
                        groups.push(self.group(&setting, &patterns, &cases));
                    }
                }
            }
        }
        groups
    }

    fn group(&self, setting: &Setting, patterns: &[Pattern], cases: &[ClusterCase]) -> Group {
        let ours = cases.iter().filter(|case| case.schedule.is_some()).count();
        let start = START_S.0 + START_S.1 * f64::from(setting.nodes);
        let starts =
            start * f64::from(u8::from(ours > 0)) + START_GLUSTER_S * (cases.len() - ours) as f64;
        let measurements = (patterns.len() * cases.len()) as f64;
        let line = (self.seconds.min(1.0) + AROUND_LINE_S) / measurements;
        let takes = Duration::from_secs_f64((self.seconds + AROUND_S + line).clamp(0.0, 1e6));
        let job = |pattern: &Pattern| Job { name: pattern.name().to_owned(), takes };
        Group {
            title: setting.name(),
            cases: cases.iter().map(ClusterCase::to_string).collect(),
            jobs: patterns.iter().map(job).collect(),
            rounds: self.runs,
            set_up: Duration::from_secs_f64(starts / cases.len() as f64),
        }
    }

    pub(super) fn cases(&self) -> Vec<ClusterCase> {
        let of_sweep = |sweep: &ClusterSweep| {
            let groups = sweep.settings().into_iter().flat_map(|setting| sweep.groups(&setting));
            groups.flat_map(|(_, cases)| cases).collect::<Vec<ClusterCase>>()
        };
        self.sweeps.iter().flat_map(of_sweep).collect()
    }
}

/// Policy of measurements from before there was a choice.
fn resync() -> Vec<Policy> {
    vec![Policy::Resync]
}

/// Links can be shaped by root alone.
fn shapes() -> bool {
    rustix::process::geteuid().is_root()
}

fn five(made_by_nodes: &[WriteSchedule]) -> ClusterSweep {
    ClusterSweep {
        level: "6".to_owned(),
        layout: Some("xor2d".to_owned()),
        nodes: vec![5],
        clients: vec![1],
        block_bytes: Vec::new(),
        policies: resync(),
        storage: vec![Storage::Memory],
        fabric: "tcp".to_owned(),
        link_bit_s: shapes().then_some(LINK_BIT_S),
        schedules: [&[WriteSchedule::Client], made_by_nodes].concat(),
        others: Vec::new(),
        gluster: false,
    }
}

fn two_and_one(made_by_nodes: &[WriteSchedule]) -> ClusterSweep {
    ClusterSweep { level: "4".to_owned(), layout: None, nodes: vec![3], ..five(made_by_nodes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(options: &ClusterOptions) -> u64 {
        options.groups().iter().map(|group| group.takes().as_secs()).sum()
    }

    #[test]
    fn the_short_form_has_what_was_published_and_is_short() {
        let quick = ClusterOptions::quick();
        assert!(seconds(&quick) <= 50, "{} s", seconds(&quick));
        let groups = quick.groups();
        let sizes: Vec<u16> = quick.sweeps.iter().flat_map(|sweep| sweep.nodes.clone()).collect();
        assert_eq!((groups.len(), sizes), (9, vec![3, 5, 4, 9, 34]));
        assert!(groups.iter().all(|group| group.cases.len() == 2), "client and nodes");
        assert!(groups[0].cases[1].starts_with("raid4, 3 nodes, 16K, "), "{:?}", groups[0]);
        assert!(seconds(&ClusterOptions::full()) > 10 * seconds(&quick));
    }

    #[test]
    fn what_does_not_depend_on_the_schedule_is_measured_with_one() {
        let sweep = ClusterSweep {
            others: vec![Pattern::Read, Pattern::ReadOneLost, Pattern::ReadTwoLost],
            ..two_and_one(&[WriteSchedule::Chain, WriteSchedule::Encoder])
        };
        let groups = ClusterOptions { sweeps: vec![sweep], seconds: 1.0, runs: 1 }.groups();
        let shape = |group: &Group| (group.cases.len(), group.jobs.len());
        // Without two of its nodes the array cannot be read.
        assert_eq!(groups.iter().map(shape).collect::<Vec<_>>(), [(3, 1), (1, 2)]);
    }

    #[test]
    fn a_case_says_how_it_is_measured() {
        let mut case = ClusterOptions::quick().cases().swap_remove(1);
        case.setting.link_bit_s = Some(LINK_BIT_S);
        let schedule = case.schedule.expect("one of ours");
        let kind = MeasurementKind { pattern: Pattern::Read, schedule };
        let expected = "braid bench cluster --level 4 --nodes 3 --block 16K --clients 1 \
            --storage memory --fabric tcp --link 500M --schedules chain --seconds 0.5 --reads";
        assert_eq!(case.command(kind, 0.5), expected);
    }
}
