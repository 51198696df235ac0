//! Secrets in files, readable by their owner alone.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::failure::{Failure, system_error};

/// Reads a secret from a file and trims it. A file that others can read is refused.
pub(super) fn read(path: &Path, what: &str, make: &'static str) -> Result<String, Failure> {
    let refused = |reason: String, next: &'static str| {
        Failure::refused("monitor", path.display(), reason, next)
    };
    let read = std::fs::metadata(path).and_then(|file| Ok((file, std::fs::read_to_string(path)?)));
    let (file, text) = read.map_err(|error| refused(system_error(&error), make))?;
    if file.permissions().mode() & 0o077 != 0 {
        return Err(refused(format!("others can read {what}"), "chmod 600 that file"));
    }
    Ok(text.trim().to_owned())
}
