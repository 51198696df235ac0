//! What came of a seed.

/// Why a seed failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub String);

/// What a seed that passed looked like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Equal for equal runs.
    pub trace_hash: u64,
    /// How much happened.
    pub events: u64,
}

/// Runs a seed, which the line names.
///
/// # Errors
/// The line, with what was wrong; a panic is a failure, too.
pub fn run_caught(
    line: &str,
    run: impl FnOnce() -> Result<Report, Failure>,
) -> Result<Report, String> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|Failure(what)| format!("{line}: {what}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?");
            Err(format!("{line}: panic: {text}"))
        }
    }
}
