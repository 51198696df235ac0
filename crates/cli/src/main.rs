//! The command `braid`.

use std::process::ExitCode;

fn main() -> ExitCode {
    braid_cli::braid()
}
