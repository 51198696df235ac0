//! The command `braid`: parses, validates, calls, prints. What is public is what `braid-bench` has
//! in common with it: how errors are said, sizes and members typed, arrays over nodes opened.

use std::process::ExitCode;

use braid_host::handover;

mod args;
mod cmd;
mod config;
mod failure;
mod invocation;
pub mod output;

pub use args::{MemberArg, NodeArg, Size, WriteSchedule, parse_as, parse_size};
pub use cmd::{Typed, beside_this, completions, fabric, family, man_pages, open_nodes};
pub use failure::{Failure, system_error};

/// Does what the command line asks of `braid`.
#[must_use]
pub fn braid() -> ExitCode {
    // Before anything is opened that was handed over.
    let adopted = handover::adopt().map_err(|why| Failure::explained("upgrade", "array", why));
    let result = adopted.and_then(|()| args::parse()).and_then(|cli| cmd::run(&cli));
    let code = exit_code(result);
    // Returns where nothing is left to be served.
    handover::go_back();
    code
}

/// Says why a command ended early, and makes the exit status of it.
#[must_use]
pub fn exit_code(result: Result<(), Failure>) -> ExitCode {
    if let Err(failure) = &result {
        output::failure(failure);
    }
    ExitCode::from(result.map_or_else(|failure| failure.code(), |()| 0))
}
