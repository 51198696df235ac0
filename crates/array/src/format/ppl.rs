//! Partial parity log of a member, as md writes it (`raid5-ppl.c`, `md_p.h`): RAID 5 only.
//!
//! An area of each member holds *units*: a header, and behind it the partial parity of its entries,
//! one after the other. Each entry tells of rows of a stripe in which the same data changes, and
//! whose parity the member holds.
//!
//! ```text
//! header, 4096 bytes                     entry, 24 bytes
//!   0   512 bytes of 0xff                  0  first sector of the array that changes
//! 512   signature of the array             8  bytes of partial parity: of one strip, or 0
//! 520   generation                        12  bytes of data that change, of all strips
//! 528   entries, 148 at most              16  role that holds the parity
//! 532   checksum                          20  checksum of the partial parity
//! 536   the entries
//! ```
//! Checksums are CRC-32C. Where an area has room, its units form a ring.

use super::bytes::{put, u32_at, u64_at};
use super::superblock::feature;
use super::{Superblock, Version};
use crate::SECTOR_BYTES;
use crate::level::Level;

/// Bytes of a header.
pub const HEADER_BYTES: u32 = 4096;

/// Entries of a header at most.
pub const MAX_ENTRIES: usize = 148;

/// Members of an array with partial parity logs at most.
pub const MAX_MEMBERS: usize = 64;

/// Sectors of an area as mdadm makes it.
pub const DEFAULT_SECTORS: u64 = 2048;

/// An area with room for two of the largest units is a ring.
const RING_SECTORS: u64 = 2 * (4096 + (128 << 10)) / 512;

/// Sectors of the smallest area that mdadm makes in an array with this chunk: a header, and the
/// partial parity of a chunk, or 128 KiB.
#[must_use]
pub fn least_sectors(chunk_sectors: u32) -> u64 {
    u64::from(HEADER_BYTES) / SECTOR_BYTES + u64::from(chunk_sectors.max(256)).next_multiple_of(8)
}

/// The feature bit of an array whose areas have so many sectors: that of a ring where they are one.
#[must_use]
pub const fn feature_of(sectors: u64) -> u32 {
    if sectors >= RING_SECTORS { feature::MULTIPLE_PPLS } else { feature::PPL }
}
/// Sectors kept for a superblock, whatever of it is in use.
const SUPERBLOCK_SECTORS: u64 = 8;

const SIGNATURE_AT: usize = 512;
const GENERATION_AT: usize = 520;
const COUNT_AT: usize = 528;
const CHECKSUM_AT: usize = 532;
const ENTRIES_AT: usize = 536;
const ENTRY_BYTES: usize = 24;

/// Rows of a stripe in which a write changes the same neighbouring strips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PplEntry {
    /// The first sector of the array that changes.
    pub data_sector: u64,
    /// Bytes of its partial parity: the height of its rows, or 0 where whole rows change.
    pub pp_bytes: u32,
    /// Bytes of data that change, of all strips.
    pub data_bytes: u32,
    /// The role that holds the parity of the rows.
    pub parity_disk: u32,
    /// Checksum of the partial parity.
    pub checksum: u32,
}

/// The header, which begins a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PplHeader {
    /// Grows with each unit of a member.
    pub generation: u64,
    /// Recorded writes.
    pub entries: Vec<PplEntry>,
}

/// The reason why bytes are no header of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PplError {
    /// Not as long as a header.
    #[error("it is cut off")]
    Short,
    /// Other bytes than were written.
    #[error("its checksum is wrong")]
    Checksum,
    /// The header is of another array.
    #[error("it is of another array")]
    Foreign,
    /// An entry of no possible shape.
    #[error("entry {0} is not possible")]
    Entry(usize),
    /// More entries than a header has room for.
    #[error("it tells of {0} entries")]
    Entries(u32),
}

impl PplError {
    /// The bytes are those that were written, for this array: the header was meant as it is.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Entry(_) | Self::Entries(_))
    }
}

