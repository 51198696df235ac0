//! The superblock of a member, one type for all versions. `superblock_bytes` decodes and encodes
//! it.

use std::collections::BTreeSet;

pub use super::superblock_error::{SuperblockError, Unsupported};
use crate::Role;

/// Bytes to read where a superblock may lie.
pub const READ_BYTES: u32 = 4096;

/// Metadata version, which decides where the superblock lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Version {
    /// 64 KiB-aligned in the last 128 KiB; host-endian (little-endian here); at most 2 TiB members.
    V0_90,
    /// In the last 8 to 12 KiB.
    V1_0,
    /// At the start.
    V1_1,
    /// 4 KiB from the start.
    V1_2,
}

impl Version {
    /// Returns the version as mdadm spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V0_90 => "0.90",
            Self::V1_0 => "1.0",
            Self::V1_1 => "1.1",
            Self::V1_2 => "1.2",
        }
    }

    /// Returns how many devices superblocks of this version have room for.
    #[must_use]
    pub const fn most_devices(self) -> u32 {
        match self {
            Self::V0_90 => MAX_DEV_0_90,
            _ => MAX_DEV,
        }
    }

    /// Returns whether the superblock lies behind the data.
    #[must_use]
    pub const fn is_behind_data(self) -> bool {
        matches!(self, Self::V1_0 | Self::V0_90)
    }

    /// The sector at which the superblock of this version lies on a device of this size; `None`
    /// when the device is too small for it.
    #[must_use]
    pub fn location(self, device_sectors: u64) -> Option<u64> {
        let sector = match self {
            Self::V1_2 => 8,
            Self::V1_1 => 0,
            Self::V1_0 => device_sectors.checked_sub(16)? & !7,
            Self::V0_90 => (device_sectors & !127).checked_sub(128)?,
        };
        (sector + u64::from(READ_BYTES / 512) <= device_sectors).then_some(sector)
    }
}

/// Returns where the superblock of each version would lie: version, sector and bytes to read. The
/// usual version comes first; versions for which the device is too small are left out.
pub fn locations(device_sectors: u64) -> impl Iterator<Item = (Version, u64, u32)> {
    [Version::V1_2, Version::V1_1, Version::V1_0, Version::V0_90].into_iter().filter_map(
        move |version| version.location(device_sectors).map(|at| (version, at, READ_BYTES)),
    )
}

/// A superblock's entry for one device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum DevRole {
    /// Active in this role.
    Active(Role),
    /// Spare (0xffff). md writes it for device numbers that are not in use, too.
    Spare,
    /// Faulty (0xfffe).
    Faulty,
    /// Journal (0xfffd).
    Journal,
}

impl DevRole {
    /// Returns the role of an active device.
    #[must_use]
    pub const fn active(self) -> Option<Role> {
        match self {
            Self::Active(role) => Some(role),
            Self::Spare | Self::Faulty | Self::Journal => None,
        }
    }
}

/// Feature bits of a 1.x superblock (`MD_FEATURE_*` of the kernel's `md_p.h`).
pub mod feature {
    /// `bitmap_offset` is valid.
    pub const BITMAP_OFFSET: u32 = 1;
    /// `recovery_offset` is valid.
    pub const RECOVERY_OFFSET: u32 = 2;
    /// A reshape is under way.
    pub const RESHAPE_ACTIVE: u32 = 4;
    /// The bad-block log may not be empty.
    pub const BAD_BLOCKS: u32 = 8;
    /// This device replaces another in the same role.
    pub const REPLACEMENT: u32 = 16;
    /// A reshape goes backwards.
    pub const RESHAPE_BACKWARDS: u32 = 32;
    /// The data offset changes in a reshape.
    pub const NEW_OFFSET: u32 = 64;
    /// Recovery should look at the bitmap.
    pub const RECOVERY_BITMAP: u32 = 128;
    /// Clustered md.
    pub const CLUSTERED: u32 = 256;
    /// A write journal is in use.
    pub const JOURNAL: u32 = 512;
    /// Partial parity log.
    pub const PPL: u32 = 1024;
    /// Several partial parity logs.
    pub const MULTIPLE_PPLS: u32 = 2048;
    /// raid0 with unequal members: the layout field is valid.
    pub const RAID0_LAYOUT: u32 = 4096;

