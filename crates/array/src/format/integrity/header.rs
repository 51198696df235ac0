//! The header of an integrity area: two copies, 4096 bytes each, written in turn. The newest that
//! is whole counts.
//!
//! ```text
//!   0 magic[8] "braidsum"   8 version         10 algorithm       12 block   13 superblocks
//!  14 counted
//!  16 array UUID[16]       32 device UUID[16]  48 area[16]
//!  64 data offset          72 data sectors     80 sequence number
//!  96 superblock[128]     224 superblock[128] 352 known blocks     360 marks   508 checksum
//! ```
//!
//! All numbers are little-endian. Version and algorithm have two bytes: version 1, algorithm 1 for
//! CRC32C (Castagnoli). `block` is the size of a block as a shift, 12; `superblocks` the number of
//! superblocks that the header accepts, one or two, with eight digests of 16 bytes each. UUIDs are
//! as in the superblock; the device's is zero for version 0.90. `counted` is 1 where all had been
//! written when the array was stopped: the number of blocks whose checksums are known, and the
//! CRC32C of the marks' bits, by which later marks show. Nothing but what is told to people goes by
//! that. The checksum is the CRC32C of the
//! 508 bytes before: the header is one sector, which is written whole or not at all. The rest of a
//! copy is zeroes, and is not looked at. A copy's place is its sequence number modulo 2.

use super::digest::{DIGEST_BYTES, SuperblockDigest};
use super::{AreaId, BLOCK_BYTES, COPY_BYTES, IntegrityArea};
use crate::SECTOR_BYTES;
use crate::format::bytes::{array_at, put, u16_at, u32_at, u64_at};

const MAGIC: &[u8; 8] = b"braidsum";
const VERSION: u16 = 1;
const CRC32C: u16 = 1;
const SUPERBLOCKS_AT: usize = 96;
const COUNTED_AT: usize = 14;
const KNOWN_AT: usize = 352;
const MARKS_AT: usize = 360;
const CHECKSUM_AT: usize = SECTOR_BYTES as usize - 4;
/// The largest sequence number that is believed, so that there is always a next one.
pub const MAX_SEQUENCE: u64 = 1 << 62;

/// The header of an area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntegrityHeader {
    /// The array.
    pub set_uuid: [u8; 16],
    /// The member; zeroes for version 0.90.
    pub device_uuid: [u8; 16],
    /// The name of the area.
    pub area_id: AreaId,
    /// Sector of the device at which data begin.
    pub data_offset: u64,
    /// The layout.
    pub area: IntegrityArea,
    /// Number of the header: each that is written has the next one.
    pub sequence: u64,
    /// The superblock that is on the member, and the one that is about to be written there.
    accepted: [SuperblockDigest; 2],
    /// The blocks whose checksums are known, if nothing was written since they were counted.
    pub counted: Option<KnownCount>,
}

/// The number of blocks whose checksums are known, as it was when these were the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownCount {
    /// Blocks.
    pub blocks: u64,
    /// The CRC32C of the bits of all marks.
    pub marks: u32,
}

