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
    call("fail", run_dir, named(&args.of), |member| Verb::Fail { member, force })
}

pub(super) fn remove(run_dir: &Path, args: &MemberOfArgs) -> Result<(), Failure> {
    call("remove", run_dir, named(args), |member| Verb::Remove { member })
}

pub(super) fn add(run_dir: &Path, args: &AddArgs) -> Result<(), Failure> {
    let force = args.force;
    // An array within is told after a slash, which no name has.
    let (name, within) = match args.of.name.split_once('/') {
        Some((name, within)) => (name, Some(within.to_owned())),
        None => (args.of.name.as_str(), None),
    };
    if args.journal {
        let add = |member| Verb::AddJournal { member, force };
        return call("add", run_dir, (name, &args.of.member), add);
    }
    let add = |member| Verb::Add { member, force, within };
    call("add", run_dir, (name, &args.of.member), add)?;
    // It is done; what is only a warning may fail to be found out.
    let status = running::status("add", run_dir, name);
    if let (Ok(status), Ok(device)) = (status, member::peek(&args.of.member)) {
        let arrays = std::iter::once(&status.array).chain(&status.array.children);
        let used = arrays.map(|array| array.used_member_sectors).min().unwrap_or(0);
        let unused = device.sectors.saturating_sub(used);
        if used > 0 && unused > device.sectors / 2 {
            let path = args.of.member.display();
            let [unused, all] = [unused, device.sectors].map(|sectors| sectors >> 11);
            let line = format!("add {name}: {path}: {unused} of {all} MiB stay unused");
            output::warning(&format!("{line}, as much smaller the other members are"));
        }
    }
    Ok(())
}

pub(super) fn re_add(run_dir: &Path, args: &MemberOfArgs) -> Result<(), Failure> {
    call("re-add", run_dir, named(args), |member| Verb::ReAdd { member })
}

pub(super) fn replace(run_dir: &Path, args: &ReplaceArgs) -> Result<(), Failure> {
    let with = args.with.as_deref().map(member_path);
    call("replace", run_dir, named(&args.of), |member| Verb::Replace { member, with })
}

/// The array, and the member of it.
fn named(args: &MemberOfArgs) -> (&str, &Path) {
    (&args.name, &args.member)
}

fn call(
    operation: &str,
    run_dir: &Path,
    (name, member): (&str, &Path),
    verb: impl FnOnce(String) -> Verb,
) -> Result<(), Failure> {
    let mut client = running::connect(operation, run_dir, name)?;
    let object = format!("{name} {}", member.display());
    let array = match member.to_str() {
        Some(word) => client
            .status()
            .map_err(|error| Failure::explained(operation, name, error))?
            .array
            .child_called(word)
            .map(|(_, child)| child.superblock.title()),
        None => None,
    };
    let answer = client.call(verb(array.unwrap_or_else(|| member_path(member))));
    answer.map(drop).map_err(|error| Failure::explained(operation, object, error))
}
