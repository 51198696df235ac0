//! `[array.NAME]`.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use braid_array::Refusal;
use braid_host::limits::{Limit, Limits};
use braid_host::serve::ExportSpec;
use clap::ValueEnum;

use super::entry::Entry;
use super::{ArrayEntry, Located, OfNodes};
use crate::args::{MemberArg, WriteSchedule, parse_max, parse_min, parse_node_address};

/// Default time to wait for members.
const WAIT_S: u64 = 30;
/// Slower than any disk.
const TINY_BYTES_S: u64 = 64 << 10;
const ONLY_NODES: &str = "is for arrays over nodes";

/// Reads the entry of an array. Problems are recorded in the entry.
pub(super) fn read(name: &str, entry: &mut Entry<'_>) -> ArrayEntry {
    let uuid = entry.parsed("uuid", parse_uuid);
    let members = members(entry);
    let scan = entry.flag("scan");
    match scan {
        Some(true) if !members.is_empty() => {
            let next = "leave out scan, or members";
            entry.wrong("scan", entry.line, "is true, and members are named as well", next);
        }
        Some(false) if members.is_empty() => {
            let next = "name them: members = [\"/dev/disk/by-id/...\"], or write scan = true";
            entry.wrong("scan", entry.line, "is false, and no members are named", next);
        }
        _ => {}
    }
    let exports = entry.all_parsed("exports", |text| Ok(text.parse::<ExportSpec>()?));
    let degraded = entry.parsed("degraded", |text| match text {
        "start" => Ok(true),
        "refuse" => Ok(false),
        _ => Err(Refusal::new(
            "must be start or refuse",
            "write degraded = \"start\" or degraded = \"refuse\"",
        )),
    });
    let limits = limits(entry);
    let is_on_nodes = members.iter().any(|member| member.value.starts_with("node://"));
    if let (Some(uuid), true) = (&uuid, is_on_nodes) {
        let next = "leave it out: volumes are found by the name of their array, which \
                    braid rename changes";
        entry.wrong("uuid", uuid.line, "is for arrays of files and devices", next);
    }
    let of_nodes = of_nodes(entry, is_on_nodes);
    ArrayEntry {
        name: name.to_owned(),
        line: entry.line,
        uuid: uuid.map(|uuid| uuid.value),
        members,
        exports,
        insecure: entry.flag("insecure").unwrap_or(false),
        readonly: entry.flag("readonly").unwrap_or(false),
        integrity_store: integrity_store(entry, is_on_nodes),
        degraded: degraded.is_none_or(|degraded| degraded.value),
        wait: Duration::from_secs(entry.seconds("wait", 0..86401).unwrap_or(WAIT_S)),
        boot: entry.flag("boot").unwrap_or(true),
        scrub: entry.flag("scrub").unwrap_or(true),
        limits,
        of_nodes,
    }
}

/// Reads the directory of checksums.
fn integrity_store(entry: &mut Entry<'_>, is_on_nodes: bool) -> Option<PathBuf> {
    let dir = entry.parsed("integrity_store", |text| match PathBuf::from(text) {
        dir if dir.is_absolute() => Ok(dir),
        _ => Err(Refusal::new("is no absolute path", "begin it with a slash")),
    })?;
    if is_on_nodes {
        let reason = "is for arrays of files and devices";
        entry.wrong("integrity_store", dir.line, reason, "leave it out");
    }
    Some(dir.value)
}

