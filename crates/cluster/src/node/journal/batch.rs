//! Records of slice-sets, appended to the log in batches.

use braid_array::action::Compute;
use braid_array::{Action, Buf, IoOp, SECTOR_BYTES};

use super::Journal;
use crate::ids::Position;
use crate::journal::{Log, PAGE_BYTES, Record};
use crate::node::out::{Flight, Out};

/// A slice-set that is to be recorded, and where its contents lie. Its place in the log and its CRC
/// are not known yet.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) position: Position,
    pub(crate) record: Record,
    pub(crate) contents: Vec<Buf>,
}

/// How far a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Sums,
    Writes,
    Flush,
}

/// Records on their way to the volume.
#[derive(Debug)]
pub(super) struct Batch {
    step: Step,
    /// Operations that are not answered.
    unanswered: usize,
    ok: bool,
    /// Where each begins on the volume, in sectors.
    entries: Vec<(u64, Entry)>,
}

/// Whether the slice-set at a position is recorded now, or cannot be.
pub(crate) type Recorded = (Position, bool);

impl Journal {
    /// A slice-set is to be recorded when the records before are durable.
    pub(crate) fn push(&mut self, entry: Entry) {
        self.waiting.push(entry);
    }

    /// An operation of a batch is over.
    pub(super) fn batch_done(&mut self, ok: bool) {
        if let Some(batch) = &mut self.batch {
            batch.unanswered -= 1;
            batch.ok &= ok;
        }
    }

    /// The CRC of the contents of a record of a batch; `false` when there is no batch.
    pub(super) fn record_summed(&mut self, record: usize, crc: u32) -> bool {
        let Some(batch) = &mut self.batch else { return false };
        batch.entries[record].1.record.crc = crc;
        true
    }

    pub(super) const fn is_recording(&self) -> bool {
        self.batch.is_some()
    }

    /// Does the next thing that can be done: begins a batch, goes on with one of which nothing is
    /// under way, or ends it. What is recorded then, or cannot be; `None` when there is nothing to
    /// do.
    pub(crate) fn advance(&mut self, out: &mut Out) -> Option<Vec<Recorded>> {
        let Some(batch) = &self.batch else {
            return (!self.waiting.is_empty()).then(|| self.begin_batch(out));
        };
        if batch.unanswered > 0 {
            return None;
        }
        match batch.step {
            Step::Sums => self.write_batch(out),
            Step::Writes if batch.ok => self.flush_batch(out),
            Step::Writes | Step::Flush => return self.end_batch(),
        }
        Some(Vec::new())
    }

    /// Appends what waits. What finds no room is not recorded.
    fn begin_batch(&mut self, out: &mut Out) -> Vec<Recorded> {
        let mut batch = Batch { step: Step::Sums, unanswered: 0, ok: true, entries: Vec::new() };
        let mut refused = Vec::new();
        for mut entry in std::mem::take(&mut self.waiting) {
            let record = &entry.record;
            let append = |log: &mut Log| log.append(record.version, record.bytes());
            let room = if self.broken { None } else { self.log.as_mut().and_then(append) };
            let Some((at, sequence)) = room else {
                refused.push((entry.position, false));
                continue;
            };
            if !entry.contents.is_empty() {
                let record = batch.entries.len();
                let inputs = entry.contents.clone();
                let flight = Flight::JournalSum { client: self.client, record };
                out.compute(flight, Compute::Crc { before: 0, inputs });
                batch.unanswered += 1;
            }
            entry.record.sequence = sequence;
            batch.entries.push((self.log_sector + at / SECTOR_BYTES, entry));
        }
        if !batch.entries.is_empty() {
            self.batch = Some(batch);
        }
        refused
    }

    fn write_batch(&mut self, out: &mut Out) {
        let Some(mut batch) = self.batch.take() else { return };
        batch.step = Step::Writes;
        for (sector, Entry { position, record, contents }) in &batch.entries {
            let page = self.page(position.0, PAGE_BYTES);
            out.push(Action::Store { buf: page, bytes: record.encode(&self.array) });
            let rows = (0..contents.len()).map(|row| record.row_byte(row));
            for (byte, buf) in rows.zip(contents.iter().copied()).chain([(0, page)]) {
                let sector = sector + byte / SECTOR_BYTES;
                self.io(IoOp::Write { sector, buf, fua: false }, out);
                batch.unanswered += 1;
            }
        }
        self.batch = Some(batch);
    }

    fn flush_batch(&mut self, out: &mut Out) {
        let Some(batch) = &mut self.batch else { return };
        batch.step = Step::Flush;
        batch.unanswered = 1;
        self.io(IoOp::Flush, out);
    }

    fn end_batch(&mut self) -> Option<Vec<Recorded>> {
        let batch = self.batch.take()?;
        self.broken |= !batch.ok;
        Some(batch.entries.iter().map(|(_, entry)| (entry.position, batch.ok)).collect())
    }
}
