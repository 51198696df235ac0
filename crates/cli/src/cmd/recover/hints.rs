//! Hints by surviving superblocks, on members themselves and in partitions of disks.

use braid_array::SECTOR_BYTES;
use braid_array::format::superblock::feature;
use braid_array::format::{DevRole, Superblock};
use braid_array::level::{Layout, Level};
use braid_host::member::{self, DevicePart, MemberFile, MemberName};
use braid_rescue::recover::{Hints, MemberInRole, Shape};

/// A superblock, its member, and where on that it counts from, in sectors.
struct LeftSuperblock {
    superblock: Superblock,
    member: usize,
    start: u64,
}

/// Returns the hints of the array with the most surviving superblocks.
pub(super) fn of(devices: &[MemberFile]) -> Option<Hints> {
    let all: Vec<LeftSuperblock> =
        devices.iter().enumerate().flat_map(|(member, device)| left(member, device)).collect();
    let like = |one: &LeftSuperblock| {
        let same = |other: &&LeftSuperblock| other.superblock.set_uuid == one.superblock.set_uuid;
        all.iter().filter(same).count()
    };
    let newest = all.iter().max_by_key(|one| (like(one), one.superblock.events))?;
    let shape = shape(&newest.superblock)?;
    let mut roles: Vec<_> = Vec::new();
    let mut behind = Vec::new();
    for one in &all {
        let superblock = &one.superblock;
        let DevRole::Active(role) = superblock.role() else { continue };
        let is_of_it = superblock.set_uuid == newest.superblock.set_uuid;
        if is_of_it && is_behind(superblock, &newest.superblock) {
            behind.push(one.member);
            continue;
        }
        let new = !roles
            .iter()
            .any(|(known, place): &(_, MemberInRole)| *known == role || place.member == one.member);
        if is_of_it && new {
            let data_offset = one.start.checked_add(superblock.data_offset)?;
            roles.push((role, MemberInRole { member: one.member, data_offset }));
        }
    }
    (!roles.is_empty()).then_some(Hints { shape, roles, behind })
}

/// Returns whether the array continued without this member. A lag of one superblock update is
/// normal.
pub(super) fn is_behind(superblock: &Superblock, newest: &Superblock) -> bool {
    superblock.events.saturating_add(1) < newest.events
        || newest.role_of(superblock.dev_number) != superblock.role()
}

fn left(member: usize, device: &MemberFile) -> Vec<LeftSuperblock> {
    let itself = member::probe(device).superblock.ok();
    let itself = itself.map(|superblock| LeftSuperblock { superblock, member, start: 0 });
    if itself.is_some() || device.part.is_some() {
        return itself.into_iter().collect();
    }
    let Ok(table) = member::partitions(device) else { return Vec::new() };
    let within = table.partitions.iter().filter_map(|partition| {
        let part = Some(DevicePart::Partition(partition.number));
        let name = MemberName { file: device.path.clone(), part }.name();
        let superblock = member::probe(&member::peek(&name).ok()?).superblock.ok()?;
        Some(LeftSuperblock { superblock, member, start: partition.start_bytes / SECTOR_BYTES })
    });
    within.collect()
}

/// The geometry, unless it is being changed, or is one over nodes.
pub(super) fn shape(superblock: &Superblock) -> Option<Shape> {
    let level = Level::from_md(superblock.level)?;
    if superblock.has(feature::RESHAPE_ACTIVE) || level == Level::Linear {
        return None;
    }
    let layout = match Layout::decode(level, superblock.layout, superblock.raid_disks).ok()? {
        Layout::Raid0(_) => Layout::None,
        layout => layout,
    };
    let chunk_sectors = if level == Level::Raid1 { 0 } else { superblock.chunk_sectors };
    Some(Shape { level, layout, chunk_sectors, raid_disks: superblock.raid_disks })
}
