//! `braid sync`: how fast background work may go, and whether it may.

use std::path::Path;

use braid_array::status::{JournalMode, SyncStatus};
use braid_host::control::wire::Verb;
use serde_json::json;

use super::running;
use crate::args::{JournalModeArg, Size, SyncArgs};
use crate::failure::Failure;
use crate::output;
use crate::output::json::SCHEMA;

pub(super) fn run(run_dir: &Path, args: &SyncArgs) -> Result<(), Failure> {
    check_limits(run_dir, args)?;
    let asked = asked(args);
    let quiet = !asked.is_empty() && !args.json;
    for verb in asked {
        running::call("sync", run_dir, &args.name, verb)?;
    }
    if quiet {
        return Ok(());
    }
    let array = running::status("sync", run_dir, &args.name)?;
    let sync = array.array.sync;
    if args.json {
        return output::print_json(&json!({
            "schema": SCHEMA,
            "name": array.name,
            "min_bytes_per_s": sync.min_bytes_per_s,
            "max_bytes_per_s": sync.max_bytes_per_s,
            "paused": sync.paused,
            "journal_mode": array.array.journal.map(|journal| journal.mode.name()),
        }));
    }
    let mode = array.array.journal.map(|journal| format!(", journal {}", journal.mode.name()));
    let limits = output::limits(&sync);
    output::answer(&format!("{}: {limits}{}\n", array.name, mode.unwrap_or_default()))
}

/// The limits that would be in force go together. Alone each is compared with the other one as it
/// is, but for a minimum that nobody has set.
fn check_limits(run_dir: &Path, args: &SyncArgs) -> Result<(), Failure> {
    let (reason, next) = match (args.min, args.max) {
        (Some(min), Some(max)) if min > max => {
            (format!("--min {min} is more than --max {max}"), "swap them".to_owned())
        }
        (Some(min), None) => match in_force(run_dir, args)?.max_bytes_per_s.map(Size) {
            Some(max) if min > max => (
                format!("--min {min} is more than the maximum in force, {max}"),
                format!("raise that, too: --max {min}, or more, or none"),
            ),
            _ => return Ok(()),
        },
        (None, Some(max)) => match Size(in_force(run_dir, args)?.min_bytes_per_s) {
            min if min > max && min.0 != SyncStatus::DEFAULT_MIN_BYTES_PER_S => (
                format!("--max {max} is less than the minimum in force, {min}"),
                format!("lower that, too: --min {max}, or less; or use --pause"),
            ),
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    Err(Failure::usage("sync", &args.name, reason, next))
}

fn in_force(run_dir: &Path, args: &SyncArgs) -> Result<SyncStatus, Failure> {
    Ok(running::status("sync", run_dir, &args.name)?.array.sync)
}

/// What is to be changed.
fn asked(args: &SyncArgs) -> Vec<Verb> {
    let mode = args.journal_mode.map(|mode| match mode {
        JournalModeArg::WriteThrough => JournalMode::WriteThrough,
        JournalModeArg::WriteBack => JournalMode::WriteBack,
    });
    let bytes = |size: Size| size.0;
    let min_bytes_s = args.min.map(bytes);
    let max_bytes_s = args.max.map(bytes);
    let limits = (min_bytes_s.is_some() || max_bytes_s.is_some())
        .then_some(Verb::SyncLimits { min_bytes_s, max_bytes_s });
    let pause = args.pause.then_some(Verb::Pause);
    let resume = args.resume.then_some(Verb::Resume);
    [mode.map(Verb::JournalMode), limits, pause, resume].into_iter().flatten().collect()
}
