//! `braid status`: the running arrays and their background work.

use std::path::Path;

use braid_array::status::SyncStatus;
use braid_host::control::wire::ControlStatus;
use serde_json::json;

use super::running;
use crate::args::StatusArgs;
use crate::failure::Failure;
use crate::output;
use crate::output::json::SCHEMA;
use crate::output::progress::Progress;
use crate::output::status::IdleArray;

pub(super) fn run(run_dir: &Path, args: &StatusArgs) -> Result<(), Failure> {
    if args.watch {
        let name = args.name.clone().map_or_else(|| the_only(run_dir), Ok)?;
        // Lines for programs are not mixed with those of mdstat.
        let progress = if args.mdstat { Progress::bar(&name) } else { Progress::new(&name) };
        wait("status", run_dir, &name, progress, |_| true)?;
    }
    if let Some(name) = &args.name {
        let array = running::status("status", run_dir, name)?;
        if args.json {
            return output::print_json(&output::json::array(&array));
        }
        return print(args, &[array], &[]);
    }
    let all = running::all("status", run_dir)?;
    if !all.is_blind() {
        print(args, &all.found, &all.idle(run_dir))?;
    }
    all.conclude()
}

fn print(args: &StatusArgs, arrays: &[ControlStatus], idle: &[IdleArray]) -> Result<(), Failure> {
    if args.mdstat {
        return output::answer(&output::mdstat::mdstat(arrays));
    }
    if !args.json {
        return output::answer(&output::status::text(arrays, idle));
    }
    let all: Vec<_> = arrays.iter().map(output::json::array).collect();
    output::print_json(&json!({ "schema": SCHEMA, "arrays": all, "not_running": idle }))
}

/// Without a name there must be no choice.
fn the_only(run_dir: &Path) -> Result<String, Failure> {
    let mut all = running::all("status", run_dir)?;
    match (all.found.pop(), all.found.is_empty()) {
        (Some(array), true) => all.conclude().map(|()| array.name),
        (None, _) => {
            all.conclude()?;
            let next = "start one with braid assemble";
            Err(Failure::refused("status", "--watch", "no array is running", next))
        }
        (Some(_), false) => {
            let reason = "several arrays are running";
            Err(Failure::usage("status", "--watch", reason, "say which: braid status NAME --watch"))
        }
    }
}

/// Shows the background work of an array until it ends or `goes_on` is false for it. Returns the
/// last state.
pub(super) fn wait(
    operation: &str,
    run_dir: &Path,
    name: &str,
    mut progress: Progress,
    goes_on: impl Fn(&SyncStatus) -> bool,
) -> Result<ControlStatus, Failure> {
    let mut client = running::connect(operation, run_dir, name)?;
    loop {
        let status = client.status().map_err(|e| Failure::explained(operation, name, e))?;
        let sync = &status.array.sync;
        if sync.is_idle() || !goes_on(sync) {
            return Ok(status);
        }
        progress.show(&status.array)?;
        std::thread::sleep(Progress::INTERVAL);
    }
}
