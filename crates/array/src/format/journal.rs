//! Blocks of a journal device, as md writes them (`raid5-cache.c`, `md_p.h`): RAID 4, 5 and 6.
//!
//! The data area of the device is a ring of *meta blocks*, each with the pages of which its
//! payloads tell behind it, in order.
//!
//! ```text
//! meta block, 4096 bytes                 payload: data (0) or parity (1)
//!  0  magic 0x6433c509                    0  kind, 2 bytes; flags, 2 bytes
//!  4  checksum                            4  sectors: 8; parity of RAID 6: 16
//!  8  version 1                           8  sector of the array; parity: row of the members
//! 12  bytes used                         16  checksum of each page, 4 bytes
//! 16  sequence number                    payload: flush (2): these stripes count no more
//! 24  position of the block               0  kind, 2 bytes; flags, 2 bytes
//! 32  payloads                            4  bytes of the list
//!                                         8  rows of the members, 8 bytes each
//! ```
//! Checksums are CRC-32C without the inversion at the end, begun with that of the array's UUID.
//! Positions are in sectors from the start of the data area.

use super::bytes::{put, u32_at, u64_at};

/// Bytes of a meta block, and of a page.
pub const BLOCK_BYTES: u32 = 4096;

/// The same, in sectors.
pub const BLOCK_SECTORS: u64 = 8;

/// Bytes before the payloads.
pub const HEADER_BYTES: u32 = 32;

/// Sectors of the smallest journal that one write of an array with so many members always fits
/// into: `unit_sectors` of each, the blocks that tell of them, the block that is the tail, and what
/// keeps head and tail apart.
#[must_use]
pub fn least_sectors(members: u32, unit_sectors: u64) -> u64 {
    let pages = u64::from(members) * unit_sectors.div_ceil(BLOCK_SECTORS);
    // A page of two sums takes most.
    let of_block = u64::from(BLOCK_BYTES - HEADER_BYTES) / 24;
    let blocks = pages / of_block + 2;
    (pages + blocks + 3) * BLOCK_SECTORS
}

/// Jump of the sequence numbers at a recovery, so that blocks from before it fit nowhere.
pub const SEQ_JUMP: u64 = 10_000;

const MAGIC: u32 = 0x6433_c509;
const VERSION: u8 = 1;
const DATA: u16 = 0;
const PARITY: u16 = 1;
const FLUSH: u16 = 2;

/// Contents of a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Pages of data.
    Data {
        /// Sector of the array.
        sector: u64,
        /// Checksum of each page.
        checksums: Vec<u32>,
    },
    /// The sums of a stripe: P; of RAID 6 also Q.
    Parity {
        /// Row: sector of the members' data areas.
        sector: u64,
        /// Checksum of each page.
        checksums: Vec<u32>,
    },
    /// Earlier records of these stripes count no more.
    Flush {
        /// Rows.
        rows: Vec<u64>,
    },
}

impl Payload {
    /// Returns how many pages of contents it has.
    #[must_use]
    pub const fn pages(&self) -> usize {
        match self {
            Self::Data { checksums, .. } | Self::Parity { checksums, .. } => checksums.len(),
            Self::Flush { .. } => 0,
        }
    }

    /// Bytes of the block that it takes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match self {
            Self::Data { checksums, .. } | Self::Parity { checksums, .. } => {
                16 + 4 * checksums.len()
            }
            Self::Flush { rows } => 8 + 8 * rows.len(),
        }
    }
}

/// A meta block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaBlock {
    /// Sequence number: one more than that of the block before.
    pub seq: u64,
    /// Position of the block.
    pub position: u64,
    /// Payloads of the block.
    pub payloads: Vec<Payload>,
}

/// The reason why bytes are no block of an array's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// Not as long as a block.
    #[error("it is cut off")]
    Short,
    /// Something else.
    #[error("it is no block of a journal")]
    Magic,
    /// A format that is not known.
    #[error("it has version {0}")]
    Version(u8),
    /// Other bytes than were written, or of another array.
    #[error("its checksum is wrong")]
    Checksum,
    /// The bytes in use are fewer than a header has, or more than a block.
    #[error("it has {0} bytes in use")]
    Size(u32),
    /// A kind, a length or a place that no payload has.
    #[error("its payload at byte {0} is not possible")]
    Payload(usize),
}

impl JournalError {
    /// The bytes are those that were written, for this array: the block was meant as it is.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Version(_) | Self::Size(_) | Self::Payload(_))
    }
}

