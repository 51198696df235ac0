//! Records of slice-sets, appended to the log in batches. Short contents are copied behind the
//! first pages of their records, so that many records are one write.

use braid_array::action::Compute;
use braid_array::{Action, Buf, IoOp, SECTOR_BYTES};
use smallvec::smallvec;

use super::Journal;
use super::JournalState;
use crate::ids::Position;
use crate::journal::{Header, Log, PAGE_BYTES, Record};
use crate::node::ids::Violation;
use crate::node::out::{Flight, NodeOut};

/// A slice-set that is to be recorded, and where its contents lie. Its place in the log and its CRC
/// are not known yet.
#[derive(Debug)]
pub(crate) struct BatchEntry {
    pub(crate) position: Position,
    pub(crate) record: Record,
    pub(crate) contents: Vec<Buf>,
}

/// Size of the longest record whose contents are copied: a copy takes less time than a separate
/// write.
const MAX_COPIED_BYTES: u64 = 4 * PAGE_BYTES;

/// Step of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchStep {
    /// CRCs and copies are being made.
    Sums,
    Writes,
    Flush,
}

/// Records on their way to the volume.
#[derive(Debug)]
pub(super) struct Batch {
    step: BatchStep,
    /// Operations that are not answered.
    unanswered: usize,
    ok: bool,
    entries: Vec<Placed>,
}

/// A record that has its place.
#[derive(Debug)]
struct Placed {
    entry: BatchEntry,
    /// Where it begins on the volume, in sectors.
    sector: u64,
    /// The journal's page with its beginning.
    page: u16,
    /// Its contents lie behind that.
    copied: bool,
}

/// Whether the slice-set at a position is recorded now, or cannot be.
pub(crate) type Recorded = (Position, bool);

impl Journal {
    /// Returns the header by which no record counts any more, if nothing is under way.
    pub(in crate::node) fn emptied(&mut self) -> Result<Header, Violation> {
        let rests = matches!(self.start, JournalState::Known)
            && !self.is_recording()
            && self.trimming.is_none();
        let log = if rests { self.log.as_mut() } else { None };
        let known = log.zip(self.header);
        let (log, header) = known.ok_or(Violation("a journal that is not at rest"))?;
        let (tail, first) = log.empty();
        Ok(Header { sequence: header.sequence + 1, tail, first, ..header })
    }

    /// Queues a slice-set that is recorded when earlier records are durable, together with all
    /// others that are queued before [`advance`](Self::advance).
    pub(crate) fn push(&mut self, entry: BatchEntry) {
        self.waiting.push(entry);
    }

    /// Handles a finished operation of a batch.
    pub(super) fn batch_done(&mut self, ok: bool) {
        if let Some(batch) = &mut self.batch {
            batch.unanswered -= 1;
            batch.ok &= ok;
        }
    }

    /// Sets the CRC of a record's contents; returns `false` when there is no batch.
    pub(super) fn record_summed(&mut self, record: usize, crc: u32) -> bool {
        let Some(batch) = &mut self.batch else { return false };
        batch.entries[record].entry.record.crc = crc;
        true
    }

    pub(super) const fn is_recording(&self) -> bool {
        self.batch.is_some() || !self.waiting.is_empty()
    }

    /// Executes the next step: begins a batch, continues one without operations under way, or ends
    /// it. Returns the slice-sets that are recorded then, or cannot be; `None` when there is
    /// nothing to do.
    pub(crate) fn advance(&mut self, out: &mut NodeOut) -> Option<Vec<Recorded>> {
        let Some(batch) = &self.batch else {
            return (!self.waiting.is_empty()).then(|| self.begin_batch(out));
        };
        if batch.unanswered > 0 {
            return None;
        }
        match batch.step {
            BatchStep::Sums => self.write_batch(out),
            BatchStep::Writes if batch.ok => self.flush_batch(out),
            BatchStep::Writes | BatchStep::Flush => return self.end_batch(),
        }
        Some(Vec::new())
    }

