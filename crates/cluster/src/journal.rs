//! The journal of a member: records of the new content of slice-sets. A record is durable before
//! the write is answered, so that after a power loss everywhere each slice-set is old or new as a
//! whole. The journal lies at the end of the volume, behind the data.
//!
//! ```text
//! log (bytes of the headers)   records, in a circle     then two headers, written in turn
//! header, 4096 bytes:  0 magic "braidjrn"   8 crc32c u32 of the rest   12 version u16
//!   14 flags u16 (1: whole stripes are not recorded)   16 uuid[16]   32 sequence of the header u64
//!   40 bytes of the log u64   48 tail u64
//!   56 sequence of the record there u64   64 mark: version u64   72 epoch u32   76 zeroes
//! record, its first 4096 bytes:  0 magic "braidrec"   8 crc32c u32 of the rest   12 kind u8   13 0
//!   14 rows u16   16 uuid[16]   32 version u64   40 epoch u32   44 len u32   48 sequence u64
//!   56 holders u64   64 crc32c u32 of the contents   68 0 (4 bytes)
//!   72 per row: byte of the data of the member u64; then zeroes
//! then, for each row, its content
//! ```
//! The log ends at the first place without the complete record that is due: no later record was
//! reported to a client.

use std::collections::VecDeque;

use crc32c::crc32c;

use crate::ids::{Epoch, SetVersion};
use crate::set::Roles;

#[cfg(test)]
mod tests;

/// Headers and the first bytes of records.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of the headers behind the log.
pub const HEADERS_BYTES: u64 = 2 * PAGE_BYTES;

/// The least that a journal takes of a volume.
pub const LEAST_BYTES: u64 = 16 << 20;

const HEADER: &[u8; 8] = b"braidjrn";
const RECORD: &[u8; 8] = b"braidrec";
const FORMAT: u16 = 1;
const HEAD_BYTES: usize = 72;
const MAX_LOG_BYTES: u64 = 1 << 40;
/// Rows of the largest record.
const MAX_ROWS: usize = (PAGE_BYTES as usize - HEAD_BYTES) / 8;
/// Bound for the number of records that a start does not find, and must not take for later ones.
const LEAP: u64 = 1 << 32;

/// Facts that are needed to read the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Sequence number of the header: the higher one counts.
    pub sequence: u64,
    /// Length of the log.
    pub log_bytes: u64,
    /// Where the oldest record is.
    pub tail: u64,
    /// Its sequence.
    pub first: u64,
    /// Slice-sets up to this one are stored durably everywhere.
    pub mark: SetVersion,
    /// Only slice-sets over a part of a stripe are recorded.
    pub parts_only: bool,
}

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The rows get the content that follows.
    Content,
    /// The rows read as zeroes.
    Zeroes,
    /// Earlier records of the slice-set must not be stored.
    Void,
}

/// A member's part of a slice-set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The slice-set.
    pub version: SetVersion,
    /// One more than that of the record before.
    pub sequence: u64,
    /// Kind of the record.
    pub kind: Kind,
    /// Roles that have a part in the slice-set, or have none because they were lost.
    pub holders: Roles,
    /// Bytes of each row.
    pub len: u32,
    /// Where each row goes, in bytes from the beginning of the data.
    pub rows: Vec<u64>,
    /// CRC-32C of the contents; 0 of none.
    pub crc: u32,
}

/// Returns the first byte of the headers on a volume of this size; `None` when it is too small.
#[must_use]
pub const fn headers_byte(volume_bytes: u64) -> Option<u64> {
    (volume_bytes / PAGE_BYTES * PAGE_BYTES).checked_sub(HEADERS_BYTES)
}

fn page(magic: &[u8; 8], mut rest: Vec<u8>) -> Vec<u8> {
    rest.resize(PAGE_BYTES as usize - 12, 0);
    let mut page = magic.to_vec();
    page.extend(crc32c(&rest).to_le_bytes());
    page.append(&mut rest);
    page
}

/// A page that is whole, of this array.
struct Page<'a>(&'a [u8; PAGE_BYTES as usize]);

impl<'a> Page<'a> {
    fn open(bytes: &'a [u8], magic: &[u8; 8], array: &[u8; 16]) -> Option<Self> {
        let page = Self(bytes.first_chunk()?);
        let sound = page.0.starts_with(magic) && page.word(8)? == crc32c(&page.0[12..]);
        (sound && page.0[16..32] == array[..]).then_some(page)
    }

    fn short(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(self.0.get(at..at + 2)?.try_into().ok()?))
    }

    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }

    fn long(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(self.0.get(at..at + 8)?.try_into().ok()?))
    }
}

