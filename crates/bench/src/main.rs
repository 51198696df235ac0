//! The program `braid-bench`, which `braid bench` becomes.

use std::process::ExitCode;

mod command;

fn main() -> ExitCode {
    braid_cli::exit_code(command::run())
}