/// Reads the keys that only arrays over nodes may have. Those that do nothing elsewhere stop no
/// start.
fn of_nodes(entry: &mut Entry<'_>, is_on_nodes: bool) -> OfNodes {
    let next = "leave it out, or name the members node://HOST:PORT/VOLUME";
    let stops = ["key", "fabric", "schedule"];
    let warns = ["witnesses", "node_timeout", "fail_timeout"];
    if !is_on_nodes {
        for key in stops.into_iter().chain(warns) {
            match entry.line_of(key) {
                Some(line) if stops.contains(&key) => entry.wrong(key, line, ONLY_NODES, next),
                Some(line) => entry.odd(key, line, ONLY_NODES, next),
                None => {}
            }
        }
    }
    let witnesses = entry.all_parsed("witnesses", parse_node_address);
    OfNodes {
        key: entry.text("key").map(|key| PathBuf::from(key.value)),
        fabric: entry.text("fabric").map(|fabric| fabric.value),
        witnesses: witnesses.into_iter().map(|witness| witness.value).collect(),
        schedule: entry.parsed("schedule", parse_schedule).map(|schedule| schedule.value),
        node_timeout_s: entry.seconds("node_timeout", 1..3601),
        fail_timeout_s: entry.seconds("fail_timeout", 0..86401),
    }
}

/// Returns the members as typed, without invalid ones.
fn members(entry: &mut Entry<'_>) -> Vec<Located<String>> {
    let typed = entry.all_parsed("members", |text| match MemberArg::existing(text)? {
        MemberArg::Memory(_) => {
            Err(Refusal::new("memory holds no array", "name files, block devices or nodes"))
        }
        MemberArg::Path(path) if !path.is_absolute() => {
            Err(Refusal::new("is no absolute path", "begin it with a slash"))
        }
        _ => Ok(text.to_owned()),
    });
    let on_nodes = |member: &Located<String>| member.value.starts_with("node://");
    if let (Some(node), Some(_)) =
        (typed.iter().find(|one| on_nodes(one)), typed.iter().find(|one| !on_nodes(one)))
    {
        let reason = "an array has either all of its members on nodes or none";
        entry.wrong("members", node.line, reason, "name members of one kind");
    }
    for (index, member) in typed.iter().enumerate() {
        if typed[..index].iter().any(|other| other.value == member.value) {
            let reason = format!("\"{}\" is named twice", member.value);
            entry.wrong("members", member.line, reason, "name it once");
        }
    }
    typed
}

fn limits(entry: &mut Entry<'_>) -> Limits {
    Limits { min: limit(entry, "min", parse_min), max: limit(entry, "max", parse_max) }
}

fn limit(
    entry: &mut Entry<'_>,
    key: &'static str,
    parse: fn(&str) -> Result<Limit, Refusal>,
) -> Option<Limit> {
    let tiny = Cell::new(None);
    let limit = entry.parsed(key, |text| {
        tiny.set(tiny_speed(text));
        parse(text)
    })?;
    if let Some(speed) = tiny.get() {
        let reason = format!("{key} = {speed} is {speed} bytes a second");
        entry.odd(key, limit.line, &reason, format!("write {speed}M"));
    }
    Some(limit.value)
}

/// Returns a speed without a unit that no disk is as slow as: a unit was forgotten.
fn tiny_speed(text: &str) -> Option<u64> {
    let speeds = text.split(['@', ',']).map(|part| part.rsplit('=').next().unwrap_or(part));
    let mut bare = speeds.filter_map(|speed| speed.trim().parse().ok());
    bare.find(|speed| (1..TINY_BYTES_S).contains(speed))
}

fn parse_schedule(text: &str) -> Result<WriteSchedule, Refusal> {
    WriteSchedule::from_str(text, false).map_err(|_| {
        Refusal::new("no schedule is called so", "write mix, encoder, chain, static or client")
    })
}

/// Parses a UUID as md or others print it; returns its digits.
pub(super) fn parse_uuid(text: &str) -> Result<String, Refusal> {
    let digits = uuid_digits(text);
    if digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Ok(digits);
    }
    let next = "write it as braid detail or braid examine print it";
    Err(Refusal::new("is no UUID", next))
}

/// Returns the digits of a UUID, without separators.
pub(crate) fn uuid_digits(text: &str) -> String {
    text.replace([':', '-'], "").to_ascii_lowercase()
}
