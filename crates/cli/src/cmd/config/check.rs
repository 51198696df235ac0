//! `braid config check`: checks the file, and the devices and nodes named in it.

use std::path::{Path, PathBuf};

use braid_array::Refusal;
use braid_host::serve::ExportPlace;
use serde_json::{Value, json};

use crate::cmd::found::{self, Found, is_called};
use crate::cmd::{launch, node, sync, up};
use crate::config::MdadmPlace;
use crate::config::{ArrayEntry, Config, Located, MdadmConf, NodeEntry, Problem, uuid_digits};
use crate::failure::Failure;
use crate::invocation::next_step;
use crate::output;
use crate::output::json::SCHEMA;

const OPERATION: &str = "config check";

pub(super) fn run(file: &Path, as_json: bool) -> Result<(), Failure> {
    let config = Config::read(OPERATION, file)?;
    let mut problems = config.problems.clone();
    let sound = |name: &str| config.problem(name).is_none();
    let known = MdadmConf::read();
    for entry in config.arrays.iter().filter(|entry| sound(&entry.name)) {
        problems.extend(of_array(entry, &known));
    }
    let nodes = config.nodes.iter().filter(|entry| sound(&entry.name));
    problems.extend(nodes.filter_map(of_node));
    problems.sort_by_key(|problem| problem.line);
    if as_json {
        output::print_json(&found_in(file, &config, &problems))?;
        let well = problems.is_empty();
        return if well { Ok(()) } else { Err(Failure::Silent(Failure::REFUSED)) };
    }
    if problems.is_empty() {
        let arrays = counted(config.arrays.len(), "array");
        let nodes = counted(config.nodes.len(), "node");
        return output::answer(&format!("{}: {arrays}, {nodes}, all well\n", file.display()));
    }
    let failures = problems.iter().map(|problem| problem.failure(OPERATION, file));
    failures.for_each(|failure| output::failure(&failure));
    Err(Failure::Silent(Failure::REFUSED))
}

/// Returns what was found, for programs.
fn found_in(file: &Path, config: &Config, problems: &[Problem]) -> Value {
    let arrays: Vec<&String> = config.arrays.iter().map(|array| &array.name).collect();
    let nodes: Vec<&String> = config.nodes.iter().map(|node| &node.name).collect();
    let problem = |problem: &Problem| {
        json!({
            "line": problem.line,
            "key": problem.key,
            "reason": problem.reason,
            "next": next_step(&problem.next),
        })
    };
    json!({
        "schema": SCHEMA,
        "file": file,
        "arrays": arrays,
        "nodes": nodes,
        "problems": problems.iter().map(problem).collect::<Vec<_>>(),
    })
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn of_array(entry: &ArrayEntry, known: &MdadmConf) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut wrong = |line: usize, key: &str, Refusal { reason, next }: Refusal| {
        problems.push(Problem::new(line, format!("array.{}.{key}", entry.name), reason, next));
    };
    for export in &entry.exports {
        if let Err(failure) = launch::check_secure(OPERATION, &export.value, entry.insecure) {
            let next = "use a loopback address or nbd:unix:PATH, or write insecure = true";
            let why = Refusal { next: next.into(), ..failure.into_refusal() };
            wrong(export.line, "exports", why);
        }
        if let ExportPlace::Fuse(path) = &export.value.place
            && !path.is_dir()
        {
            let reason = format!("there is no directory {}", path.display());
            let next = format!("make it: mkdir -p {}", path.display());
            wrong(export.line, "exports", Refusal::new(reason, next));
        }
    }
    if let (Some(min), Some(max)) = (&entry.limits.min, &entry.limits.max)
        && let Some((min, max)) = sync::more_than(min, max)
    {
        wrong(
            entry.line,
            "min",
            Refusal::new(format!("{min} is more than max, {max}"), "swap them"),
        );
    }
    if let Some(key) = entry.key.as_ref().filter(|key| !key.is_file()) {
        let why =
            Refusal::new(format!("there is no file {}", key.display()), "braid key new makes one");
        wrong(entry.line, "key", why);
    }
    let found = if entry.is_over_nodes() { Vec::new() } else { members(entry, &mut wrong) };
    for (line, why) in found.iter().filter_map(|(line, one)| Some((*line, foreign(entry, one)?))) {
        wrong(line, "members", why);
    }
    let uuids = found.iter().filter_map(|(_, one)| one.candidate.superblock.as_ref().ok());
    let uuid = uuids.map(|superblock| uuid_digits(&superblock.uuid_text())).next();
    if let Some(uuid) = uuid.or_else(|| entry.uuid.clone())
        && let Some(MdadmPlace::Name(_)) = known.of(&uuid)
    {
        let reason =
            "mdadm.conf has a line for this array, and mdadm may start it before Braid does";
        let next = format!("write there: ARRAY <ignore> UUID={uuid}, then update-initramfs -u");
        wrong(entry.line, "members", Refusal::new(reason, next));
    }
    problems
}

