//! `braid sync`: how fast background work may go, and whether it may.

use std::path::Path;

use braid_array::status::JournalMode;
use braid_host::control::wire::Verb;
use serde_json::json;

use super::running;
use crate::args::{JournalModeArg, SyncArgs};
use crate::failure::Failure;
use crate::output;
use crate::output::json::SCHEMA;

pub(super) fn run(run_dir: &Path, args: &SyncArgs) -> Result<(), Failure> {
    if let (Some(min), Some(max)) = (args.min, args.max)
        && min > max
    {
        let reason = format!("--min {min} is more than --max {max}");
        return Err(Failure::usage("sync", &args.name, reason, "swap them"));
    }
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

/// What is to be changed.
fn asked(args: &SyncArgs) -> Vec<Verb> {
    let mode = args.journal_mode.map(|mode| match mode {
        JournalModeArg::WriteThrough => JournalMode::WriteThrough,
        JournalModeArg::WriteBack => JournalMode::WriteBack,
    });
    let bytes = |size: crate::args::Size| size.0;
    let min_bytes_s = args.min.map(bytes);
    let max_bytes_s = args.max.map(bytes);
    let limits = (min_bytes_s.is_some() || max_bytes_s.is_some())
        .then_some(Verb::SyncLimits { min_bytes_s, max_bytes_s });
    let pause = args.pause.then_some(Verb::Pause);
    let resume = args.resume.then_some(Verb::Resume);
    [mode.map(Verb::JournalMode), limits, pause, resume].into_iter().flatten().collect()
}
