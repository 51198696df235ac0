//! The stable JSON of measurements. Fields are only ever added.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::output::json::SCHEMA;

/// All that one run, or several into the same report, have measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Results {
    schema: u32,
    pub(super) machine: Machine,
    pub(super) results: Vec<Entry>,
}

/// Where it was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    cpu: String,
    cores: usize,
    memory_bytes: u64,
    kernel: String,
    braid: String,
}

/// Measurements of one kind, done several times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) level: String,
    pub(super) layout: Option<String>,
    pub(super) nodes: u16,
    pub(super) schedule: String,
    pub(super) clients: u16,
    pub(super) block_bytes: u64,
    pub(super) storage: String,
    pub(super) fabric: String,
    /// `null`: loopback, unshaped.
    pub(super) link_bit_s: Option<u64>,
    /// write, read, read-1-lost, read-2-lost or write-4k.
    pub(super) pattern: String,
    /// Of all clients together.
    pub(super) data_bytes_s: Spread,
    /// What one TCP stream carries on the same link, in the same run: the median.
    pub(super) line_bytes_s: f64,
    /// What the links allow, computed beforehand.
    pub(super) bound_bytes_s: Option<f64>,
    /// Sent by clients for writes, received by them for reads; counted on the links.
    pub(super) client_bytes_per_data_byte: Option<f64>,
    /// Exchanged among nodes; counted on the links.
    pub(super) node_bytes_per_data_byte: Option<f64>,
    /// What the schedule says of it.
    pub(super) bound_node_bytes_per_data_byte: Option<f64>,
    pub(super) cpu_s_per_gib: CpuSeconds,
    /// The most memory that any node had in use, since it was started.
    pub(super) node_memory_bytes: Option<u64>,
    /// CPU seconds a second of all nodes together while the line was measured.
    pub(super) idle_nodes_cpu: Option<f64>,
    pub(super) seconds: f64,
    pub(super) runs: u16,
}

/// For a GiB of data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CpuSeconds {
    /// Of all clients together.
    pub(super) client: Option<f64>,
    /// Of all nodes together.
    pub(super) nodes: Option<f64>,
}

/// A number measured several times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// `None` for no numbers.
    pub(super) fn of(numbers: &[f64]) -> Option<Self> {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let half = sorted.len() / 2;
        let lower = sorted[(sorted.len() - 1) / 2];
        Some(Self { median: f64::midpoint(lower, sorted[half]), min, max })
    }
}

impl Results {
    pub(super) fn new(machine: Machine, results: Vec<Entry>) -> Self {
        Self { schema: SCHEMA, machine, results }
    }

    /// Adds what was measured now to what was measured before, in place of the same.
    pub(super) fn merge(&mut self, newer: Self) {
        for entry in newer.results {
            match self.results.iter_mut().find(|old| old.measures_the_same(&entry)) {
                Some(old) => *old = entry,
                None => self.results.push(entry),
            }
        }
        self.machine = newer.machine;
    }
}

impl Entry {
    pub(super) fn measures_the_same(&self, other: &Self) -> bool {
        let numbers = |e: &Self| (e.nodes, e.clients, e.block_bytes, e.link_bit_s);
        let words = |e: &Self| {
            let array = (e.level.clone(), e.layout.clone(), e.schedule.clone());
            (array, e.storage.clone(), e.fabric.clone(), e.pattern.clone())
        };
        numbers(self) == numbers(other) && words(self) == words(other)
    }

    /// The share of the line.
    pub(super) fn of_line(&self) -> f64 {
        self.data_bytes_s.median / self.line_bytes_s
    }
}

impl Machine {
    /// This one.
    pub(super) fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpus = read("/proc/cpuinfo");
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let kib = memory.split(' ').next().and_then(|kib| kib.parse::<u64>().ok());
        Self {
            cpu: field(&cpus, "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: kib.unwrap_or(0) * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            braid: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An entry as a measurement would make it.
    pub(in super::super) fn entry(schedule: &str, nodes: u16, rate: f64) -> Entry {
        Entry {
            level: "raid6".into(),
            layout: Some("xor2d".into()),
            nodes,
            schedule: schedule.into(),
            clients: 1,
            block_bytes: 256 << 10,
            storage: "memory".into(),
            fabric: "tcp".into(),
            link_bit_s: Some(500_000_000),
            pattern: "write".into(),
            data_bytes_s: Spread { median: rate, min: rate * 0.9, max: rate * 1.1 },
            line_bytes_s: 60e6,
            bound_bytes_s: Some(60e6),
            client_bytes_per_data_byte: Some(1.001),
            node_bytes_per_data_byte: Some(1.334),
            bound_node_bytes_per_data_byte: Some(4.0 / 3.0),
            cpu_s_per_gib: CpuSeconds { client: Some(1.0), nodes: Some(4.0) },
            node_memory_bytes: Some(100 << 20),
            idle_nodes_cpu: Some(0.0),
            seconds: 2.0,
            runs: 3,
        }
    }

    #[test]
    fn the_median_lies_in_the_middle() {
        let spread = |numbers: &[f64]| Spread::of(numbers).expect("numbers");
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(spread(&[4.0, 1.0]).median, 2.5);
        assert_eq!(spread(&[7.0]).median, 7.0);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_newer_result_takes_the_place_of_the_same() {
        let machine = Machine::this();
        let old = vec![entry("client", 5, 36e6), entry("encoder", 5, 50e6)];
        let mut results = Results::new(machine.clone(), old);
        let new = vec![entry("encoder", 5, 59e6), entry("encoder", 6, 58e6)];
        results.merge(Results::new(machine, new));
        let rates: Vec<f64> = results.results.iter().map(|e| e.data_bytes_s.median).collect();
        assert_eq!(rates, [36e6, 59e6, 58e6]);
    }

    /// Scripts rely on these names.
    #[test]
    fn the_schema_stands() {
        let results = Results::new(Machine::this(), vec![entry("encoder", 5, 59e6)]);
        let json = serde_json::to_value(&results).expect("JSON");
        assert_eq!(json["schema"], 1);
        assert!(json["machine"].is_object());
        let entry = &json["results"][0];
        let fields = [
            "level",
            "layout",
            "nodes",
            "schedule",
            "clients",
            "block_bytes",
            "storage",
            "fabric",
            "link_bit_s",
            "data_bytes_s",
            "line_bytes_s",
            "client_bytes_per_data_byte",
            "node_bytes_per_data_byte",
            "cpu_s_per_gib",
        ];
        for field in fields {
            assert!(!entry[field].is_null(), "{field}");
        }
        for field in ["median", "min", "max"] {
            assert!(entry["data_bytes_s"][field].is_number(), "{field}");
        }
        for field in ["client", "nodes"] {
            assert!(entry["cpu_s_per_gib"][field].is_number(), "{field}");
        }
        let back: Results = serde_json::from_value(json).expect("the same back");
        assert_eq!(back, results);
    }
}