    /// Slice-sets of an array over nodes may be recorded in journals and not stored. md knows no
    /// such bit, and refuses.
    pub const NODE_JOURNALS: u32 = 1 << 31;
    /// With them: slice-sets of whole stripes are stored without.
    pub const NODE_PPL: u32 = 1 << 30;
    /// Unrecorded slice-sets may be on their way.
    pub const NODE_UNRECORDED: u32 = 1 << 29;
    /// Data of an array over nodes are being moved to another array, which says how far they are.
    pub const NODE_SOURCE: u32 = 1 << 28;
    /// They are being moved here: those before the position of a reshape have come.
    pub const NODE_TARGET: u32 = 1 << 27;
    /// With that: what has come goes back.
    pub const NODE_BACK: u32 = 1 << 26;
    /// A move of data between two arrays over nodes.
    pub const NODE_MOVE: u32 = NODE_SOURCE | NODE_TARGET | NODE_BACK;
    /// Features that an array over nodes may have beyond that.
    pub const OVER_NODES: u32 = NODE_JOURNALS | NODE_PPL | NODE_UNRECORDED | NODE_MOVE;

    /// Partial parity logs, in either form.
    pub const ANY_PPL: u32 = PPL | MULTIPLE_PPLS;
    /// Logs against the write hole.
    pub const LOGS: u32 = JOURNAL | ANY_PPL;

    /// The features that an array may have and still be run here.
    pub const SUPPORTED: u32 = BITMAP_OFFSET
        | RECOVERY_OFFSET
        | BAD_BLOCKS
        | REPLACEMENT
        | RECOVERY_BITMAP
        | LOGS
        | RAID0_LAYOUT;

    /// Features that tell of a reshape.
    pub const RESHAPE: u32 = RESHAPE_ACTIVE | RESHAPE_BACKWARDS | NEW_OFFSET;

    /// Names for people of the features that are refused, in the order of their bits.
    pub(super) const REFUSED: [(u32, &str); 7] = [
        (RESHAPE_ACTIVE, "a reshape in progress"),
        (RESHAPE_BACKWARDS, "a backwards reshape"),
        (NEW_OFFSET, "a changing data offset"),
        (CLUSTERED, "clustered md"),
        (LOGS, "a log of an array on disks"),
        (NODE_MOVE, "data on their way between two arrays over nodes"),
        (OVER_NODES & !NODE_MOVE, "journals of nodes: assemble it over them and stop it"),
    ];
}

/// Bits of `devflags`.
pub mod devflag {
    /// Reads go elsewhere when they can.
    pub const WRITE_MOSTLY: u8 = 1;
    /// Give up early on errors when there is another copy.
    pub const FAILFAST: u8 = 2;
}

/// `resync_offset` of an array that needs no resync; also "no recovery in progress".
pub const MAX_SECTOR: u64 = u64::MAX;

/// The largest event count that is believed, so that there is always a next one.
pub const MAX_EVENTS: u64 = 1 << 62;

/// The largest `max_dev`: what fits the 4 KiB of a 1.x superblock.
pub const MAX_DEV: u32 = 1920;

/// Behind a superblock 0.90, up to the 64 KiB that are its own.
const V0_90_BITMAP_SECTORS: u64 = 128 - 8;

/// The number of devices that a superblock 0.90 has room for.
pub(super) const MAX_DEV_0_90: u32 = 27;

/// The logical block sizes that an export can have: those of disks, up to a page.
const LOGICAL_BLOCKS: [u32; 4] = [512, 1024, 2048, 4096];

