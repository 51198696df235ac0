//! The write-intent bitmap.

/// The superblock of a bitmap (`bitmap_super_t` of the kernel's `md-bitmap.h`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapSuperblock {
    /// Bitmap version: 4 (little-endian), 5 clustered (refused), 6 lockless (refused).
    pub version: u32,
    /// Array UUID.
    pub uuid: [u8; 16],
    /// Event count of the last update.
    pub events: u64,
    /// Event count at which bits were last cleared: members not older may be caught up by it.
    pub events_cleared: u64,
    /// Sync space it covers.
    pub sync_size_sectors: u64,
    /// State bits: 1 stale, 2 write error.
    pub state: u32,
    /// Bytes of sync space per bit; a power of two.
    pub chunk_bytes: u32,
    /// Seconds after which clean bits are cleared.
    pub daemon_sleep_s: u32,
    /// Write-behind limit.
    pub write_behind: u32,
    /// Sectors reserved for it; 0 when not said.
    pub sectors_reserved: u32,
}

/// A bitmap in memory: one bit for each chunk of sync space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    /// Its superblock.
    pub superblock: BitmapSuperblock,
    bits: Vec<u64>,
}
