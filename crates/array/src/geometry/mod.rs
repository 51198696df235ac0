//! Mapping of array sectors to member sectors and back, for every level and layout.
//!
//! Every mapping is md's, sector by sector; the rules are those of the kernel's `linear.c`,
//! `raid0.c`, `raid10.c` and `raid5.c`. [`Geometry::new`] is the place where a hostile shape is
//! refused; after it the lookups neither fail nor allocate.

mod concat;
mod error;
mod mirror;
mod order;
mod parity;
mod striped;
#[cfg(test)]
mod tests;

pub use error::GeometryError;
pub(crate) use order::RowOrder;

use crate::Role;
use crate::level::{FarSets, Layout, Level, Raid10Layout};
use concat::Concat;
use mirror::Mirrors;
use parity::StripeRows;
use striped::Zones;

/// A place on a member: a role and a sector of its data area (the data offset is not added).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Strip {
    /// Role.
    pub role: Role,
    /// Sector of the data area.
    pub sector: u64,
}

/// Shape of an array: the facts that decide where bytes lie, as superblocks say them.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// Level.
    pub level: Level,
    /// Layout.
    pub layout: Layout,
    /// Number of roles.
    pub raid_disks: u32,
    /// Chunk. raid1 has none and ignores it; linear rounds members down to it unless it is 0. In
    /// raid0 it need be neither a power of two nor a multiple of the members' block: the caller
    /// checks the latter.
    pub chunk_sectors: u32,
    /// Used part of each member; ignored for linear and raid0.
    pub size_sectors: u64,
    /// Usable part of each member by role; needed for linear and raid0 only.
    pub member_data_sectors: &'a [u64],
}

/// The mapping of one array.
#[derive(Clone, Debug)]
pub struct Geometry {
    level: Level,
    layout: Layout,
    raid_disks: u32,
    chunk_sectors: u32,
    array_sectors: u64,
    map: Map,
}

#[derive(Clone, Debug)]
enum Map {
    Concat(Concat),
    Zones(Zones),
    /// raid1: a sector lies at its own number on every member.
    Same,
    Mirrors(Mirrors),
    Rows(StripeRows),
}

/// The most roles a superblock has room for (`dev_roles` in 4 KiB).
pub const MAX_MEMBERS: u32 = 1920;

/// One place for each chunk.
const ONE_COPY: Raid10Layout =
    Raid10Layout { near: 1, far: 1, offset: false, far_sets: FarSets::Original };

/// Sizes stay below 2^63 bytes, the kernel's limit of a device, so that sums of a few do not wrap.
const MAX_SECTORS: u64 = (1 << 54) - 1;

/// The smallest chunk, a page. Only raid0 takes any, be it of no use.
pub(crate) const MIN_CHUNK_SECTORS: u32 = 8;

impl Geometry {
    /// Takes any shape and refuses what md would not run, or would run into the ground.
    ///
    /// # Errors
    /// The reason.
    pub fn new(shape: &Shape<'_>) -> Result<Self, GeometryError> {
        check_members(shape)?;
        check_chunk(shape)?;
        let (map, array_sectors) = match (shape.level, shape.layout) {
            (Level::Linear, Layout::None) => {
                let map = Concat::new(shape)?;
                let sectors = map.array_sectors();
                (Map::Concat(map), sectors)
            }
            (Level::Raid0, Layout::None | Layout::Raid0(_)) => {
                let map = Zones::new(shape)?;
                let sectors = map.array_sectors();
                (Map::Zones(map), sectors)
            }
            (Level::Raid1, Layout::None) => (Map::Same, member_size(shape, 1)?),
            (Level::Raid10, Layout::Raid10(layout)) => {
                layout.check(shape.raid_disks)?;
                let chunks = u64::from(shape.chunk_sectors) * u64::from(layout.far);
                let map = Mirrors::new(layout, shape, member_size(shape, chunks)?)?;
                let sectors = map.array_sectors();
                (Map::Mirrors(map), sectors)
            }
            (Level::Raid4 | Level::Raid5 | Level::Raid6, layout) => {
                let size_sectors = member_size(shape, u64::from(shape.chunk_sectors))?;
                let map = StripeRows::new(shape, layout, size_sectors)?;
                let sectors = map.array_sectors();
                (Map::Rows(map), sectors)
            }
            (level, _) => return Err(GeometryError::Layout { level }),
        };
        if array_sectors > MAX_SECTORS {
            return Err(GeometryError::TooLarge);
        }
        let Shape { level, layout, raid_disks, chunk_sectors, .. } = *shape;
        Ok(Self { level, layout, raid_disks, chunk_sectors, array_sectors, map })
    }