/// A member's superblock. Array-wide fields are equal on members with equal event counts; the
/// device fields are the member's own. Sectors are 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Superblock {
    /// Version.
    pub version: Version,
    /// `feature_map`. For 0.90 the bits that mean the same: `BITMAP_OFFSET`, `RESHAPE_ACTIVE`, and
    /// in a reshape `RECOVERY_OFFSET`.
    pub feature_map: u32,
    /// Array UUID as stored; see [`Superblock::uuid_text`].
    pub set_uuid: [u8; 16],
    /// Name, NUL padded; empty for 0.90.
    pub set_name: [u8; 32],
    /// Creation time: seconds since 1970 (40 bits), microseconds in the upper 24.
    pub ctime: u64,
    /// md's level number: -1 linear, 0, 1, 4, 5, 6, 10.
    pub level: i32,
    /// md's layout number.
    pub layout: u32,
    /// Used part of each member; 0 for linear and raid0.
    pub size_sectors: u64,
    /// Chunk.
    pub chunk_sectors: u32,
    /// Number of roles.
    pub raid_disks: u32,
    /// Bitmap position relative to the superblock, in sectors; with PPL: offset and size.
    pub bitmap_offset_sectors: i32,
    /// Reshape: new level, position, change of members, new layout, new chunk, offset change.
    pub reshape: Reshape,
    /// Sector at which data starts on this device.
    pub data_offset: u64,
    /// Part of this device that may hold data.
    pub data_size: u64,
    /// Sector of this superblock.
    pub super_offset: u64,
    /// With feature `RECOVERY_OFFSET`: sectors of the data area (counted from `data_offset`) below
    /// this are rebuilt. With a journal: its tail. Kept as stored otherwise.
    pub recovery_offset: u64,
    /// md's device number; index into `roles`.
    pub dev_number: u32,
    /// Read errors corrected on this device.
    pub corrected_reads: u32,
    /// UUID of this device; zero for 0.90, which has none.
    pub device_uuid: [u8; 16],
    /// Bits of [`devflag`].
    pub devflags: u8,
    /// Bad-block log: sectors per unit as a shift.
    pub bblog_shift: u8,
    /// Bad-block log: size in sectors.
    pub bblog_size_sectors: u16,
    /// Bad-block log: position relative to the superblock, in sectors.
    pub bblog_offset_sectors: i32,
    /// Time of the last update, coded as `ctime`.
    pub utime: u64,
    /// Event count.
    pub events: u64,
    /// Array-wide: sync sectors below are in sync; [`MAX_SECTOR`] when clean, 0 when active.
    pub resync_offset: u64,
    /// Smallest I/O that the array takes (`logical_block_size`, since Linux 6.19); 0 when that is
    /// left to the members. Kept on writing: older kernels do not start an array that has it, so
    /// no other array gets it.
    pub logical_block_bytes: u32,
    /// The number of `/dev/mdN` that 0.90 asks for (`md_minor`); 0 for others.
    #[cfg_attr(feature = "serde", serde(default))]
    pub preferred_minor: u32,
    /// `pad0` and the end of `pad3`: zeroes, until a newer md finds a use for them. Kept as stored.
    pub padding: [u8; 32],
    /// Synology's md has marked its role as that of a disk with errors. Kept as stored.
    pub error_mark: bool,
    /// Role of each device number (`dev_roles`, `max_dev` entries).
    pub roles: Vec<DevRole>,
}

/// The reshape fields, kept as stored. An array in the middle of a reshape is only read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Reshape {
    /// New level.
    pub new_level: i32,
    /// Position.
    pub position: u64,
    /// Change in the number of members.
    pub delta_disks: i32,
    /// New layout.
    pub new_layout: u32,
    /// New chunk.
    pub new_chunk_sectors: u32,
    /// Change of the data offset.
    pub new_offset: i32,
}

impl Superblock {
    /// Returns the superblock of this device with the fields of the whole array from another one,
    /// except for those that each update changes.
    #[must_use]
    pub fn with_array_of(&self, array: &Self) -> Self {
        Self {
            set_uuid: array.set_uuid,
            set_name: array.set_name,
            ctime: array.ctime,
            level: array.level,
            layout: array.layout,
            size_sectors: array.size_sectors,
            chunk_sectors: array.chunk_sectors,
            raid_disks: array.raid_disks,
            reshape: array.reshape,
            events: array.events,
            logical_block_bytes: array.logical_block_bytes,
            preferred_minor: array.preferred_minor,
            ..self.clone()
        }
    }

