//! XFS. In version 5 nearly every block of metadata says where it lies and to which file system it
//! belongs; in version 4, headers of allocation groups alone say where, and what else there is has
//! to be walked through. By "XFS Algorithms & Data Structures" and `xfs_format.h` of Linux.

use braid_array::SECTOR_BYTES;

use crate::bytes::array_at;

/// The places of things by a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Xfs {
    /// The UUID that metadata carry.
    pub(super) uuid: [u8; 16],
    /// Whether metadata have checksums, and say where they lie: that is version 5.
    pub(super) has_sums: bool,
    pub(super) block_sectors: u64,
    pub(super) sector_sectors: u64,
    pub(super) ag_blocks: u64,
    pub(super) ag_count: u64,
    pub(super) ag_block_bits: u32,
    pub(super) inodes_in_block_bits: u32,
    pub(super) inode_bytes: u64,
    /// The number of the root directory; most copies of the superblock have none.
    pub(super) root: Option<u64>,
    /// Blocks of the file system.
    blocks: u64,
    /// Stripe unit and width that it was made for, in blocks; 0 where it was made for none.
    unit: u64,
    width: u64,
}

impl Xfs {
    /// From a superblock whose checksum fits, or, where it has none, all of whose numbers do.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(b"XFSB") {
            return None;
        }
        let version = u16_be(bytes, 100)? & 0xf;
        let sector_bytes = u16_be(bytes, 102)?;
        let sector = bytes.get(..usize::from(sector_bytes))?;
        let block_bytes = u32_be(bytes, 4)?;
        let has_sums = version == 5;
        if !matches!(version, 4 | 5) || has_sums && !has_sum(sector) {
            return None;
        }
        let own_uuid = has_sums && u32_be(bytes, 216)? & 4 != 0;
        let byte = |at: usize| bytes.get(at).map(|byte| u32::from(*byte));
        let found = Self {
            uuid: array_at(bytes, if own_uuid { 248 } else { 32 })?,
            has_sums,
            block_sectors: u64::from(block_bytes) / SECTOR_BYTES,
            sector_sectors: u64::from(sector_bytes) / SECTOR_BYTES,
            ag_blocks: u32_be(bytes, 84)?.into(),
            ag_count: u32_be(bytes, 88)?.into(),
            ag_block_bits: byte(124)?,
            inodes_in_block_bits: byte(123)?,
            inode_bytes: u16_be(bytes, 104)?.into(),
            root: Some(u64_be(bytes, 56)?).filter(|number| *number != u64::MAX),
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
        (sane && (has_sums || found.adds_up(bytes))).then_some(found)
    }

    /// Returns whether numbers follow from each other as they have to. Without a checksum they tell
    /// a superblock from a sum of some.
    fn adds_up(&self, bytes: &[u8]) -> bool {
        let is_log = |at: usize, of: u64| bytes.get(at).is_some_and(|log| 1 << (log & 31) == of);
        is_log(120, self.block_sectors * SECTOR_BYTES)
            && is_log(121, self.sector_sectors * SECTOR_BYTES)
            && is_log(122, self.inode_bytes)
            && is_log(124, self.ag_blocks.next_power_of_two())
            && is_log(123, self.block_sectors * SECTOR_BYTES / self.inode_bytes.max(1))
            && (256..=2048).contains(&self.inode_bytes)
            && self.blocks <= self.ag_blocks * self.ag_count
            && self.blocks > self.ag_blocks * self.ag_count.saturating_sub(1)
            && bytes.get(126).is_some_and(|making| *making < 2)
            && self.uuid != [0; 16]
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
        if !self.has_sums {
            return self.place_without_sum(bytes);
        }
        self.look(bytes).map(|(place, _, _)| place)
    }

    /// The same, if the checksum fits, too, where there are any.
    pub(super) fn proven(&self, bytes: &[u8]) -> Option<u64> {
        if !self.has_sums {
            return self.place_without_sum(bytes);
        }
        let (place, sum_at, length) = self.look(bytes)?;
        let all = bytes.get(..length)?;
        let stored = u32::from_le_bytes(array_at(all, sum_at)?);
        let sum = crc32c::crc32c_append(crc32c::crc32c(&all[..sum_at]), &[0; 4]);
        (crc32c::crc32c_append(sum, &all[sum_at + 4..]) == stored).then_some(place)
    }

    /// The length of an allocation group in blocks, which the last one ends early.
    pub(super) fn group_blocks(&self, group: u64) -> u64 {
        self.blocks.saturating_sub(group.saturating_mul(self.ag_blocks)).min(self.ag_blocks)
    }

    /// The same of version 4: what does not say to which file system it belongs says how long its
    /// group is.
    fn place_without_sum(&self, bytes: &[u8]) -> Option<u64> {
        let index = match array_at::<4>(bytes, 0)?.as_slice() {
            b"XAGF" => 1,
            b"XAGI" => 2,
            _ => return None,
        };
        let group = u32_be(bytes, 8)?;
        let length = u64::from(u32_be(bytes, 12)?);
        let fits = u32_be(bytes, 4)? == 1
            && u64::from(group) < self.ag_count
            && length == self.group_blocks(group.into());
        if fits { self.header(group, index) } else { None }
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
        self.block(block)
    }

    /// The sector of a block by its number, whose upper bits are the group's.
    pub(super) fn block(&self, number: u64) -> Option<u64> {
        let group = number >> self.ag_block_bits;
        let within = number - (group << self.ag_block_bits);
        let block = group.checked_mul(self.ag_blocks)?.checked_add(within)?;
        block.checked_mul(self.block_sectors)
    }
}

/// Returns whether the checksum of a superblock fits.
fn has_sum(sector: &[u8]) -> bool {
    let stored = array_at(sector, 224).map(u32::from_le_bytes);
    let (Some(head), Some(tail)) = (sector.get(..224), sector.get(228..)) else { return false };
    let sum = crc32c::crc32c_append(crc32c::crc32c(head), &[0; 4]);
    stored == Some(crc32c::crc32c_append(sum, tail))
}

pub(super) fn u16_be(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_be_bytes)
}

pub(super) fn u32_be(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_be_bytes)
}

pub(super) fn u64_be(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_be_bytes)
}
