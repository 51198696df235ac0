//! `braid bench`: becomes the program `braid-bench`, which is installed by itself.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::BenchArgs;
use crate::failure::{Failure, system_error};

const PROGRAM: &str = "braid-bench";
const INSTALL: &str = "install it, or put it beside braid; in the sources: cargo build --release \
                       -p braid-bench";

pub(super) fn run(run_dir: &Path, args: &BenchArgs) -> Result<(), Failure> {
    let program = beside_this(PROGRAM).unwrap_or_else(|| PROGRAM.into());
    let error = Command::new(program).env("BRAID_RUN_DIR", run_dir).args(&args.words).exec();
    let reason = match error.kind() {
        std::io::ErrorKind::NotFound => "it is not installed".to_owned(),
        _ => system_error(&error),
    };
    Err(Failure::refused("bench", PROGRAM, reason, INSTALL))
}

/// The program of this name that was built or installed with the one that runs.
#[must_use]
pub fn beside_this(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.with_file_name(name);
    program.exists().then_some(program)
}
