//! The two maps of an array in the middle of a reshape: which numbers each has, and what the
//! superblocks would say if an array had only this one.

use crate::Role;
use crate::assemble::Candidate;
use crate::format::reshaped::{Side, is_backwards, of_side};
use crate::format::striped::{is_turning, moves, of_level_4};
use crate::format::superblock::{MAX_SECTOR, Reshape, feature};
use crate::format::{DevRole, Superblock};
use crate::geometry::Geometry;
use crate::level::{Layout, Level};

use super::super::found_log::geometry_of;

/// The candidates, where a level 4 that is a level 0 meanwhile counts as that. It is a true one
/// where a member holds its parity.
pub(in crate::assemble) fn as_stripes(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let told = candidates.iter().filter_map(|candidate| candidate.superblock.as_ref().ok());
    let with_parity = told.filter(|told| {
        !told.has(feature::RECOVERY_OFFSET) && of_level_4(told).is_some_and(|one| is_turning(&one))
    });
    let with_parity: Vec<[u8; 16]> = with_parity.map(|told| told.set_uuid).collect();
    for superblock in candidates.iter_mut().filter_map(|one| one.superblock.as_mut().ok()) {
        if !with_parity.contains(&superblock.set_uuid)
            && let Some(one) = of_level_4(superblock)
        {
            *superblock = one;
        }
    }
    candidates
}

/// The numbers of a reshape.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    /// The old map.
    pub(super) old: Geometry,
    /// The new one.
    pub(super) new: Geometry,
    /// The reshape goes from the end to the beginning.
    pub(super) backwards: bool,
    /// The array sector up to which, or from which on, the new map holds, as superblocks say.
    pub(super) position: u64,
    reshape: Reshape,
}

impl Numbers {
    /// Reads the numbers of a superblock with `RESHAPE_ACTIVE`.
    ///
    /// # Errors
    /// The reason why md would not go on with it either, or why it is not read here.
    pub(super) fn of(superblock: &Superblock) -> Result<Self, String> {
        let reshape = superblock.reshape;
        let level = Level::from_md(superblock.level)
            .filter(|level| !matches!(level, Level::Linear | Level::Raid1));
        let level = level.ok_or("of a level that has none")?;
        if reshape.new_level != superblock.level {
            return Err(format!("to level {}, which md does not do", reshape.new_level));
        }
        if superblock.has(feature::LOGS) {
            return Err("with a log, which md does not do".to_owned());
        }
        let side = |which| {
            let fields = of_side(superblock, which)
                .ok_or_else(|| format!("to {} more members", reshape.delta_disks))?;
            let name = if which == Side::Old { "old" } else { "new" };
            geometry_of(level, &fields).map_err(|why| format!("whose {name} map is none: {why}"))
        };
        let old = side(Side::Old)?;
        let new = side(Side::New)?;
        let backwards = is_backwards(superblock);
        let numbers = Self { old, new, backwards, position: reshape.position, reshape };
        numbers.check_position()?;
        Ok(numbers)
    }

    /// md goes on only from where stripes of both maps are whole. Beyond the data all are.
    fn check_position(&self) -> Result<(), String> {
        let Self { position, .. } = *self;
        if position == MAX_SECTOR {
            return Err("that has no position".to_owned());
        }
        let unit = self.unit();
        if self.is_by_stripe() && position < self.size_sectors() && !position.is_multiple_of(unit) {
            return Err(format!("at sector {position}, which is in the middle of a stripe"));
        }
        Ok(())
    }

    /// The map of a side.
    pub(super) const fn map(&self, side: Side) -> &Geometry {
        match side {
            Side::Old => &self.old,
            Side::New => &self.new,
        }
    }

    /// The side of what lies before this sector, and of what lies behind it.
    pub(super) const fn sides(&self) -> (Side, Side) {
        if self.backwards { (Side::Old, Side::New) } else { (Side::New, Side::Old) }
    }

    /// Returns whether data move by whole stripes: md has one module for parity and, as a level 4
    /// that lacks it, for stripes without redundancy.
    pub(super) fn is_by_stripe(&self) -> bool {
        self.old.level() != Level::Raid10
    }

    /// Returns whether both maps have as many data disks. Then a unit lies on the same sectors of
    /// the members in both, where the data begin at the same place.
    pub(super) const fn is_in_place(&self) -> bool {
        self.old.data_disks() == self.new.data_disks()
    }

