//! `braid config check`: checks the file, and the devices and nodes named in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use braid_array::refusal::Next;
use braid_array::{Condition, Refusal};
use braid_host::control::Client;
use serde_json::{Value, json};

use crate::cmd::assemble::{self, Outlook, never_degraded};
use crate::cmd::entry::{self, is_there, node_problem, problem};
use crate::cmd::found::{self, Found, is_called};
use crate::config::MdadmPlace;
use crate::config::{ArrayEntry, Config, Located, MdadmConf, Problem, uuid_digits};
use crate::failure::Failure;
use crate::invocation::next_step;
use crate::output;
use crate::output::json::SCHEMA;

const OPERATION: &str = "config check";

pub(super) fn run(run_dir: &Path, file: &Path, as_json: bool) -> Result<(), Failure> {
    let config = Config::read(OPERATION, file)?;
    let mut problems = config.problems.clone();
    let sound = |name: &str| config.problem(name).is_none();
    let known = MdadmConf::read();
    for entry in config.arrays.iter().filter(|entry| sound(&entry.name)) {
        problems.extend(of_array(run_dir, entry, &known));
    }
    let nodes = config.nodes.iter().filter(|entry| sound(&entry.name));
    problems.extend(nodes.filter_map(node_problem));
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
            "id": problem.next.condition.map(|condition| condition.to_string()),
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

fn of_array(run_dir: &Path, entry: &ArrayEntry, known: &MdadmConf) -> Vec<Problem> {
    let mut problems = Vec::new();
    let over_nodes = entry.is_over_nodes();
    let members = if over_nodes { Vec::new() } else { members(entry, &mut problems) };
    let uuid = entry::uuid(entry);
    let outlook = (!members.is_empty())
        .then(|| assemble::outlook(&entry.name, uuid.as_deref(), &members, entry.readonly));
    let (found, _) = found::look(&found::inside(&members));
    problems.extend(outlook.iter().flat_map(|outlook| of_devices(entry, outlook, &found)));
    let are_right = problems.is_empty();
    let named = if over_nodes { 0 } else { entry.members.len() };
    let absent = named.saturating_sub(members.len());
    problems.extend(entry::array_problems(run_dir, entry, outlook.as_ref(), absent));
    // The superblocks of one that runs tell what it was like at a start.
    if are_right && problems.is_empty() && !runs(run_dir, entry) {
        let why_not = outlook.and_then(|outlook| refused(entry, outlook));
        let key = if entry.members.is_empty() { "scan" } else { "members" };
        problems.extend(why_not.map(|why| problem(entry, entry.line, key, why)));
    }
    let uuids = found.iter().filter_map(|one| one.candidate.superblock.as_ref().ok());
    let found_uuid = uuids.map(|superblock| uuid_digits(&superblock.uuid_text())).next();
    if let Some(uuid) = found_uuid.or(uuid)
        && let Some(MdadmPlace::Name(_)) = known.of(&uuid)
    {
        let reason =
            "mdadm.conf has a line for this array, and mdadm may start it before Braid does";
        let next = format!("write there: ARRAY <ignore> UUID={uuid}, then update-initramfs -u");
        problems.push(problem(entry, entry.line, "members", Refusal::new(reason, next)));
    }
    problems
}

/// Problems of devices: those that cannot be read, and one of each other array.
fn of_devices(entry: &ArrayEntry, outlook: &Outlook, found: &[Found]) -> Vec<Problem> {
    let line = |path: &Path| {
        let member = entry.members.iter().find(|member| path == Path::new(&member.value));
        member.map_or(entry.line, |member| member.line)
    };
    let mut problems = Vec::new();
    for error in &outlook.unread {
        let reason = format!("{}: {}", error.path.display(), error.reason);
        let why = Refusal::new(reason, error.next.clone());
        problems.push(problem(entry, line(&error.path), "members", why));
    }
    let all_are_out = outlook.outsiders.len() == found.len();
    let mut told = BTreeSet::new();
    for one in found {
        let uuid = one.candidate.superblock.as_ref().ok().map(|superblock| superblock.set_uuid);
        let is_out = uuid.is_none() || outlook.outsiders.contains(&one.candidate.device);
        if is_out && (uuid.is_none() || told.insert(uuid)) {
            problems.push(problem(
                entry,
                line(&one.device.path),
                "members",
                foreign(entry, one, all_are_out),
            ));
        }
    }
    problems
}

fn runs(run_dir: &Path, entry: &ArrayEntry) -> bool {
    Client::connect(run_dir, &entry.name).is_ok()
}

/// Returns the reason for which the array would not start, with all of its members there.
fn refused(entry: &ArrayEntry, outlook: Outlook) -> Option<Refusal> {
    match (outlook.start, outlook.by_hand) {
        (Err(why), _) => Some(why),
        (Ok(degraded), Some(by_hand)) if degraded > 0 && !entry.degraded => {
            Some(never_degraded(degraded, by_hand))
        }
        (Ok(_), _) => None,
    }
}

/// The members that are there. Those that are not are problems.
fn members(entry: &ArrayEntry, problems: &mut Vec<Problem>) -> Vec<PathBuf> {
    let mut wrong = |line, key, why| problems.push(problem(entry, line, key, why));
    if entry.members.is_empty() {
        let name = entry::uuid(entry);
        let name = name.as_deref().unwrap_or(&entry.name);
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
        return arrays.concat();
    }
    let mut there = Vec::new();
    for Located { line, value } in &entry.members {
        if is_there(value) {
            there.push(PathBuf::from(value));
        } else {
            let next = Next::from("attach it, or write the path of the disk in its place")
                .of(Condition::MembersLeftOut);
            wrong(*line, "members", Refusal::new(format!("{value} is not there"), next));
        }
    }
    there
}

/// Returns the reason why a device is no member of the array of an entry; `is_meant` if another
/// array may be meant, as none of the devices is one.
fn foreign(entry: &ArrayEntry, found: &Found, is_meant: bool) -> Refusal {
    let device = &found.candidate.device;
    let superblock = match &found.candidate.superblock {
        Ok(superblock) => superblock,
        Err(error) => {
            let next = format!("take it out of members, or see braid examine {device}");
            let next = Next::from(next).of(Condition::Damaged);
            return Refusal::new(format!("{device}: {error}"), next);
        }
    };
    let uuid = superblock.uuid_text();
    let reason = format!("{device} belongs to {}", superblock.title());
    let (reason, next) = if !is_meant {
        (reason, "take it out of members".to_owned())
    } else if entry.uuid.is_some() {
        let next = format!("write uuid = \"{uuid}\", or name other members");
        (format!("{reason}, not to the uuid here"), next)
    } else {
        (reason, format!("name it so: [array.NAME]; or write uuid = \"{uuid}\""))
    };
    Refusal::new(reason, Next::from(next).of(Condition::Foreign))
}
