//! Rot: blocks of a member that change on the device after a stop, though nobody writes them.
//!
//! Only blocks whose checksum is known are changed, of one member of an array that lacks nothing:
//! each is noticed before anybody gets it, and comes back from the others.

use std::collections::BTreeSet;

use braid_array::assemble::Candidate;
use braid_array::format::superblock::{MAX_SECTOR, feature};
use braid_array::format::{DevRole, Superblock};
use braid_array::geometry::Strip;
use braid_array::integrity::FoundArea;

use braid_array::Role;
use braid_array::action::Command;

use super::Local;
use crate::disk::Disk;
use crate::local::assembly;
use crate::local::final_check::{self, run_until_idle};
use crate::local::progress::ask;
use crate::report::Failure;
use crate::rng::Rng;

/// Bytes of a block.
const BLOCK: usize = 4096;

/// Lets some blocks rot, if nothing else is wrong.
pub(super) fn strike(local: &mut Local, disks: &mut [Disk]) {
    if !local.scenario.sums
        || local.scenario.excess
        || local.lost_in_doubt
        || !local.rng.percent(60)
    {
        return;
    }
    let set_uuid = local.parts.devices[0].set_uuid;
    let Some(devices) = complete(local, disks, set_uuid) else { return };
    let device = local.rng.pick(&devices);
    let blocks = known(device, &disks[device]);
    if blocks.is_empty() {
        return;
    }
    let healthy = disks[device].clone();
    let mut touched = Vec::new();
    for _ in 0..local.rng.between(1, 3) {
        let sector = local.rng.pick(&blocks);
        let other = local.rng.pick(&blocks);
        let how = change(&mut disks[device], sector, other, &mut local.rng);
        local.note(&[80, sector], || format!("ROT device {device} sector {sector}: {how}"));
        touched.extend([sector, other]);
    }
    for sector in touched {
        let [was, is] = [&healthy, &disks[device]].map(|disk| disk.bytes(sector, BLOCK as u32));
        if is != was {
            local.rotten.insert((device, sector), is.expect("a block that is known"));
        }
    }
}

/// Checks, at the end of a life that no loss of power ends, that a complete check leaves no rot on
/// members.
pub(super) fn is_healed(local: &mut Local) -> Result<(), Failure> {
    local.sums.learned.clear();
    let learns = local.scenario.sums && local.rng.percent(25);
    if local.rotten.is_empty() && !learns || local.excess {
        return Ok(());
    }
    if learns {
        final_check::end_troubles(local)?;
    }
    local.parts.devices[0].sync_finished = None;
    if ask(local, Command::Scrub { repair: false })?.is_err() {
        return Ok(());
    }
    run_until_idle(local)?;
    let rotten = std::mem::take(&mut local.rotten);
    let status = local.status();
    let is_complete = local.parts.devices[0].checked() && status.degraded == 0;
    let roles = Role::all(local.parts.devices[0].roles());
    let holders: Vec<_> =
        roles.filter_map(|role| Some((local.holder_device(&status, role)?, role))).collect();
    let is_read = |device: usize, sector: u64| {
        holders.iter().any(|(holder, role)| *holder == device && is_used(local, *role, sector))
    };
    let mut left = Vec::new();
    for ((device, sector), bytes) in rotten {
        let is_rotten = local.disk(device).bytes(sector, BLOCK as u32).as_ref() == Ok(&bytes);
        // Zeroes may have been written there since.
        let is_told = bytes.iter().any(|byte| *byte != 0);
        if is_rotten && is_told && is_complete && is_read(device, sector) {
            return Err(Failure(format!("sector {sector} of device {device} is rotten still")));
        }
        if is_rotten {
            left.push(((device, sector), bytes));
        }
    }
    local.rotten.extend(left);
    let fits = [status.mismatch_sectors, Some(status.uncompared_sectors)];
    if is_complete && status.unreadable_sectors == 0 && fits == [Some(0); 2] {
        let works = |(device, _): &(usize, Role)| !local.sums.faulty.contains(device);
        local.sums.learned = holders.into_iter().filter(works).collect();
    }
    Ok(())
}

