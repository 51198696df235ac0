//! The stable JSON of measurements: the medians of all rounds. Fields are only ever added.

use std::collections::BTreeSet;
use std::ops::Deref;

use braid_cluster::pipeline::Params;
use serde::{Serialize, Serializer};

use super::RAW;
use super::bounds;
use super::gluster;
use super::setting::{LineRate, Raw, Sample, Setting};
use super::words::{Pattern, Storage, WriteSchedule};
use crate::model::{Found, Run, Spread};

const GIBIBYTE: f64 = (1 << 30) as f64;

/// Measurements of one kind, done several times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ClusterEntry {
    pub(super) case: String,
    /// Array and links as they are typed; in JSON with level and layout as people call them.
    #[serde(flatten, serialize_with = "as_called")]
    pub(super) setting: Setting,
    pub(super) schedule: String,
    /// Pattern as it is typed: write, read, read-1-lost ...
    pub(super) pattern: Pattern,
    pub(super) data_bytes_s: Spread,
    /// Rate of one TCP stream on a link of the same rate, in the same run: the median.
    pub(super) line_bytes_s: f64,
    /// Rate that the links allow, computed beforehand.
    pub(super) bound_bytes_s: Option<f64>,
    /// Sent by clients for writes, received by them for reads; counted on the links.
    pub(super) client_bytes_per_data_byte: Option<f64>,
    /// Exchanged among nodes; counted on the links.
    pub(super) node_bytes_per_data_byte: Option<f64>,
    /// The same, by the schedule.
    pub(super) bound_node_bytes_per_data_byte: Option<f64>,
    pub(super) cpu_s_per_gib: CpuSeconds,
    /// The most memory that any node had in use, since it was started.
    pub(super) node_memory_bytes: Option<u64>,
    /// CPU seconds a second of all nodes together while the line was measured.
    pub(super) idle_nodes_cpu: Option<f64>,
    seconds: f64,
    pub(super) runs: usize,
    /// The files it comes from, seen from the report's folder.
    pub(super) raw: Vec<String>,
}

impl Deref for ClusterEntry {
    type Target = Setting;

    fn deref(&self) -> &Setting {
        &self.setting
    }
}

