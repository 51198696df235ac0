//! `braid sync`: how fast background work may go, and whether it may.

use std::path::Path;

use braid_host::control::wire::Verb;
use serde_json::json;

use super::running;
use crate::args::SyncArgs;
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
    let quiet = asked.is_some() && !args.json;
    if let Some(verb) = asked {
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
        }));
    }
    output::answer(&format!("{}: {}\n", array.name, output::limits(&sync)))
}

/// What is to be changed.
fn asked(args: &SyncArgs) -> Option<Verb> {
    if args.pause {
        return Some(Verb::Pause);
    }
    if args.resume {
        return Some(Verb::Resume);
    }
    let bytes = |size: crate::args::Size| size.0;
    let min_bytes_s = args.min.map(bytes);
    let max_bytes_s = args.max.map(bytes);
    (min_bytes_s.is_some() || max_bytes_s.is_some())
        .then_some(Verb::SyncLimits { min_bytes_s, max_bytes_s })
}