impl Header {
    /// Creates the header of an empty journal of this size, headers included; `None` when it has no
    /// room.
    #[must_use]
    pub const fn new(journal_bytes: u64, parts_only: bool) -> Option<Self> {
        let whole = journal_bytes / PAGE_BYTES * PAGE_BYTES;
        match whole.checked_sub(HEADERS_BYTES) {
            None | Some(0) => None,
            Some(log_bytes) => Some(Self {
                sequence: 0,
                log_bytes,
                tail: 0,
                first: 1,
                mark: SetVersion::new(Epoch::BEFORE_ANY, 0),
                parts_only,
            }),
        }
    }

    /// Returns the place of the headers on a volume whose data ends there.
    #[must_use]
    pub const fn place(&self, data_end_byte: u64) -> u64 {
        (data_end_byte + self.log_bytes).next_multiple_of(PAGE_BYTES)
    }

    /// Returns the bytes of the header for this array's journals.
    #[must_use]
    pub fn encode(&self, array: &[u8; 16]) -> Vec<u8> {
        let mut out = FORMAT.to_le_bytes().to_vec();
        out.extend(u16::from(self.parts_only).to_le_bytes());
        out.extend(array);
        for number in [self.sequence, self.log_bytes, self.tail, self.first, self.mark.number] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.mark.epoch.0.to_le_bytes());
        page(HEADER, out)
    }

    /// Returns the header; `None` for anything that `encode` does not make.
    #[must_use]
    pub fn decode(array: &[u8; 16], bytes: &[u8]) -> Option<Self> {
        let page = Page::open(bytes, HEADER, array)?;
        let header = Self {
            sequence: page.long(32)?,
            log_bytes: page.long(40)?,
            tail: page.long(48)?,
            first: page.long(56)?,
            mark: SetVersion::new(Epoch(page.word(72)?), page.long(64)?),
            parts_only: page.short(14)? == 1,
        };
        let aligned = (header.log_bytes | header.tail).is_multiple_of(PAGE_BYTES);
        let bounded = (1..=MAX_LOG_BYTES).contains(&header.log_bytes);
        let fits = aligned && bounded && header.tail <= header.log_bytes;
        let more_may_come = header.first.max(header.sequence) < u64::MAX / 2;
        (page.short(12)? == FORMAT && fits && more_may_come).then_some(header)
    }

    /// Returns the valid header with the higher sequence number, of both.
    #[must_use]
    pub fn newest(array: &[u8; 16], bytes: &[u8]) -> Option<Self> {
        let headers = bytes.chunks(PAGE_BYTES as usize).take(2);
        let headers = headers.filter_map(|bytes| Self::decode(array, bytes));
        headers.max_by_key(|header| header.sequence)
    }

    /// Returns the place of this header behind the first one's.
    #[must_use]
    pub const fn byte(&self) -> u64 {
        self.sequence % 2 * PAGE_BYTES
    }
}

impl Record {
    /// Returns the bytes that the record takes in the log.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        Self::bytes_of(self.kind, self.rows.len(), self.len)
    }

    /// Returns the bytes that a record of this many rows takes in the log.
    #[must_use]
    pub const fn bytes_of(kind: Kind, rows: usize, len: u32) -> u64 {
        let content = match kind {
            Kind::Content => rows as u64 * row_bytes(len),
            Kind::Zeroes | Kind::Void => 0,
        };
        PAGE_BYTES + content
    }

    /// Returns the bytes of its contents, without the gaps between them.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        match self.kind {
            Kind::Content => self.rows.len() as u64 * u64::from(self.len),
            Kind::Zeroes | Kind::Void => 0,
        }
    }

    /// Returns the first byte of a row's content in the record.
    #[must_use]
    pub const fn row_byte(&self, row: usize) -> u64 {
        PAGE_BYTES + row as u64 * row_bytes(self.len)
    }

    /// Returns the first bytes of the record.
    ///
    /// # Panics
    /// With more rows than any member has of a stripe.
    #[must_use]
    pub fn encode(&self, array: &[u8; 16]) -> Vec<u8> {
        assert!(self.rows.len() <= MAX_ROWS, "rows of a member");
        let kind = match self.kind {
            Kind::Content => 0,
            Kind::Zeroes => 1,
            Kind::Void => 2,
        };
        let mut out = vec![kind, 0];
        out.extend((self.rows.len() as u16).to_le_bytes());
        out.extend(array);
        out.extend(self.version.number.to_le_bytes());
        out.extend(self.version.epoch.0.to_le_bytes());
        out.extend(self.len.to_le_bytes());
        let crc = u64::from(self.crc);
        for &number in [self.sequence, self.holders.0, crc].iter().chain(&self.rows) {
            out.extend(number.to_le_bytes());
        }
        page(RECORD, out)
    }

    /// Returns the record; `None` for anything that `encode` does not make.
    #[must_use]
    pub fn decode(array: &[u8; 16], bytes: &[u8]) -> Option<Self> {
        let page = Page::open(bytes, RECORD, array)?;
        let kind = match page.short(12)? {
            0 => Kind::Content,
            1 => Kind::Zeroes,
            2 => Kind::Void,
            _ => return None,
        };
        let rows = usize::from(page.short(14)?);
        let rows = (rows <= MAX_ROWS).then(|| {
            let rows = (0..rows).map(|row| page.long(HEAD_BYTES + 8 * row));
            rows.collect::<Option<Vec<u64>>>()
        });
        let record = Self {
            version: SetVersion::new(Epoch(page.word(40)?), page.long(32)?),
            sequence: page.long(48)?,
            kind,
            holders: Roles(page.long(56)?),
            len: page.word(44)?,
            rows: rows.flatten()?,
            crc: page.word(64)?,
        };
        let aligned = record.rows.iter().all(|row| row.is_multiple_of(512));
        (aligned && record.len.is_multiple_of(512)).then_some(record)
    }
}