    /// The same for one of two shapes that data move between: all members use as much, those of
    /// raid0 as well, which has one copy of everything.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn moving(shape: &Shape<'_>) -> Result<Self, GeometryError> {
        if shape.level != Level::Raid0 {
            return Self::new(shape);
        }
        let rest = Self::even_stripes(shape)?;
        let map = Mirrors::new(ONE_COPY, shape, shape.size_sectors)?;
        Ok(Self { map: Map::Mirrors(map), ..rest })
    }

    /// Stripes without redundancy over members that all use as much.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn even_stripes(shape: &Shape<'_>) -> Result<Self, GeometryError> {
        let sizes = vec![shape.size_sectors; shape.raid_disks.min(MAX_MEMBERS) as usize];
        Self::new(&Shape { member_data_sectors: &sizes, ..*shape })
    }

    /// The same when data do not move any more.
    pub(crate) fn at_rest(self) -> Self {
        let Self { level, layout, raid_disks, chunk_sectors, .. } = self;
        let size_sectors = self.member_sectors();
        let member_data_sectors = &[];
        let shape =
            Shape { level, layout, raid_disks, chunk_sectors, size_sectors, member_data_sectors };
        match level {
            Level::Raid0 => Self::even_stripes(&shape).unwrap_or(self),
            _ => self,
        }
    }

    /// Level.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// Layout.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Number of roles.
    #[must_use]
    pub const fn raid_disks(&self) -> u32 {
        self.raid_disks
    }

    /// Chunk, as the shape gave it.
    #[must_use]
    pub const fn chunk_sectors(&self) -> u32 {
        self.chunk_sectors
    }

    /// Size of the array: md's, rounding included.
    #[must_use]
    pub const fn array_sectors(&self) -> u64 {
        self.array_sectors
    }

    /// The part of each member that is used; 0 for linear and raid0, where members differ.
    #[must_use]
    pub const fn member_sectors(&self) -> u64 {
        match &self.map {
            Map::Concat(_) | Map::Zones(_) => 0,
            Map::Same => self.array_sectors,
            Map::Mirrors(map) => map.member_sectors(),
            Map::Rows(map) => map.member_sectors(),
        }
    }

    /// Length of the space in which resync, bitmap and locks count (md: `resync_max_sectors`):
    /// array sectors for raid10 and where stripes move, sectors of a member for raid1 and parity, 0
    /// without redundancy.
    #[must_use]
    pub const fn sync_sectors(&self) -> u64 {
        match &self.map {
            Map::Concat(_) | Map::Zones(_) => 0,
            Map::Same | Map::Mirrors(_) => self.array_sectors,
            Map::Rows(map) => map.member_sectors(),
        }
    }

    /// Returns how often a data sector is stored: 1 for linear, raid0 and parity levels.
    #[must_use]
    pub const fn copies(&self) -> u32 {
        match &self.map {
            Map::Concat(_) | Map::Zones(_) | Map::Rows(_) => 1,
            Map::Same => self.raid_disks,
            Map::Mirrors(map) => map.copies(),
        }
    }

    /// Returns how many sectors from `sector` on lie side by side on their members: to the end of
    /// the chunk, the member or the array. 0 beyond the end.
    #[must_use]
    pub fn run(&self, sector: u64) -> u64 {
        let left = self.array_sectors.saturating_sub(sector);
        match &self.map {
            Map::Concat(map) => map.run(sector).min(left),
            Map::Same => left,
            Map::Zones(_) | Map::Mirrors(_) | Map::Rows(_) => {
                let chunk_sectors = u64::from(self.chunk_sectors);
                (chunk_sectors - sector % chunk_sectors).min(left)
            }
        }
    }

    /// Returns where copy `copy` (below [`Self::copies`]) of an array sector (below
    /// [`Self::array_sectors`]) lies. Copies come in md's order.
    #[must_use]
    pub fn copy(&self, sector: u64, copy: u32) -> Strip {
        debug_assert!(sector < self.array_sectors, "sector {sector} beyond the array");
        debug_assert!(copy < self.copies(), "copy {copy} beyond the copies");
        match &self.map {
            Map::Concat(map) => map.find(sector),
            Map::Zones(map) => map.find(sector),
            Map::Same => Strip { role: role(copy), sector },
            Map::Mirrors(map) => map.find(sector, copy),
            Map::Rows(map) => map.find(sector),
        }
    }

    /// The array sector that is stored here; `None` for parity, for what lies beyond the used part
    /// and for roles there are not.
    #[must_use]
    pub fn array_sector_at(&self, strip: Strip) -> Option<u64> {
        if u32::from(strip.role.0) >= self.raid_disks {
            return None;
        }
        let sector = match &self.map {
            Map::Concat(map) => map.sector_at(strip),
            Map::Zones(map) => map.sector_at(strip),
            Map::Same => Some(strip.sector),
            Map::Mirrors(map) => map.sector_at(strip),
            Map::Rows(map) => map.sector_at(strip),
        };
        sector.filter(|&sector| sector < self.array_sectors)
    }

    /// Roles of P and Q in a stripe. A stripe is a row of chunks; its number is the member sector
    /// divided by the chunk.
    ///
    /// # Panics
    /// On a level without parity, as do the other calls about stripes.
    #[must_use]
    pub fn parity_roles(&self, stripe: u64) -> (Role, Option<Role>) {
        self.rows().parity_roles(stripe)
    }

    /// Role of data chunk `index` (below [`Self::data_disks`], in array order) of a stripe.
    #[must_use]
    pub fn data_role(&self, stripe: u64, index: u32) -> Role {
        self.rows().data_role(stripe, index)
    }

    /// Returns the index of the stripe's data chunk that the role holds; `None` for P and Q.
    #[must_use]
    pub fn data_index(&self, stripe: u64, role: Role) -> Option<u32> {
        self.rows().data_index(stripe, role)
    }

    /// Coefficient of data chunk `index` of a stripe in Q.
    #[must_use]
    pub fn q_coef(&self, stripe: u64, index: u32) -> u8 {
        self.rows().q_coef(stripe, index)
    }

    /// Members less parity: the data chunks in a stripe of a parity level, all members elsewhere.
    #[must_use]
    pub const fn data_disks(&self) -> u32 {
        self.raid_disks - self.parity_disks()
    }

    /// Parity strips of a stripe; 0 on a level without parity.
    #[must_use]
    pub const fn parity_disks(&self) -> u32 {
        self.level.parity_disks()
    }

    fn rows(&self) -> &StripeRows {
        match &self.map {
            Map::Rows(map) => map,
            _ => panic!("{} has no parity stripes", self.level.name()),
        }
    }
}

