//! The journal of a member: prepared slice-sets are recorded first, many under one flush.
//!
//! ```text
//! found with the volume ─► scanned ─► listed for the client ─► replayed ─► emptied ─► in use
//! a batch: sums ── contents and first pages of the records ── flush ──► recorded
//! ```
//! See [`journal`](crate::journal) for the format on the volume.

mod batch;
mod replay;
mod requests;
mod scan;

use std::collections::VecDeque;

use braid_array::{Buf, IoOp, MemberId, SECTOR_BYTES};

use self::batch::Batch;
pub(super) use self::batch::BatchEntry;
pub(super) use self::scan::{Bounds, Ready};
use super::ids::{ArrayId, ClientId};
use super::out::{Flight, NodeOut};
use crate::journal::{Header, Log, Look, PAGE_BYTES, Record};

/// State of the journal before records are appended.
#[derive(Debug)]
enum JournalState {
    /// The headers are being read.
    Headers,
    /// A record is being looked for.
    Look(Look),
    /// A record is found, and its contents are being checked.
    Check(RecordCheck),
    /// The found records are being made durable.
    Flushing,
    /// The records that the log held are known.
    Known,
    /// Records are being replayed: the operations that are left.
    Replay { tag: u32, steps: VecDeque<IoOp> },
}

/// A record whose contents are being checked.
#[derive(Debug)]
struct RecordCheck {
    look: Look,
    record: Record,
    /// Bytes that were checked, with this CRC.
    done: u64,
    crc: u32,
}

impl RecordCheck {
    /// Returns the next range to check: byte of the log, and length.
    fn next(&self, most: u32) -> (u64, u64) {
        let len = u64::from(self.record.len);
        let row = (self.done / len) as usize;
        let byte = self.done % len;
        let at = self.look.at + self.record.row_byte(row) + byte;
        (at, (len - byte).min(most.into()))
    }
}

/// One member's journal, from `OpenPipeline` until the pipeline ends. [`start`](Self::start) reads
/// the headers, looks for records, checks their contents, and makes the found records durable.
/// After that the records of the log are known (`found`), and may be replayed. Once the client has
/// had it emptied, the journal is in use: slice-sets are [`push`](Self::push)ed and recorded in
/// batches before they count as prepared, and a trim writes a header by which older records count
/// no more. Answers of the executor go to [`done`](Self::done), [`loaded`](Self::loaded),
/// [`summed`](Self::summed) and [`trimmed`](Self::trimmed); [`advance`](Self::advance) is called
/// until it has nothing more.
#[derive(Debug)]
pub(super) struct Journal {
    client: ClientId,
    /// The tag of `OpenPipeline`.
    opening: u32,
    array: ArrayId,
    member: MemberId,
    /// First sector of the headers, and of the log when that is known.
    headers_sector: u64,
    log_sector: u64,
    /// First byte of the data on the volume, and the byte behind the data.
    data: (u64, u64),
    /// In the arena: a page for each position and two more.
    pages: u64,
    positions: u16,
    /// No record has more of them.
    rows: u16,
    start: JournalState,
    /// Range of the log that the buffer holds at the start: first byte, and length.
    window: (u64, u64),
    header: Option<Header>,
    log: Option<Log>,
    /// Records that the log held at the start.
    found: Vec<(u64, Record)>,
    waiting: Vec<BatchEntry>,
    batch: Option<Batch>,
    /// The tag of the request that is answered when this header is durable.
    trimming: Option<(u32, Header)>,
    /// The log has a hole: nothing behind it would be found.
    broken: bool,
    /// The records that the log held at the start cannot be read.
    unreadable: bool,
    /// The client has had it emptied: from then on prepared slice-sets are recorded.
    used: bool,
}

impl Journal {
    /// Returns the beginning of its memory in the arena.
    pub(super) const fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns whether slice-sets are recorded.
    pub(super) const fn is_used(&self) -> bool {
        self.used
    }

    /// Returns whether only slice-sets over a part of a stripe are recorded.
    pub(super) fn parts_only(&self) -> bool {
        self.header.as_ref().is_some_and(|header| header.parts_only)
    }

    /// Returns the array that it belongs to.
    pub(super) const fn array(&self) -> ArrayId {
        self.array
    }

    /// Begins an operation of the journal on its volume.
    fn io(&self, op: IoOp, out: &mut NodeOut) {
        out.io(Flight::Journal { client: self.client }, self.member, op);
    }

    fn page(&self, number: u16, len: u64) -> Buf {
        Buf { offset: self.pages + u64::from(number) * PAGE_BYTES, len: len as u32 }
    }

    /// Returns the memory for the scan and the replay; nothing else uses it then.
    fn buffer(&self) -> Buf {
        self.page(0, u64::from(self.positions) * PAGE_BYTES)
    }

    /// Returns the part of the log to look at next.
    fn wanted(&self) -> Option<(u64, u64)> {
        match &self.start {
            JournalState::Look(look) => Some((look.at, PAGE_BYTES)),
            JournalState::Check(check) => Some(check.next(self.buffer().len)),
            JournalState::Headers
            | JournalState::Flushing
            | JournalState::Known
            | JournalState::Replay { .. } => None,
        }
    }

    fn log_byte(&self) -> u64 {
        self.log_sector * SECTOR_BYTES
    }
}