const fn row_bytes(len: u32) -> u64 {
    (len as u64).next_multiple_of(PAGE_BYTES)
}

/// Record in the log.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u64,
    bytes: u64,
    version: SetVersion,
}

/// The log: the place of the next record, and the records that are still needed.
#[derive(Debug)]
pub struct Log {
    bytes: u64,
    head: u64,
    next: u64,
    entries: VecDeque<Entry>,
}

/// Place at which a start continues to look for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Byte of the log.
    pub at: u64,
    /// The record there, or at the beginning of the log, has this sequence.
    pub sequence: u64,
    /// Set when the record was not there: the beginning of the log is tried.
    pub again: bool,
}

impl Log {
    /// Creates the log of a journal with this header, before its records are found.
    #[must_use]
    pub const fn new(header: &Header) -> Self {
        Self {
            bytes: header.log_bytes,
            head: header.tail,
            next: header.first,
            entries: VecDeque::new(),
        }
    }

    /// Returns the place of the next record.
    #[must_use]
    pub const fn look(&self) -> Look {
        Look { at: self.head, sequence: self.next, again: false }
    }

    /// Returns whether the record found by a look is the one that may be there.
    #[must_use]
    pub fn is_due(&self, look: Look, record: &Record) -> bool {
        let end = look.at.checked_add(record.bytes());
        let within = end.is_some_and(|end| end <= self.bytes);
        record.sequence == look.sequence && within && self.fits(look.at, record.bytes())
    }

    /// Takes the record that a look has found, if any. Returns the next place to look; `None` at
    /// the end of the log.
    pub fn looked(&mut self, look: Look, found: Option<&Record>) -> Option<Look> {
        let Some(record) = found.filter(|record| self.is_due(look, record)) else {
            return (look.at > 0 && !look.again).then_some(Look { at: 0, again: true, ..look });
        };
        self.push(look.at, record.bytes(), record.version);
        Some(self.look())
    }

    /// Returns whether a range overlaps no record that is needed.
    fn fits(&self, at: u64, bytes: u64) -> bool {
        self.entries.iter().all(|entry| at + bytes <= entry.at || entry.at + entry.bytes <= at)
    }

    fn push(&mut self, at: u64, bytes: u64, version: SetVersion) -> u64 {
        self.entries.push_back(Entry { at, bytes, version });
        self.head = at + bytes;
        self.next += 1;
        self.next - 1
    }

    /// Takes room for a record. Returns its place and its sequence; `None` when there is no room.
    pub fn append(&mut self, version: SetVersion, bytes: u64) -> Option<(u64, u64)> {
        let tail = self.entries.front().map(|entry| entry.at);
        let at = match tail {
            Some(tail) if self.head <= tail && self.head + bytes <= tail => self.head,
            Some(tail) if self.head <= tail => return None,
            _ if self.head + bytes <= self.bytes => self.head,
            // From the beginning again.
            _ if bytes <= tail.unwrap_or(self.bytes) => 0,
            _ => return None,
        };
        Some((at, self.push(at, bytes, version)))
    }

    /// Returns the beginning of the log when slice-sets up to this one need no records: byte and
    /// sequence.
    #[must_use]
    pub fn begins(&self, mark: SetVersion) -> (u64, u64) {
        let left = self.entries.iter().position(|entry| entry.version > mark);
        let left = left.unwrap_or(self.entries.len());
        let at = self.entries.get(left).map_or(self.head, |entry| entry.at);
        (at, self.next - (self.entries.len() - left) as u64)
    }

    /// Drops the records before this one; the new beginning is durable.
    pub fn trim(&mut self, first: u64) {
        while self.next - (self.entries.len() as u64) < first && !self.entries.is_empty() {
            self.entries.pop_front();
        }
    }

    /// Drops all records. Records that may be found behind the last one must never count, so the
    /// sequence leaps. Returns the beginning of the log: byte and sequence.
    pub fn empty(&mut self) -> (u64, u64) {
        self.entries.clear();
        self.head = 0;
        self.next += LEAP;
        (self.head, self.next)
    }
}
