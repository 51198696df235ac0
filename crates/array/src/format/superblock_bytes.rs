//! Superblocks as bytes: the codec of each version, and the length that is written.

use super::superblock::{Superblock, SuperblockError, Version};
use super::{superblock_v0, superblock_v1};

impl Superblock {
    /// Decodes what was read at `sector` of a device, where a superblock of `version` would lie.
    ///
    /// # Errors
    /// [`SuperblockError`]; `NoMagic` is the usual one, of a device that is no member.
    pub fn decode(version: Version, sector: u64, bytes: &[u8]) -> Result<Self, SuperblockError> {
        match version {
            Version::V0_90 => superblock_v0::decode(sector, bytes),
            _ => superblock_v1::decode(version, sector, bytes),
        }
    }

    /// The bytes to write at sector `super_offset` of a device with blocks of so many bytes, and
    /// no more: as in md, what lies behind may be the bitmap.
    #[must_use]
    pub fn blocks(&self, block_bytes: u32) -> Vec<u8> {
        let mut bytes = self.encode();
        bytes.resize(bytes.len().next_multiple_of(block_bytes as usize), 0);
        bytes
    }

    /// The superblock as it is stored, checksum included: a whole number of sectors, as many as the
    /// roles need. [`blocks`](Self::blocks) are what is written.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self.version {
            Version::V0_90 => superblock_v0::encode(self),
            _ => superblock_v1::encode(self),
        }
    }
}
