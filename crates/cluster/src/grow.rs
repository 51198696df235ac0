//! Another shape for an array over nodes. It gets another size while it is served, as its volumes
//! become longer. For more nodes an array is made beside it, to which all data move: see
//! [`moving`](crate::moving).
//!
//! ```text
//! requests are held ─► clean ─► volumes longer, durably, on all nodes ─► superblocks tell of it
//!                                                  ─► the next client of the array is begun
//! ```
//! What is new reads as zeroes on all nodes, which every code agrees with. Until superblocks tell
//! of it the array is as it was, on volumes with room to spare.

use braid_array::format::MoveNote;
use braid_array::format::superblock::feature;
use braid_array::grow::{check_idle, check_whole};
use braid_array::status::{MemberState, Status};
use braid_array::{Refusal, Role, SECTOR_BYTES};

use crate::create::{NewArray, NewBitmap};
use crate::family::Family;
use crate::journal::HEADERS_BYTES;
use crate::pipeline::Params;
use crate::schedule::Planner;

/// The most of a member that can be asked for: far more than there is.
const MAX_SECTORS: u64 = 1 << 50;

/// The size that an array is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSize {
    /// Used part of each member.
    pub member_sectors: u64,
    /// Stripes.
    pub stripes: u64,
    /// The array.
    pub array_sectors: u64,
}

/// Checks whether the array that has this status may get another size now. Returns its code.
///
/// # Errors
/// The reason why it may not, with the step that helps.
pub fn check(status: &Status) -> Result<Family, Refusal> {
    let superblock = &status.superblock;
    let family = Family::decode(superblock.level, superblock.layout, superblock.raid_disks)?;
    if !family.is_redundant() {
        let reason = format!("{} over nodes keeps its size", family.level());
        return Err(Refusal::new(reason, "make a new array and copy the data"));
    }
    if let Some(waiting) = &status.waiting {
        let known = waiting.why.clone();
        let usual = || Refusal::new("the array waits for its nodes", "bring them back");
        return Err(known.unwrap_or_else(usual));
    }
    // Nodes that are away come back by themselves.
    check_whole(status)?;
    check_idle(status)?;
    if let Some(spare) = status.members.iter().find(|one| one.state == MemberState::Spare) {
        let reason = format!("{} is a spare, which the array is not connected to", spare.device);
        return Err(Refusal::new(reason, "remove it, and add it again when the array has grown"));
    }
    Ok(family)
}

/// Plans a size for the array that has this status, of whole stripes: at most so many sectors of
/// each member.
///
/// # Errors
/// The reason why it cannot be, with the step that helps.
pub fn plan(status: &Status, sectors: u64) -> Result<NewSize, Refusal> {
    let family = check(status)?;
    let superblock = &status.superblock;
    let nodes = u16::try_from(superblock.raid_disks).unwrap_or(u16::MAX);
    let code = family.code(nodes, 0)?;
    let chunk_sectors = match u64::from(superblock.chunk_sectors) {
        0 => u64::from(Params::default_chunk_bytes(family, nodes)?) / SECTOR_BYTES,
        chunk => chunk,
    };
    let stripe_sectors = u64::from(code.rows()) * chunk_sectors;
    let stripes = sectors.min(MAX_SECTORS) / stripe_sectors;
    let member_sectors = stripes * stripe_sectors;
    let used = status.used_member_sectors;
    if member_sectors <= used {
        let used = used * SECTOR_BYTES;
        let reason = format!(
            "{used} bytes of each member are used, and {} are asked for, of whole stripes of {}",
            sectors.saturating_mul(SECTOR_BYTES),
            stripe_sectors * SECTOR_BYTES
        );
        return Err(Refusal::new(reason, "name a larger size: an array cannot be made smaller"));
    }
    let array_sectors = stripes * code.data().len() as u64 * chunk_sectors;
    Ok(NewSize { member_sectors, stripes, array_sectors })
}

/// Returns the array over so many nodes that all data of the array with this status are to move to:
/// of the same kind, with as much of each member.
///
/// # Errors
/// The reason why there is none, with the step that helps.
pub fn over_more(status: &Status, nodes: u16, ctime: u64) -> Result<NewArray, Refusal> {
    let family = check(status)?;
    let superblock = &status.superblock;
    if MoveNote::of(superblock) != MoveNote::Apart {
        let reason = "its data are being moved already";
        return Err(Refusal::new(reason, "wait for the end, or braid grow --undo"));
    }
    let chunk_bytes = superblock.chunk_sectors * SECTOR_BYTES as u32;
    let chunk_bytes = if family.has_chunk() { Some(chunk_bytes) } else { None };
    family.code(nodes, 0)?;
    let journal = status.journal_bytes;
    Ok(NewArray {
        name: superblock.name(),
        set_uuid: superblock.set_uuid,
        ctime,
        family,
        chunk_bytes,
        size_bytes: status.used_member_sectors * SECTOR_BYTES,
        bitmap: if status.bitmap.is_some() { NewBitmap::Default } else { NewBitmap::None },
        journal_bytes: if journal == 0 { 0 } else { journal + HEADERS_BYTES },
        parts_only: superblock.has(feature::NODE_PPL),
        note: MoveNote::Target { front: 0, back: false },
    })
}

/// Returns the size of an array over so many nodes with this much of each, in whole stripes.
///
/// # Errors
/// There is no such array.
pub fn size_over(array: &NewArray, nodes: u16) -> Result<NewSize, Refusal> {
    let code = array.family.code(nodes, 0)?;
    let chunk_bytes = match array.chunk_bytes {
        Some(bytes) => bytes,
        None => Params::default_chunk_bytes(array.family, nodes)?,
    };
    let chunk_sectors = u64::from(chunk_bytes) / SECTOR_BYTES;
    let stripe_sectors = u64::from(code.rows()) * chunk_sectors;
    let stripes = array.size_bytes / SECTOR_BYTES / stripe_sectors;
    Params::for_array(
        array.family,
        nodes,
        chunk_bytes,
        stripes,
        Planner::Encoder { node: Role(0) },
    )?;
    let array_sectors = stripes * code.data().len() as u64 * chunk_sectors;
    Ok(NewSize { member_sectors: stripes * stripe_sectors, stripes, array_sectors })
}
