//! Stripes without redundancy while data move to more members, or back. md has no reshape of level
//! 0: it makes a level 4 of it which lacks the member for parity, in its last role, and a level 0
//! again when all data have moved (`raid45_takeover_raid0` in the kernel's `raid5.c`). Superblocks
//! tell of that level 4. It has the layout number of parity on the last member, which md and Braid
//! give no other one. Everything else goes by the level that the array is of.

use super::Superblock;
use super::superblock::{DevRole, MAX_SECTOR, feature};
use crate::Role;
use crate::geometry::{MAX_MEMBERS, MIN_CHUNK_SECTORS};
use crate::level::{Level, ParityLayout};

/// Returns whether data move between stripes without redundancy.
pub(crate) fn moves(superblock: &Superblock) -> bool {
    superblock.level == Level::Raid0.to_md() && superblock.has(feature::RESHAPE_ACTIVE)
}

/// The role that is parity's in the level 4 of the fewer members, and data's among the more.
fn turning_role(fewer: u32) -> DevRole {
    DevRole::Active(Role::at(fewer as usize))
}

/// Returns how many members there are on the side that has fewer.
const fn fewer(superblock: &Superblock) -> u32 {
    let more = superblock.reshape.delta_disks;
    superblock.raid_disks.saturating_sub(if more > 0 { more.unsigned_abs() } else { 0 })
}

/// The superblock of a member as it is written.
pub(crate) fn to_level_4(superblock: Superblock) -> Superblock {
    if !moves(&superblock) {
        return superblock;
    }
    let mut told = superblock;
    if told.role() == turning_role(fewer(&told)) {
        // For md it is rebuilt as far as data have moved.
        told.feature_map |= feature::RECOVERY_OFFSET;
        told.recovery_offset = rows(&told);
    }
    told.level = Level::Raid4.to_md();
    told.reshape.new_level = told.level;
    told.layout = ParityLayout::ParityLast as u32;
    told.reshape.new_layout = told.layout;
    told.raid_disks += 1;
    told.resync_offset = MAX_SECTOR;
    told
}

/// Rows of each member that data have moved to.
fn rows(superblock: &Superblock) -> u64 {
    superblock.reshape.position / u64::from(superblock.raid_disks.max(1))
}

/// The superblock of a member as it is of a level 0; `None` where it tells of something else.
pub(crate) fn of_level_4(superblock: &Superblock) -> Option<Superblock> {
    let mut one = superblock.clone();
    let level = Level::Raid4.to_md();
    let layout = ParityLayout::ParityLast as u32;
    one.raid_disks = one.raid_disks.checked_sub(1)?;
    let delta = one.reshape.delta_disks;
    let most = fewer(&one).checked_add(delta.unsigned_abs())?;
    if delta == 0 || fewer(&one) == 0 || most >= MAX_MEMBERS {
        return None;
    }
    let chunk = one.chunk_sectors;
    let parity = DevRole::Active(Role::at(most as usize));
    let is_so = one.has(feature::RESHAPE_ACTIVE)
        && (one.level, one.reshape.new_level) == (level, level)
        && (one.layout, one.reshape.new_layout) == (layout, layout)
        && one.reshape.new_chunk_sectors == chunk
        && chunk.is_power_of_two()
        && chunk >= MIN_CHUNK_SECTORS
        && !one.has(feature::LOGS | feature::BITMAP_OFFSET)
        && !one.roles.contains(&parity);
    if !is_so {
        return None;
    }
    one.level = Level::Raid0.to_md();
    one.reshape.new_level = one.level;
    (one.layout, one.reshape.new_layout) = (0, 0);
    one.resync_offset = MAX_SECTOR;
    if is_turning(&one) && one.has(feature::RECOVERY_OFFSET) && one.recovery_offset >= rows(&one) {
        one.feature_map &= !feature::RECOVERY_OFFSET;
        one.recovery_offset = 0;
    }
    Some(one)
}

/// Returns whether a member of the more has the role that is parity's in the level 4 of the fewer.
pub(crate) fn is_turning(superblock: &Superblock) -> bool {
    superblock.role() == turning_role(fewer(superblock))
}
