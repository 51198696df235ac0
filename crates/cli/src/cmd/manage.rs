//! Commands that change a running array.

use std::path::Path;

use braid_array::level::Level;
use braid_array::status::{ArrayState, MemberState, MemberStatus, Status};
use braid_host::control::wire::Verb;
use braid_host::control::{Client, member_path};
use braid_host::member;

use super::{grow, running};
use crate::args::{AddArgs, FailArgs, MemberOfArgs, RemoveArgs, ReplaceArgs, StopArgs};
use crate::failure::Failure;
use crate::invocation::shell_word;
use crate::output;

pub(super) fn stop(run_dir: &Path, args: &StopArgs) -> Result<(), Failure> {
    match &args.name {
        Some(name) => stop_one(run_dir, name, args.force),
        None => stop_all(run_dir, args.force),
    }
}

fn stop_one(run_dir: &Path, name: &str, force: bool) -> Result<(), Failure> {
    let client = running::connect("stop", run_dir, name)?;
    client.stop(force).map_err(|error| Failure::explained("stop", name, error))
}

/// An array that another one lies on can be stopped once that is: as long as one goes, the rest is
/// tried again.
fn stop_all(run_dir: &Path, force: bool) -> Result<(), Failure> {
    let mut left = running::names("stop", run_dir)?;
    if left.is_empty() {
        return output::answer("no arrays are running\n");
    }
    loop {
        let before = left.len();
        let mut refused: Vec<(String, Failure)> = Vec::new();
        for name in left {
            match stop_one(run_dir, &name, force) {
                Ok(()) => output::answer(&format!("{name}: stopped\n"))?,
                Err(failure) => refused.push((name, failure)),
            }
        }
        if refused.is_empty() {
            return Ok(());
        }
        if refused.len() == before {
            refused.iter().for_each(|(_, failure)| output::failure(failure));
            return Err(Failure::Silent(Failure::REFUSED));
        }
        left = refused.into_iter().map(|(name, _)| name).collect();
    }
}

pub(super) fn fail(run_dir: &Path, args: &FailArgs) -> Result<(), Failure> {
    let force = args.force;
    let name = &args.of.name;
    let before = running::status("fail", run_dir, name)?.array;
    call("fail", run_dir, named(&args.of), |member| Verb::Fail { member, force })?;
    // It is done; what is only a warning may fail to be found out.
    if let Ok(status) = running::status("fail", run_dir, name) {
        for warning in redundancy_lost(&before, &status.array) {
            output::warning(&format!("fail {name}: {warning}"));
        }
    }
    Ok(())
}

/// Returns a warning for the array, and for each inner array, that has just lost its redundancy.
fn redundancy_lost(before: &Status, now: &Status) -> Vec<String> {
    let needed = |of: &Status| -> Vec<String> {
        let members = of.members.iter().filter(|member| member.needed);
        members.map(|member| member.device.clone()).collect()
    };
    let warning = |place: &str, what: &str, before: &Status, now: &Status| {
        let could_lose = needed(before);
        let needed = needed(now);
        let is_new = needed.iter().any(|member| !could_lose.contains(member));
        (is_new && now.state != ArrayState::Failed).then(|| {
            let members = needed.join(" or ");
            format!("no redundancy is left{place}: {what} fails if it loses {members} as well")
        })
    };
    let within = before.children.iter().zip(&now.children).filter_map(|(before, now)| {
        warning(&format!(" in {}", now.superblock.title()), "it", before, now)
    });
    warning("", "the array", before, now).into_iter().chain(within).collect()
}

pub(super) fn remove(run_dir: &Path, args: &RemoveArgs) -> Result<(), Failure> {
    let is_chosen: fn(&MemberStatus) -> bool = match args.member.to_str() {
        Some("failed") => |member| member.state == MemberState::Faulty,
        Some("detached") => |member| {
            let unused = matches!(member.state, MemberState::Faulty | MemberState::Spare);
            unused && is_gone(&member.device)
        },
        _ => {
            let named = (args.name.as_str(), args.member.as_path());
            return call("remove", run_dir, named, |member| Verb::Remove { member });
        }
    };
    let array = running::status("remove", run_dir, &args.name)?.array;
    let members = std::iter::once(&array).chain(&array.children).flat_map(|array| &array.members);
    for MemberStatus { device, .. } in members.filter(|member| is_chosen(member)) {
        let member = Path::new(device);
        call("remove", run_dir, (&args.name, member), |member| Verb::Remove { member })?;
        output::answer(&format!("{}: removed {device}\n", args.name))?;
    }
    Ok(())
}

