//! The command `braid`: parses, validates, calls, prints.

use std::process::ExitCode;

mod args;
mod cmd;
mod failure;
mod invocation;
mod output;

fn main() -> ExitCode {
    let result = args::parse().and_then(|cli| cmd::run(&cli));
    if let Err(failure) = &result {
        output::failure(failure);
    }
    ExitCode::from(result.map_or_else(|failure| failure.code(), |()| 0))
}
