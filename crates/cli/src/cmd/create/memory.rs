//! `braid create` with members of memory, for measuring the engine alone. Memory is lost with the
//! process, so the serving process itself creates the array.

use std::path::{Path, PathBuf};

use braid_host::daemon::Daemon;
use braid_host::member::{self, MemberFile};

use super::{Creation, blueprint, write};
use crate::args::{CreateArgs, MemberArg};
use crate::cmd::found;
use crate::cmd::launch::{self, launch};
use crate::failure::{Failure, system_error};

pub(super) fn run(run_dir: &Path, args: &CreateArgs) -> Result<(), Failure> {
    let daemon = Daemon::adopt();
    let usage =
        |reason: &str, next: &'static str| Failure::usage("create", &args.name, reason, next);
    if args.dry_run {
        return Err(usage("memory is written by nobody else", "leave --dry-run out"));
    }
    let size = |member: &MemberArg| match member {
        MemberArg::Memory(size) => Some(size.0),
        _ => None,
    };
    let Some(sizes) = args.members.iter().map(size).collect::<Option<Vec<u64>>>() else {
        let reason = "an array has either all of its members in memory or none";
        return Err(usage(reason, "name members of one kind"));
    };
    let mut sizes = sizes;
    match &args.write_journal {
        None => {}
        Some(MemberArg::Memory(size)) => sizes.push(size.0),
        Some(_) => return Err(usage("the journal is not in memory", "use mem:SIZE for it, too")),
    }
    let names = (0..sizes.len()).map(|index| Some(PathBuf::from(format!("mem:{index}"))));
    let plan = Creation::of(args, names.collect())?;
    let exports = launch::exports("create", &args.export, args.insecure)?;
    launch("create", &args.name, args.foreground, daemon, |daemon| {
        let devices = memory(&plan, &sizes)?;
        // New memory is all zero, with which every parity agrees.
        let plan = Creation { assume_clean: true, ..plan };
        write(&plan, &devices, &blueprint(&plan, &devices)?)?;
        let found = devices.into_iter().flatten().map(found::read).collect();
        let array = crate::cmd::assemble::all_in(&plan.name, found)?;
        launch::serve("create", run_dir, plan.name, array, exports.into(), daemon)
    })
}

fn memory(plan: &Creation, sizes: &[u64]) -> Result<Vec<Option<MemberFile>>, Failure> {
    let member = |(name, &bytes): (&Option<PathBuf>, &u64)| {
        let name = name.clone().unwrap_or_default();
        member::memory(name.clone(), bytes).map(Some).map_err(|error| {
            let next = "use smaller members; a member has at least 512 bytes";
            Failure::refused("create", name.display(), system_error(&error), next)
        })
    };
    plan.members.iter().zip(sizes).map(member).collect()
}
