//! A new array: what its members are to carry. Nothing is written here.
//!
//! Metadata lies where mdadm 4.2 puts it, by the same rules for the same devices. Checksums lie
//! behind the data, in room that is not counted as theirs.
//!
//! ```text
//! 1.2    1.1
//! sector 8      sector 0    superblock, 4 KiB reserved
//! sector 16     sector 8    bitmap, if there is one, in whole 4 KiB; or partial parity log, 1 MiB
//! behind it, or behind      bad-block log, 4 KiB
//!   the space kept for one
//! data_offset               data; a multiple of 1 MiB with room for a later reshape
//!
//! 1.0
//! data_offset               data; from the beginning of the device on
//! behind                    bitmap or log, then bad-block log, 4 KiB
//! 8 to 12 KiB from the end  superblock
//! ```

mod error;
mod logs;
mod places;

use std::collections::BTreeSet;

use crate::Role;
use crate::code::Losses;
use crate::format::superblock::{MAX_DEV, MAX_SECTOR, feature};
use crate::format::{BadBlocks, Bitmap, DevRole, Superblock, Version};
use crate::geometry::{Geometry, GeometryError, Shape};
use crate::integrity::new_area;
use crate::level::{Layout, Level};
use crate::name::NAME_BYTES;

pub use error::CreateError;
pub use logs::NewLog;
pub(crate) use logs::least_journal_sectors;
use places::{DevicePlaces, bitmap_space, data_offset};

/// Sectors reserved for the superblock and for the bad-block log, and their alignment.
const AREA_SECTORS: u64 = 8;

const MIB_SECTORS: u64 = 2048;
const GIB_SECTORS: u64 = 1024 * MIB_SECTORS;

/// The used size of a member from which on an array gets a bitmap when nothing is said.
const DEFAULT_BITMAP_SECTORS: u64 = 100 * GIB_SECTORS;

/// An array that is to be made, as it is asked for.
#[derive(Clone, Debug)]
pub struct NewArray {
    /// Name as [`crate::name::stored_name`] has it.
    pub name: String,
    /// UUID.
    pub set_uuid: [u8; 16],
    /// Time, coded as in a superblock.
    pub ctime: u64,
    /// Level.
    pub level: Level,
    /// Layout.
    pub layout: Layout,
    /// Chunk; 0 for raid1 and linear.
    pub chunk_sectors: u32,
    /// Version of the superblocks: one of 1.x.
    pub version: Version,
    /// Sector at which data is to begin on each device; mdadm's place when not said.
    pub data_offset: Option<u64>,
    /// Used part of each member; all there is when not said. Not for linear and raid0.
    pub size_sectors: Option<u64>,
    /// Bitmap.
    pub bitmap: NewBitmap,
    /// The log that closes the write hole.
    pub log: NewLog,
    /// The members agree already: no resync.
    pub assume_clean: bool,
    /// Checksums of all blocks, behind the data.
    pub integrity: bool,
}

/// The bitmap to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewBitmap {
    /// One from 100 GiB of used member size on.
    Default,
    /// None.
    None,
    /// One, with this chunk or mdadm's default.
    Internal {
        /// Bytes of sync space per bit.
        chunk_bytes: Option<u32>,
    },
}

/// A device that is to be a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewDevice {
    /// Its size.
    pub device_sectors: u64,
    /// Random.
    pub device_uuid: [u8; 16],
}

/// The contents of the members of a new array, before any data.
#[derive(Clone, Debug)]
pub struct Blueprint {
    /// Places of the array's bytes.
    pub geometry: Geometry,
    /// The superblocks: one for each role, `None` where the member is missing, then the spares,
    /// then the journal.
    pub superblocks: Vec<Option<Superblock>>,
    /// The bitmap, which all of them carry.
    pub bitmap: Option<Bitmap>,
    /// The new log.
    log: NewLog,
    /// Members get integrity areas.
    integrity: bool,
}

