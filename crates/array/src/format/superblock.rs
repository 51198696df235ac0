//! The superblock of a member, one type for all versions.

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

/// What a superblock says of one device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Role {
    /// Active in this role.
    Active(u16),
    /// Spare (0xffff).
    Spare,
    /// Faulty (0xfffe).
    Faulty,
    /// Journal (0xfffd).
    Journal,
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
}

/// `resync_offset` of an array that needs no resync; also "no recovery in progress".
pub const MAX_SECTOR: u64 = u64::MAX;

/// A member's superblock. Array-wide fields are equal on members with equal event counts; the
/// device fields are the member's own. Sectors are 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Superblock {
    /// Version.
    pub version: Version,
    /// `feature_map`; 0 for 0.90.
    pub feature_map: u32,
    /// Array UUID as stored.
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
    /// Where data starts on this device.
    pub data_offset: u64,
    /// How much of this device may hold data.
    pub data_size: u64,
    /// Where this superblock lies.
    pub super_offset: u64,
    /// With feature `RECOVERY_OFFSET`: device sectors below are rebuilt. With a journal: its tail.
    pub recovery_offset: u64,
    /// md's device number; index into `roles`.
    pub dev_number: u32,
    /// Read errors corrected on this device.
    pub corrected_reads: u32,
    /// This device's UUID.
    pub device_uuid: [u8; 16],
    /// Bit 0 write-mostly, bit 1 failfast.
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
    /// What the superblock says of each device number (`dev_roles`, `max_dev` entries).
    pub roles: Vec<Role>,
}

/// The reshape fields, kept as stored. An array in the middle of a reshape is refused.
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
    /// The role of this device: its own entry in `roles`. A device number beyond the table is a
    /// spare.
    #[must_use]
    pub fn role(&self) -> Role {
        self.roles.get(self.dev_number as usize).copied().unwrap_or(Role::Spare)
    }

    /// Does the feature map have this bit?
    #[must_use]
    pub const fn has(&self, bit: u32) -> bool {
        self.feature_map & bit != 0
    }
}
