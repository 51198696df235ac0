//! Another shape for an array over nodes. It gets a larger size, as much as the stores of all nodes
//! have room for, or more nodes.

use std::collections::BTreeMap;
use std::path::Path;

use braid_array::grow::Grow;
use braid_array::status::Status;
use braid_array::{Refusal, SECTOR_BYTES};
use braid_cluster::grow::{self, NewSize};
use braid_host::control::wire::{Answer, ControlStatus, Verb};

use super::alone::alone;
use super::{OPERATION, more_nodes};
use crate::args::{self, GrowArgs};
use crate::cmd::running;
use crate::failure::Failure;
use crate::output;
use crate::output::growth::Growth;

/// Returns whether the members are on nodes.
pub(super) fn has_nodes(status: &Status) -> bool {
    status.members.iter().any(|member| member.device.starts_with("node://"))
}

pub(super) fn run(run_dir: &Path, args: &GrowArgs, before: &ControlStatus) -> Result<(), Failure> {
    let name = &args.name;
    let refused = |why: Refusal| Failure::explained(OPERATION, name, why.about(name));
    if args.array_size.is_some() {
        let reason = "an array over nodes does not become smaller";
        return Err(Failure::usage(OPERATION, name, reason, "leave --array-size out"));
    }
    if args.suspend_policy {
        let reason = "the policy of an array over nodes stays as it is meanwhile";
        return Err(Failure::usage(OPERATION, name, reason, "leave --suspend-policy out"));
    }
    if args.undo {
        return more_nodes::undo(run_dir, args, before);
    }
    let other_shape = args.level.is_some() || args.layout.is_some() || args.chunk.is_some();
    let Some(size) = args.size else {
        if !other_shape {
            return more_nodes::run(run_dir, args);
        }
        return Err(refused(Refusal::new(
            "over nodes only the size of an array and the number of its nodes can change",
            "use --size or --raid-devices; for another shape make a new array and copy the data",
        )));
    };
    let (lock, before) = alone(run_dir, args)?;
    let new = match (size, rooms(run_dir, name)) {
        (args::NewSize::Of(size), Ok(rooms)) => planned(&before.array, &rooms, size.0),
        // The nodes refuse what they have no room for.
        (args::NewSize::Of(size), Err(_)) => grow::plan(&before.array, size.0 / SECTOR_BYTES),
        (args::NewSize::Max, rooms) => most(&before.array, &rooms?),
    };
    let new = new.map_err(refused)?;
    let mut growth = Growth::over_nodes(&before, &new);
    growth.dry_run = args.dry_run;
    if !args.json {
        output::answer(&growth.plan())?;
    }
    if !args.dry_run {
        let grow = Grow::Size(Some(new.member_sectors));
        running::call(OPERATION, run_dir, name, Verb::Grow { grow, suspend_policy: false })?;
    }
    drop(lock);
    if args.json {
        return output::print_json(&growth);
    }
    if args.dry_run { Ok(()) } else { output::answer(&growth.done("")) }
}

/// Asks for the sectors that each node has room for.
fn rooms(run_dir: &Path, name: &str) -> Result<BTreeMap<String, u64>, Failure> {
    match running::call(OPERATION, run_dir, name, Verb::Rooms)? {
        Answer::Rooms(rooms) => Ok(rooms),
        _ => {
            let next = "update braid everywhere, and stop and assemble the array";
            Err(Failure::refused(OPERATION, name, "the array answers something else", next))
        }
    }
}

/// Plans a size in bytes of each member.
fn planned(status: &Status, rooms: &BTreeMap<String, u64>, bytes: u64) -> Result<NewSize, Refusal> {
    let new = grow::plan(status, bytes / SECTOR_BYTES)?;
    match rooms.iter().find(|(_, room)| **room < new.member_sectors) {
        None => Ok(new),
        Some((member, room)) => {
            let missing = (new.member_sectors - room) * SECTOR_BYTES;
            let reason = format!("the node of {member} lacks {missing} bytes for that");
            Err(Refusal::new(reason, "make room in its file system, or name a smaller size"))
        }
    }
}

/// Plans the largest size.
fn most(status: &Status, rooms: &BTreeMap<String, u64>) -> Result<NewSize, Refusal> {
    grow::check(status)?;
    let Some((member, &room)) = rooms.iter().min_by_key(|(_, room)| **room) else {
        return Err(Refusal::new("no node is there", "bring them back"));
    };
    grow::plan(status, room).map_err(|_| {
        let reason = format!("the node of {member} has no room for another stripe");
        Refusal::new(reason, "make room in its file system")
    })
}

#[cfg(test)]
mod tests {
    use braid_array::level::{Layout, Level};
    use braid_array::status::ArrayState;

    use super::*;

    /// A RAID-5 over three nodes with chunks of 64 KiB, of which each has one.
    fn array() -> Status {
        let mut status = Status { used_member_sectors: 128, ..Status::blank() };
        let superblock = &mut status.superblock;
        superblock.level = Level::Raid5.to_md();
        superblock.layout = Layout::default_for(Level::Raid5).encode();
        superblock.raid_disks = 3;
        superblock.chunk_sectors = 128;
        Status { state: ArrayState::Clean, ..status }
    }

    fn rooms(sizes: &[u64]) -> BTreeMap<String, u64> {
        let named = |(at, &size)| (format!("node://n{at}/v"), size);
        sizes.iter().enumerate().map(named).collect()
    }

    #[test]
    fn the_store_with_the_least_room_decides() {
        let status = array();
        let size = |new: Result<NewSize, Refusal>| new.map(|new| new.member_sectors);
        assert_eq!(size(most(&status, &rooms(&[900, 400, 777]))), Ok(384));
        let none = most(&status, &rooms(&[900, 255])).unwrap_err();
        assert_eq!(none.reason, "the node of node://n1/v has no room for another stripe");
        assert_eq!(size(planned(&status, &rooms(&[900, 400]), 200 << 10)), Ok(384));
        let lacks = planned(&status, &rooms(&[900, 400]), 300 << 10).unwrap_err();
        assert_eq!(lacks.reason, "the node of node://n1/v lacks 57344 bytes for that");
    }

    #[test]
    fn an_array_that_cannot_change_says_why_whatever_room_there_is() {
        let status = Status { degraded: 1, ..array() };
        for room in [100, 900] {
            let why = most(&status, &rooms(&[room])).unwrap_err();
            assert!(why.reason.contains("missing"), "{why}");
        }
    }
}