impl NewArray {
    /// Plans the array: one device or none for each role, then spares.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn plan(
        &self,
        roles: &[Option<NewDevice>],
        spares: &[NewDevice],
    ) -> Result<Blueprint, CreateError> {
        self.check(roles, spares)?;
        let devices = || roles.iter().copied().chain(spares.iter().copied().map(Some));
        let smallest = devices().flatten().map(|device| device.device_sectors).min().unwrap_or(0);
        let places = DevicePlaces::of(self, smallest)?;
        for (index, device) in devices().enumerate() {
            let Some(NewDevice { device_sectors, .. }) = device else { continue };
            if places.data_sectors(device_sectors) < u64::from(self.chunk_sectors.max(8)) {
                return Err(CreateError::DeviceTooSmall { index, device_sectors });
            }
        }
        let size_sectors = self.size(places.data_sectors(smallest))?;
        let geometry = self.geometry(roles, places, size_sectors)?;
        self.check_missing(roles, &geometry)?;
        let mut bitmap = self.bitmap(&geometry, smallest)?;
        let bitmap_sectors = match &bitmap {
            _ if self.log.log_sectors() > 0 => self.log.log_sectors(),
            Some(bitmap) => bitmap.size_sectors().next_multiple_of(AREA_SECTORS),
            None if self.redundant() => bitmap_space(smallest),
            None => 0,
        };
        let bitmap_offset = places.bitmap_offset(bitmap_sectors);
        let bblog_offset = places.bblog_offset(bitmap_sectors);
        let (feature_map, bitmap_offset_sectors) = match self.log.told(bitmap_offset) {
            Some(told) => told,
            None if bitmap.is_some() => (feature::BITMAP_OFFSET, bitmap_offset.into()),
            None => (0, 0),
        };
        let shared = Superblock {
            size_sectors: geometry.member_sectors(),
            data_offset: places.data_offset,
            feature_map,
            bitmap_offset_sectors,
            bblog_offset_sectors: bblog_offset.into(),
            ..self.superblock(geometry.raid_disks())
        };
        let superblocks = self.superblocks(shared, places, roles, spares)?;
        let unsynced = |s: &Superblock| s.resync_offset == 0 || s.has(feature::RECOVERY_OFFSET);
        if superblocks.iter().flatten().any(unsynced)
            && let Some(bitmap) = &mut bitmap
        {
            bitmap.set_all();
        }
        let Self { log, integrity, .. } = *self;
        Ok(Blueprint { geometry, superblocks, bitmap, log, integrity })
    }

    fn redundant(&self) -> bool {
        !matches!(self.level, Level::Linear | Level::Raid0)
    }

    /// Checks everything that needs no sizes.
    fn check(&self, roles: &[Option<NewDevice>], spares: &[NewDevice]) -> Result<(), CreateError> {
        let level = self.level;
        if self.name.len() > NAME_BYTES {
            return Err(CreateError::NameTooLong { bytes: self.name.len() });
        }
        if roles.len() + spares.len() > MAX_DEV as usize {
            return Err(CreateError::TooManyDevices);
        }
        self.log.check(level, roles.len(), matches!(self.bitmap, NewBitmap::Internal { .. }))?;
        let missing = roles.iter().filter(|device| device.is_none()).count();
        if missing == roles.len() || (missing > 0 && !self.redundant()) {
            return Err(CreateError::TooFew { level, missing });
        }
        if self.integrity && !matches!(self.version, Version::V1_1 | Version::V1_2) {
            return Err(CreateError::NoPlaceForChecksums { version: self.version });
        }
        let what = match self {
            _ if self.redundant() => return Ok(()),
            Self { integrity: true, .. } => "checksums",
            Self { bitmap: NewBitmap::Internal { .. }, .. } => "bitmap",
            Self { size_sectors: Some(_), .. } => "common member size",
            _ if !spares.is_empty() => "spares",
            _ => return Ok(()),
        };
        Err(CreateError::NotRedundant { level, what })
    }

    /// The used part of each member.
    fn size(&self, available_sectors: u64) -> Result<u64, CreateError> {
        if !self.redundant() {
            return Ok(0);
        }
        let unit = u64::from(self.chunk_sectors.max(8));
        let size_sectors = self.size_sectors.unwrap_or(available_sectors);
        if size_sectors > available_sectors {
            return Err(CreateError::SizeTooLarge { size_sectors, available_sectors });
        }
        if self.size_sectors.is_some_and(|asked| asked < unit) {
            return Err(CreateError::SizeTooSmall { size_sectors, unit_sectors: unit });
        }
        Ok(size_sectors / unit * unit)
    }

    fn geometry(
        &self,
        roles: &[Option<NewDevice>],
        places: DevicePlaces,
        size_sectors: u64,
    ) -> Result<Geometry, GeometryError> {
        let devices = roles.iter().flatten();
        let data: Vec<u64> =
            devices.map(|device| places.data_sectors(device.device_sectors)).collect();
        Geometry::new(&Shape {
            level: self.level,
            layout: self.layout,
            raid_disks: u32::try_from(roles.len()).expect("at most MAX_DEV"),
            chunk_sectors: self.chunk_sectors,
            size_sectors,
            member_data_sectors: &data,
        })
    }

    fn check_missing(
        &self,
        roles: &[Option<NewDevice>],
        geometry: &Geometry,
    ) -> Result<(), CreateError> {
        let held: BTreeSet<Role> =
            (0..).map(Role).zip(roles).filter_map(|(role, device)| device.map(|_| role)).collect();
        let losses = Losses::of(self.level, self.layout, geometry.raid_disks())?;
        if losses.survives(|role| !held.contains(&role)) {
            return Ok(());
        }
        Err(CreateError::TooFew { level: self.level, missing: roles.len() - held.len() })
    }

    fn bitmap(&self, geometry: &Geometry, smallest: u64) -> Result<Option<Bitmap>, CreateError> {
        let chunk_bytes = match self.bitmap {
            NewBitmap::Internal { chunk_bytes } => chunk_bytes,
            NewBitmap::Default
                if geometry.member_sectors() >= DEFAULT_BITMAP_SECTORS
                    && self.log == NewLog::None =>
            {
                None
            }
            _ => return Ok(None),
        };
        let space = bitmap_space(smallest);
        let bitmap = Bitmap::new(self.set_uuid, geometry.sync_sectors(), chunk_bytes, space);
        bitmap.map(Some).ok_or(CreateError::Bitmap)
    }

    /// The fields that need no sizes.
    fn superblock(&self, raid_disks: u32) -> Superblock {
        Superblock {
            version: self.version,
            set_uuid: self.set_uuid,
            set_name: Superblock::name_field(&self.name),
            ctime: self.ctime,
            level: self.level.to_md(),
            layout: self.layout.encode(),
            chunk_sectors: self.chunk_sectors,
            raid_disks,
            bblog_size_sectors: 8,
            utime: self.ctime,
            resync_offset: MAX_SECTOR,
            ..Superblock::blank()
        }
    }

    /// The superblock of each device.
    fn superblocks(
        &self,
        mut shared: Superblock,
        places: DevicePlaces,
        roles: &[Option<NewDevice>],
        spares: &[NewDevice],
    ) -> Result<Vec<Option<Superblock>>, CreateError> {
        let journal = self.log.journal();
        let devices = roles.len() + spares.len() + usize::from(journal.is_some());
        shared.roles = vec![DevRole::Spare; devices.next_multiple_of(128)];
        for (role, _) in (0..).map(Role).zip(roles).filter(|(_, device)| device.is_some()) {
            shared.roles[role.index()] = DevRole::Active(role);
        }
        if self.level == Level::Raid0 && self.unequal(places, roles) {
            shared.feature_map |= feature::RAID0_LAYOUT;
        }
        if let Some(device) = journal {
            logs::check_journal(device, places, shared.raid_disks)?;
            shared.roles[devices - 1] = DevRole::Journal;
        }
        let missing = roles.iter().filter(|device| device.is_none()).count();
        let present = roles.len() - missing;
        // Like mdadm: a member that is rebuilt from the others is written without being read.
        let one_left = match self.level {
            Level::Raid4 | Level::Raid5 => missing == 0,
            Level::Raid6 => missing == 1,
            _ => false,
        };
        let rebuilt = (one_left && !self.assume_clean)
            .then(|| roles.iter().rposition(Option::is_some))
            .flatten();
        // What is missing cannot disagree: parity levels take the data that is there as it is.
        let nothing_to_sync = !self.redundant()
            || self.assume_clean
            || present < 2
            || rebuilt.is_some()
            || (missing > 0 && self.level.parity_disks() > 0);
        if !nothing_to_sync {
            shared.resync_offset = 0;
        }
        let all = roles.iter().copied().chain(spares.iter().copied().map(Some));
        let all = all.chain(journal.map(Some));
        let superblocks = all
            .enumerate()
            .map(|(index, device)| {
                let device = device?;
                let mut superblock = shared.clone();
                superblock.dev_number = u32::try_from(index).expect("at most MAX_DEV");
                superblock.device_uuid = device.device_uuid;
                superblock.super_offset = places.super_offset(device.device_sectors);
                superblock.data_size = places.data_sectors(device.device_sectors);
                if rebuilt == Some(index) {
                    superblock.feature_map |= feature::RECOVERY_OFFSET;
                }
                Some(superblock)
            })
            .collect();
        Ok(superblocks)
    }

    /// Returns whether the members have unequal numbers of chunks. Then raid0 must say how the
    /// later zones lie.
    fn unequal(&self, places: DevicePlaces, roles: &[Option<NewDevice>]) -> bool {
        let chunk = u64::from(self.chunk_sectors.max(1));
        let devices = roles.iter().flatten();
        let mut chunks = devices.map(|device| places.data_sectors(device.device_sectors) / chunk);
        let first = chunks.next();
        chunks.any(|count| Some(count) != first)
    }
}

