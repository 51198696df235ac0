//! `braid update`: the consistency policy of an array that is stopped, changed. Everything is
//! checked before the first byte is written.

mod disks;
mod nodes;

use std::path::PathBuf;

use braid_array::format::Superblock;

use super::found;
use crate::args::{MemberArg, NewPolicy, UpdateArgs};
use crate::failure::Failure;
use crate::output;

pub(super) fn run(args: &UpdateArgs) -> Result<(), Failure> {
    let (paths, nodes) = found::stopped_members("update", &args.name, &args.members)?;
    let journal = journal(args)?;
    match nodes.first() {
        None => disks::run(args, &paths, journal),
        Some(node) if !paths.is_empty() => Err(found::mixed("update", node)),
        Some(_) if journal.is_some() => {
            let reason = "over nodes a journal lies on the volumes of the array";
            Err(Failure::usage("update", &args.name, reason, "leave --write-journal out"))
        }
        Some(_) => {
            args.overlay.refuse("update", &args.name)?;
            nodes::run(args, &nodes)
        }
    }
}

/// The device that is to hold the journal.
fn journal(args: &UpdateArgs) -> Result<Option<PathBuf>, Failure> {
    match &args.write_journal {
        None => Ok(None),
        Some(_) if args.consistency_policy != NewPolicy::Journal => {
            let reason = "--write-journal and --consistency-policy contradict each other";
            Err(Failure::usage("update", &args.name, reason, "leave --write-journal out"))
        }
        Some(MemberArg::Path(path)) => Ok(Some(path.clone())),
        Some(_) => {
            let next = "name a file or block device";
            Err(Failure::usage("update", &args.name, "that cannot be a journal", next))
        }
    }
}

const fn word(policy: NewPolicy) -> &'static str {
    match policy {
        NewPolicy::Resync => "resync",
        NewPolicy::Bitmap => "bitmap",
        NewPolicy::Ppl => "ppl",
        NewPolicy::Journal => "journal",
    }
}

fn has_it_already(args: &UpdateArgs) -> Result<(), Failure> {
    let word = word(args.consistency_policy);
    output::answer(&format!("{}: has policy {word} already\n", args.name))
}

/// Checks that the members belong to the named array.
fn check_name<'a>(
    args: &UpdateArgs,
    superblocks: impl Iterator<Item = &'a Superblock> + Clone,
) -> Result<(), Failure> {
    if superblocks.clone().any(|superblock| found::is_called(superblock, &args.name)) {
        return Ok(());
    }
    let reason = match superblocks.into_iter().next() {
        Some(superblock) => format!("the members are those of {}", superblock.title()),
        None => "the members have no superblocks".to_owned(),
    };
    let next = "say the name that braid examine shows, and name the members";
    Err(Failure::refused("update", &args.name, reason, next))
}

/// Returns the advice after a failed write to one of several members.
fn again(args: &UpdateArgs) -> String {
    format!(
        "see whether array {} is complete with braid assemble --explain, and update it again",
        args.name
    )
}
