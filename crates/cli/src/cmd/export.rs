//! Exports of a running array, which come and go.

use std::path::Path;

use braid_host::control::wire::Verb;
use serde_json::json;

use super::{launch, running};
use crate::args::{ExportAction, ExportArgs};
use crate::failure::Failure;
use crate::output;
use crate::output::json::SCHEMA;

const OPERATION: &str = "export";

pub(super) fn run(run_dir: &Path, args: &ExportArgs) -> Result<(), Failure> {
    let name = &args.name;
    match &args.action {
        ExportAction::Add { export, insecure, json } => {
            let spec = launch::export(OPERATION, name, export)?;
            launch::check_secure(OPERATION, &spec, *insecure)?;
            let before = running::status(OPERATION, run_dir, name)?.exports;
            running::call(OPERATION, run_dir, name, Verb::AddExport { export: spec.to_string() })?;
            // A port or number may have been chosen.
            let now = running::status(OPERATION, run_dir, name)?.exports;
            let added: Vec<&String> = now.iter().filter(|one| !before.contains(one)).collect();
            if *json {
                return print(name, &now, &added, &[]);
            }
            for export in added {
                output::answer(&format!("{name}: added {export}\n"))?;
            }
        }
        ExportAction::Remove { export, force, json } => {
            let spec = launch::export(OPERATION, name, export)?;
            let remove = Verb::RemoveExport { export: spec.address(), force: *force };
            running::call(OPERATION, run_dir, name, remove)?;
            if *json {
                let now = running::status(OPERATION, run_dir, name)?.exports;
                return print(name, &now, &[], &[&spec.address()]);
            }
            output::answer(&format!("{name}: removed {}\n", spec.address()))?;
        }
    }
    Ok(())
}

/// Prints the exports that there are now, and the changes.
fn print(
    name: &str,
    now: &[String],
    added: &[&String],
    removed: &[&String],
) -> Result<(), Failure> {
    output::print_json(&json!({
        "schema": SCHEMA,
        "name": name,
        "exports": now,
        "added": added,
        "removed": removed,
    }))
}