    /// Returns whether nothing has moved yet: some members may not have heard of the reshape.
    pub(super) fn is_not_begun(&self) -> bool {
        if self.backwards { self.position >= self.size_sectors() } else { self.position == 0 }
    }

    /// Returns how many sectors both maps hold.
    pub(super) fn size_sectors(&self) -> u64 {
        self.old.array_sectors().min(self.new.array_sectors())
    }

    /// Array sectors that a reshape with parity moves in one go.
    pub(super) fn unit(&self) -> u64 {
        let chunk = self.old.chunk_sectors().max(self.new.chunk_sectors());
        u64::from(chunk) * u64::from(self.new.data_disks())
    }

    /// The end of the array sectors at the beginning of which what is written in the new map lies
    /// upon what is yet to be read in the old one, were the data to begin at the same place in
    /// both; all of them where the data disks stay the same.
    pub(super) fn critical_sectors(&self) -> u64 {
        let old = u64::from(self.old.data_disks());
        let new = u64::from(self.new.data_disks());
        let chunk = self.old.chunk_sectors().max(self.new.chunk_sectors());
        match old.abs_diff(new) {
            0 => u64::MAX,
            // There the two places of a sector are two units apart.
            difference => (2 * u64::from(chunk)).saturating_mul(old * new).div_ceil(difference),
        }
    }

    /// Returns whether a unit that is moved from the position on, where the data begin at the same
    /// place in both maps, lies upon what has been moved. Then all that follow do.
    pub(super) fn reads_ahead(&self) -> bool {
        let Some(more) = self.new.data_disks().checked_sub(self.old.data_disks()) else {
            return false;
        };
        let units = self.position / self.unit().max(1);
        !self.backwards && u64::from(more) * units >= u64::from(self.old.data_disks()) && more > 0
    }

    /// Sectors of a member up to which the new map holds.
    fn front_on_member(&self) -> u64 {
        self.position.min(self.new.array_sectors()).div_ceil(u64::from(self.new.data_disks()))
    }

    /// Returns whether the superblock tells of the same reshape.
    pub(super) fn is_that_of(&self, superblock: &Superblock) -> bool {
        let Reshape { new_level, delta_disks, new_layout, new_chunk_sectors, .. } =
            superblock.reshape;
        let ours = &self.reshape;
        new_level == ours.new_level
            && delta_disks == ours.delta_disks
            && new_layout == ours.new_layout
            && new_chunk_sectors == ours.new_chunk_sectors
            && is_backwards(superblock) == self.backwards
    }

    /// Returns what a member's superblock would say if the array had only this map. Roles beyond
    /// those of the map are spares, and a member that is being rebuilt has nothing of the old one.
    ///
    /// A member that has not heard of the reshape belongs to the old map alone.
    pub(super) fn seen(&self, superblock: &Superblock, side: Side) -> Superblock {
        let mut seen = superblock.clone();
        if superblock.has(feature::RESHAPE_ACTIVE) && self.is_that_of(superblock) {
            seen = of_side(&seen, side).unwrap_or(seen);
        } else if side == Side::New
            && let Some(role) = seen.roles.get_mut(superblock.dev_number as usize)
            && *role != DevRole::Journal
        {
            *role = DevRole::Spare;
        }
        if moves(superblock) {
            // All that a member has for data would be stripes.
            seen.data_size = superblock.size_sectors;
        }
        // Bitmaps are in the way here, and of no use to who reads.
        seen.feature_map &= !(feature::RESHAPE | feature::BITMAP_OFFSET | feature::RECOVERY_BITMAP);
        let disks = self.map(side).raid_disks();
        for role in &mut seen.roles {
            if matches!(role, DevRole::Active(role) if u32::from(role.0) >= disks) {
                *role = DevRole::Spare;
            }
        }
        if seen.has(feature::RECOVERY_OFFSET) {
            match side {
                Side::Old => seen.recovery_offset = 0,
                Side::New if self.backwards || seen.recovery_offset < self.front_on_member() => {}
                Side::New => seen.feature_map &= !feature::RECOVERY_OFFSET,
            }
        }
        seen
    }

    /// Returns the role that holds nothing but Q in this map, if there is one. Its member is then
    /// of use, and not needed.
    pub(super) fn apart(&self, side: Side) -> Option<Role> {
        let map = self.map(side);
        let Layout::Parity(layout) = map.layout() else { return None };
        let last = u16::try_from(map.raid_disks() - 1).ok()?;
        layout.keeps_q_apart().then_some(Role(last))
    }
}
