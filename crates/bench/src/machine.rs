//! The machine that is measured on.

use std::fs;

use serde::{Deserialize, Serialize};

/// Facts of a machine that a reader has to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor, as the system names it.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// All of it.
    pub memory_bytes: u64,
    /// Its release.
    pub kernel: String,
    /// The version of Braid.
    pub braid: String,
    /// Versions of the tools, one line each.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Place of the members, and its file system.
    #[serde(default)]
    pub storage: String,
}

impl Machine {
    /// Describes this machine.
    pub fn this() -> Self {
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
            tools: Vec::new(),
            storage: String::new(),
        }
    }
}
