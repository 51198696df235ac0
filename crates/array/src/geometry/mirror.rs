//! raid10: near copies side by side, far copies in another part of the members or, with `offset`,
//! in the next chunk rows.
//!
//! A chunk takes `near` slots next to each other, rows of slots filling the members in turn. Each
//! slot is then repeated `far - 1` times, every time `near` members further within its far set and
//! one stride (a part of the member; with `offset` a chunk) deeper.

use super::{GeometryError, Shape, Strip, role};
use crate::level::Raid10Layout;

#[derive(Clone, Debug)]
pub(super) struct Mirrors {
    near: u32,
    far: u32,
    offset: bool,
    raid_disks: u32,
    /// Members in a far set; those that do not fill one belong to the last.
    set_size: u32,
    chunk_sectors: u64,
    /// Rows of chunks in a part of the member: one part holds one far copy.
    part_rows: u64,
    array_sectors: u64,
    member_sectors: u64,
}

impl Mirrors {
    /// `layout` was checked for so many members, `size_sectors` holds a row of every far copy.
    pub(super) fn new(
        layout: Raid10Layout,
        shape: &Shape<'_>,
        size_sectors: u64,
    ) -> Result<Self, GeometryError> {
        let chunk_sectors = u64::from(shape.chunk_sectors);
        let near = u32::from(layout.near);
        let far = u32::from(layout.far);
        let raid_disks = shape.raid_disks;
        let part_rows = size_sectors / chunk_sectors / u64::from(far);
        let chunks = part_rows * u64::from(raid_disks) / u64::from(near);
        let used_rows = (chunks * u64::from(layout.copies())).div_ceil(u64::from(raid_disks));
        let array_sectors = chunks.checked_mul(chunk_sectors).ok_or(GeometryError::TooLarge)?;
        Ok(Self {
            near,
            far,
            offset: layout.offset,
            raid_disks,
            set_size: layout.far_set_size(raid_disks),
            chunk_sectors,
            part_rows,
            array_sectors,
            member_sectors: used_rows * chunk_sectors,
        })
    }

    pub(super) const fn array_sectors(&self) -> u64 {
        self.array_sectors
    }

    pub(super) const fn member_sectors(&self) -> u64 {
        self.member_sectors
    }

    pub(super) const fn copies(&self) -> u32 {
        self.near * self.far
    }

    /// Copies count as in md: all far copies of the first near copy, then those of the second.
    pub(super) fn find(&self, sector: u64, copy: u32) -> Strip {
        let near_copy = copy / self.far;
        let far_copy = copy % self.far;
        let chunk = sector / self.chunk_sectors;
        let slot = chunk * u64::from(self.near) + u64::from(near_copy);
        let disks = u64::from(self.raid_disks);
        let disk = (slot % disks) as u32;
        let row = slot / disks;
        let row = if self.offset {
            row * u64::from(self.far) + u64::from(far_copy)
        } else {
            row + u64::from(far_copy) * self.part_rows
        };
        Strip {
            role: role(self.rotate(disk, far_copy * self.near)),
            sector: row * self.chunk_sectors + sector % self.chunk_sectors,
        }
    }

    pub(super) fn sector_at(&self, strip: Strip) -> Option<u64> {
        if strip.sector >= self.member_sectors {
            return None;
        }
        let row = strip.sector / self.chunk_sectors;
        let far = u64::from(self.far);
        let (row, far_copy) = if self.offset {
            (row / far, row % far)
        } else {
            (row % self.part_rows, row / self.part_rows)
        };
        let disk = u32::from(strip.role.0);
        let (_, set_size) = self.far_set(disk);
        let back = far_copy as u32 * self.near % set_size;
        let disk = self.rotate(disk, set_size - back);
        let slot = row * u64::from(self.raid_disks) + u64::from(disk);
        let chunk = slot / u64::from(self.near);
        Some(chunk * self.chunk_sectors + strip.sector % self.chunk_sectors)
    }

    /// The member `by` further in the far set of `disk`.
    fn rotate(&self, disk: u32, by: u32) -> u32 {
        let (first, set_size) = self.far_set(disk);
        first + (disk - first + by) % set_size
    }

    /// First member and size of the far set of a member.
    const fn far_set(&self, disk: u32) -> (u32, u32) {
        let last = (self.raid_disks / self.set_size - 1) * self.set_size;
        if disk >= last {
            (last, self.raid_disks - last)
        } else {
            (disk - disk % self.set_size, self.set_size)
        }
    }
}
