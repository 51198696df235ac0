//! `braid recover`: the geometry of an array whose superblocks are lost, by what lies on its
//! members. They are read in samples, and nothing is written unless superblocks are asked for.

mod gather;
mod hints;
mod kept;
mod left;
mod saved;
mod write;

use std::ops::Range;
use std::path::{Path, PathBuf};

use braid_array::SECTOR_BYTES;
use braid_host::member::{self, MemberFile, MemberName, Part};
use braid_rescue::recover::Ranked;

use super::found::{self, Use};
use super::given::Given;
use super::maps;
use crate::args::RecoverArgs;
use crate::failure::Failure;
use crate::output;
use crate::output::recovered::{Placed, Recovered};

const OPERATION: &str = "recover";

pub(super) fn run(args: &RecoverArgs) -> Result<(), Failure> {
    if let Some(file) = &args.undo {
        return saved::undo(file);
    }
    let mut devices = open(args, &args.members)?;
    let mut read = gather::read(&devices, args.resume)?;
    let mut found = search(args, &devices, &mut read);
    // A partition ends before its disk: what is behind it is not of the array.
    if let Some(parts) = partitions(&devices, &found) {
        let disks = std::mem::replace(&mut devices, open(args, &parts)?);
        let bytes: Vec<Range<u64>> = disks.iter().zip(&devices).map(bytes_of).collect();
        found = search(args, &devices, &mut read.within(&bytes));
    }
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

fn search(args: &RecoverArgs, devices: &[MemberFile], read: &mut gather::Read) -> Vec<Recovered> {
    read.judge(devices).iter().map(|one| placed(args, one, devices)).collect()
}

/// Which bytes of a disk its partition is, or all of them where it is the member itself.
fn bytes_of((disk, member): (&MemberFile, &MemberFile)) -> Range<u64> {
    match &member.part {
        Some(part) if disk.part.is_none() => part.clone(),
        _ => 0..disk.sectors * SECTOR_BYTES,
    }
}

/// The same members where the best hypothesis has them in partitions of disks.
fn partitions(devices: &[MemberFile], found: &[Recovered]) -> Option<Vec<PathBuf>> {
    let best = found.first()?;
    let names: Vec<PathBuf> = devices
        .iter()
        .map(|device| {
            let within = |place: &&Placed| {
                let name = MemberName::of(Path::new(&place.member));
                name.part.is_some() && name.file == device.path
            };
            let part = best.roles.iter().flatten().find(within);
            part.map_or_else(|| device.path.clone(), |place| PathBuf::from(&place.member))
        })
        .collect();
    devices.iter().zip(&names).any(|(device, name)| device.path != *name).then_some(names)
}

/// Opens them to be looked at, whoever uses them.
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

/// A hypothesis with the members as they are to be named: a partition where the data lie in one.
fn placed(args: &RecoverArgs, ranked: &Ranked, devices: &[MemberFile]) -> Recovered {
    let shape = ranked.hypothesis.shape;
    // What lies on the array has room in it.
    let needed = ranked.needed_sectors.unwrap_or(0).div_ceil(shape.data_disks().max(1));
    let place = |place: &Option<braid_rescue::recover::Place>| {
        let place = (*place)?;
        let device = &devices[place.member];
        let data_offset_bytes = place.data_offset * SECTOR_BYTES;
        let bytes = data_offset_bytes..data_offset_bytes.saturating_add(needed * SECTOR_BYTES);
        Some(in_partition(device, &bytes).unwrap_or_else(|| Placed {
            member: device.path.display().to_string(),
            data_offset_bytes,
        }))
    };
    let roles: Vec<Option<Placed>> = ranked.hypothesis.roles.iter().map(place).collect();
    let members: Vec<&str> = roles.iter().flatten().map(|place| place.member.as_str()).collect();
    let given = Given { maps: &args.maps, overlay: args.overlay.dir(), reshape: None };
    Recovered {
        confidence: ranked.confidence,
        shape,
        evidence: ranked.evidence.clone(),
        needed_sectors: ranked.needed_sectors,
        options: given.maps_of(&members) + &args.overlay.words(),
        roles,
    }
}

/// The partition of a disk in which these bytes of a member lie, all of them: somebody may have
/// written a table over a member that is a whole disk.
fn in_partition(disk: &MemberFile, member: &Range<u64>) -> Option<Placed> {
    if disk.part.is_some() {
        return None;
    }
    let table = member::partitions(disk).ok()?;
    let within = |one: &&braid_rescue::partitions::Partition| {
        let bytes = one.start_bytes..one.start_bytes.saturating_add(one.size_bytes);
        let holds = bytes.contains(&member.start) && member.end <= bytes.end;
        !one.kind.is_extended() && one.start_bytes > 0 && holds
    };
    let one = table.partitions.iter().find(within)?;
    let part = Some(Part::Partition(one.number));
    let name = MemberName { file: disk.path.clone(), part }.name();
    Some(Placed {
        member: name.display().to_string(),
        data_offset_bytes: member.start - one.start_bytes,
    })
}
