//! XFS, version 5: nearly every block of metadata says where it lies and to which file system it
//! belongs. By "XFS Algorithms & Data Structures" and `xfs_format.h` of Linux.

use braid_array::SECTOR_BYTES;

use crate::bytes::array_at;

/// What a superblock says of where things lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Xfs {
    /// What metadata carry.
    pub(super) uuid: [u8; 16],
    block_sectors: u64,
    sector_sectors: u64,
    ag_blocks: u64,
    ag_count: u64,
    ag_block_bits: u32,
    inodes_in_block_bits: u32,
    /// Blocks of the file system.
    blocks: u64,
    /// Stripe unit and width that it was made for, in blocks; 0 where it was made for none.
    unit: u64,
    width: u64,
}

impl Xfs {
    /// From a superblock whose checksum fits.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(b"XFSB") || u16_be(bytes, 100)? & 0xf != 5 {
            return None;
        }
        let sector_bytes = u16_be(bytes, 102)?;
        let sector = bytes.get(..usize::from(sector_bytes))?;
        let stored = u32::from_le_bytes(array_at(sector, 224)?);
        let sum = crc32c::crc32c_append(crc32c::crc32c(&sector[..224]), &[0; 4]);
        if crc32c::crc32c_append(sum, &sector[228..]) != stored {
            return None;
        }
        let block_bytes = u32_be(bytes, 4)?;
        let own_uuid = u32_be(bytes, 216)? & 4 != 0;
        let byte = |at: usize| bytes.get(at).map(|byte| u32::from(*byte));
        let found = Self {
            uuid: array_at(bytes, if own_uuid { 248 } else { 32 })?,
            block_sectors: u64::from(block_bytes) / SECTOR_BYTES,
            sector_sectors: u64::from(sector_bytes) / SECTOR_BYTES,
            ag_blocks: u32_be(bytes, 84)?.into(),
            ag_count: u32_be(bytes, 88)?.into(),
            ag_block_bits: byte(124)?,
            inodes_in_block_bits: byte(123)?,
            blocks: u64_be(bytes, 8)?,
            unit: u32_be(bytes, 184)?.into(),
            width: u32_be(bytes, 188)?.into(),
        };
        let sane = (512..=65536).contains(&block_bytes)
            && block_bytes.is_power_of_two()
            && (512..=32768).contains(&sector_bytes)
            && found.ag_block_bits <= 31
            && found.inodes_in_block_bits <= 8
            && (1..1 << 31).contains(&found.ag_blocks)
            && found.ag_count * found.ag_blocks < 1 << 52
            && (1..1 << 51).contains(&found.blocks);
        sane.then_some(found)
    }

    /// Its size in sectors.
    pub(super) const fn sectors(&self) -> u64 {
        self.blocks.saturating_mul(self.block_sectors)
    }

    /// The chunk, in sectors, and the number of data disks for which it was made.
    pub(super) fn made_for(&self) -> Option<(u64, u64)> {
        let disks = self.width.checked_div(self.unit)?;
        Some((self.unit * self.block_sectors, disks))
    }

    /// Where metadata lie that are always there: the beginnings of allocation groups.
    pub(super) fn known_places(&self) -> Vec<u64> {
        let every = self.ag_count.div_ceil(64).max(1);
        (0..self.ag_count)
            .step_by(every as usize)
            .map(|group| group * self.ag_blocks * self.block_sectors)
            .collect()
    }

    /// The sector of the file system in which this lies, if it is metadata that says so.
    pub(super) fn place(&self, bytes: &[u8]) -> Option<u64> {
        self.look(bytes).map(|(place, _, _)| place)
    }

    /// The same, if the checksum fits, too.
    pub(super) fn proven(&self, bytes: &[u8]) -> Option<u64> {
        let (place, sum_at, length) = self.look(bytes)?;
        let all = bytes.get(..length)?;
        let stored = u32::from_le_bytes(array_at(all, sum_at)?);
        let sum = crc32c::crc32c_append(crc32c::crc32c(&all[..sum_at]), &[0; 4]);
        (crc32c::crc32c_append(sum, &all[sum_at + 4..]) == stored).then_some(place)
    }

    /// The sector in which this lies, where its checksum is and what that is of.
    fn look(&self, bytes: &[u8]) -> Option<(u64, usize, usize)> {
        let sector = (self.sector_sectors * SECTOR_BYTES) as usize;
        let block = (self.block_sectors * SECTOR_BYTES) as usize;
        // Offset of the UUID, the place, offset of the checksum, what that is of.
        let (uuid, place, sum, length) = match array_at::<4>(bytes, 0)?.as_slice() {
            b"XAGF" => (64, self.header(u32_be(bytes, 8)?, 1)?, 216, sector),
            b"XAGI" => (296, self.header(u32_be(bytes, 8)?, 2)?, 312, sector),
            b"XAFL" => (8, self.header(u32_be(bytes, 4)?, 3)?, 32, sector),
            b"AB3B" | b"AB3C" | b"IAB3" | b"FIB3" | b"RMB3" | b"R3FC" => {
                (32, u64_be(bytes, 16)?, 52, block)
            }
            b"BMA3" => (40, u64_be(bytes, 24)?, 64, block),
            b"XDB3" | b"XDD3" | b"XDF3" => (24, u64_be(bytes, 8)?, 4, block),
            b"XSLM" | b"XARM" => (16, u64_be(bytes, 40)?, 12, block),
            [b'I', b'N', ..] if bytes.get(4) == Some(&3) => {
                (160, self.inode(u64_be(bytes, 152)?)?, 100, block >> self.inodes_in_block_bits)
            }
            _ => match u16_be(bytes, 8)? {
                0x3df1 | 0x3dff | 0x3ebe | 0x3bee => (32, u64_be(bytes, 16)?, 12, block),
                _ => return None,
            },
        };
        let own = array_at(bytes, uuid)? == self.uuid && place < self.sectors();
        own.then_some((place, sum, length))
    }

    /// One of the headers of an allocation group.
    fn header(&self, group: u32, index: u64) -> Option<u64> {
        let start = u64::from(group).checked_mul(self.ag_blocks * self.block_sectors)?;
        start.checked_add(index * self.sector_sectors)
    }

    /// The first inode of a block; others say nothing that it does not.
    fn inode(&self, number: u64) -> Option<u64> {
        let block = number >> self.inodes_in_block_bits;
        if block << self.inodes_in_block_bits != number {
            return None;
        }
        let group = block >> self.ag_block_bits;
        let within = block - (group << self.ag_block_bits);
        let block = group.checked_mul(self.ag_blocks)?.checked_add(within)?;
        block.checked_mul(self.block_sectors)
    }
}

fn u16_be(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_be_bytes)
}

fn u32_be(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_be_bytes)
}

fn u64_be(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_be_bytes)
}
