//! Digests of superblocks: whether a member has a superblock that is expected, or one of somebody
//! else who was here meanwhile.
//!
//! Digested are the bytes that md's own checksum covers, and which are written together: all 4096
//! of version 0.90, and of 1.x the 256 bytes with the roles behind them. What follows there may be
//! a bitmap. Bitmap, bad-block log and journal are no part of it: before any of them changes, or
//! any data, md writes the superblock of an array with redundancy, if with no more than another
//! time. That time is in seconds. Of one second, a superblock of Braid's still differs from one of
//! md's: 1.x has microseconds in Braid's, 0.90 has words in each sector that md writes zeroes to.
//!
//! A power cut may leave some sectors of a superblock 0.90 old and others new, and its checksum
//! fits all the same. So each sector has a digest of its own, and such a mixture is one that is
//! expected. The first sector has event count and time: a superblock of somebody else is no mixture
//! of ours.

use super::siphash::siphash_128;
use crate::SECTOR_BYTES;
use crate::format::Version;
use crate::format::superblock::MAX_DEV;

/// Sectors of the longest superblock.
const SECTORS: usize = 8;
/// Bytes of a digest as it is stored.
pub(super) const DIGEST_BYTES: usize = 16 * SECTORS;

/// The digests of a superblock's sectors: zeroes where it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperblockDigest {
    sectors: [[u8; 16]; SECTORS],
}

impl SuperblockDigest {
    /// Returns the digest of a superblock as it was read or is to be written, `None` when these
    /// bytes cannot be one.
    #[must_use]
    pub fn of(version: Version, bytes: &[u8]) -> Option<Self> {
        let length = match version {
            Version::V0_90 => SECTORS * SECTOR_BYTES as usize,
            _ => {
                let max_dev = u32::from_le_bytes(*bytes.get(220..)?.first_chunk()?);
                256 + 2 * max_dev.min(MAX_DEV + 1) as usize
            }
        };
        let mut sectors = [[0; 16]; SECTORS];
        let mut digests = bytes.get(..length)?.chunks(SECTOR_BYTES as usize).map(siphash_128);
        sectors.iter_mut().zip(&mut digests).for_each(|(sector, digest)| *sector = digest);
        digests.next().is_none().then_some(Self { sectors })
    }

    /// Returns whether a superblock that was found is one of these, or a mixture of their sectors.
    #[must_use]
    pub fn is_of(&self, accepted: &[Self]) -> bool {
        let known = |at: usize| accepted.iter().any(|one| one.sectors[at] == self.sectors[at]);
        (0..SECTORS).all(known)
    }

    pub(super) fn encode(&self) -> [u8; DIGEST_BYTES] {
        let mut bytes = [0; DIGEST_BYTES];
        bytes.copy_from_slice(self.sectors.as_flattened());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; DIGEST_BYTES]) -> Self {
        let mut sectors = [[0; 16]; SECTORS];
        sectors.as_flattened_mut().copy_from_slice(bytes);
        Self { sectors }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;
    use crate::format::Superblock;
    use crate::format::superblock::{DevRole, time_code};

    fn superblock(version: Version, events: u64, devices: u16) -> Superblock {
        let roles = (0..devices).map(|role| DevRole::Active(Role(role))).collect();
        Superblock {
            version,
            level: 1,
            raid_disks: 2,
            size_sectors: 1 << 20,
            data_size: 1 << 20,
            super_offset: 8,
            events,
            utime: time_code(1000, 1),
            roles,
            ..Superblock::blank()
        }
    }

    fn digest(superblock: &Superblock) -> SuperblockDigest {
        SuperblockDigest::of(superblock.version, &superblock.encode()).expect("a superblock")
    }

    #[test]
    fn each_byte_of_a_superblock_counts_and_no_other() {
        for version in [Version::V0_90, Version::V1_0, Version::V1_1, Version::V1_2] {
            let bytes = superblock(version, 7, 3).blocks(4096);
            let own = SuperblockDigest::of(version, &bytes).expect("a superblock");
            let length = if version == Version::V0_90 { 4096 } else { 262 };
            for at in (0..4096).filter(|at| version == Version::V0_90 || !(220..224).contains(at)) {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                let found = SuperblockDigest::of(version, &changed).expect("as long");
                assert_eq!(found == own, at >= length, "{version:?}: byte {at}");
                assert_eq!(found.is_of(&[own]), at >= length);
            }
            assert_eq!(SuperblockDigest::of(version, &bytes[..length]), Some(own));
            assert_eq!(SuperblockDigest::of(version, &bytes[..length - 1]), None);
        }
    }

    #[test]
    fn hostile_lengths_are_no_superblock() {
        let mut bytes = superblock(Version::V1_2, 7, 3).blocks(4096);
        for max_dev in [MAX_DEV + 1, u32::MAX] {
            bytes[220..224].copy_from_slice(&max_dev.to_le_bytes());
            assert_eq!(SuperblockDigest::of(Version::V1_2, &bytes), None);
        }
        bytes[220..224].copy_from_slice(&MAX_DEV.to_le_bytes());
        assert!(SuperblockDigest::of(Version::V1_2, &bytes).is_some());
        assert_eq!(SuperblockDigest::of(Version::V1_2, &[]), None);
    }

    #[test]
    fn a_torn_superblock_is_a_mixture_and_mds_is_none() {
        let old = superblock(Version::V0_90, 7, 8);
        let mut new = superblock(Version::V0_90, 8, 8);
        new.roles[7] = DevRole::Faulty;
        let accepted = [digest(&old), digest(&new)];
        for torn in 0..=u8::MAX {
            let mut bytes = old.encode();
            let fresh = new.encode();
            for at in (0..8).filter(|at| torn >> at & 1 == 1).map(|at| 512 * at) {
                bytes[at..at + 512].copy_from_slice(&fresh[at..at + 512]);
            }
            Superblock::decode(Version::V0_90, 8, &bytes).expect("its checksum fits");
            let found = SuperblockDigest::of(Version::V0_90, &bytes).expect("as long");
            assert!(found.is_of(&accepted), "{torn:08b}");
        }
        let later = digest(&superblock(Version::V0_90, 9, 8));
        assert!(!later.is_of(&accepted) && !later.is_of(&[]));
        // The same with the zeroes that md writes at the end of each sector.
        let mut of_md = old.encode();
        of_md[1020..1024].fill(0);
        let of_md = SuperblockDigest::of(Version::V0_90, &of_md).expect("as long");
        assert!(!of_md.is_of(&accepted));
    }

    #[test]
    fn another_time_is_another_superblock() {
        let old = superblock(Version::V1_2, 7, 2);
        let new = Superblock { utime: time_code(1000, 0), ..old.clone() };
        assert!(!digest(&new).is_of(&[digest(&old)]));
    }
}
