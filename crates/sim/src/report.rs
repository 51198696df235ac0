//! Run of a seed, and its result.

use crate::fault::Mutation;
use crate::trace::Trace;

/// Options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Print each event.
    pub verbose: bool,
    /// Deliberate fault.
    pub mutation: Option<Mutation>,
}

/// Reason for the failure of a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub String);

/// Summary of a seed that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Equal for equal runs.
    pub trace_hash: u64,
    /// Number of events.
    pub events: u64,
}

impl Report {
    /// Summary of a seed with this trace.
    pub const fn of(trace: &Trace) -> Self {
        Self { trace_hash: trace.hash(), events: trace.events() }
    }
}

/// Runs a seed, named by `line`.
///
/// # Errors
/// Returns the line, with the failure; a panic is a failure, too.
pub fn run_caught(
    line: &str,
    options: Options,
    run: impl FnOnce(Trace) -> Result<Report, Failure>,
) -> Result<Report, String> {
    if options.verbose {
        println!("{line}");
    }
    let run = || run(Trace::new(options.verbose));
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|Failure(what)| format!("{line}: {what}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?");
            Err(format!("{line}: panic: {text}"))
        }
    }
}