    /// The same, with the latest update, too: also what it says of journals of nodes, without which
    /// an array that was not stopped cleanly would seem to need a resync.
    #[must_use]
    pub fn with_news_of(&self, newest: &Self) -> Self {
        let of_journals = newest.feature_map & feature::OVER_NODES;
        Self {
            feature_map: self.feature_map & !feature::OVER_NODES | of_journals,
            resync_offset: newest.resync_offset,
            roles: newest.roles.clone(),
            utime: newest.utime,
            ..self.with_array_of(newest)
        }
    }

    /// Returns the superblock of nothing: no level, no members, all fields 0.
    #[must_use]
    pub fn blank() -> Self {
        Self {
            version: Version::V1_2,
            feature_map: 0,
            set_uuid: [0; 16],
            set_name: [0; 32],
            ctime: 0,
            level: 0,
            layout: 0,
            size_sectors: 0,
            chunk_sectors: 0,
            raid_disks: 0,
            bitmap_offset_sectors: 0,
            reshape: Reshape::default(),
            data_offset: 0,
            data_size: 0,
            super_offset: 0,
            recovery_offset: 0,
            dev_number: 0,
            corrected_reads: 0,
            device_uuid: [0; 16],
            devflags: 0,
            bblog_shift: 0,
            bblog_size_sectors: 0,
            bblog_offset_sectors: 0,
            utime: 0,
            events: 0,
            resync_offset: 0,
            logical_block_bytes: 0,
            preferred_minor: 0,
            padding: [0; 32],
            error_mark: false,
            roles: Vec::new(),
        }
    }

    /// Checks that Braid can run an array with these features.
    ///
    /// # Errors
    /// The features that it cannot run, by name.
    pub fn supported(&self) -> Result<(), Unsupported> {
        self.supported_with(0, 0)
    }

    /// The same, also in the middle of a reshape, where it is only read.
    ///
    /// # Errors
    /// As [`supported`](Self::supported).
    pub fn supported_to_read(&self) -> Result<(), Unsupported> {
        self.supported_with(feature::RESHAPE, 0)
    }

    /// The same, where journals of nodes are looked at, too.
    ///
    /// # Errors
    /// As [`supported`](Self::supported).
    pub fn supported_over_nodes(&self) -> Result<(), Unsupported> {
        self.supported_with(feature::OVER_NODES, feature::LOGS)
    }

    fn supported_with(&self, more: u32, less: u32) -> Result<(), Unsupported> {
        let bits = self.feature_map & !(feature::SUPPORTED & !less | more);
        let known = feature::REFUSED.iter().filter(|(bit, _)| bits & bit != 0);
        let mut names: Vec<String> = known.clone().map(|(_, name)| (*name).to_owned()).collect();
        let unknown = known.fold(bits, |left, (bit, _)| left & !bit);
        if unknown != 0 {
            names.push(format!("unknown feature bits {unknown:#x}"));
        }
        let block_bytes = self.logical_block_bytes;
        if block_bytes != 0 && !LOGICAL_BLOCKS.contains(&block_bytes) {
            names.push(format!("logical blocks of {block_bytes} bytes"));
        }
        // md, too, takes what is not zero there for a new feature, and refuses.
        if self.padding != [0; 32] {
            names.push("superblock fields of a newer md".to_owned());
        }
        if names.is_empty() {
            return Ok(());
        }
        Err(Unsupported { bits, names: names.join(", ") })
    }

    /// The role of this device: its own entry in `roles`. A device number beyond the table is a
    /// spare.
    #[must_use]
    pub fn role(&self) -> DevRole {
        self.role_of(self.dev_number)
    }

    /// Returns what this superblock says of a device number.
    #[must_use]
    pub fn role_of(&self, dev_number: u32) -> DevRole {
        self.roles.get(dev_number as usize).copied().unwrap_or(DevRole::Spare)
    }