fn check_members(shape: &Shape<'_>) -> Result<(), GeometryError> {
    let Shape { level, raid_disks, .. } = *shape;
    let min = level.min_members();
    if !(min..=MAX_MEMBERS).contains(&raid_disks) {
        return Err(GeometryError::Members { level, raid_disks, min, max: MAX_MEMBERS });
    }
    if matches!(level, Level::Linear | Level::Raid0)
        && shape.member_data_sectors.len() != raid_disks as usize
    {
        let known = shape.member_data_sectors.len();
        return Err(GeometryError::MemberSizes { level, raid_disks, known });
    }
    Ok(())
}

fn check_chunk(shape: &Shape<'_>) -> Result<(), GeometryError> {
    let chunk_sectors = shape.chunk_sectors;
    let (good, rule) = match shape.level {
        Level::Linear | Level::Raid1 => (true, ""),
        Level::Raid0 => (chunk_sectors > 0, "4 KiB or more"),
        Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => (
            chunk_sectors >= MIN_CHUNK_SECTORS && chunk_sectors.is_power_of_two(),
            "a power of two of at least 4 KiB",
        ),
    };
    if good {
        Ok(())
    } else {
        Err(GeometryError::Chunk { level: shape.level, chunk_sectors, rule })
    }
}

/// The used size of each member, which must hold `least_sectors` and not be absurd.
fn member_size(shape: &Shape<'_>, least_sectors: u64) -> Result<u64, GeometryError> {
    match shape.size_sectors {
        size if size > MAX_SECTORS => Err(GeometryError::TooLarge),
        size if size < least_sectors => {
            Err(GeometryError::TooSmall { sectors: size, least_sectors })
        }
        size => Ok(size),
    }
}

/// A role out of arithmetic that stays below [`MAX_MEMBERS`].
fn role(number: u32) -> Role {
    debug_assert!(number < MAX_MEMBERS);
    Role(number as u16)
}
