//! Running arrays, through their control sockets.

use std::path::Path;

use braid_host::control::wire::{Answer, ControlStatus, Verb};
use braid_host::control::{Client, ControlError, list};

use crate::failure::{Failure, system_error};

/// Connects to the array of this name.
pub(crate) fn connect(operation: &str, run_dir: &Path, name: &str) -> Result<Client, Failure> {
    Client::connect(run_dir, name).map_err(|error| Failure::explained(operation, name, error))
}

/// The state of a running array.
pub(crate) fn status(
    operation: &str,
    run_dir: &Path,
    name: &str,
) -> Result<ControlStatus, Failure> {
    let mut client = connect(operation, run_dir, name)?;
    client.status().map_err(|error| Failure::explained(operation, name, error))
}

/// The states of all running arrays, by name. One that ends meanwhile is left out.
pub(crate) fn all(operation: &str, run_dir: &Path) -> Result<Vec<ControlStatus>, Failure> {
    let names = list(run_dir).map_err(|error| {
        let reason = system_error(&error);
        Failure::refused(operation, run_dir.display(), reason, "name another with --run-dir")
    })?;
    let mut found = Vec::new();
    for name in names {
        match Client::connect(run_dir, &name).and_then(|mut client| client.status()) {
            Ok(status) => found.push(status),
            Err(ControlError::NotRunning) => {}
            Err(error) => return Err(Failure::explained(operation, &name, error)),
        }
    }
    Ok(found)
}

/// Has a running array do something.
pub(crate) fn call(
    operation: &str,
    run_dir: &Path,
    name: &str,
    verb: Verb,
) -> Result<Answer, Failure> {
    let mut client = connect(operation, run_dir, name)?;
    client.call(verb).map_err(|error| Failure::explained(operation, name, error))
}
