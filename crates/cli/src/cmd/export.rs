//! Exports of a running array, which come and go.

use std::path::Path;

use braid_host::control::wire::Verb;

use super::{launch, running};
use crate::args::{ExportAction, ExportArgs};
use crate::failure::Failure;
use crate::output;

const OPERATION: &str = "export";

pub(super) fn run(run_dir: &Path, args: &ExportArgs) -> Result<(), Failure> {
    let name = &args.name;
    match &args.action {
        ExportAction::Add { export, insecure } => {
            let spec = launch::export(OPERATION, name, export)?;
            launch::check_secure(OPERATION, &spec, *insecure)?;
            let before = running::status(OPERATION, run_dir, name)?.exports;
            running::call(OPERATION, run_dir, name, Verb::AddExport { export: spec.to_string() })?;
            // A port or number may have been chosen.
            let now = running::status(OPERATION, run_dir, name)?.exports;
            for export in now.iter().filter(|export| !before.contains(export)) {
                output::answer(&format!("{name}: added {export}\n"))?;
            }
        }
        ExportAction::Remove { export, force } => {
            let spec = launch::export(OPERATION, name, export)?;
            let remove = Verb::RemoveExport { export: spec.address(), force: *force };
            running::call(OPERATION, run_dir, name, remove)?;
            output::answer(&format!("{name}: removed {}\n", spec.address()))?;
        }
    }
    Ok(())
}
