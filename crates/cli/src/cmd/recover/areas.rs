//! Disks of which a part is a member: the array is looked for in its partitions, and another one in
//! others of the same disks, or before and behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use braid_array::SECTOR_BYTES;
use braid_host::member::{self, DevicePart, MemberFile, MemberName};
use braid_rescue::recover::Confidence;

use super::gather::Read;
use super::open;
use super::placed::PlacedArguments;
use crate::args::RecoverArgs;
use crate::failure::Failure;
use crate::output::recovered::{PlacedMember, Recovered};

/// The least that another array is looked for in, of each disk.
const LEAST_BYTES: u64 = 4 << 20;
/// Parts of disks begin at multiples of this.
const ALIGNED_BYTES: u64 = 1 << 20;

/// A part of each of some disks, by their numbers.
type Area = Vec<(usize, PathBuf)>;

/// All that is found, the best of each array first.
pub(super) fn all(
    args: &RecoverArgs,
    disks: &[MemberFile],
    read: &mut Read,
) -> Result<Vec<Recovered>, Failure> {
    let mut found = PlacedArguments { args, devices: disks }.all(&read.judge(disks));
    // A partition ends before its disk: what is behind it is not of the array.
    if let Some(parts) = partitions(disks, &found) {
        found = within(args, disks, read, &parts)?;
    }
    let mut others = Vec::new();
    for area in further(disks, &found) {
        // A part that cannot be opened holds no array.
        let mut more = within(args, disks, read, &area).unwrap_or_default();
        more.retain(|one| one.confidence != Confidence::Guess);
        others.extend(more.into_iter().take(1));
    }
    // Of whole disks no more is known then.
    if !others.is_empty() && found.iter().all(|one| one.confidence == Confidence::Guess) {
        found.clear();
    }
    for mut one in others {
        one.array = found.last().map_or(0, |one| one.array) + 1;
        found.push(one);
    }
    Ok(found)
}

/// Searches areas of disks.
fn within(
    args: &RecoverArgs,
    disks: &[MemberFile],
    read: &Read,
    area: &Area,
) -> Result<Vec<Recovered>, Failure> {
    let names: Vec<PathBuf> = area.iter().map(|(_, name)| name.clone()).collect();
    let devices = open(args, &names)?;
    let each = area.iter().zip(&devices);
    let bytes: Vec<(usize, Range<u64>)> =
        each.map(|((disk, _), member)| (*disk, bytes_of(&disks[*disk], member))).collect();
    let judged = read.within(&bytes).judge(&devices);
    Ok(PlacedArguments { args, devices: &devices }.all(&judged))
}

/// Returns the byte range of a partition on its disk, or the whole range if the member is the disk
/// itself.
fn bytes_of(disk: &MemberFile, member: &MemberFile) -> Range<u64> {
    match &member.part {
        Some(part) if disk.part.is_none() => part.clone(),
        _ => 0..disk.sectors * SECTOR_BYTES,
    }
}

/// Returns the members of the results, also those of arrays that are members.
fn placed(found: &[Recovered]) -> impl Iterator<Item = &PlacedMember> {
    let legs = found.iter().flat_map(|one| one.legs.iter().map(|leg| &leg.array));
    found.iter().chain(legs).flat_map(|one| one.roles.iter().flatten())
}

/// Returns the members, as partitions of disks where the best hypothesis has them there; `None` if
/// it has no member in a partition.
fn partitions(disks: &[MemberFile], found: &[Recovered]) -> Option<Area> {
    let best = &found[..found.len().min(1)];
    let names = disks.iter().map(|device| {
        let within = |place: &&PlacedMember| {
            let name = MemberName::of(Path::new(&place.member));
            name.part.is_some() && name.file == device.path
        };
        let part = placed(best).find(within);
        part.map_or_else(|| device.path.clone(), |place| PathBuf::from(&place.member))
    });
    let names: Area = names.enumerate().collect();
    names.iter().any(|(disk, name)| disks[*disk].path != *name).then_some(names)
}

/// Returns areas of disks in which another array may lie: other partitions, or without any, the
/// areas before the best array and behind its content.
fn further(disks: &[MemberFile], found: &[Recovered]) -> Vec<Area> {
    let tables = other_partitions(disks, found);
    match found.first() {
        _ if !tables.is_empty() => tables,
        Some(best) if best.confidence != Confidence::Guess => beside(disks, best),
        _ => Vec::new(),
    }
}

/// Partitions with the same number on two disks or more, of which no array was found yet.
fn other_partitions(disks: &[MemberFile], found: &[Recovered]) -> Vec<Area> {
    let names = placed(found).map(|place| PathBuf::from(&place.member));
    let used: BTreeSet<Option<u32>> = names
        .map(|name| match MemberName::of(&name).part {
            Some(DevicePart::Partition(number)) => Some(number),
            _ => None,
        })
        .collect();
    let mut areas: BTreeMap<u32, Area> = BTreeMap::new();
    for (index, disk) in disks.iter().enumerate().filter(|(_, disk)| disk.part.is_none()) {
        let Ok(table) = member::partitions(disk) else { continue };
        let large = |bytes: u64| bytes >= LEAST_BYTES;
        for one in table.partitions.iter().filter(|one| large(one.size_bytes)) {
            if !one.kind.is_extended() && !used.contains(&Some(one.number)) {
                let part = Some(DevicePart::Partition(one.number));
                let name = MemberName { file: disk.path.clone(), part }.name();
                areas.entry(one.number).or_default().push((index, name));
            }
        }
    }
    areas.into_values().filter(|area| area.len() > 1).collect()
}

/// Returns the areas before an array that begins far behind the start of its disks, and behind its
/// content.
fn beside(disks: &[MemberFile], best: &Recovered) -> Vec<Area> {
    let whole = disks.iter().all(|disk| disk.part.is_none());
    if !whole || !best.legs.is_empty() {
        return Vec::new();
    }
    let offsets = || best.roles.iter().flatten().map(|place| place.data_offset_bytes);
    let (Some(first), Some(last)) = (offsets().min(), offsets().max()) else { return Vec::new() };
    let part = |offset: u64, size: Option<u64>| -> Area {
        let part = Some(DevicePart::Bytes { offset, size });
        let name = |disk: &MemberFile| MemberName { file: disk.path.clone(), part }.name();
        disks.iter().map(name).enumerate().collect()
    };
    let mut areas = Vec::new();
    let before = first / ALIGNED_BYTES * ALIGNED_BYTES;
    if before >= LEAST_BYTES {
        areas.push(part(0, Some(before)));
    }
    let needed = best.needed_sectors.and_then(|sectors| best.shape.used_of_each(sectors));
    let smallest = disks.iter().map(|disk| disk.sectors * SECTOR_BYTES).min().unwrap_or(0);
    let end = |sectors: u64| last.saturating_add(sectors.saturating_mul(SECTOR_BYTES));
    let behind = needed.map(end).and_then(|end| end.checked_next_multiple_of(ALIGNED_BYTES));
    if let Some(behind) = behind.filter(|behind| smallest.saturating_sub(*behind) >= LEAST_BYTES) {
        areas.push(part(behind, None));
    }
    areas
}
