//! The two shapes of an array that a superblock tells of in the middle of a reshape: its own fields
//! hold the old layout and chunk, the new number of members, and what changes (`super_1_validate`
//! and `super_1_sync` in the kernel's `md.c`).

use super::Superblock;
use super::superblock::feature;
use crate::geometry::MAX_MEMBERS;

/// One of the two shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The shape that the data are moved from.
    Old,
    /// The shape that they are moved to.
    New,
}

/// Returns the superblock of a member as it would be if the array had only this shape; `None` where
/// it cannot be.
pub(crate) fn of_side(superblock: &Superblock, side: Side) -> Option<Superblock> {
    let mut one = shape_of_side(superblock, side)?;
    if side == Side::New && superblock.has(feature::NEW_OFFSET) {
        let offset = i64::from(superblock.reshape.new_offset);
        one.data_offset = superblock.data_offset.checked_add_signed(offset)?;
        one.data_size = superblock.data_size.checked_add_signed(-offset)?;
    }
    Some(one)
}

/// The same, as far as it is about the array: the place of the data is left out.
#[must_use]
pub fn shape_of_side(superblock: &Superblock, side: Side) -> Option<Superblock> {
    let reshape = &superblock.reshape;
    let mut one = superblock.clone();
    match side {
        Side::Old => {
            let disks = i64::from(superblock.raid_disks) - i64::from(reshape.delta_disks);
            one.raid_disks = u32::try_from(disks).ok().filter(|disks| *disks <= MAX_MEMBERS)?;
        }
        Side::New => {
            one.layout = reshape.new_layout;
            one.chunk_sectors = reshape.new_chunk_sectors;
        }
    }
    Some(one)
}

/// Returns whether data are moved from the end of the array to its begin.
#[must_use]
pub const fn is_backwards(superblock: &Superblock) -> bool {
    match superblock.reshape.delta_disks {
        0 => superblock.has(feature::RESHAPE_BACKWARDS),
        delta => delta < 0,
    }
}

/// Returns how many roles there are: in a reshape, in the larger of both shapes.
pub(crate) fn all_roles(superblock: &Superblock) -> u32 {
    let leave = match superblock.reshape.delta_disks {
        delta if delta < 0 && superblock.has(feature::RESHAPE_ACTIVE) => delta.unsigned_abs(),
        _ => 0,
    };
    superblock.raid_disks.saturating_add(leave)
}

/// Returns the superblock of a reshape that was turned round.
#[must_use]
pub fn turned(mut superblock: Superblock) -> Superblock {
    turn(&mut superblock);
    superblock
}

/// Turns a reshape round: what has moved is to move back (`update=revert-reshape` in mdadm's
/// `super1.c`).
pub(crate) fn turn(superblock: &mut Superblock) {
    if let Some(new) = of_side(superblock, Side::New) {
        superblock.data_offset = new.data_offset;
        superblock.data_size = new.data_size;
    }
    let Superblock { reshape, layout, chunk_sectors, raid_disks, feature_map, .. } = superblock;
    reshape.delta_disks = reshape.delta_disks.saturating_neg();
    *raid_disks = raid_disks.saturating_add_signed(reshape.delta_disks);
    reshape.new_offset = reshape.new_offset.saturating_neg();
    std::mem::swap(layout, &mut reshape.new_layout);
    std::mem::swap(chunk_sectors, &mut reshape.new_chunk_sectors);
    if reshape.delta_disks == 0 {
        *feature_map ^= feature::RESHAPE_BACKWARDS;
    }
}
