//! `braid status` for people.

use std::fmt::Write as _;
use std::path::PathBuf;

use braid_array::events::SyncAction;
use braid_array::format::superblock::feature;
use braid_array::format::suspended::{is_suspended, journal_number};
use braid_array::status::{AbsentStatus, ArrayState, MemberState, MemberStatus, Status, Waiting};
use braid_array::{Condition, Refusal, SECTOR_BYTES};
use braid_host::control::wire::ControlStatus;
use serde::Serialize;

use super::work::in_words;
use super::{conditions, detail, human, json, last_scrub, mdstat, redundancy, shape, unread};
use crate::invocation::{next_step, shell_word};

/// Places that could not be read beyond these are for `--json`.
const MOST_PLACES: usize = 8;

/// An array of the file of arrays and nodes that does not run.
#[derive(Debug, Serialize)]
pub(crate) struct IdleArray {
    pub(crate) name: String,
    /// The log of its latest run, where that is a file.
    pub(crate) log: Option<PathBuf>,
}

/// All arrays: those that run, then those that do not.
pub(crate) fn text(arrays: &[ControlStatus], idle: &[IdleArray]) -> String {
    let mut parts: Vec<String> = arrays.iter().map(one).collect();
    if parts.is_empty() {
        parts.push("no arrays are running\n".to_owned());
    }
    if !idle.is_empty() {
        parts.push(idle.iter().map(not_running).collect());
    }
    parts.join(if arrays.is_empty() { "" } else { "\n" })
}

fn not_running(IdleArray { name, log }: &IdleArray) -> String {
    let log = log.as_ref().map(|log| format!("; log: {}", log.display())).unwrap_or_default();
    let id = Condition::NotRunning;
    format!("{name}: not running ({id}); braid up {}{log}\n", shell_word(name))
}

fn one(array: &ControlStatus) -> String {
    let status = &array.array;
    let mut text = head_and_members(&array.name, status);
    for child in &status.children {
        for line in head_and_members(&child.short_name(), child).lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    if let Some(line) = redundancy_line(&array.name, status) {
        let _ = writeln!(text, "  {line}");
    }
    if let Some(line) = in_words(status) {
        let _ = writeln!(text, "  {line}");
    }
    if let Some((scrub, found)) = last_scrub::words(array) {
        let _ = writeln!(text, "  last {scrub} {found}");
    }
    if let Some(reason) = &status.held_up {
        let name = shell_word(&array.name);
        let _ = writeln!(text, "  held up: {reason}; braid limit {name} --resume tries again");
    }
    if let Some(waiting) = &status.waiting {
        let _ = writeln!(text, "  {}", waits(waiting));
    }
    text.push_str(&unread::lines(status, MOST_PLACES));
    let see = conditions::see(&conditions::of_all(array));
    if !see.is_empty() {
        let _ = write!(text, "  {see}");
    }
    for export in &array.exports {
        let _ = writeln!(text, "  export {export}");
    }
    text
}

/// Returns what may still fail and the next step, for an array that lacks members.
fn redundancy_line(name: &str, status: &Status) -> Option<String> {
    let may_fail = if status.degraded > 0 { redundancy::may_fail(status) } else { None };
    let next = redundancy::next(name, status).map(|next| format!("next: {next}"));
    match (may_fail, next) {
        (Some(may_fail), Some(next)) => Some(format!("{may_fail}; {next}")),
        (may_fail, next) => may_fail.or(next),
    }
}

/// Returns the fate of requests while the array cannot continue, and the reason.
fn waits(waiting: &Waiting) -> String {
    let who = match (waiting.fail_in_ms, waiting.requests) {
        (None, _) => "reads and writes fail".to_owned(),
        (Some(ms), 0) => format!("waits, {} s more", ms / 1000),
        (Some(ms), 1) => format!("1 request waits, {} s more", ms / 1000),
        (Some(ms), n) => format!("{n} requests wait, {} s more", ms / 1000),
    };
    match &waiting.why {
        None => format!("{who}: more nodes are away than the array can do without"),
        Some(Refusal { reason, next }) => format!("{who}: {reason}; {}", next_step(next)),
    }
}

/// An array and its members.
fn head_and_members(name: &str, status: &Status) -> String {
    let level = shape::level_name(status.superblock.level);
    let bytes = status.array_sectors * SECTOR_BYTES;
    let size = human::size_binary(bytes);
    let mut text = format!("{name}: {level}, {size}");
    for word in detail::state_words(status) {
        let _ = write!(text, ", {word}");
    }
    if status.state == ArrayState::ReadOnly {
        text.push_str(", read-only");
    }
    if shape::has_redundancy(status.superblock.level) {
        let _ = write!(text, " [{}]", mdstat::in_sync_marks(status));
    }
    text.push('\n');
    let mut members: Vec<&MemberStatus> = status.members.iter().collect();
    members.sort_by_key(|member| (member.role.is_none(), member.role, member.number));
    for member in members {
        text.push_str(&member_line(member));
    }
    if let Some(line) = log_line(status) {
        let _ = writeln!(text, "  {line}");
    }
    for AbsentStatus { device, why } in status.view.iter().flat_map(|view| &view.absent) {
        let _ = writeln!(text, "    -  absent      {device}, not taken in: {why}");
    }
    for witness in status.view.iter().flat_map(|view| &view.witnesses) {
        let state = if witness.reachable { "reachable" } else { "not reachable" };
        let _ = writeln!(text, "  witness {}: {state}", witness.address);
    }
    text
}

/// Returns the policy against the write hole of an array on disks.
fn log_line(status: &Status) -> Option<String> {
    if status.superblock.has(feature::ANY_PPL) {
        return Some("policy ppl".to_owned());
    }
    if is_suspended(&status.superblock) {
        let until = match status.sync.action {
            SyncAction::Idle => String::new(),
            action => format!(" until the {} is over", action.name()),
        };
        if !status.log_comes_back() {
            let advice = "assemble the array with it, and the journal is on again";
            return Some(format!(
                "the device of the journal is not there: the write hole is open; {advice}"
            ));
        }
        let is_journal = journal_number(&status.superblock).is_some();
        let logs = if is_journal { "the journal is" } else { "partial parity logs are" };
        return Some(format!("{logs} off{until}: the write hole is open"));
    }
    let journal = status.journal?;
    let size = human::size_binary(journal.size_sectors * SECTOR_BYTES);
    let mode = journal.mode.name();
    let mut line = match journal.used_sectors {
        None => format!("policy journal: {size}, {mode}"),
        Some(used) => {
            let used = human::size_binary(used * SECTOR_BYTES);
            format!("policy journal: {used} of {size} in use, {mode}")
        }
    };
    if journal.dirty_bytes > 0 {
        let dirty = human::size_binary(journal.dirty_bytes);
        let _ = write!(line, ", {dirty} not in place yet");
    }
    Some(line)
}

fn member_line(member: &MemberStatus) -> String {
    let state = json::member_word(member.state);
    let role = if member.state == MemberState::Faulty { None } else { member.role };
    let role = role.map_or_else(|| "-".to_owned(), |role| role.to_string());
    let errors = match member.errors {
        0 => String::new(),
        1 => ", 1 error".to_owned(),
        n => format!(", {n} errors"),
    };
    let slow = member.slow_ms.map(|ms| format!(", slow: answers take {ms} ms"));
    let slow = slow.unwrap_or_default();
    let refused = member.refused.as_ref().map(|why| format!(", not taken back: {why}"));
    let refused = refused.unwrap_or_default();
    format!("  {role:>3}  {state:<10}  {}{errors}{slow}{refused}\n", member.device)
}
