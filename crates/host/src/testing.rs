//! What the tests of this crate share.

use std::io::Write;

/// A test cannot run here: says so where it is seen even when the test passes, and fails in CI.
pub(crate) fn skipped(what: &str) {
    // Past the test harness, which swallows what `eprintln!` prints.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what} is not usable here");
    assert!(std::env::var_os("CI").is_none(), "{what} is missing in CI");
}