impl MetaBlock {
    /// Decodes a block of the journal of the array with this UUID. Its place and its sequence
    /// number are the caller's to compare.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn decode(bytes: &[u8], set_uuid: [u8; 16]) -> Result<Self, JournalError> {
        let bytes = bytes.get(..BLOCK_BYTES as usize).ok_or(JournalError::Short)?;
        if u32_at(bytes, 0) != MAGIC {
            return Err(JournalError::Magic);
        }
        if u32_at(bytes, 4) != checksum(bytes, set_uuid) {
            return Err(JournalError::Checksum);
        }
        if bytes[8] != VERSION {
            return Err(JournalError::Version(bytes[8]));
        }
        let size = u32_at(bytes, 12);
        if !(HEADER_BYTES..=BLOCK_BYTES).contains(&size) {
            return Err(JournalError::Size(size));
        }
        let used = size as usize;
        let mut at = HEADER_BYTES as usize;
        let mut payloads = Vec::new();
        while at < used {
            let payload = decode_payload(&bytes[at..used]).ok_or(JournalError::Payload(at))?;
            at += payload.bytes();
            payloads.push(payload);
        }
        Ok(Self { seq: u64_at(bytes, 16), position: u64_at(bytes, 24), payloads })
    }

    /// The bytes of a block of the array with this UUID.
    ///
    /// # Panics
    /// When the payloads do not fit.
    #[must_use]
    pub fn encode(&self, set_uuid: [u8; 16]) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        let mut at = HEADER_BYTES as usize;
        for payload in &self.payloads {
            let len = payload.bytes();
            encode_payload(payload, &mut bytes[at..at + len]);
            at += len;
        }
        put(&mut bytes, 0, MAGIC.to_le_bytes());
        bytes[8] = VERSION;
        put(&mut bytes, 12, u32::try_from(at).expect("a block at most").to_le_bytes());
        put(&mut bytes, 16, self.seq.to_le_bytes());
        put(&mut bytes, 24, self.position.to_le_bytes());
        let sum = checksum(&bytes, set_uuid);
        put(&mut bytes, 4, sum.to_le_bytes());
        bytes
    }

    /// Returns how many pages of contents lie behind it.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.payloads.iter().map(Payload::pages).sum()
    }
}

/// The sequence number and the position that a block would have, whatever else it says; `None` of
/// fewer bytes than a block has.
#[must_use]
pub fn numbers(bytes: &[u8]) -> Option<(u64, u64)> {
    let bytes = bytes.get(..BLOCK_BYTES as usize)?;
    Some((u64_at(bytes, 16), u64_at(bytes, 24)))
}

/// The payload that begins here, if it is whole and possible. md sets no flags, and what they would
/// ask for is not done here.
fn decode_payload(bytes: &[u8]) -> Option<Payload> {
    let head = bytes.get(..8)?;
    let kind = u16::from_le_bytes([head[0], head[1]]);
    if u16::from_le_bytes([head[2], head[3]]) != 0 {
        return None;
    }
    let size = u32_at(head, 4) as usize;
    if kind == FLUSH {
        let list = bytes.get(8..8usize.checked_add(size)?)?;
        let (rows, rest) = list.as_chunks::<8>();
        let rows = rows.iter().map(|row| u64::from_le_bytes(*row)).collect();
        return rest.is_empty().then_some(Payload::Flush { rows });
    }
    let sectors = BLOCK_SECTORS as usize;
    let pages = size / sectors;
    if pages == 0 || !size.is_multiple_of(sectors) {
        return None;
    }
    let sector = u64_at(bytes.get(..16)?, 8);
    if !sector.is_multiple_of(BLOCK_SECTORS) {
        return None;
    }
    let list = bytes.get(16..16 + pages.checked_mul(4)?)?;
    let checksums = list.as_chunks::<4>().0.iter().map(|sum| u32::from_le_bytes(*sum)).collect();
    match kind {
        DATA => Some(Payload::Data { sector, checksums }),
        PARITY => Some(Payload::Parity { sector, checksums }),
        _ => None,
    }
}

fn encode_payload(payload: &Payload, bytes: &mut [u8]) {
    let (kind, sector, checksums) = match payload {
        Payload::Data { sector, checksums } => (DATA, *sector, checksums),
        Payload::Parity { sector, checksums } => (PARITY, *sector, checksums),
        Payload::Flush { rows } => {
            put(bytes, 0, FLUSH.to_le_bytes());
            let size = u32::try_from(8 * rows.len()).expect("a block at most");
            put(bytes, 4, size.to_le_bytes());
            for (number, row) in rows.iter().enumerate() {
                put(bytes, 8 + 8 * number, row.to_le_bytes());
            }
            return;
        }
    };
    put(bytes, 0, kind.to_le_bytes());
    let sectors = u32::try_from(checksums.len()).expect("a block at most") * 8;
    put(bytes, 4, sectors.to_le_bytes());
    put(bytes, 8, sector.to_le_bytes());
    for (number, sum) in checksums.iter().enumerate() {
        put(bytes, 16 + 4 * number, sum.to_le_bytes());
    }
}

/// With the field itself taken as zero.
fn checksum(bytes: &[u8], set_uuid: [u8; 16]) -> u32 {
    let before = crc32c::crc32c_append(page_crc_seed(set_uuid), &bytes[..4]);
    let field = crc32c::crc32c_append(before, &[0; 4]);
    page_crc(crc32c::crc32c_append(field, &bytes[8..]))
}

/// Returns the value that a CRC-32C of a page is begun with: the checksum of the array's UUID,
/// which comes before the page.
#[must_use]
pub fn page_crc_seed(set_uuid: [u8; 16]) -> u32 {
    crc32c::crc32c(&set_uuid)
}

/// The checksum of a page whose CRC-32C, begun with [`page_crc_seed`], is this.
#[must_use]
pub const fn page_crc(crc: u32) -> u32 {
    !crc
}

/// The checksum of a page.
#[must_use]
pub fn page_checksum(set_uuid: [u8; 16], page: &[u8]) -> u32 {
    page_crc(crc32c::crc32c_append(page_crc_seed(set_uuid), page))
}
