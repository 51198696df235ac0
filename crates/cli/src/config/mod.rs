//! `/etc/braid/arrays.toml`: the arrays and nodes of a machine, and their options. Owns the keys
//! and their meaning; examines no device.

use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use braid_array::refusal::Next;
use braid_host::limits::Limits;
use braid_host::serve::ExportSpec;

use crate::args::{CONFIG_FILE, Size, WriteSchedule};
use crate::failure::{Failure, system_error};

mod array;
mod entry;
mod mdadm;
mod node;
mod syntax;
mod text;

pub(crate) use array::uuid_digits;
pub(crate) use mdadm::{MdadmConf, Place as MdadmPlace};

/// Content of a file.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) path: PathBuf,
    /// In the order of the file.
    pub(crate) arrays: Vec<ArrayEntry>,
    pub(crate) nodes: Vec<NodeEntry>,
    /// Problems, in the order of lines.
    pub(crate) problems: Vec<Problem>,
}

/// An array.
#[derive(Debug)]
pub(crate) struct ArrayEntry {
    pub(crate) name: String,
    /// Where its lines begin.
    pub(crate) line: usize,
    /// Its digits alone.
    pub(crate) uuid: Option<String>,
    /// Members as typed; empty if they are searched among all block devices.
    pub(crate) members: Vec<Located<String>>,
    pub(crate) exports: Vec<Located<ExportSpec>>,
    pub(crate) insecure: bool,
    pub(crate) readonly: bool,
    /// Directory of checksums of members that have none behind their data.
    pub(crate) integrity_store: Option<PathBuf>,
    /// Set if the array may start degraded.
    pub(crate) degraded: bool,
    /// Time to wait for members.
    pub(crate) wait: Duration,
    /// Set if the array is started at boot.
    pub(crate) boot: bool,
    /// Set if a timer checks the array.
    pub(crate) scrub: bool,
    pub(crate) limits: Limits,
    pub(crate) of_nodes: OfNodes,
}

/// Options of an array over nodes.
#[derive(Debug)]
pub(crate) struct OfNodes {
    pub(crate) key: Option<PathBuf>,
    pub(crate) fabric: Option<String>,
    pub(crate) witnesses: Vec<String>,
    pub(crate) schedule: Option<WriteSchedule>,
    pub(crate) node_timeout_s: Option<u64>,
    pub(crate) fail_timeout_s: Option<u64>,
}

/// A storage node.
#[derive(Debug)]
pub(crate) struct NodeEntry {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) listen: String,
    /// Directory of its volumes; `None` for memory.
    pub(crate) store: Option<PathBuf>,
    pub(crate) witness: bool,
    pub(crate) ring: Option<Size>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) fabric: Option<String>,
    pub(crate) no_key: bool,
    pub(crate) encrypt: bool,
    pub(crate) boot: bool,
}

/// A value, and in which line it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Located<T> {
    pub(crate) line: usize,
    pub(crate) value: T,
}

/// Something that is wrong.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    /// The first line is 1.
    pub(crate) line: usize,
    /// The first column is 1; known where the file is none.
    pub(crate) column: Option<usize>,
    /// `array.home.exports`; empty where the file is none.
    pub(crate) key: String,
    pub(crate) reason: String,
    pub(crate) next: Next,
    /// Set if nothing is started by the entry; otherwise it is started with a warning.
    pub(crate) stops: bool,
}

impl Problem {
    pub(crate) fn new(
        line: usize,
        key: impl Into<String>,
        reason: impl Display,
        next: impl Into<Next>,
    ) -> Self {
        let reason = reason.to_string();
        Self { line, column: None, key: key.into(), reason, next: next.into(), stops: true }
    }

    /// Lets the entry be started all the same.
    pub(crate) fn warning(self) -> Self {
        Self { stops: false, ..self }
    }

    /// Returns whether the problem concerns this array or node, or the file as a whole.
    pub(crate) fn concerns(&self, name: &str) -> bool {
        let path = self.key.strip_prefix("array.").or_else(|| self.key.strip_prefix("node."));
        let Some(rest) = path.and_then(|path| path.strip_prefix(name)) else {
            return self.key.is_empty();
        };
        // Names may have dots, and keys have none.
        rest.is_empty() || rest.strip_prefix('.').is_some_and(|key| !key.contains('.'))
    }

    /// Returns the problem as a failure of a command.
    pub(crate) fn failure(&self, operation: &str, path: &Path) -> Failure {
        let column = self.column.map(|column| format!(":{column}")).unwrap_or_default();
        let key = if self.key.is_empty() { String::new() } else { format!(": {}", self.key) };
        let object = format!("{}:{}{column}{key}", path.display(), self.line);
        Failure::refused(operation, object, &self.reason, self.next.clone())
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read. Problems of its content are in `problems`.
    pub(crate) fn read(operation: &str, path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let next = match error.kind() {
                ErrorKind::InvalidData => "save it as UTF-8",
                _ => {
                    "make it, or name another with --config; braid detail --scan --toml writes \
                     the entries of running arrays"
                }
            };
            Failure::refused(operation, path.display(), system_error(&error), next)
        })?;
        Ok(text::parse(path, &text))
    }

    /// The file, if there is one.
    pub(crate) fn if_there(path: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        Some(text::parse(path, &text))
    }

    /// Returns the file of this machine, or the one that `$BRAID_CONFIG` names, if it is there.
    pub(crate) fn of_machine() -> Option<Self> {
        let named = std::env::var_os("BRAID_CONFIG").filter(|path| !path.is_empty());
        Self::if_there(&named.map_or_else(|| CONFIG_FILE.into(), PathBuf::from))
    }

    pub(crate) fn array(&self, name: &str) -> Option<&ArrayEntry> {
        self.arrays.iter().find(|array| array.name == name)
    }

    pub(crate) fn node(&self, name: &str) -> Option<&NodeEntry> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The names of everything, nodes first: arrays may lie on them.
    pub(crate) fn names(&self) -> Vec<&str> {
        let nodes = self.nodes.iter().map(|node| node.name.as_str());
        nodes.chain(self.arrays.iter().map(|array| array.name.as_str())).collect()
    }

    /// The first reason for which one of them is not started.
    pub(crate) fn problem(&self, name: &str) -> Option<&Problem> {
        self.problems.iter().find(|problem| problem.stops && problem.concerns(name))
    }

    /// The problems with which one of them is started all the same.
    pub(crate) fn warnings(&self, name: &str) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(move |problem| !problem.stops && problem.concerns(name))
    }
}

impl ArrayEntry {
    /// Returns whether its members are on nodes.
    pub(crate) fn is_over_nodes(&self) -> bool {
        self.members.iter().any(|member| member.value.starts_with("node://"))
    }
}
