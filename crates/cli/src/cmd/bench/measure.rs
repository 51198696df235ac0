//! Measurements of one array: what is compared takes turns, so that whatever else the machine does
//! meanwhile falls on all alike.

use braid_cluster::Family;

use super::bounds;
use super::results::{CpuSeconds, Entry, Spread};
use crate::args::{PatternName, StorageName, WriteSchedule, typed};
use crate::failure::Failure;

const GIBIBYTE: f64 = (1 << 30) as f64;

/// The array, and what it is on.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) family: Family,
    pub(super) layout: Option<String>,
    pub(super) nodes: u16,
    pub(super) clients: u16,
    pub(super) block_bytes: u64,
    pub(super) storage: StorageName,
    pub(super) fabric: String,
    pub(super) link_bit_s: Option<u64>,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) pattern: PatternName,
    pub(super) schedule: WriteSchedule,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Data of all clients.
    pub(super) data_bytes_s: f64,
    /// On all clients' links, in the direction in which the data go, for each byte of data.
    pub(super) client_bytes: Option<f64>,
    /// Among nodes.
    pub(super) node_bytes: Option<f64>,
    /// For each byte of data.
    pub(super) client_cpu_s: Option<f64>,
    pub(super) nodes_cpu_s: Option<f64>,
}

/// The line, and what nodes did meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) bytes_s: f64,
    /// Cores.
    pub(super) idle_nodes_cpu: Option<f64>,
}

/// Where measurements are made.
pub(super) trait Rig {
    /// Measures the line, with the nodes idle.
    fn line(&mut self) -> Result<Line, Failure>;
    /// Makes one measurement.
    fn sample(&mut self, kind: Kind) -> Result<Sample, Failure>;
    /// The most memory that any node has used.
    fn node_memory_bytes(&self) -> Option<u64>;
}

/// Measures all kinds `runs` times, taking turns.
pub(super) fn measure(
    rig: &mut dyn Rig,
    setting: &Setting,
    kinds: &[Kind],
    runs: u16,
    seconds: f64,
) -> Result<Vec<Entry>, Failure> {
    let mut lines = Vec::new();
    let mut samples = vec![Vec::new(); kinds.len()];
    for _ in 0..runs {
        lines.push(rig.line()?);
        for (kind, samples) in kinds.iter().zip(&mut samples) {
            samples.push(rig.sample(*kind)?);
        }
    }
    let median = |of: &dyn Fn(&Line) -> Option<f64>| median(lines.iter().map(of));
    let line = median(&|line| Some(line.bytes_s)).unwrap_or(0.0);
    let idle_nodes_cpu = median(&|line| line.idle_nodes_cpu);
    let node_memory_bytes = rig.node_memory_bytes();
    let entry = |(kind, samples): (&Kind, &Vec<Sample>)| {
        let mut entry = setting.entry(*kind, samples, line)?;
        (entry.node_memory_bytes, entry.idle_nodes_cpu) = (node_memory_bytes, idle_nodes_cpu);
        (entry.runs, entry.seconds) = (runs, seconds);
        Some(entry)
    };
    Ok(kinds.iter().zip(&samples).filter_map(entry).collect())
}

/// `None` when any is missing.
fn median(numbers: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let numbers: Vec<f64> = numbers.collect::<Option<_>>()?;
    Spread::of(&numbers).map(|spread| spread.median)
}

impl Setting {
    /// Data of a stripe.
    pub(super) fn stripe_bytes(&self) -> u64 {
        let blocks = self.family.code(self.nodes, 0).map_or(1, |code| code.data().len() as u64);
        blocks * self.block_bytes
    }

