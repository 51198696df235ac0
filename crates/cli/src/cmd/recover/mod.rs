//! `braid recover`: finds the geometry of an array with lost superblocks from the data on its
//! members. Members are read in samples, and written only if superblocks are asked for.

mod areas;
mod gather;
mod hints;
mod kept;
mod left;
mod placed;
mod saved;
mod write;

use std::path::{Path, PathBuf};

use braid_host::member::MemberFile;

use super::found::{self, Use};
use super::maps;
use crate::args::RecoverArgs;
use crate::failure::Failure;
use crate::output;

const OPERATION: &str = "recover";

pub(super) fn run(args: &RecoverArgs) -> Result<(), Failure> {
    if let Some(file) = &args.undo {
        return saved::undo(file);
    }
    let devices = open(args, &args.members)?;
    let mut read = gather::read(&devices, args.resume)?;
    let found = areas::all(args, &devices, &mut read)?;
    if args.json {
        return output::print_json(&output::recovered::json(&found));
    }
    if found.is_empty() {
        return Err(nothing(&devices));
    }
    match &args.write_superblocks {
        Some(name) => {
            // What was only looked at is about to be locked.
            drop(devices);
            write::run(name, &found, args.overlay.dir())
        }
        None => output::answer(&output::recovered::text(&found)),
    }
}

/// Opens members for examination, also while in use.
fn open(args: &RecoverArgs, members: &[PathBuf]) -> Result<Vec<MemberFile>, Failure> {
    maps::check(OPERATION, &args.maps, members.iter().map(PathBuf::as_path))?;
    let mut devices = open_as(members, Use::look(args.overlay.dir()))?;
    for device in &mut devices {
        maps::apply_to(OPERATION, &args.maps, device)?;
    }
    Ok(devices)
}

fn open_as(members: &[PathBuf], purpose: Use<'_>) -> Result<Vec<MemberFile>, Failure> {
    let open = |path: &Path| found::open(path, purpose);
    found::open_distinct(members, open).map_err(|error| {
        Failure::refused(OPERATION, error.path.display(), error.reason, error.next)
    })
}

fn nothing(devices: &[MemberFile]) -> Failure {
    let first = devices.first().map(|device| device.path.display().to_string());
    let reason = "nothing was found on the members that tells how they belong together";
    let next = "name all members, see braid examine for superblocks, or try geometries with \
                braid assemble --readonly --geometry";
    Failure::refused(OPERATION, first.unwrap_or_default(), reason, next)
}
