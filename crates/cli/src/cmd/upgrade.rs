//! `braid upgrade`: has this program serve running arrays in the place of the one that does, while
//! their clients stay.

use std::path::{Path, PathBuf};
use std::time::Duration;

use braid_host::control::wire::{Answer, Verb};
use braid_host::handover;
use braid_host::run_dir::log_path;

use super::running;
use crate::args::UpgradeArgs;
use crate::failure::{Failure, system_error};
use crate::output;

const OPERATION: &str = "upgrade";

pub(super) fn run(run_dir: &Path, args: &UpgradeArgs) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(|error| {
        let reason = format!("this program cannot be found: {}", system_error(&error));
        Failure::refused(OPERATION, "arrays", reason, "install it where it stays")
    })?;
    if !args.all {
        let mut results = args.names.iter().map(|name| upgrade(run_dir, name, &program, args));
        return results.try_for_each(|result| result);
    }
    let names = running::names(OPERATION, run_dir)?;
    // The others do not have to wait for one that cannot be upgraded.
    let failed = names.iter().filter_map(|name| upgrade(run_dir, name, &program, args).err());
    let failed: Vec<Failure> = failed.inspect(output::failure).collect();
    if failed.is_empty() { Ok(()) } else { Err(Failure::Silent(Failure::REFUSED)) }
}

fn upgrade(run_dir: &Path, name: &str, program: &Path, args: &UpgradeArgs) -> Result<(), Failure> {
    let program = PathBuf::from(program);
    let check = args.check;
    let force = args.force;
    let verb = Verb::Upgrade { program, takes: handover::VERSION, check, force };
    match running::call(OPERATION, run_dir, name, verb)? {
        Answer::Upgraded { returned: true, .. } => {
            let reason = "this program could not serve it, and the one before serves it again";
            let next = format!("see {}", log_path(run_dir, name).display());
            Err(Failure::refused(OPERATION, name, reason, next))
        }
        Answer::Upgraded { pause_us, version, .. } => {
            let millis = Duration::from_micros(pause_us).as_millis();
            let line =
                format!("{name}: served by version {version}; requests waited {millis} ms\n");
            output::answer(&line)
        }
        Answer::Done if check => output::answer(&format!("{name}: can be upgraded\n")),
        _ => {
            let next = "see its log";
            Err(Failure::refused(OPERATION, name, "its process answers something else", next))
        }
    }
}
