//! The geometries that are tried.

use braid_array::geometry::{Geometry, Shape as Whole, Strip};
use braid_array::level::{FarSets, Layout, Level, ParityLayout, Raid10Layout};

/// Chunks from 4 KiB to 2 MiB.
pub(super) const CHUNKS: [u32; 10] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// A geometry without sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Level.
    pub level: Level,
    /// Layout.
    pub layout: Layout,
    /// Chunk; 0 for raid1.
    pub chunk_sectors: u32,
    /// Roles.
    pub raid_disks: u32,
}

impl Shape {
    /// The mapping, for members that use so many sectors each; `None` where no array is so.
    #[must_use]
    pub fn geometry(&self, member_sectors: u64) -> Option<Geometry> {
        let all = vec![member_sectors; self.raid_disks as usize];
        let unit = u64::from(self.chunk_sectors.max(1));
        let whole = Whole {
            level: self.level,
            layout: self.layout,
            raid_disks: self.raid_disks,
            chunk_sectors: self.chunk_sectors,
            size_sectors: member_sectors / unit * unit,
            member_data_sectors: &all,
        };
        Geometry::new(&whole).ok()
    }

    /// Chunks of data in a row.
    #[must_use]
    pub fn data_disks(&self) -> u64 {
        match self.layout {
            Layout::Raid10(layout) if layout.far == 1 => {
                u64::from(self.raid_disks) / u64::from(layout.near.max(1))
            }
            Layout::Raid10(_) => self.raid_disks.into(),
            _ => (self.raid_disks - self.level.parity_disks()).into(),
        }
    }

    /// The length of each member that so many sectors of the array take up, from its beginning;
    /// `None` where copies lie far behind.
    #[must_use]
    pub fn used_of_each(&self, sectors: u64) -> Option<u64> {
        match self.layout {
            Layout::Raid10(layout) if layout.far > 1 && !layout.offset => None,
            Layout::Raid10(layout) => {
                let copies = u64::from(layout.near) * u64::from(layout.far);
                Some(sectors.saturating_mul(copies).div_ceil(self.raid_disks.into()))
            }
            _ if self.level == Level::Raid1 => Some(sectors),
            _ => Some(sectors.div_ceil(self.data_disks().max(1))),
        }
    }

    /// Copies of which it is known where they lie, whatever the sizes of members.
    pub(super) fn near_copies(&self) -> usize {
        match self.layout {
            Layout::Raid10(layout) if layout.far > 1 && !layout.offset => layout.near.into(),
            _ => usize::MAX,
        }
    }

    /// Returns whether each member holds all of the array.
    pub(super) fn is_mirror(&self) -> bool {
        self.level == Level::Raid1
            || matches!(self.layout, Layout::Raid10(layout)
                if (layout.far == 1 || layout.offset) && layout.copies() == self.raid_disks)
    }

    /// Returns whether the level has anything but data.
    #[must_use]
    pub const fn is_redundant(&self) -> bool {
        !matches!(self.level, Level::Linear | Level::Raid0)
    }

    /// The rank by which the simpler one of two that read the same bytes is told: less is simpler.
    pub(super) fn rarity(&self) -> u32 {
        let level = match self.level {
            Level::Raid1 => 0,
            Level::Raid0 => 1,
            Level::Raid10 => 2,
            Level::Raid4 => 3,
            Level::Raid5 => 4,
            Level::Raid6 => 5,
            Level::Linear => 6,
        };
        let layout = match self.layout {
            Layout::Parity(ParityLayout::LeftSymmetric) => 0,
            Layout::Parity(layout) => 1 + layout as u32,
            _ => 0,
        };
        level * 100 + layout
    }
}

/// All shapes that so many members may be part of: some of them foreign, or some others missing.
pub(super) fn all(members: usize) -> Vec<Shape> {
    let members = u32::try_from(members).unwrap_or(u32::MAX).min(64);
    let mut shapes = Vec::new();
    for raid_disks in members.saturating_sub(2).max(1)..=members + 2 {
        let mut add = |level: Level, layout, most_missing: u32| {
            // Of two members, parity is a copy: that is a mirror by another name.
            let least = if level.parity_disks() > 0 { 3 } else { 2 };
            let least = level.min_members().max(least);
            if raid_disks < least || raid_disks > members + most_missing {
                return;
            }
            let chunks: &[u32] = if level == Level::Raid1 { &[0] } else { &CHUNKS };
            shapes.extend(chunks.iter().map(|&chunk_sectors| Shape {
                level,
                layout,
                chunk_sectors,
                raid_disks,
            }));
        };
        add(Level::Raid0, Layout::None, 0);
        add(Level::Raid1, Layout::None, 0);
        add(Level::Raid4, Layout::None, 1);
        for layout in ParityLayout::ALL {
            if layout.fits(Level::Raid5) {
                add(Level::Raid5, Layout::Parity(layout), 1);
            }
            add(Level::Raid6, Layout::Parity(layout), 2);
        }
        for (near, far, offset) in
            [(2, 1, false), (1, 2, false), (1, 2, true), (3, 1, false), (1, 3, false), (1, 3, true)]
        {
            let layout = Raid10Layout { near, far, offset, far_sets: FarSets::Original };
            if layout.check(raid_disks).is_ok() {
                add(Level::Raid10, Layout::Raid10(layout), 2);
            }
        }
    }
    shapes
}

/// Where a sector of the array lies; nowhere where that has fewer.
pub(super) fn copies(geometry: &Geometry, sector: u64) -> impl Iterator<Item = Strip> + '_ {
    let number = if sector < geometry.array_sectors() { geometry.copies() } else { 0 };
    (0..number).map(move |copy| geometry.copy(sector, copy))
}