impl PplHeader {
    /// Bytes of the whole unit.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        let parity: u64 = self.entries.iter().map(|entry| u64::from(entry.pp_bytes)).sum();
        u64::from(HEADER_BYTES) + parity
    }

    /// Decodes a header of the array with this UUID.
    ///
    /// # Errors
    /// [`PplError`].
    pub fn decode(bytes: &[u8], set_uuid: [u8; 16]) -> Result<Self, PplError> {
        let bytes = bytes.get(..HEADER_BYTES as usize).ok_or(PplError::Short)?;
        if u32_at(bytes, CHECKSUM_AT) != checksum(bytes) {
            return Err(PplError::Checksum);
        }
        if u32_at(bytes, SIGNATURE_AT) != crc32c::crc32c(&set_uuid) {
            return Err(PplError::Foreign);
        }
        let count = u32_at(bytes, COUNT_AT);
        if count as usize > MAX_ENTRIES {
            return Err(PplError::Entries(count));
        }
        let entry = |number: usize| {
            let at = ENTRIES_AT + number * ENTRY_BYTES;
            let entry = PplEntry {
                data_sector: u64_at(bytes, at),
                pp_bytes: u32_at(bytes, at + 8),
                data_bytes: u32_at(bytes, at + 12),
                parity_disk: u32_at(bytes, at + 16),
                checksum: u32_at(bytes, at + 20),
            };
            entry.is_possible().then_some(entry).ok_or(PplError::Entry(number))
        };
        let entries = (0..count as usize).map(entry).collect::<Result<_, _>>()?;
        Ok(Self { generation: u64_at(bytes, GENERATION_AT), entries })
    }

    /// The bytes of a header of the array with this UUID.
    ///
    /// # Panics
    /// With more than [`MAX_ENTRIES`].
    #[must_use]
    pub fn encode(&self, set_uuid: [u8; 16]) -> Vec<u8> {
        assert!(self.entries.len() <= MAX_ENTRIES, "a header has room for {MAX_ENTRIES} entries");
        let mut bytes = vec![0; HEADER_BYTES as usize];
        bytes[..SIGNATURE_AT].fill(0xff);
        put(&mut bytes, SIGNATURE_AT, crc32c::crc32c(&set_uuid).to_le_bytes());
        put(&mut bytes, GENERATION_AT, self.generation.to_le_bytes());
        let count = u32::try_from(self.entries.len()).expect("148 at most");
        put(&mut bytes, COUNT_AT, count.to_le_bytes());
        for (number, entry) in self.entries.iter().enumerate() {
            let at = ENTRIES_AT + number * ENTRY_BYTES;
            put(&mut bytes, at, entry.data_sector.to_le_bytes());
            put(&mut bytes, at + 8, entry.pp_bytes.to_le_bytes());
            put(&mut bytes, at + 12, entry.data_bytes.to_le_bytes());
            put(&mut bytes, at + 16, entry.parity_disk.to_le_bytes());
            put(&mut bytes, at + 20, entry.checksum.to_le_bytes());
        }
        let sum = checksum(&bytes);
        put(&mut bytes, CHECKSUM_AT, sum.to_le_bytes());
        bytes
    }
}

impl PplEntry {
    /// Returns whether its sizes are whole sectors that go together.
    fn is_possible(&self) -> bool {
        let sector = SECTOR_BYTES as u32;
        self.data_bytes > 0
            && self.data_bytes.is_multiple_of(sector)
            && self.pp_bytes.is_multiple_of(sector)
            && self.pp_bytes <= self.data_bytes
            && self.data_sector.checked_add(u64::from(self.data_bytes) / SECTOR_BYTES).is_some()
    }
}

/// With the field itself taken as zero.
fn checksum(bytes: &[u8]) -> u32 {
    let before = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
    let field = crc32c::crc32c_append(before, &[0; 4]);
    crc32c::crc32c_append(field, &bytes[CHECKSUM_AT + 4..])
}

/// Returns the signature by which a header names its array: the CRC-32C of the array's UUID. `None`
/// for what is no header.
#[must_use]
pub fn signature(bytes: &[u8]) -> Option<u32> {
    let bytes = bytes.get(..HEADER_BYTES as usize)?;
    let is_header = bytes[..SIGNATURE_AT].iter().all(|byte| *byte == 0xff);
    let fits = is_header && u32_at(bytes, CHECKSUM_AT) == checksum(bytes);
    fits.then(|| u32_at(bytes, SIGNATURE_AT))
}

/// The place where a member keeps its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PplArea {
    /// Its first sector on the device.
    pub sector: u64,
    /// Its size, in sectors.
    pub sectors: u64,
    /// Units lie behind one another; otherwise each begins at the area's start.
    pub is_ring: bool,
}

