//! The superblock of a write-intent bitmap: the codec. Offsets as in the kernel's
//! `drivers/md/md-bitmap.h` (`bitmap_super_t`), all numbers little-endian:
//!
//! ```text
//!  0 magic           4 version         8 uuid[16]       24 events        32 events_cleared
//! 40 sync_size      48 state          52 chunksize      56 daemon_sleep  60 write_behind
//! 64 sectors_reserved                 68 nodes          72 cluster_name[64]
//! ```

use super::bytes::{array_at, put, u32_at, u64_at};

/// Bytes of the superblock; the bits follow at once.
pub(super) const SUPERBLOCK_BYTES: usize = 256;

/// Bits that a bitmap may have here: 16 MiB of them. md's own are far smaller.
pub const MAX_BITS: u64 = 1 << 27;

const MAGIC: u32 = 0x6d74_6962;
pub(super) const VERSION: u32 = 4;
const NODES_AT: usize = 68;

/// Values of `state`.
pub mod state {
    /// The bits do not count: everything is to be taken as dirty.
    pub const STALE: u32 = 1 << 1;
    /// Writing it failed.
    pub const WRITE_ERROR: u32 = 1 << 2;
}

/// The superblock of a bitmap (`bitmap_super_t` of the kernel's `md-bitmap.h`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapSuperblock {
    /// Bitmap version: 4. The others are refused.
    pub version: u32,
    /// Array UUID.
    pub uuid: [u8; 16],
    /// Event count of the last update.
    pub events: u64,
    /// Event count at which bits were last cleared: members not older may be caught up by it.
    pub events_cleared: u64,
    /// Sync space it covers.
    pub sync_size_sectors: u64,
    /// Bits of [`state`].
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

/// The reason why bytes are not a bitmap to trust.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BitmapError {
    /// The bitmap cannot be read.
    #[error("md bitmap cannot be read: {reason}")]
    Read {
        /// The reason.
        reason: String,
    },
    /// No magic.
    #[error("no md bitmap where the superblock says one is")]
    NoMagic,
    /// Fewer bytes than the bitmap needs.
    #[error("md bitmap is cut off after {bytes} of {needed} bytes")]
    Truncated {
        /// Bytes there are.
        bytes: usize,
        /// Bytes there should be.
        needed: usize,
    },
    /// Another kind of bitmap.
    #[error("md bitmap version {version} ({kind}) is not one that braid reads")]
    Version {
        /// The version.
        version: u32,
        /// Meaning of the field.
        kind: &'static str,
    },
    /// A field makes no sense.
    #[error("md bitmap field {field} is {value}, which cannot be")]
    Malformed {
        /// The field, by its name in `md-bitmap.h`.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

impl BitmapSuperblock {
    /// Decodes the first bytes of a bitmap.
    ///
    /// # Errors
    /// [`BitmapError`]; the array can be run as if it had no bitmap, or with a full resync.
    pub fn decode(bytes: &[u8]) -> Result<Self, BitmapError> {
        if bytes.len() < 4 || u32_at(bytes, 0) != MAGIC {
            return Err(BitmapError::NoMagic);
        }
        if bytes.len() < SUPERBLOCK_BYTES {
            let needed = SUPERBLOCK_BYTES;
            return Err(BitmapError::Truncated { bytes: bytes.len(), needed });
        }
        let version = u32_at(bytes, 4);
        let kind = match version {
            VERSION if u32_at(bytes, NODES_AT) == 0 => None,
            VERSION | 5 => Some("clustered"),
            3 => Some("host-endian"),
            6 => Some("lockless"),
            _ => Some("unknown"),
        };
        if let Some(kind) = kind {
            return Err(BitmapError::Version { version, kind });
        }
        let superblock = Self {
            version,
            uuid: array_at(bytes, 8),
            events: u64_at(bytes, 24),
            events_cleared: u64_at(bytes, 32),
            sync_size_sectors: u64_at(bytes, 40),
            state: u32_at(bytes, 48),
            chunk_bytes: u32_at(bytes, 52),
            daemon_sleep_s: u32_at(bytes, 56),
            write_behind: u32_at(bytes, 60),
            sectors_reserved: u32_at(bytes, 64),
        };
        superblock.check()?;
        Ok(superblock)
    }

    fn check(&self) -> Result<(), BitmapError> {
        let malformed = |field, value| Err(BitmapError::Malformed { field, value });
        if self.chunk_bytes < 512 || !self.chunk_bytes.is_power_of_two() {
            return malformed("chunksize", self.chunk_bytes.into());
        }
        if self.sync_size_sectors == 0 || self.bits() > MAX_BITS {
            return malformed("sync_size", self.sync_size_sectors);
        }
        if self.daemon_sleep_s == 0 {
            return malformed("daemon_sleep", 0);
        }
        Ok(())
    }

    /// The bytes of the superblock.
    pub(super) fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        put(&mut bytes, 0, MAGIC.to_le_bytes());
        put(&mut bytes, 4, self.version.to_le_bytes());
        put(&mut bytes, 8, self.uuid);
        put(&mut bytes, 24, self.events.to_le_bytes());
        put(&mut bytes, 32, self.events_cleared.to_le_bytes());
        put(&mut bytes, 40, self.sync_size_sectors.to_le_bytes());
        put(&mut bytes, 48, self.state.to_le_bytes());
        put(&mut bytes, 52, self.chunk_bytes.to_le_bytes());
        put(&mut bytes, 56, self.daemon_sleep_s.to_le_bytes());
        put(&mut bytes, 60, self.write_behind.to_le_bytes());
        put(&mut bytes, 64, self.sectors_reserved.to_le_bytes());
        bytes
    }

    /// Sectors of sync space per bit.
    #[must_use]
    pub const fn chunk_sectors(&self) -> u64 {
        self.chunk_bytes as u64 / 512
    }

    /// Number of bits.
    #[must_use]
    pub const fn bits(&self) -> u64 {
        self.sync_size_sectors.div_ceil(self.chunk_sectors())
    }

    /// Sectors it occupies on a member, superblock included.
    #[must_use]
    pub const fn size_sectors(&self) -> u64 {
        (SUPERBLOCK_BYTES as u64 + self.bits().div_ceil(8)).div_ceil(512)
    }
}