/// Returns whether no file or device of this name exists any more. Names on nodes return false: the
/// array asks the nodes.
pub(super) fn is_gone(device: &str) -> bool {
    let is_path = Path::new(device).is_absolute();
    is_path && !Path::new(device).exists()
}

pub(super) fn add(run_dir: &Path, args: &AddArgs) -> Result<(), Failure> {
    let force = args.force;
    // An array within is told after a slash, which no name has.
    let (name, within) = match args.of.name.split_once('/') {
        Some((name, within)) if !name.is_empty() => (name, Some(within.to_owned())),
        _ => (args.of.name.as_str(), None),
    };
    if args.journal {
        let add = |member| Verb::AddJournal { member, force };
        call("add", run_dir, (name, &args.of.member), add)?;
        return output::answer(&format!("{name}: added {}: journal\n", args.of.member.display()));
    }
    if let Ok(status) = running::status("add", run_dir, name)
        && status.array.children.is_empty()
        && let Some(level @ (Level::Linear | Level::Raid0)) =
            Level::from_md(status.array.superblock.level)
    {
        let members = status.array.superblock.raid_disks + 1;
        let object = format!("{name} {}", args.of.member.display());
        let device = shell_word(&args.of.member.to_string_lossy());
        let next =
            format!("braid grow {} --raid-devices {members} --add {device}", shell_word(name));
        let reason = format!("{level} has no use for a spare");
        return Err(Failure::refused("add", object, reason, next));
    }
    let add = |member| Verb::Add { member, force, within: within.clone() };
    call("add", run_dir, (name, &args.of.member), add)?;
    // It is done; what is only a warning may fail to be found out.
    let status = running::status("add", run_dir, name);
    let state = status.as_ref().ok().and_then(|status| state_of(&status.array, &args.of.member));
    let state = state.map(|word| format!(": {word}")).unwrap_or_default();
    output::answer(&format!("{name}: added {}{state}\n", args.of.member.display()))?;
    grow::remember(run_dir, name, &member_path(&args.of.member));
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

/// Returns the state of a member, of the array or one within it, in a word.
fn state_of(array: &Status, member: &Path) -> Option<&'static str> {
    let device = member_path(member);
    let arrays = std::iter::once(array).chain(&array.children);
    let mut members = arrays.flat_map(|array| &array.members);
    let found = members.find(|one| one.device == device)?;
    Some(output::json::member_word(found.state))
}

pub(super) fn re_add(run_dir: &Path, args: &MemberOfArgs) -> Result<(), Failure> {
    call("re-add", run_dir, named(args), |member| Verb::ReAdd { member })
}

pub(super) fn replace(run_dir: &Path, args: &ReplaceArgs) -> Result<(), Failure> {
    let with = args.with.as_deref().map(member_path);
    let replace = |member| Verb::Replace { member, with: with.clone() };
    call("replace", run_dir, named(&args.of), replace)
}

/// The array, and the member of it.
fn named(args: &MemberOfArgs) -> (&str, &Path) {
    (&args.name, &args.member)
}

fn call(
    operation: &str,
    run_dir: &Path,
    (name, member): (&str, &Path),
    verb: impl Fn(String) -> Verb,
) -> Result<(), Failure> {
    let question = |client: &mut Client| {
        let array = match member.to_str() {
            Some(word) => {
                let status = client.status()?;
                status.array.child_called(word).map(|(_, child)| child.superblock.title())
            }
            None => None,
        };
        match client.call(verb(array.unwrap_or_else(|| member_path(member)))) {
            Err(error) if error.is_of_another_program() => Err(error),
            answer => Ok(answer),
        }
    };
    let (_, answer) = running::ask(operation, run_dir, name, question)?;
    let object = format!("{name} {}", member.display());
    answer.map(drop).map_err(|error| Failure::explained(operation, object, error))
}
