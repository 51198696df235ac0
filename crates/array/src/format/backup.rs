//! The header of mdadm's backup files, which keep a part of the array while its data move in place:
//!
//! ```text
//!   0 magic[16]     16 set_uuid[16]    32 mtime          40 devstart
//!  48 arraystart    56 length          64 sb_csum        68 pad
//!  72 devstart2     80 arraystart2     88 length2        96 sb_csum2
//! ```
//!
//! (`struct mdp_backup_super` in mdadm's `mdadm.h`). Numbers are little-endian, of 64 bits, in
//! seconds and sectors; `devstart` is where the data begin in the file or device, `devstart2`
//! counts from there, and is in the byte order of the machine that wrote it. The sums are of no
//! use: mdadm adds up the first byte alone. A backup keeps array content, in order.

/// Begin of a header of one part.
pub const MAGIC_1: &[u8; 16] = b"md_backup_data-1";
/// Begin of a header of two parts.
pub const MAGIC_2: &[u8; 16] = b"md_backup_data-2";

/// Between a header and the data.
pub const HEADER_SECTORS: u64 = 8;

/// The most of the array that is saved at a time, unless one unit is more.
const MOST_SAVED: u64 = 32_768;

/// The sum of any 64 bytes or more that begin like the magic: `bsb_csum` in mdadm's `Grow.c` shifts
/// the same byte in for each.
const SUM: u32 = 0x2492_4915;

/// A header of one part, with the data right behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupHeader {
    /// The array.
    pub set_uuid: [u8; 16],
    /// Seconds since 1970.
    pub mtime: u64,
    /// First sector of the array that is kept.
    pub start: u64,
    /// Number of sectors; 0: nothing is kept.
    pub length: u64,
}

impl BackupHeader {
    /// Returns the header as it is written, up to the data.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; (HEADER_SECTORS * crate::SECTOR_BYTES) as usize];
        bytes[..16].copy_from_slice(MAGIC_1);
        bytes[16..32].copy_from_slice(&self.set_uuid);
        let numbers = [self.mtime, HEADER_SECTORS, self.start, self.length];
        for (at, number) in (32..).step_by(8).zip(numbers) {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[64..68].copy_from_slice(&SUM.to_le_bytes());
        bytes
    }
}

/// Returns how many sectors of an array are best saved at a time, of which so many are the least.
pub(crate) const fn saved_at_a_time(unit: u64) -> u64 {
    let whole = MOST_SAVED / unit * unit;
    if whole > unit { whole } else { unit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_mdadm() {
        let header = BackupHeader { set_uuid: [9; 16], mtime: 7, start: 1536, length: 768 };
        let bytes = header.encode();
        let shift = |sum: u32, _| (sum << 3).wrapping_add(bytes[0].into());
        assert_eq!((0..64).fold(0, shift).to_le_bytes(), bytes[64..68]);
        assert_eq!(bytes.len(), 4096);
    }
}
