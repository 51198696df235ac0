//! Commands that change a running array.

use std::path::Path;

use braid_host::control::member_path;
use braid_host::control::wire::Verb;
use braid_host::member;

use super::running;
use crate::args::{AddArgs, FailArgs, MemberOfArgs, ReplaceArgs, StopArgs};
use crate::failure::Failure;
use crate::output;

pub(super) fn stop(run_dir: &Path, args: &StopArgs) -> Result<(), Failure> {
    let client = running::connect("stop", run_dir, &args.name)?;
    client.stop(args.force).map_err(|error| Failure::explained("stop", &args.name, error))
}

pub(super) fn fail(run_dir: &Path, args: &FailArgs) -> Result<(), Failure> {
    let force = args.force;
    call("fail", run_dir, &args.of, |member| Verb::Fail { member, force })
}

pub(super) fn remove(run_dir: &Path, args: &MemberOfArgs) -> Result<(), Failure> {
    call("remove", run_dir, args, |member| Verb::Remove { member })
}

pub(super) fn add(run_dir: &Path, args: &AddArgs) -> Result<(), Failure> {
    let force = args.force;
    call("add", run_dir, &args.of, |member| Verb::Add { member, force })?;
    // It is done; what is only a warning may fail to be found out.
    let status = running::status("add", run_dir, &args.of.name);
    if let (Ok(status), Ok(device)) = (status, member::peek(&args.of.member)) {
        let arrays = std::iter::once(&status.array).chain(&status.array.children);
        let used = arrays.map(|array| array.used_member_sectors).min().unwrap_or(0);
        let unused = device.sectors.saturating_sub(used);
        if used > 0 && unused > device.sectors / 2 {
            let (name, path) = (&args.of.name, args.of.member.display());
            let [unused, all] = [unused, device.sectors].map(|sectors| sectors >> 11);
            let line = format!("add {name}: {path}: {unused} of {all} MiB stay unused");
            output::warning(&format!("{line}, as much smaller the other members are"));
        }
    }
    Ok(())
}

pub(super) fn re_add(run_dir: &Path, args: &MemberOfArgs) -> Result<(), Failure> {
    call("re-add", run_dir, args, |member| Verb::ReAdd { member })
}

pub(super) fn replace(run_dir: &Path, args: &ReplaceArgs) -> Result<(), Failure> {
    let with = args.with.as_deref().map(member_path);
    call("replace", run_dir, &args.of, |member| Verb::Replace { member, with })
}

fn call(
    operation: &str,
    run_dir: &Path,
    args: &MemberOfArgs,
    verb: impl FnOnce(String) -> Verb,
) -> Result<(), Failure> {
    let mut client = running::connect(operation, run_dir, &args.name)?;
    let object = format!("{} {}", args.name, args.member.display());
    let answer = client.call(verb(member_path(&args.member)));
    answer.map(drop).map_err(|error| Failure::explained(operation, object, error))
}
