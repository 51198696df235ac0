//! `[node.NAME]`.

use std::path::PathBuf;

use braid_array::Refusal;

use super::NodeEntry;
use super::entry::Entry;
use crate::args::{check_address, parse_size};

/// Reads the entry of a node. Problems are recorded in the entry.
pub(super) fn read(name: &str, entry: &mut Entry<'_>) -> NodeEntry {
    let listen = entry.parsed("listen", |text| match check_address(text) {
        Ok(0) => Err(Refusal::new("nobody would find it", "write HOST:PORT")),
        Ok(_) => Ok(text.to_owned()),
        Err(reason) => Err(Refusal::new(reason, "write HOST:PORT")),
    });
    if listen.is_none() && entry.problems.is_empty() {
        entry.wrong("listen", entry.line, "is missing", "write listen = \"HOST:PORT\"");
    }
    let store = entry.parsed("store", |text| match PathBuf::from(text) {
        path if path.is_absolute() => Ok(path),
        _ => Err(Refusal::new("is no absolute path", "begin it with a slash")),
    });
    let memory = entry.flag("memory").unwrap_or(false);
    let witness = entry.flag("witness").unwrap_or(false);
    if memory == store.is_some() {
        let reason = if memory { "has a store as well" } else { "has no store" };
        let next = "write store = \"DIRECTORY\", or memory = true for volumes that are gone when \
                    it ends";
        entry.wrong("store", entry.line, reason, next);
    }
    if memory && witness {
        let next = "give it a store = \"DIRECTORY\"";
        entry.wrong("witness", entry.line, "forgets its votes in memory", next);
    }
    NodeEntry {
        name: name.to_owned(),
        line: entry.line,
        listen: listen.map(|listen| listen.value).unwrap_or_default(),
        store: store.map(|store| store.value),
        witness,
        ring: entry.parsed("ring", parse_size).map(|ring| ring.value),
        key: entry.text("key").map(|key| PathBuf::from(key.value)),
        fabric: entry.text("fabric").map(|fabric| fabric.value),
        no_key: entry.flag("no_key").unwrap_or(false),
        encrypt: entry.flag("encrypt").unwrap_or(false),
        boot: entry.flag("boot").unwrap_or(true),
    }
}
