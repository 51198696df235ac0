//! `braid limit`: how fast background work may go, and whether it may.

use std::path::Path;

use braid_array::status::{JournalMode, SyncStatus};
use braid_host::control::wire::Verb;
use braid_host::limits::{Limit, Limits};
use serde_json::json;

use super::running;
use crate::args::{JournalModeArg, LimitArgs, Size, shown};
use crate::config::Config;
use crate::failure::Failure;
use crate::output;
use crate::output::json::SCHEMA;

pub(super) fn run(run_dir: &Path, args: &LimitArgs) -> Result<(), Failure> {
    check_limits(run_dir, args)?;
    let asked = asked(args);
    let quiet = !asked.is_empty() && !args.json;
    for verb in asked {
        running::call("limit", run_dir, &args.name, verb)?;
    }
    if quiet {
        say_how_to_keep(args);
        return Ok(());
    }
    let array = running::status("limit", run_dir, &args.name)?;
    let sync = array.array.sync;
    if args.json {
        return output::print_json(&json!({
            "schema": SCHEMA,
            "name": array.name,
            "min_bytes_per_s": sync.min_bytes_per_s,
            "max_bytes_per_s": sync.max_bytes_per_s,
            "min": array.limits.min.as_ref().map(shown),
            "max": array.limits.max.as_ref().map(shown),
            "paused": sync.paused,
            "journal_mode": array.array.journal.map(|journal| journal.mode.name()),
        }));
    }
    let mode = array.array.journal.map(|journal| format!(", journal {}", journal.mode.name()));
    let limits = output::limits(&sync);
    let by_time = by_time(&array.limits);
    output::answer(&format!("{}: {limits}{}{by_time}\n", array.name, mode.unwrap_or_default()))
}

/// Warns that the limits last until the array is stopped, and shows the entry of the configuration
/// file that would keep them.
fn say_how_to_keep(args: &LimitArgs) {
    let file = &args.file.config;
    let set = [("min", &args.min), ("max", &args.max)];
    let set = set.iter().filter_map(|(key, limit)| Some((key, limit.as_ref()?)));
    let keys: Vec<String> =
        set.map(|(key, limit)| format!("{key} = \"{}\"", shown(limit))).collect();
    if keys.is_empty() || Config::if_there(file).is_none_or(|it| it.array(&args.name).is_none()) {
        return;
    }
    let name = &args.name;
    let keep = format!("write {} below [array.{name}] in {}", keys.join(", "), file.display());
    output::warning(&format!("limit {name}: holds until it is stopped; to keep it, {keep}"));
}

/// The limits that depend on the time of day.
fn by_time(limits: &Limits) -> String {
    let set = [("min", &limits.min), ("max", &limits.max)];
    let set = set.iter().filter_map(|(name, limit)| Some((name, limit.as_ref()?)));
    let timed = set.filter(|(_, limit)| !limit.windows.is_empty());
    timed.map(|(name, limit)| format!(", --{name} {}", shown(limit))).collect()
}

/// Checks that the minimum does not exceed the maximum. A limit typed alone is compared with the
/// other one in force, except the default minimum.
fn check_limits(run_dir: &Path, args: &LimitArgs) -> Result<(), Failure> {
    let refused =
        |reason: String, next: String| Err(Failure::usage("limit", &args.name, reason, next));
    match (&args.min, &args.max) {
        (Some(min), Some(max)) => check_pair("limit", &args.name, Some(min), Some(max)),
        (Some(min), None) => {
            let (limits, sync) = in_force(run_dir, args)?;
            let max =
                limits.max.unwrap_or_else(|| always(sync.max_bytes_per_s.unwrap_or(u64::MAX)));
            match more_than(min, &max) {
                Some((min, max)) => refused(
                    format!("--min {min} is more than the maximum in force, {max}"),
                    format!("raise that, too: --max {min}, or more, or none"),
                ),
                None => Ok(()),
            }
        }
        (None, Some(max)) => {
            let (limits, sync) = in_force(run_dir, args)?;
            let min = limits.min.unwrap_or_else(|| always(sync.min_bytes_per_s));
            let own = min == always(SyncStatus::DEFAULT_MIN_BYTES_PER_S);
            match more_than(&min, max) {
                Some((min, max)) if !own => refused(
                    format!("--max {max} is less than the minimum in force, {min}"),
                    format!("lower that, too: --min {max}, or less; or use --pause"),
                ),
                _ => Ok(()),
            }
        }
        (None, None) => Ok(()),
    }
}

/// Checks that a minimum does not exceed a maximum that is typed beside it.
pub(super) fn check_pair(
    operation: &str,
    object: &str,
    min: Option<&Limit>,
    max: Option<&Limit>,
) -> Result<(), Failure> {
    match min.zip(max).and_then(|(min, max)| more_than(min, max)) {
        Some((min, max)) => {
            let reason = format!("--min {min} is more than --max {max}");
            Err(Failure::usage(operation, object, reason, "swap them"))
        }
        None => Ok(()),
    }
}

/// The minimum and the maximum at a time of day when the minimum is more.
pub(super) fn more_than(min: &Limit, max: &Limit) -> Option<(Size, Size)> {
    let windows = || min.windows.iter().chain(&max.windows);
    let edges = windows().flat_map(|window| [window.from, window.until]);
    let at = |minute| (min.at(minute), max.at(minute));
    let wrong = [0].into_iter().chain(edges).map(at).find(|(min, max)| min > max);
    wrong.map(|(min, max)| (Size(min), Size(max)))
}

const fn always(usual: u64) -> Limit {
    Limit { usual, windows: Vec::new() }
}

/// Returns the limits set, and the current background work.
fn in_force(run_dir: &Path, args: &LimitArgs) -> Result<(Limits, SyncStatus), Failure> {
    let status = running::status("limit", run_dir, &args.name)?;
    Ok((status.limits, status.array.sync))
}

/// Returns the requested changes.
fn asked(args: &LimitArgs) -> Vec<Verb> {
    let mode = args.journal_mode.map(|mode| match mode {
        JournalModeArg::WriteThrough => JournalMode::WriteThrough,
        JournalModeArg::WriteBack => JournalMode::WriteBack,
    });
    let limits = (args.min.is_some() || args.max.is_some())
        .then(|| limits(Limits { min: args.min.clone(), max: args.max.clone() }));
    let pause = args.pause.then_some(Verb::Pause);
    let resume = args.resume.then_some(Verb::Resume);
    [mode.map(Verb::JournalMode), limits, pause, resume].into_iter().flatten().collect()
}

/// Returns the request that sets these limits.
pub(super) fn limits(limits: Limits) -> Verb {
    let parts = |limit: Option<Limit>| match limit {
        Some(Limit { usual, windows }) => (Some(usual), windows),
        None => (None, Vec::new()),
    };
    let (min_bytes_s, min_windows) = parts(limits.min);
    let (max_bytes_s, max_windows) = parts(limits.max);
    Verb::SyncLimits { min_bytes_s, max_bytes_s, min_windows, max_windows }
}
