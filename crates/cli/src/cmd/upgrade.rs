//! `braid upgrade`: has this program serve running arrays in the place of the one that does, while
//! their clients stay.

use std::path::{Path, PathBuf};
use std::time::Duration;

use braid_host::control::wire::{Answer, Verb};
use braid_host::handover;
use braid_host::run_dir::log_path;
use serde::Serialize;
use serde_json::json;

use super::running;
use crate::args::UpgradeArgs;
use crate::failure::{Failure, system_error};
use crate::output;
use crate::output::json::SCHEMA;

const OPERATION: &str = "upgrade";

pub(super) fn run(run_dir: &Path, args: &UpgradeArgs) -> Result<(), Failure> {
    let program = own_program(OPERATION, "arrays")?;
    let names = if args.all { running::names(OPERATION, run_dir)? } else { args.names.clone() };
    let mut done = Vec::new();
    let mut failed = None;
    for name in names {
        match upgrade(run_dir, &name, &program, args) {
            Ok(it) if args.json => done.push(it),
            Ok(it) => output::answer(&it.text())?,
            // The others do not have to wait for one that cannot be upgraded.
            Err(failure) if args.all => {
                output::failure(&failure);
                failed = Some(Failure::Silent(Failure::REFUSED));
            }
            Err(failure) => {
                failed = Some(failure);
                break;
            }
        }
    }
    if args.json {
        output::print_json(&json!({ "schema": SCHEMA, "arrays": done }))?;
    }
    failed.map_or(Ok(()), Err)
}

/// An array that was upgraded, or could be.
#[derive(Serialize)]
struct UpgradedArray {
    name: String,
    /// Version of the program that serves it now; `None` where that was only asked for.
    version: Option<String>,
    pause_us: Option<u64>,
}

impl UpgradedArray {
    fn text(&self) -> String {
        let name = &self.name;
        match (&self.version, self.pause_us) {
            (Some(version), Some(pause_us)) => {
                let millis = Duration::from_micros(pause_us).as_millis();
                format!("{name}: served by version {version}; requests waited {millis} ms\n")
            }
            _ => format!("{name}: can be upgraded\n"),
        }
    }
}

/// Puts this program in the place of the one that serves the array, with more words of a command
/// line; with `check` it only asks whether that can be done. `unserved` is said where it cannot
/// serve the array so.
pub(super) fn hand_over(
    operation: &str,
    run_dir: &Path,
    name: &str,
    more: Vec<String>,
    check: bool,
    unserved: &'static str,
) -> Result<(), Failure> {
    let program = own_program(operation, name)?;
    let verb = Verb::Upgrade { program, takes: handover::VERSION, check, force: false, more };
    answer(operation, run_dir, name, verb, unserved).map(drop)
}

fn own_program(operation: &str, object: &str) -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| {
        let reason = format!("this program cannot be found: {}", system_error(&error));
        Failure::refused(operation, object, reason, "install it where it stays")
    })
}

/// Asks for another program.
fn answer(
    operation: &str,
    run_dir: &Path,
    name: &str,
    verb: Verb,
    unserved: &'static str,
) -> Result<Answer, Failure> {
    match running::call(operation, run_dir, name, verb)? {
        Answer::Upgraded { returned: true, .. } => {
            let next = format!("see {}", log_path(run_dir, name).display());
            Err(Failure::refused(operation, name, unserved, next))
        }
        other => Ok(other),
    }
}

fn upgrade(
    run_dir: &Path,
    name: &str,
    program: &Path,
    args: &UpgradeArgs,
) -> Result<UpgradedArray, Failure> {
    let UpgradeArgs { check, force, .. } = *args;
    let program = PathBuf::from(program);
    let verb = Verb::Upgrade { program, takes: handover::VERSION, check, force, more: Vec::new() };
    let unserved = "this program could not serve it, and the one before serves it again";
    match answer(OPERATION, run_dir, name, verb, unserved)? {
        Answer::Upgraded { pause_us, version, .. } => Ok(UpgradedArray {
            name: name.to_owned(),
            version: Some(version),
            pause_us: Some(pause_us),
        }),
        Answer::Done if check => {
            Ok(UpgradedArray { name: name.to_owned(), version: None, pause_us: None })
        }
        _ => {
            let next = "see its log";
            Err(Failure::refused(OPERATION, name, "its process answers something else", next))
        }
    }
}
