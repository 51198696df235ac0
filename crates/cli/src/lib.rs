//! The command `braid`: parses, validates, calls, prints. Public items are shared with
//! `braid-bench`: messages of errors, parsing of sizes and members, opening of arrays over nodes.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;

use braid_host::control::say_ended;
use braid_host::handover::{self, Unserved};

mod args;
mod cmd;
mod config;
mod failure;
mod invocation;
mod messages;
pub mod output;

pub use args::{MemberArg, NodeArg, Size, WriteSchedule, parse_as, parse_size};
pub use cmd::{Typed, beside_this, completions, fabric, family, man_pages, open_nodes};
pub use failure::{Failure, system_error};
pub use invocation::shell_word;

/// Runs `braid` with the arguments of this process.
#[must_use]
pub fn braid() -> ExitCode {
    // Before anything is opened that was handed over.
    let adopted = handover::adopt().map_err(|why| Failure::explained("upgrade", "array", why));
    let run = || adopted.and_then(|()| args::parse(is_configured)).and_then(|cli| cmd::run(&cli));
    // What panics cannot serve an array either, which the program before it can.
    let result = catch_unwind(AssertUnwindSafe(run));
    let reason = match &result {
        Ok(Err(failure)) => failure.reason(),
        Ok(Ok(())) => "it ended",
        Err(_) => "it panicked",
    };
    let reason = reason.to_owned();
    let code = result.map(exit_code);
    // Returns where nothing is left to be served.
    if let Some(Unserved { asker: Some(asker), reason }) = handover::go_back(&reason) {
        // Whoever asked may have gone away.
        let _ = say_ended(asker, reason);
    }
    code.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Returns whether the file of arrays and nodes has an array of this name.
fn is_configured(name: &str) -> bool {
    config::Config::of_machine().is_some_and(|config| config.array(name).is_some())
}

/// Says why a command ended early, and makes the exit status of it.
#[must_use]
pub fn exit_code(result: Result<(), Failure>) -> ExitCode {
    if let Err(failure) = &result {
        output::failure(failure);
    }
    ExitCode::from(result.map_or_else(|failure| failure.code(), |()| 0))
}