/// The members that are there, each with its line; says which ones are not.
fn members(
    entry: &ArrayEntry,
    wrong: &mut impl FnMut(usize, &str, Refusal),
) -> Vec<(usize, Found)> {
    if entry.members.is_empty() {
        let name = entry.uuid.as_deref().unwrap_or(&entry.name);
        let arrays = match found::scan(OPERATION, |superblock| is_called(superblock, name)) {
            Ok(arrays) => arrays,
            Err(failure) => {
                wrong(entry.line, "scan", failure.into_refusal());
                return Vec::new();
            }
        };
        if arrays.is_empty() {
            let next = "attach them, or name them: members = [\"/dev/disk/by-id/...\"]";
            let why =
                Refusal::new("no block device belongs to an array of this name or uuid", next);
            wrong(entry.line, "scan", why);
        }
        let (found, _) = found::look(&arrays.concat());
        return found.into_iter().map(|one| (entry.line, one)).collect();
    }
    let mut all = Vec::new();
    for Located { line, value } in &entry.members {
        let path = PathBuf::from(value);
        if !path.exists() {
            let next = "attach it, or take it out of members";
            wrong(*line, "members", Refusal::new(format!("{value} is not there"), next));
            continue;
        }
        let (found, unread) = found::look(&[path]);
        all.extend(found.into_iter().map(|one| (*line, one)));
        for error in unread {
            let reason = format!("{value}: {}", error.reason);
            wrong(*line, "members", Refusal::new(reason, error.next));
        }
    }
    all
}

/// Returns the reason why a device is no member of the array of an entry.
fn foreign(entry: &ArrayEntry, found: &Found) -> Option<Refusal> {
    let device = &found.candidate.device;
    let superblock = match &found.candidate.superblock {
        Ok(superblock) => superblock,
        Err(error) => {
            let next = format!("take it out of members, or see braid examine {device}");
            return Some(Refusal::new(format!("{device}: {error}"), next));
        }
    };
    let uuid = superblock.uuid_text();
    match &entry.uuid {
        Some(wanted) if *wanted != uuid_digits(&uuid) => {
            let reason =
                format!("{device} belongs to {}, not to the uuid here", superblock.title());
            Some(Refusal::new(reason, format!("write uuid = \"{uuid}\", or name other members")))
        }
        None if !is_called(superblock, &entry.name) => {
            let reason = format!("{device} belongs to {}", superblock.title());
            let next = format!("name it so: [array.NAME]; or write uuid = \"{uuid}\"");
            Some(Refusal::new(reason, next))
        }
        _ => None,
    }
}

fn of_node(entry: &NodeEntry) -> Option<Problem> {
    let why = node::setup(&up::node_words(entry, true)).err()?.into_refusal();
    Some(Problem::new(entry.line, format!("node.{}", entry.name), why.reason, why.next))
}
