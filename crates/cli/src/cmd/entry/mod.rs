//! An entry of the configuration file: as commands take it, and the problems that it has on this
//! machine. `braid config check` tells all of them, `braid up` refuses by the same code.

use std::path::Path;

use braid_array::refusal::Next;
use braid_array::{Condition, Refusal, Role};
use braid_host::member::MemberName;
use braid_host::serve::{ExportSpec, ExportedArray, check_exports};

use super::assemble::{Outlook, Unnamed, volumes};
use super::node::{self, Spelling};
use super::nodes::{check_witnesses, network};
use super::{found, launch, sync};
use crate::args::MemberArg;
use crate::config::{ArrayEntry, NodeEntry, Problem};
use crate::failure::Failure;

mod words;

pub(super) use words::{array_words, node_words, uuid};

/// Operation of messages whose operation is replaced.
const OPERATION: &str = "config";

/// Returns the problems of an array's entry: with the outlook of its start, if it is one of devices
/// that are there, and the number of named devices that are absent.
pub(super) fn array_problems(
    run_dir: &Path,
    entry: &ArrayEntry,
    outlook: Option<&Outlook>,
    absent: usize,
) -> Vec<Problem> {
    let unnamed = outlook.and_then(|outlook| unnamed(entry, outlook, absent));
    let mut problems: Vec<Problem> = unnamed.into_iter().collect();
    problems.extend(of_exports(run_dir, entry, outlook.and_then(|outlook| outlook.array)));
    problems.extend(of_limits(entry));
    problems.extend(of_nodes(entry));
    problems
}

/// Returns the problem of a node's entry.
pub(super) fn node_problem(entry: &NodeEntry) -> Option<Problem> {
    let words = node_words(entry, true);
    let why = node::setup(&words, Spelling::Keys).err()?.into_refusal();
    Some(Problem::new(entry.line, format!("node.{}", entry.name), why.reason, why.next))
}

/// A problem of a key of an array.
pub(super) fn problem(entry: &ArrayEntry, line: usize, key: &str, why: Refusal) -> Problem {
    Problem::new(line, format!("array.{}.{key}", entry.name), why.reason, why.next)
}

/// Returns whether a member on this machine is there.
pub(super) fn is_there(member: &str) -> bool {
    MemberName::of(Path::new(member)).file.exists()
}

/// Returns whether the list of members lacks one that the array had when it last ran. A device that
/// is absent, or has no superblock of the array, may have had any role, and is a loss.
pub(super) fn lacks_members(outlook: &Outlook, absent: usize) -> bool {
    let lost: usize = outlook.unnamed.iter().map(|array| array.lost).sum();
    lost > absent + outlook.strays
}

/// Returns the problem of a list of members that is too short, or does not name a block device
/// with a role that is missing. Roles that may be lost, or that the array has run without, stop no
/// start.
fn unnamed(entry: &ArrayEntry, outlook: &Outlook, absent: usize) -> Option<Problem> {
    let line = entry.members.first()?.line;
    let may_be_any = absent + outlook.strays;
    let roles: usize = outlook.unnamed.iter().map(|array| array.roles.len()).sum();
    let paths = outlook.unnamed.iter().flat_map(|array| found::holders(array.uuid, &array.roles));
    let paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
    if roles <= may_be_any && paths.is_empty() {
        return None;
    }
    let those = if may_be_any == 0 { "those named" } else { "the named ones that are there" };
    let arrays = outlook.unnamed.iter().map(|array| {
        let Unnamed { name, members, roles, .. } = array;
        format!("{name} has {members} members, and {} in none of {those}", listed(roles))
    });
    let reason = arrays.collect::<Vec<_>>().join("; ");
    let add = match &paths[..] {
        [] if roles == 1 => "add its path".to_owned(),
        [] => "add their paths".to_owned(),
        paths => format!("add {}", paths.join(", ")),
    };
    let stops = lacks_members(outlook, absent);
    let next = match &outlook.by_hand {
        Some(by_hand) if stops => Next::by(add + ", or start it without", by_hand.clone()),
        _ => add.into(),
    };
    let next = next.of(Condition::MembersLeftOut);
    let problem = problem(entry, line, "members", Refusal { reason, next });
    Some(if stops { problem } else { problem.warning() })
}

/// `role 1 is`, `roles 1, 2 are`.
fn listed(roles: &[Role]) -> String {
    let all: Vec<String> = roles.iter().map(Role::to_string).collect();
    match &all[..] {
        [role] => format!("role {role} is"),
        all => format!("roles {} are", all.join(", ")),
    }
}

fn of_exports(run_dir: &Path, entry: &ArrayEntry, array: Option<ExportedArray>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for export in &entry.exports {
        if let Err(failure) = launch::check_secure(OPERATION, &export.value, entry.insecure) {
            let next = "use a loopback address or nbd:unix:PATH, or write insecure = true";
            let why = Refusal { next: next.into(), ..failure.into_refusal() };
            problems.push(problem(entry, export.line, "exports", why));
        }
    }
    let exports: Vec<ExportSpec> = entry.exports.iter().map(|one| one.value.clone()).collect();
    let refused = check_exports(&exports, array, run_dir).into_iter();
    problems.extend(
        refused.map(|(index, why)| problem(entry, entry.exports[index].line, "exports", why)),
    );
    problems
}

fn of_limits(entry: &ArrayEntry) -> Option<Problem> {
    let min = entry.limits.min.as_ref()?;
    let max = entry.limits.max.as_ref()?;
    let (min, max) = sync::more_than(min, max)?;
    let reason = format!("{min} is more than max, {max}");
    Some(problem(entry, entry.line, "min", Refusal::new(reason, "swap them")))
}

/// Returns the problem of an array over nodes with what is on this machine.
fn of_nodes(entry: &ArrayEntry) -> Option<Problem> {
    if !entry.is_over_nodes() {
        return None;
    }
    let of_key = |key: &str, why: Failure| problem(entry, entry.line, key, why.into_refusal());
    let words = array_words(entry);
    if let Some(key) = entry.of_nodes.key.as_ref().filter(|key| !key.is_file()) {
        let make = format!("braid key new {} makes one", key.display());
        let why = Refusal::new(format!("there is no file {}", key.display()), make);
        return Some(problem(entry, entry.line, "key", why));
    }
    if let Err(why) = network(OPERATION, &words.network) {
        let key = if words.network.fabric.is_some() { "fabric" } else { "key" };
        return Some(of_key(key, why));
    }
    let members = entry.members.iter().filter_map(|member| match member.value.parse() {
        Ok(MemberArg::Node(node)) => Some(node),
        _ => None,
    });
    let members: Vec<_> = members.collect();
    let volumes = match volumes(OPERATION, Some(&entry.name), &members) {
        Ok(volumes) => volumes,
        Err(why) => return Some(of_key("members", why)),
    };
    let checked = check_witnesses(OPERATION, &words.witness, &volumes);
    checked.err().map(|why| of_key("witnesses", why))
}