    fn entry(&self, kind: Kind, samples: &[Sample], line: f64) -> Option<Entry> {
        let rates: Vec<f64> = samples.iter().map(|sample| sample.data_bytes_s).collect();
        let median = |of: &dyn Fn(&Sample) -> Option<f64>| median(samples.iter().map(of));
        let per_gib = |seconds: Option<f64>| seconds.map(|seconds| seconds * GIBIBYTE);
        let Kind { pattern, schedule } = kind;
        let bound = match pattern {
            // Loopback has no links.
            _ if self.link_bit_s.is_none() => None,
            PatternName::Write => bounds::write(self.family, self.nodes, schedule, self.clients),
            // Not bound by links.
            PatternName::Write4k => None,
            read => bounds::read(self.family, self.nodes, read.lost(), self.clients),
        };
        let exchanged = match pattern {
            PatternName::Write => bounds::exchanged(self.family, self.nodes, schedule),
            _ => None,
        };
        Some(Entry {
            level: self.family.level().name().to_owned(),
            layout: self.layout.clone(),
            nodes: self.nodes,
            schedule: typed(&schedule),
            clients: self.clients,
            block_bytes: self.block_bytes,
            storage: typed(&self.storage),
            fabric: self.fabric.clone(),
            link_bit_s: self.link_bit_s,
            pattern: typed(&pattern),
            data_bytes_s: Spread::of(&rates)?,
            line_bytes_s: line,
            bound_bytes_s: bound.map(|lines| lines * line),
            client_bytes_per_data_byte: median(&|sample| sample.client_bytes),
            node_bytes_per_data_byte: median(&|sample| sample.node_bytes),
            bound_node_bytes_per_data_byte: exchanged,
            cpu_s_per_gib: CpuSeconds {
                client: per_gib(median(&|sample| sample.client_cpu_s)),
                nodes: per_gib(median(&|sample| sample.nodes_cpu_s)),
            },
            node_memory_bytes: None,
            idle_nodes_cpu: None,
            seconds: 0.0,
            runs: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes what is asked of it; each measurement is faster than the one before.
    #[derive(Default)]
    struct Made {
        asked: Vec<Option<WriteSchedule>>,
    }

    impl Rig for Made {
        fn line(&mut self) -> Result<Line, Failure> {
            self.asked.push(None);
            Ok(Line { bytes_s: 100.0, idle_nodes_cpu: Some(0.0) })
        }

        fn sample(&mut self, kind: Kind) -> Result<Sample, Failure> {
            self.asked.push(Some(kind.schedule));
            Ok(Sample {
                data_bytes_s: self.asked.len() as f64,
                client_bytes: Some(1.0),
                node_bytes: None,
                client_cpu_s: Some(1.0 / GIBIBYTE),
                nodes_cpu_s: None,
            })
        }

        fn node_memory_bytes(&self) -> Option<u64> {
            Some(4096)
        }
    }

    #[test]
    fn schedules_take_turns() {
        let setting = Setting {
            family: Family::Xor2d,
            layout: Some("xor2d".into()),
            nodes: 5,
            clients: 1,
            block_bytes: 65536,
            storage: StorageName::Memory,
            fabric: "tcp".into(),
            link_bit_s: Some(500_000_000),
        };
        let kind = |schedule| Kind { pattern: PatternName::Write, schedule };
        let kinds = [kind(WriteSchedule::Client), kind(WriteSchedule::Encoder)];
        let mut rig = Made::default();
        let entries = measure(&mut rig, &setting, &kinds, 3, 1.5).expect("results");
        let turn = [None, Some(WriteSchedule::Client), Some(WriteSchedule::Encoder)];
        assert_eq!(rig.asked, [turn, turn, turn].concat());
        let encoder = &entries[1];
        assert_eq!(encoder.data_bytes_s, Spread { median: 6.0, min: 3.0, max: 9.0 });
        assert_eq!((encoder.schedule.as_str(), encoder.level.as_str()), ("encoder", "raid6"));
        assert!((entries[0].bound_bytes_s.expect("a bound") - 60.0).abs() < 0.1);
        assert_eq!(encoder.cpu_s_per_gib, CpuSeconds { client: Some(1.0), nodes: None });
        assert_eq!((encoder.client_bytes_per_data_byte, encoder.runs), (Some(1.0), 3));
    }
}