/// Checks, after a stop, that all is known that a complete check has found to fit, and that as many
/// blocks are known as was noted.
pub(super) fn is_known(local: &mut Local, disks: &[Disk]) -> Result<(), Failure> {
    let learned = std::mem::take(&mut local.sums.learned);
    // Members that have no room do not take their marks either.
    if !local.scenario.sums || local.scenario.excess || local.lost_in_doubt {
        return Ok(());
    }
    for (device, disk) in disks.iter().enumerate() {
        let Some((superblock, area)) = area(device, disk) else { continue };
        let read = |sector, bytes| disk.beside().unwrap_or(disk).bytes(sector, bytes);
        let known: BTreeSet<u64> = area.known(read).collect();
        let is_whole = superblock.data_size % 8 == 0;
        local.note(&[81, device as u64, known.len() as u64], || {
            format!("KNOWN of device {device}: {known:?}")
        });
        if let Some(counted) = area.counted()
            && is_whole
            && counted != known.len() as u64
        {
            let known = known.len();
            return Err(Failure(format!("device {device} knows {known} blocks, not {counted}")));
        }
        // A superblock that could not be written costs the trust until the next start.
        if !area.is_trusted() {
            continue;
        }
        let Some((_, role)) = learned.iter().find(|(learned, _)| *learned == device) else {
            continue;
        };
        let blocks =
            (0..superblock.size_sectors / 8).map(|block| superblock.data_offset + block * 8);
        let mut unknown = blocks.filter(|sector| !known.contains(sector));
        if let Some(sector) = unknown.find(|sector| is_used(local, *role, *sector)) {
            let what = format!("sector {sector} of device {device} is not known after a check");
            return Err(Failure(what));
        }
    }
    Ok(())
}

/// Returns whether the array uses a sector of its holder: a raid10 may not use the last rows of
/// some members.
fn is_used(local: &Local, role: Role, sector: u64) -> bool {
    let part = &local.parts.devices[0];
    let sector = sector - part.shape.data_offset;
    part.scenario.has_parity()
        || part.shape.geometry.array_sector_at(Strip { role, sector }).is_some()
}

/// The members, if all are there, whole, and in step.
fn complete(local: &Local, disks: &[Disk], set_uuid: [u8; 16]) -> Option<Vec<usize>> {
    let roles = usize::from(local.parts.devices[0].roles());
    let mut members = Vec::new();
    for (device, disk) in disks.iter().enumerate() {
        if disk.gone() || disk.blind() || !disk.unreadable().is_empty() {
            return None;
        }
        let Candidate { superblock: Ok(superblock), .. } = assembly::candidate(device, disk) else {
            continue;
        };
        if superblock.set_uuid == set_uuid && is_whole(&superblock) {
            members.push((device, superblock));
        }
    }
    let newest = members.iter().map(|(_, superblock)| superblock.events).max()?;
    members.retain(|(_, superblock)| superblock.events == newest);
    (members.len() == roles).then(|| members.into_iter().map(|(device, _)| device).collect())
}

fn is_whole(superblock: &Superblock) -> bool {
    matches!(superblock.role(), DevRole::Active(_))
        && superblock.resync_offset == MAX_SECTOR
        && !superblock.has(feature::RECOVERY_OFFSET | feature::REPLACEMENT)
}

/// The sectors of the blocks of a device whose checksums are known.
fn known(device: usize, disk: &Disk) -> Vec<u64> {
    let read = |sector, bytes| disk.beside().unwrap_or(disk).bytes(sector, bytes);
    area(device, disk).map_or_else(Vec::new, |(_, area)| area.known(read).collect())
}

/// The checksums of a device, if they count.
fn area(device: usize, disk: &Disk) -> Option<(Superblock, FoundArea)> {
    let read = |sector, bytes| disk.bytes(sector, bytes);
    let superblock = assembly::candidate(device, disk).superblock.ok()?;
    let area = match disk.beside() {
        None => FoundArea::read(&superblock, disk.sectors(), read),
        Some(store) => {
            FoundArea::stored(&superblock, read, |sector, bytes| store.bytes(sector, bytes))
        }
    };
    let area = area.ok()??;
    Some((superblock, area))
}

/// Changes a block as disks do: a bit, all of it, or what was meant for another place.
fn change(disk: &mut Disk, sector: u64, other: u64, rng: &mut Rng) -> &'static str {
    let [at, from] = [sector, other].map(|sector| sector as usize * 512);
    let image = disk.image_mut();
    let old = image[at..at + BLOCK].to_vec();
    match rng.below(3) {
        0 => {
            image[at + rng.below(BLOCK as u64) as usize] ^= 1 << rng.below(8);
            "flipped"
        }
        1 => {
            let byte = rng.below(256) as u8;
            image[at..at + BLOCK].fill(byte);
            "filled"
        }
        _ => {
            image.copy_within(from..from + BLOCK, at);
            image[from..from + BLOCK].copy_from_slice(&old);
            "swapped"
        }
    }
}