    /// Appends the waiting records in a new batch. Returns those that find no room, and are not
    /// recorded.
    fn begin_batch(&mut self, out: &mut NodeOut) -> Vec<Recorded> {
        let mut batch =
            Batch { step: BatchStep::Sums, unanswered: 0, ok: true, entries: Vec::new() };
        let mut refused = Vec::new();
        let mut pages = 0;
        let waiting = std::mem::take(&mut self.waiting);
        // One at least for each.
        let mut spare = self.positions.saturating_sub(waiting.len() as u16);
        for mut entry in waiting {
            let record = &entry.record;
            let append = |log: &mut Log| log.append(record.version, record.bytes());
            let room = if self.broken { None } else { self.log.as_mut().and_then(append) };
            let Some((at, sequence)) = room else {
                refused.push((entry.position, false));
                continue;
            };
            let page = pages;
            let more = (record.bytes() / PAGE_BYTES - 1).try_into().unwrap_or(u16::MAX);
            let short = record.bytes() <= MAX_COPIED_BYTES && more <= spare;
            let copied = short && u64::from(record.len).is_multiple_of(PAGE_BYTES);
            pages += 1;
            if !entry.contents.is_empty() {
                let record = batch.entries.len();
                let inputs = entry.contents.clone();
                let flight = Flight::JournalSum { client: self.client, record };
                out.compute(flight, Compute::Crc { before: 0, inputs });
                batch.unanswered += 1;
                if copied {
                    batch.unanswered += self.copy_contents(&entry, page, out);
                    pages += more;
                    spare -= more;
                }
            }
            entry.record.sequence = sequence;
            let sector = self.log_sector + at / SECTOR_BYTES;
            batch.entries.push(Placed { entry, sector, page, copied });
        }
        if !batch.entries.is_empty() {
            self.batch = Some(batch);
        }
        refused
    }

    /// Copies the contents of a record behind its first page. Returns the number of operations.
    fn copy_contents(
        &self,
        BatchEntry { record, contents, .. }: &BatchEntry,
        page: u16,
        out: &mut NodeOut,
    ) -> usize {
        for (row, &content) in contents.iter().enumerate() {
            let all = self.page(page, record.bytes());
            let output = all.slice(record.row_byte(row) as u32, record.len);
            let compute = Compute::Sum {
                inputs: smallvec![content],
                coefs: smallvec![1],
                outputs: smallvec![output],
                accumulate: false,
            };
            out.compute(Flight::Journal { client: self.client }, compute);
        }
        contents.len()
    }

    fn write_batch(&mut self, out: &mut NodeOut) {
        let Some(mut batch) = self.batch.take() else { return };
        batch.step = BatchStep::Writes;
        let mut writes: Vec<(u64, Buf)> = Vec::new();
        for Placed { entry: BatchEntry { record, contents, .. }, sector, page, copied } in
            &batch.entries
        {
            let first = self.page(*page, PAGE_BYTES);
            out.push(Action::Store { buf: first, bytes: record.encode(&self.array) });
            if *copied {
                append(&mut writes, *sector, self.page(*page, record.bytes()));
                continue;
            }
            append(&mut writes, *sector, first);
            for (row, &buf) in contents.iter().enumerate() {
                append(&mut writes, sector + record.row_byte(row) / SECTOR_BYTES, buf);
            }
        }
        batch.unanswered = writes.len();
        for (sector, buf) in writes {
            self.io(IoOp::Write { sector, buf, fua: false, fill: false }, out);
        }
        self.batch = Some(batch);
    }

    fn flush_batch(&mut self, out: &mut NodeOut) {
        let Some(batch) = &mut self.batch else { return };
        batch.step = BatchStep::Flush;
        batch.unanswered = 1;
        self.io(IoOp::Flush, out);
    }

    fn end_batch(&mut self) -> Option<Vec<Recorded>> {
        let batch = self.batch.take()?;
        self.broken |= !batch.ok;
        Some(batch.entries.iter().map(|placed| (placed.entry.position, batch.ok)).collect())
    }
}

/// Adds a write. A write that continues the one before, on the volume and in memory, is merged with
/// it.
fn append(writes: &mut Vec<(u64, Buf)>, sector: u64, buf: Buf) {
    if let Some((start, last)) = writes.last_mut()
        && *start + u64::from(last.len) / SECTOR_BYTES == sector
        && last.offset + u64::from(last.len) == buf.offset
    {
        last.len += buf.len;
    } else {
        writes.push((sector, buf));
    }
}
