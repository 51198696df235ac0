//! `braid detail`: the fields of `mdadm --detail` for a running array.

use std::path::Path;

use braid_array::format::Superblock;
use braid_array::status::ArrayState;
use braid_host::control::wire::ControlStatus;
use braid_host::control::{Client, ControlError};

use super::{found, running};
use crate::args::{DetailArgs, shown};
use crate::failure::Failure;
use crate::output;

const OPERATION: &str = "detail";

/// Exit codes of `--test`, as mdadm's.
const DEGRADED: u8 = 1;
const NOT_USABLE: u8 = 2;
pub(super) const NO_SUCH_ARRAY: u8 = 4;

pub(super) fn run(run_dir: &Path, args: &DetailArgs) -> Result<(), Failure> {
    let Some(name) = &args.name else {
        if args.toml {
            return entries(run_dir);
        }
        let all = running::all("detail", run_dir)?;
        output::answer(&all.found.iter().map(output::detail::array_lines).collect::<String>())?;
        return all.conclude();
    };
    let found = Client::connect(run_dir, name).and_then(|mut client| client.status());
    let array = found.map_err(|error| {
        if !matches!(error, ControlError::NotRunning) {
            return Failure::explained("detail", name, error);
        }
        let failure = running::not_running("detail", run_dir, name);
        if args.test { failure.with_code(NO_SUCH_ARRAY) } else { failure }
    })?;
    if args.json {
        output::print_json(&output::json::array(&array))?;
    } else if args.export {
        output::answer(&output::detail::export(&array))?;
    } else {
        output::answer(&output::detail::text(&array))?;
    }
    if args.test { test(&array) } else { Ok(()) }
}

/// Entries of the arrays that run, and of those that could.
fn entries(run_dir: &Path) -> Result<(), Failure> {
    let all = running::all(OPERATION, run_dir)?;
    let mut text: String =
        all.found.iter().map(|array| output::entry::of_running(array, shown)).collect();
    let runs = |superblock: &Superblock| {
        all.found.iter().any(|array| array.array.superblock.set_uuid == superblock.set_uuid)
    };
    let stopped = match found::scan(OPERATION, |superblock| !runs(superblock)) {
        Ok(stopped) => stopped,
        Err(failure) if all.found.is_empty() => return Err(failure),
        Err(failure) => {
            output::failure(&failure);
            Vec::new()
        }
    };
    for members in stopped {
        let (found, _) = found::look(&members);
        let mut superblocks = found.iter().filter_map(|one| one.candidate.superblock.as_ref().ok());
        if let Some(superblock) = superblocks.next() {
            text.push_str(&output::entry::of_members(superblock, &members));
        }
    }
    output::answer(&text)?;
    all.conclude()
}

fn test(array: &ControlStatus) -> Result<(), Failure> {
    match array.array.state {
        ArrayState::Failed => Err(Failure::Silent(NOT_USABLE)),
        _ if array.array.writes_over => Err(Failure::Silent(NOT_USABLE)),
        _ if array.array.degraded > 0 => Err(Failure::Silent(DEGRADED)),
        _ => Ok(()),
    }
}