    /// Returns the roles that had a member when the array last ran.
    #[must_use]
    pub fn active_roles(&self) -> BTreeSet<Role> {
        let roles = self.roles.iter().filter_map(|role| match role {
            DevRole::Active(role) if u32::from(role.0) < self.raid_disks => Some(*role),
            _ => None,
        });
        roles.collect()
    }

    /// Returns whether the feature map has this bit.
    #[must_use]
    pub const fn has(&self, bit: u32) -> bool {
        self.feature_map & bit != 0
    }

    /// The first sector of the bitmap, when there is one and it lies on a device at all.
    #[must_use]
    pub fn bitmap_sector(&self) -> Option<u64> {
        if !self.has(feature::BITMAP_OFFSET) || self.bitmap_offset_sectors == 0 {
            return None;
        }
        self.super_offset.checked_add_signed(self.bitmap_offset_sectors.into())
    }

    /// Returns how many sectors there are for the bitmap, up to what lies behind it; `None` without
    /// a bitmap.
    #[must_use]
    pub fn bitmap_room(&self) -> Option<u64> {
        let start = self.bitmap_sector()?;
        if self.version == Version::V0_90 {
            return Some(V0_90_BITMAP_SECTORS);
        }
        let behind = [Some(self.data_offset), Some(self.super_offset), self.bblog_sector()];
        let next = behind.into_iter().flatten().filter(|sector| *sector > start).min();
        Some(next.unwrap_or(start) - start)
    }

    /// The first sector of the bad-block log, when there is room for one.
    #[must_use]
    pub fn bblog_sector(&self) -> Option<u64> {
        if self.bblog_size_sectors == 0 || self.bblog_offset_sectors == 0 {
            return None;
        }
        self.super_offset.checked_add_signed(self.bblog_offset_sectors.into())
    }

    /// The array UUID as mdadm prints it: four groups of eight digits. 0.90 stores four numbers,
    /// 1.x sixteen bytes.
    #[must_use]
    pub fn uuid_text(&self) -> String {
        uuid_text(self.version, self.set_uuid)
    }

    /// Returns the name of the array as a member of another one.
    #[must_use]
    pub fn title(&self) -> String {
        format!("array {} ({})", self.name(), self.uuid_text())
    }

    /// The field for a name, of which no more than 32 bytes are kept.
    #[must_use]
    pub fn name_field(name: &str) -> [u8; 32] {
        let mut field = [0; 32];
        field.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        field
    }

    /// Returns the name: text up to the first NUL, `HOST:NAME` when mdadm made it. Bytes that a
    /// terminal would not show as a character come out as U+FFFD.
    #[must_use]
    pub fn name(&self) -> String {
        let end = self.set_name.iter().position(|byte| *byte == 0).unwrap_or(self.set_name.len());
        String::from_utf8_lossy(&self.set_name[..end])
            .replace(char::is_control, char::REPLACEMENT_CHARACTER.encode_utf8(&mut [0; 4]))
    }
}

/// A UUID of a superblock of this version, as mdadm prints it.
#[must_use]
pub fn uuid_text(version: Version, uuid: [u8; 16]) -> String {
    let (groups, _) = uuid.as_chunks::<4>();
    let group = |bytes: &[u8; 4]| match version {
        Version::V0_90 => format!("{:08x}", u32::from_le_bytes(*bytes)),
        _ => format!("{:08x}", u32::from_be_bytes(*bytes)),
    };
    groups.iter().map(group).collect::<Vec<_>>().join(":")
}

/// Seconds since 1970 and microseconds, from md's code for times.
#[must_use]
pub const fn time_parts(coded: u64) -> (u64, u32) {
    (coded & TIME_SECONDS_MASK, (coded >> 40) as u32)
}

/// md's code for a time. Microseconds that are none (a million or more) count as 0.
#[must_use]
pub const fn time_code(seconds: u64, microseconds: u32) -> u64 {
    let microseconds = if microseconds < 1_000_000 { microseconds } else { 0 };
    (seconds & TIME_SECONDS_MASK) | (microseconds as u64) << 40
}

/// The lower 40 bits hold seconds.
const TIME_SECONDS_MASK: u64 = (1 << 40) - 1;