impl Blueprint {
    /// Returns what to write to a device, as sectors and whole blocks of 4 KiB, in this order: the
    /// superblock, which makes it a member, comes last. A flush belongs before and after it.
    ///
    /// # Panics
    /// When there is no such device.
    #[must_use]
    pub fn writes(&self, index: usize) -> Vec<(u64, Vec<u8>)> {
        let superblock = self.superblocks[index].as_ref().expect("a device that is there");
        let mut writes = Vec::new();
        if let (Some(bitmap), Some(sector)) = (&self.bitmap, superblock.bitmap_sector()) {
            let bytes = (0..bitmap.pages()).flat_map(|page| bitmap.encode_page(page)).collect();
            writes.push((sector, bytes));
        }
        writes.extend(self.log.first_write(superblock));
        if let Some(sector) = superblock.bblog_sector() {
            writes.push((sector, BadBlocks::default().encode(superblock.bblog_shift)));
        }
        let blocks = superblock.blocks(4096);
        if self.integrity && superblock.role() != DevRole::Journal {
            // The device's id is random, and of no other area.
            let area = new_area(superblock, &blocks, superblock.device_uuid);
            writes.extend(area.into_iter().flatten());
        }
        writes.push((superblock.super_offset, blocks));
        writes
    }
}

/// The size of a device that has room for so many sectors of data, with all metadata and headroom
/// that a device of its size gets.
#[must_use]
pub fn device_sectors(data_sectors: u64, chunk_sectors: u32) -> u64 {
    // A larger device never has its data earlier, so this climbs until it fits.
    let mut device_sectors = data_sectors;
    loop {
        let needed = data_sectors.saturating_add(data_offset(device_sectors, chunk_sectors, 0));
        if needed == device_sectors {
            return device_sectors;
        }
        device_sectors = needed;
    }
}