fn as_called<S: Serializer>(setting: &Setting, to: S) -> Result<S::Ok, S::Error> {
    let level = setting.level_name();
    Setting { level, layout: setting.layout_name(), ..setting.clone() }.serialize(to)
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct CpuSeconds {
    pub(super) client: Option<f64>,
    pub(super) nodes: Option<f64>,
}

/// Reads all entries, in the order in which they were first measured.
pub(super) fn entries(found: &Found) -> Vec<ClusterEntry> {
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    for run in &found.runs {
        let kind = (run.case.as_str(), run.job.as_str());
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let entry = |(case, job): (&str, &str)| {
        let raw = |run: &Run| {
            let raw = serde_json::from_str(&found.text(run, RAW)?).ok()?;
            Some((raw, run.file(RAW)?.to_owned()))
        };
        let (raws, files): (Vec<Raw>, Vec<String>) = found.runs(case, job).filter_map(raw).unzip();
        Some(ClusterEntry { case: case.to_owned(), raw: files, ..entry(&raws)? })
    };
    let mut entries: Vec<ClusterEntry> = kinds.into_iter().filter_map(entry).collect();
    share_lines(&mut entries);
    entries
}

/// Links of the same rate have the same line, so that of all rounds counts: a short one that was
/// disturbed would be wrong for all that is measured beside it.
fn share_lines(entries: &mut [ClusterEntry]) {
    let links: BTreeSet<u64> = entries.iter().filter_map(|entry| entry.link_bit_s).collect();
    for link in links {
        let same = |entry: &&ClusterEntry| entry.link_bit_s == Some(link);
        let lines: Vec<f64> = entries.iter().filter(same).map(|entry| entry.line_bytes_s).collect();
        let Some(Spread { median, .. }) = Spread::of(&lines) else { continue };
        for entry in entries.iter_mut().filter(|entry| entry.link_bit_s == Some(link)) {
            entry.bound_bytes_s = entry.bound_lines().map(|bound| bound * median);
            entry.line_bytes_s = median;
        }
    }
}

/// Makes the entry of measurements of one kind; `None` for none.
fn entry(raws: &[Raw]) -> Option<ClusterEntry> {
    let Raw { setting, schedule, pattern, seconds, .. } = raws.first()?;
    let samples: Vec<Sample> = raws.iter().map(Raw::sample).collect();
    let rates: Vec<f64> = samples.iter().map(|sample| sample.data_bytes_s).collect();
    let median = |of: &dyn Fn(&Sample) -> Option<f64>| median(samples.iter().map(of));
    let per_gib = |seconds: Option<f64>| seconds.map(|seconds| seconds * GIBIBYTE);
    let of_lines =
        |of: &dyn Fn(&LineRate) -> Option<f64>| self::median(raws.iter().map(|raw| of(&raw.line)));
    let line_bytes_s = of_lines(&|line| Some(line.bytes_s))?;
    let made_by = WriteSchedule::ALL.iter().find(|one| one.name() == schedule);
    let made_by = made_by.copied().unwrap_or(WriteSchedule::Client);
    let family = setting.family()?;
    let exchanged = if *pattern == Pattern::Write {
        bounds::exchanged(family, setting.nodes, made_by)
    } else {
        None
    };
    let bound = setting.bound(made_by, *pattern);
    Some(ClusterEntry {
        case: String::new(),
        setting: setting.clone(),
        schedule: schedule.clone(),
        pattern: *pattern,
        data_bytes_s: Spread::of(&rates)?,
        line_bytes_s,
        bound_bytes_s: bound.map(|lines| lines * line_bytes_s),
        client_bytes_per_data_byte: median(&|sample| sample.client_bytes),
        node_bytes_per_data_byte: median(&|sample| sample.node_bytes),
        bound_node_bytes_per_data_byte: exchanged,
        cpu_s_per_gib: CpuSeconds {
            client: per_gib(median(&|sample| sample.client_cpu_s)),
            nodes: per_gib(median(&|sample| sample.nodes_cpu_s)),
        },
        node_memory_bytes: raws.iter().filter_map(|raw| raw.node_memory_bytes).max(),
        idle_nodes_cpu: of_lines(&|line| line.idle_nodes_cpu),
        seconds: *seconds,
        runs: raws.len(),
        raw: Vec::new(),
    })
}

/// `None` when any is missing.
fn median(numbers: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let numbers: Vec<f64> = numbers.collect::<Option<_>>()?;
    Spread::of(&numbers).map(|spread| spread.median)
}

impl ClusterEntry {
    /// The block is the one that an array over so many nodes has if none is typed.
    pub(super) fn has_block_that_suits(&self) -> bool {
        let suits = self.family().and_then(|f| Params::default_chunk_bytes(f, self.nodes).ok());
        suits.map(u64::from) == Some(self.block_bytes)
    }

    /// The same on the same setting, written in another way.
    fn is_beside(&self, other: &Self) -> bool {
        self.setting == other.setting && self.pattern == other.pattern
    }

    /// Finds the same with parity made by the client.
    pub(super) fn client<'a>(&self, all: &'a [Self]) -> Option<&'a Self> {
        all.iter().find(|other| other.schedule == "client" && other.is_beside(self))
    }

    /// Finds the same of GlusterFS, on the same links.
    pub(super) fn gluster<'a>(&self, all: &'a [Self]) -> Option<&'a Self> {
        let beside = gluster::beside(&self.setting);
        let same = |other: &&Self| other.setting == beside && other.pattern == self.pattern;
        all.iter().filter(|other| other.schedule == gluster::NAME).find(same)
    }

    pub(super) fn of_line(&self) -> f64 {
        self.data_bytes_s.median / self.line_bytes_s
    }

    pub(super) fn lines(&self) -> Spread {
        self.data_bytes_s.times(1.0 / self.line_bytes_s)
    }

    /// Rate that the links allow, in lines.
    pub(super) fn bound_lines(&self) -> Option<f64> {
        self.bound_bytes_s.map(|bound| bound / self.line_bytes_s)
    }

    /// Rate by that with parity made by the client.
    pub(super) fn times_client(&self, all: &[Self]) -> Option<f64> {
        if self.schedule == "client" {
            return None;
        }
        let client = self.client(all)?;
        Some(self.data_bytes_s.median / client.data_bytes_s.median)
    }

    /// CPU seconds a second of all clients and nodes together.
    pub(super) fn cores(&self) -> Option<f64> {
        let cpu_s_per_gib = self.cpu_s_per_gib.client? + self.cpu_s_per_gib.nodes?;
        Some(cpu_s_per_gib * self.data_bytes_s.median / GIBIBYTE)
    }

    /// Its parity is made by nodes, all of it.
    pub(super) fn is_made_by_nodes(&self) -> bool {
        matches!(self.schedule.as_str(), "chain" | "static" | "encoder")
    }
}

/// Figures that H. Otsuji and O. Tatebe published of parity made by nodes ("Implementation and
/// evaluation of cluster-wide RAID", University of Tsukuba) of one array, as shares of the link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PublishedFigures {
    array: &'static str,
    nodes: u16,
    /// Share that the client reaches at best when it sends the parity, too: computed.
    pub(super) ceiling: f64,
    /// Factor by which it was more with parity made by nodes.
    pub(super) gain: f64,
}

