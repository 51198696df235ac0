//! `braid update`: the consistency policy of an array that is stopped, changed. Everything is
//! checked before the first byte is written.

use std::path::PathBuf;

use braid_array::SECTOR_BYTES;
use braid_array::assemble::Candidate;
use braid_array::policy::{Policy, PolicyChange};
use braid_host::member::MemberFile;

use super::found::{self, Found, Use};
use super::writes;
use crate::args::{MemberArg, NewPolicy, UpdateArgs};
use crate::failure::{Failure, system_error};
use crate::invocation::shell_word;
use crate::output;

pub(super) fn run(args: &UpdateArgs) -> Result<(), Failure> {
    let paths = paths(args)?;
    let found = found::open_all("update", &paths, Use::Serve)?;
    check_name(args, &found)?;
    let (policy, word) = match args.consistency_policy {
        NewPolicy::Resync => (Policy::Resync, "resync"),
        NewPolicy::Bitmap => (Policy::Bitmap, "bitmap"),
        NewPolicy::Ppl => (Policy::PartialParity, "ppl"),
    };
    let (devices, candidates): (Vec<MemberFile>, Vec<Candidate>) =
        found.into_iter().map(|one| (one.device, one.candidate)).unzip();
    let change = PolicyChange::plan(&candidates, policy, writes::now())
        .map_err(|why| Failure::explained("update", &args.name, why))?;
    let Some(change) = change else {
        return output::answer(&format!("{}: has policy {word} already\n", args.name));
    };
    prove_writable(&devices, &change)?;
    write(args, &devices, &change)?;
    let words = devices.iter().map(|device| shell_word(&device.path.display().to_string()));
    let words: Vec<String> = words.collect();
    let name = shell_word(&args.name);
    output::answer(&format!("braid assemble {name} {}\n", words.join(" ")))
}

fn paths(args: &UpdateArgs) -> Result<Vec<PathBuf>, Failure> {
    let path = |member: &MemberArg| match member {
        MemberArg::Path(path) => Ok(path.clone()),
        MemberArg::Node(node) => {
            let reason = "an array over nodes has the policy with which it was created: its nodes \
                          set room for journals aside then";
            let next = "copy what it holds to an array that is created with another one";
            Err(Failure::refused("update", node, reason, next))
        }
        MemberArg::Memory(_) | MemberArg::Missing => {
            let next = "name the files or devices";
            Err(Failure::usage("update", &args.name, "memory holds no array that is stopped", next))
        }
    };
    args.members.iter().map(path).collect()
}

/// Are the members those of the array that is meant?
fn check_name(args: &UpdateArgs, found: &[Found]) -> Result<(), Failure> {
    let superblocks = || found.iter().filter_map(|one| one.candidate.superblock.as_ref().ok());
    if superblocks().any(|superblock| found::is_called(superblock, &args.name)) {
        return Ok(());
    }
    let reason = match superblocks().next() {
        Some(superblock) => format!("the members are those of {}", superblock.title()),
        None => "the members have no superblocks".to_owned(),
    };
    let next = "say the name that braid examine shows, and name the members";
    Err(Failure::refused("update", &args.name, reason, next))
}

/// A device that takes no writes, or has no room for them, is found before any is changed.
fn prove_writable(devices: &[MemberFile], change: &PolicyChange) -> Result<(), Failure> {
    for (index, device) in devices.iter().enumerate() {
        let of_device = |(of, ..): &(usize, u64, &[u8])| *of == index;
        let writes = change.areas().chain(change.superblocks()).filter(of_device);
        let places = writes.map(|(_, sector, bytes)| (sector, bytes.len()));
        writes::prove_writable("update", device, places)?;
    }
    Ok(())
}

/// The superblocks come last, each durable before the next one is begun.
fn write(args: &UpdateArgs, devices: &[MemberFile], change: &PolicyChange) -> Result<(), Failure> {
    let put = |(index, sector, bytes): (usize, u64, &[u8])| {
        let device = &devices[index];
        let written = device.write_at(sector * SECTOR_BYTES, bytes).and_then(|()| device.sync());
        written.map_err(|error| {
            let next = format!(
                "see whether array {} is complete with braid assemble --explain, and update it \
                 again",
                args.name
            );
            Failure::refused("update", device.path.display(), system_error(&error), next)
        })
    };
    change.areas().try_for_each(put)?;
    change.superblocks().try_for_each(put)
}