/// The reason why bytes are no header to go by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// None was ever written.
    #[error("no integrity area")]
    Absent,
    /// Bytes of another length.
    #[error("header of the integrity area is cut off after {bytes} bytes")]
    Truncated {
        /// Bytes there are.
        bytes: usize,
    },
    /// The header is damaged.
    #[error("checksum of the integrity area's header is {stored:#x}, not {computed:#x}")]
    BadChecksum {
        /// Stored.
        stored: u32,
        /// As it should be.
        computed: u32,
    },
    /// The header was written by a later Braid: the area is to be left as it is.
    #[error("{field} {value} of the integrity area is not one that braid knows")]
    Unknown {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A field makes no sense.
    #[error("field {field} of the integrity area's header is {value}, which cannot be")]
    Malformed {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

impl IntegrityHeader {
    /// Returns the first header of an area for this member, whose superblock is the one accepted.
    #[must_use]
    pub const fn first(
        set_uuid: [u8; 16],
        device_uuid: [u8; 16],
        area_id: AreaId,
        data_offset: u64,
        area: IntegrityArea,
        superblock: SuperblockDigest,
    ) -> Self {
        let accepted = [superblock, superblock];
        Self {
            set_uuid,
            device_uuid,
            area_id,
            data_offset,
            area,
            sequence: 0,
            accepted,
            counted: None,
        }
    }

    /// Returns the header that follows, which accepts these superblocks.
    #[must_use]
    pub fn next(&self, accepted: [SuperblockDigest; 2]) -> Self {
        Self { sequence: self.sequence + 1, accepted, counted: None, ..self.clone() }
    }

    /// Returns the header that follows, for an array that stops.
    #[must_use]
    pub fn with_count(&self, count: KnownCount) -> Self {
        Self { counted: Some(count), ..self.next(self.accepted) }
    }

    /// Returns whether it accepts a superblock.
    #[must_use]
    pub fn accepts(&self, superblock: &SuperblockDigest) -> bool {
        superblock.is_of(&self.accepted)
    }

    /// Which of the two copies this header is written to.
    #[must_use]
    pub const fn copy(&self) -> usize {
        (self.sequence % 2) as usize
    }

    /// Decodes the header that counts, from both copies as they were read.
    ///
    /// # Errors
    /// [`HeaderError`] where neither is whole, or one is not to be understood.
    pub fn newest(copies: [&[u8]; 2]) -> Result<Self, HeaderError> {
        let [first, second] = copies;
        let first = Self::decode(0, first);
        let second = Self::decode(1, second);
        match (first, second) {
            (Err(unknown @ HeaderError::Unknown { .. }), _)
            | (_, Err(unknown @ HeaderError::Unknown { .. })) => Err(unknown),
            (Ok(first), Ok(second)) if first.sequence < second.sequence => Ok(second),
            (Ok(whole), _) | (_, Ok(whole)) => Ok(whole),
            (Err(HeaderError::Absent), Err(why)) | (Err(why), Err(_)) => Err(why),
        }
    }

    /// Decodes a copy.
    ///
    /// # Errors
    /// [`HeaderError`].
    pub fn decode(copy: usize, bytes: &[u8]) -> Result<Self, HeaderError> {
        let Some(sector) = bytes.get(..SECTOR_BYTES as usize) else {
            return Err(HeaderError::Truncated { bytes: bytes.len() });
        };
        if !sector.starts_with(MAGIC) {
            return Err(HeaderError::Absent);
        }
        let stored = u32_at(sector, CHECKSUM_AT);
        let computed = crc32c::crc32c(&sector[..CHECKSUM_AT]);
        if stored != computed {
            return Err(HeaderError::BadChecksum { stored, computed });
        }
        let known = [
            ("version", u64::from(u16_at(sector, 8)), u64::from(VERSION)),
            ("algorithm", u16_at(sector, 10).into(), CRC32C.into()),
            ("block size", 1_u64.checked_shl(sector[12].into()).unwrap_or(0), BLOCK_BYTES),
        ];
        if let Some((field, value, _)) = known.into_iter().find(|(_, value, own)| value != own) {
            return Err(HeaderError::Unknown { field, value });
        }
        fields(copy, sector)
    }

    /// The bytes of a copy.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; COPY_BYTES];
        put(&mut bytes, 0, *MAGIC);
        put(&mut bytes, 8, VERSION.to_le_bytes());
        put(&mut bytes, 10, CRC32C.to_le_bytes());
        put(&mut bytes, 12, [BLOCK_BYTES.trailing_zeros() as u8, self.superblocks()]);
        put(&mut bytes, 16, self.set_uuid);
        put(&mut bytes, 32, self.device_uuid);
        put(&mut bytes, 48, self.area_id);
        put(&mut bytes, 64, self.data_offset.to_le_bytes());
        put(&mut bytes, 72, self.area.data_sectors().to_le_bytes());
        put(&mut bytes, 80, self.sequence.to_le_bytes());
        for index in 0..usize::from(self.superblocks()) {
            put(&mut bytes, SUPERBLOCKS_AT + DIGEST_BYTES * index, self.accepted[index].encode());
        }
        if let Some(KnownCount { blocks, marks }) = self.counted {
            bytes[COUNTED_AT] = 1;
            put(&mut bytes, KNOWN_AT, blocks.to_le_bytes());
            put(&mut bytes, MARKS_AT, marks.to_le_bytes());
        }
        let sum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        put(&mut bytes, CHECKSUM_AT, sum.to_le_bytes());
        bytes
    }

    fn superblocks(&self) -> u8 {
        let [on_disk, next] = &self.accepted;
        if on_disk == next { 1 } else { 2 }
    }
}

/// The fields of a header of this version.
fn fields(copy: usize, sector: &[u8]) -> Result<IntegrityHeader, HeaderError> {
    let malformed = |field, value| Err(HeaderError::Malformed { field, value });
    let sequence = u64_at(sector, 80);
    if sequence > MAX_SEQUENCE || sequence % 2 != copy as u64 {
        return malformed("sequence number", sequence);
    }
    let data_sectors = u64_at(sector, 72);
    let data_offset = u64_at(sector, 64);
    let Some(area) = IntegrityArea::new(data_sectors) else {
        return malformed("data sectors", data_sectors);
    };
    if data_offset.checked_add(data_sectors).is_none() {
        return malformed("data offset", data_offset);
    }
    let digest = |index| {
        let bytes = array_at(sector, SUPERBLOCKS_AT + DIGEST_BYTES * index);
        SuperblockDigest::decode(&bytes)
    };
    let accepted = match sector[13] {
        1 => [digest(0), digest(0)],
        2 => [digest(0), digest(1)],
        count => return malformed("superblocks", count.into()),
    };
    let blocks = u64_at(sector, KNOWN_AT);
    let counted = match sector[COUNTED_AT] {
        0 => None,
        1 if blocks <= area.blocks() => {
            Some(KnownCount { blocks, marks: u32_at(sector, MARKS_AT) })
        }
        1 => return malformed("known blocks", blocks),
        counted => return malformed("counted", counted.into()),
    };
    Ok(IntegrityHeader {
        set_uuid: array_at(sector, 16),
        device_uuid: array_at(sector, 32),
        area_id: array_at(sector, 48),
        data_offset,
        area,
        sequence,
        accepted,
        counted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Version;

    fn digest(byte: u8) -> SuperblockDigest {
        SuperblockDigest::of(Version::V0_90, &[byte; 4096]).expect("a superblock")
    }

    fn header() -> IntegrityHeader {
        let area = IntegrityArea::new(9000).expect("a size");
        IntegrityHeader::first([1; 16], [2; 16], [3; 16], 2048, area, digest(1))
    }

    /// Mends the checksum after a change.
    fn changed(header: &IntegrityHeader, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut bytes = header.encode();
        change(&mut bytes);
        let sum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        put(&mut bytes, CHECKSUM_AT, sum.to_le_bytes());
        bytes
    }

    #[test]
    fn it_lies_where_its_ruler_says() {
        let header = header().next([digest(1), digest(2)]);
        let bytes = header.encode();
        assert_eq!(bytes.len(), COPY_BYTES);
        assert_eq!(bytes[..16], *b"braidsum\x01\0\x01\0\x0c\x02\0\0");
        assert_eq!(bytes[16..64], [[1; 16], [2; 16], [3; 16]].concat());
        assert_eq!(bytes[64..72], 2048_u64.to_le_bytes());
        assert_eq!(bytes[72..80], 9000_u64.to_le_bytes());
        assert_eq!(bytes[80..96], 1_u128.to_le_bytes());
        assert_eq!(bytes[96..224], digest(1).encode());
        assert_eq!(bytes[224..352], digest(2).encode());
        assert!(bytes[352..508].iter().chain(&bytes[512..]).all(|byte| *byte == 0));
        assert_eq!(IntegrityHeader::decode(1, &bytes), Ok(header));
    }

    #[test]
    fn the_newest_whole_copy_counts() {
        let old = header();
        let new = old.next([digest(1), digest(2)]);
        let newer = new.next([digest(2), digest(2)]);
        let empty = vec![0; COPY_BYTES];
        let newest = |first: &[u8], second: &[u8]| IntegrityHeader::newest([first, second]);
        assert_eq!(newest(&old.encode(), &empty), Ok(old.clone()));
        assert_eq!(newest(&old.encode(), &new.encode()), Ok(new.clone()));
        assert_eq!(newest(&newer.encode(), &new.encode()), Ok(newer.clone()));
        let mut rotten = newer.encode();
        rotten[300] ^= 1;
        assert_eq!(newest(&rotten, &new.encode()), Ok(new.clone()));
        assert!(matches!(newest(&rotten, &empty), Err(HeaderError::BadChecksum { .. })));
        assert!(matches!(newest(&empty, &rotten), Err(HeaderError::BadChecksum { .. })));
        assert_eq!(newest(&empty, &empty), Err(HeaderError::Absent));
        // In the place of the other copy.
        assert!(matches!(newest(&new.encode(), &empty), Err(HeaderError::Malformed { .. })));
    }

    #[test]
    fn it_accepts_two_superblocks_and_no_other() {
        let header = header().next([digest(1), digest(2)]);
        let accepted = [1, 2, 3].map(|byte| header.accepts(&digest(byte)));
        assert_eq!(accepted, [true, true, false]);
    }

    #[test]
    fn what_a_later_version_wrote_is_left_alone() {
        let old = header();
        for (at, field) in [(8, "version"), (10, "algorithm"), (12, "block size")] {
            let later = changed(&old.next([digest(1); 2]), |bytes| bytes[at] = 77);
            let found = IntegrityHeader::newest([&old.encode(), &later]);
            let is_that = matches!(found, Err(HeaderError::Unknown { field: named, .. })
                if named == field);
            assert!(is_that, "{found:?}");
        }
    }

    #[test]
    fn fields_that_cannot_be_are_refused() {
        let wide = |at: usize, value: u64| {
            changed(&header(), |bytes| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes()))
        };
        let cases = [
            (changed(&header(), |bytes| bytes[13] = 0), "superblocks"),
            (changed(&header(), |bytes| bytes[13] = 3), "superblocks"),
            (wide(64, u64::MAX - 8999), "data offset"),
            (wide(72, 0), "data sectors"),
            (wide(72, u64::MAX), "data sectors"),
            (wide(80, MAX_SEQUENCE + 2), "sequence number"),
        ];
        for (bytes, field) in cases {
            let found = IntegrityHeader::decode(0, &bytes);
            let is_that = matches!(found, Err(HeaderError::Malformed { field: named, .. })
                if named == field);
            assert!(is_that, "{field}: {found:?}");
        }
        let cut = IntegrityHeader::decode(0, &header().encode()[..511]);
        assert_eq!(cut, Err(HeaderError::Truncated { bytes: 511 }));
    }
}
