//! One command at a time that changes the shape of an array over nodes: each plans first, and what
//! it makes is not to be mistaken for what an interrupted one has left.

use std::io;
use std::path::Path;

use braid_host::control::wire::ControlStatus;
use braid_host::run_dir::{PassingLock, lock_shape};

use super::OPERATION;
use crate::args::GrowArgs;
use crate::cmd::running;
use crate::failure::{Failure, system_error};

/// Keeps other commands from changing the shape of the array meanwhile. Returns that with the
/// status since then.
pub(super) fn alone(
    run_dir: &Path,
    args: &GrowArgs,
) -> Result<(Option<PassingLock>, ControlStatus), Failure> {
    let name = &args.name;
    let lock = if args.dry_run { None } else { Some(lock_shape(run_dir, name)) };
    let lock = lock.transpose().map_err(|error| {
        let (reason, next) = match error.kind() {
            io::ErrorKind::TimedOut => {
                (format!("another command changes its shape: {error}"), "try again when that ends")
            }
            _ => (system_error(&error), "make the directory of its control socket writable"),
        };
        Failure::refused(OPERATION, name, reason, next)
    })?;
    Ok((lock, running::status(OPERATION, run_dir, name)?))
}