/// Two data nodes and one for parity: a client that sends the parity is 33 % slower than its link,
/// and "nearly 50 %" came back with every block. Five nodes: 12 blocks of data have 8 of parity,
/// and 38 % over the ceiling was measured.
const PUBLISHED: [PublishedFigures; 2] = [
    PublishedFigures { array: "raid4", nodes: 3, ceiling: 2.0 / 3.0, gain: 1.5 },
    PublishedFigures { array: "raid6 xor2d", nodes: 5, ceiling: 0.6, gain: 1.38 },
];

impl PublishedFigures {
    /// Returns the published figures of the array of an entry, for one client, shaped links and
    /// memory.
    pub(super) fn of(entry: &ClusterEntry) -> Option<Self> {
        let same_test = entry.clients == 1
            && entry.pattern == Pattern::Write
            && entry.storage == Storage::Memory
            && entry.link_bit_s.is_some();
        let same_array = |one: &Self| one.array == entry.array() && one.nodes == entry.nodes;
        if same_test { PUBLISHED.into_iter().find(same_array) } else { None }
    }

    /// Share of the link that was measured there with parity made by nodes.
    pub(super) const fn made_by_nodes(self) -> f64 {
        self.ceiling * self.gain
    }

    /// The share of the link for a schedule; `None` for one that was not tried there.
    pub(super) fn share(self, entry: &ClusterEntry) -> Option<f64> {
        match entry.schedule.as_str() {
            "client" => Some(self.ceiling),
            _ => entry.is_made_by_nodes().then(|| self.made_by_nodes()),
        }
    }

    /// Share that the client loses if it has to send the parity.
    pub(super) fn costs(self) -> f64 {
        1.0 / self.ceiling - 1.0
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::setting::tests::{raw, setting};
    use super::*;

    /// Three rounds, around so many lines.
    pub(in super::super) fn around(setting: &Setting, schedule: &str, lines: f64) -> ClusterEntry {
        let raws = [0.98, 1.0, 1.02].map(|x| raw(setting.clone(), schedule, lines * x));
        let case = format!("{}, {schedule}", setting.name());
        ClusterEntry { case, ..entry(&raws).expect("an entry") }
    }

    #[test]
    fn a_folder_gives_its_entries_back_and_what_is_broken_does_not_count() {
        let folder = tempfile::tempdir().expect("a directory");
        let mut found = Found { folder: folder.path().to_owned(), ..Found::default() };
        for (round, lines) in (0..).zip([0.9, 1.0, 0.8, 7.0]) {
            let file = format!("write.{}.{RAW}", round + 1);
            let text = serde_json::to_string(&raw(setting(), "encoder", lines)).expect("JSON");
            let text = if lines > 1.0 { &text[..100] } else { &text };
            std::fs::write(folder.path().join(&file), text).expect("a file");
            found.runs.push(Run { files: vec![file], ..Run::new("a", "write", round) });
        }
        let entries = entries(&found);
        let [one] = &entries[..] else { panic!("not one entry") };
        assert_eq!(one.data_bytes_s, Spread { median: 54e6, min: 48e6, max: 60e6 });
        assert_eq!((one.runs, one.raw[2].as_str()), (3, "write.3.counted.json"));
        assert_eq!((one.of_line(), one.bound_lines()), (0.9, Some(1.0)));
        assert_eq!(one.bound_node_bytes_per_data_byte.map(|b| (b * 3.0).round()), Some(4.0));
        assert_eq!(one.cpu_s_per_gib.client.map(|cpu_s| (cpu_s * 100.0).round()), Some(2147.0));
    }

    #[test]
    fn a_line_that_was_disturbed_does_not_count() {
        let with_line = |nodes, line: f64, link| {
            let setting = Setting { nodes, link_bit_s: link, ..setting() };
            let entry = around(&setting, "encoder", 0.9);
            ClusterEntry { line_bytes_s: line, bound_bytes_s: link.map(|_| line), ..entry }
        };
        let link = Some(500_000_000);
        let mut entries = [
            with_line(4, 60e6, link),
            with_line(5, 20e6, link),
            with_line(6, 62e6, link),
            with_line(5, 90e6, None),
        ];
        share_lines(&mut entries);
        let lines = entries.each_ref().map(|entry| entry.line_bytes_s);
        assert_eq!(lines, [60e6, 60e6, 60e6, 90e6]);
        assert_eq!(entries[1].bound_bytes_s, Some(60e6));
    }

    #[test]
    fn schedules_are_compared_on_the_same_setting() {
        let other = Setting { nodes: 6, ..setting() };
        let all = [
            around(&other, "client", 0.1),
            around(&setting(), "client", 0.5),
            around(&setting(), "encoder", 1.0),
            around(&gluster::beside(&setting()), "gluster", 0.4),
        ];
        assert_eq!(all[2].times_client(&all).map(|times| (times * 10.0).round()), Some(20.0));
        assert_eq!(all[1].times_client(&all), None);
        assert_eq!(all[2].gluster(&all).map(|entry| entry.nodes), Some(5));
        assert!(all[2].is_made_by_nodes() && !all[3].is_made_by_nodes());
    }
}