impl PplArea {
    /// The log of the member with this superblock; `None` where the array has none.
    ///
    /// # Errors
    /// When the superblock puts it where none can be: the reason, for people.
    pub fn of(superblock: &Superblock) -> Result<Option<Self>, &'static str> {
        let one = superblock.has(feature::PPL);
        let several = superblock.has(feature::MULTIPLE_PPLS);
        if !one && !several {
            return Ok(None);
        }
        if one && several || superblock.has(feature::BITMAP_OFFSET | feature::JOURNAL) {
            return Err("it has logs that exclude each other");
        }
        if superblock.version == Version::V0_90 {
            return Err("metadata 0.90 has no partial parity log");
        }
        let [low, high, size_low, size_high] = superblock.bitmap_offset_sectors.to_le_bytes();
        let offset = i16::from_le_bytes([low, high]);
        // The kernel uses whole blocks of 4 KiB.
        let sectors = u64::from(u16::from_le_bytes([size_low, size_high])) & !7;
        if offset == 0 || sectors < 16 {
            return Err("its partial parity log has no room");
        }
        let sector = superblock.super_offset.checked_add_signed(offset.into());
        let sector = sector.ok_or("its partial parity log lies outside of any device")?;
        let is_ring = several && sectors >= RING_SECTORS;
        let area = Self { sector, sectors, is_ring };
        match area.overlap(superblock) {
            Some(reason) => Err(reason),
            None => Ok(Some(area)),
        }
    }

    /// The same, also while the log is off for a time.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn kept(superblock: &Superblock) -> Result<Option<Self>, &'static str> {
        let mut on = superblock.clone();
        resume(&mut on);
        Self::of(&on)
    }

    /// Returns whether the area has room for the records of one write, with `unit_sectors` of each
    /// member. md cuts its writes into blocks of 4 KiB and can do with less.
    pub(crate) const fn takes(self, unit_sectors: u64) -> bool {
        self.sectors >= HEADER_BYTES as u64 / SECTOR_BYTES + unit_sectors
    }

    /// Returns a reason if something else of this member lies there.
    fn overlap(self, superblock: &Superblock) -> Option<&'static str> {
        let end = self.sector.saturating_add(self.sectors);
        let overlaps =
            |first: u64, sectors: u64| first < end && self.sector < first.saturating_add(sectors);
        let bad_blocks = superblock.bblog_sector();
        if overlaps(superblock.super_offset, SUPERBLOCK_SECTORS) {
            Some("its partial parity log overlaps with the superblock")
        } else if overlaps(superblock.data_offset, superblock.data_size) {
            Some("its partial parity log overlaps with the data")
        } else if bad_blocks.is_some_and(|at| overlaps(at, superblock.bblog_size_sectors.into())) {
            Some("its partial parity log overlaps with the bad-block log")
        } else {
            None
        }
    }
}

/// Mark in the size of the area of a log that is off for a time.
const SUSPENDED: u8 = 1;

/// With it: the log is one of several units.
const SEVERAL: u8 = 2;

/// Bits of the size that are free: areas are of whole blocks of 4 KiB.
const MARKS: u8 = 7;

/// Returns whether the array had partial parity logs until it was given another shape, and is to
/// have them again afterwards. The superblock of each member keeps the place of its log, in a field
/// that md does not look at without the feature bit of a log or bitmap, with marks that md does not
/// set.
#[must_use]
pub fn is_suspended(superblock: &Superblock) -> bool {
    let marks = superblock.bitmap_offset_sectors.to_le_bytes()[2] & MARKS;
    superblock.level == Level::Raid5.to_md()
        && superblock.version != Version::V0_90
        && !superblock.has(feature::BITMAP_OFFSET | feature::LOGS)
        && (marks == SUSPENDED || marks == SUSPENDED | SEVERAL)
}

/// Has a superblock say that its log is off for a time.
pub(crate) fn suspend(superblock: &mut Superblock) {
    if superblock.has(feature::ANY_PPL) {
        let several = if superblock.has(feature::MULTIPLE_PPLS) { SEVERAL } else { 0 };
        superblock.feature_map &= !feature::ANY_PPL;
        set_marks(superblock, SUSPENDED | several);
    }
}

/// Has a superblock say that the log which was off is on, as it was.
pub(crate) fn resume(superblock: &mut Superblock) {
    if is_suspended(superblock) {
        let several = superblock.bitmap_offset_sectors.to_le_bytes()[2] & SEVERAL != 0;
        superblock.feature_map |= if several { feature::MULTIPLE_PPLS } else { feature::PPL };
        set_marks(superblock, 0);
    }
}

fn set_marks(superblock: &mut Superblock, marks: u8) {
    let mut code = superblock.bitmap_offset_sectors.to_le_bytes();
    code[2] = code[2] & !MARKS | marks;
    superblock.bitmap_offset_sectors = i32::from_le_bytes(code);
}

/// Returns the code for the superblock's field that otherwise holds the bitmap's offset: an offset
/// from the superblock, and a size, both in sectors.
#[must_use]
pub const fn place_code(offset: i16, sectors: u16) -> i32 {
    let [low, high] = offset.to_le_bytes();
    let [size_low, size_high] = sectors.to_le_bytes();
    i32::from_le_bytes([low, high, size_low, size_high])
}
