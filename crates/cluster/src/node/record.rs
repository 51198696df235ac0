//! The journal at a node: what is staged is recorded first, many slice-sets under one flush.
//!
//! ```text
//! found with the volume ─► scanned ─► listed for the client ─► replayed ─► emptied ─► in use
//! a batch: sums ── contents and first pages of the records ── flush ──► staged, or closed
//! ```
//! See [`journal`](crate::journal) for what lies on the volume.

use braid_array::action::Compute;
use braid_array::{Action, Buf, IoOp, Refusal, SECTOR_BYTES};

use super::ids::{ClientId, Violation};
use super::journal::{Batch, Journal, Recorded, Start, Step};
use super::out::{Flight, Out};
use super::part::Work;
use super::pipe::Pipe;
use super::{Node, STORAGE, pipe_of};
use crate::journal::{Header, Kind, PAGE_BYTES, Record};
use crate::set::Set;
use crate::wire::{JournalEntry, Message};

/// Records in one message.
const MAX_LISTED: usize = 256;

impl Node {
    pub(super) fn journal_of(&mut self, id: ClientId) -> Option<&mut Journal> {
        self.clients.get_mut(&id)?.pipe.as_mut()?.journal.as_deref_mut()
    }

    /// An operation of a journal is over.
    pub(super) fn journal_done(&mut self, id: ClientId, ok: bool) {
        if !self.out.is_here(id) {
            return;
        }
        let Some(journal) = self.journal_of(id) else { return };
        let (positions, member) = (journal.positions, journal.member);
        match &mut journal.start {
            Start::Known => {
                if let Some(pipe) = pipe_of(&mut self.clients, &self.out, id) {
                    pipe.batch_done(ok, &mut self.out);
                }
            }
            Start::Headers | Start::Look(_) | Start::Check(_) => self.journal_read(id, ok),
            Start::Flushing => self.found_is_durable(id, ok),
            Start::Replay { tag, steps } => {
                let (tag, next) = (*tag, steps.pop_front());
                debug_assert!(positions > 0);
                match next {
                    Some(op) if ok => self.out.io(Flight::Journal { client: id }, member, op),
                    _ => {
                        journal.start = Start::Known;
                        let why = Refusal::new("the journal cannot be replayed", STORAGE);
                        if ok {
                            self.out.confirm(id, tag);
                        } else {
                            self.out.refuse(id, tag, why);
                        }
                    }
                }
            }
        }
    }

    /// The CRC of contents.
    pub(super) fn journal_summed(&mut self, id: ClientId, record: usize, crc: u32) {
        if !self.out.is_here(id) {
            return;
        }
        let Some(journal) = self.journal_of(id) else { return };
        let Some(batch) = &mut journal.batch else { return self.journal_checked(id, crc) };
        batch.records[record].record.crc = crc;
        self.journal_done(id, true);
    }

    /// What the client asks of the journal.
    pub(super) fn journal_request(
        &mut self,
        id: ClientId,
        message: &Message,
    ) -> Result<(), Violation> {
        let out = &mut self.out;
        let pipe = self.clients.get_mut(&id).and_then(|client| client.pipe.as_mut());
        let journal = pipe.and_then(|pipe| pipe.journal.as_deref_mut());
        let journal = journal.filter(|journal| journal.is_known());
        let journal = journal.ok_or(Violation("a request to a journal that is not there"))?;
        let Some(header) = journal.header else { return Ok(()) };
        match *message {
            Message::ListJournal { tag, .. } if journal.unreadable => {
                let why = Refusal::new("its journal cannot be read", STORAGE);
                self.out.refuse(id, tag, why);
            }
            Message::ListJournal { tag, from } => {
                let noted = |(_, record): &(u64, Record)| JournalEntry {
                    version: record.version,
                    holders: record.holders,
                    void: record.kind == Kind::Void,
                };
                let from = from as usize;
                let items = journal.found.iter().skip(from).take(MAX_LISTED).map(noted);
                let items: Vec<JournalEntry> = items.collect();
                let end = from.saturating_add(items.len());
                let next = if end < journal.found.len() { end as u32 } else { 0 };
                let mark = header.mark;
                self.out.answer(id, &Message::JournalEntries { tag, mark, items, next });
            }
            Message::ReplayJournal { tag, above, ref without } => {
                let mut steps = journal.steps(above, without);
                if let Some(op) = steps.pop_front() {
                    out.io(Flight::Journal { client: id }, journal.member, op);
                }
                journal.start = Start::Replay { tag, steps };
            }
            Message::TrimJournal { tag, mark, all } => {
                let log = journal.log.as_mut();
                let log =
                    log.filter(|_| journal.trimming.is_none() && !(all && journal.batch.is_some()));
                let log = log.ok_or(Violation("a second Trim at a time"))?;
                let (tail, first) = if all { log.empty() } else { log.begins(mark) };
                let passed = !(all && braid_array::broken("mark-passed-on"));
                let mark = if passed { mark.max(header.mark) } else { header.mark };
                let sequence = header.sequence + 1;
                let header = Header { sequence, tail, first, mark, ..header };
                journal.trimming = Some((tag, header));
                let buf = journal.page(journal.positions, PAGE_BYTES);
                let sector = journal.headers_sector + header.byte() / SECTOR_BYTES;
                out.push(Action::Store { buf, bytes: header.encode(&journal.array) });
                let op = IoOp::Write { sector, buf, fua: true };
                out.io(Flight::JournalTrim { client: id }, journal.member, op);
            }
            _ => {}
        }
        Ok(())
    }

    /// The log begins later, durably, or not.
    pub(super) fn journal_trimmed(&mut self, id: ClientId, ok: bool) {
        let Some(journal) = self.journal_of(id) else { return };
        let Some((tag, header)) = journal.trimming.take() else { return };
        if !ok {
            return self.out.refuse(
                id,
                tag,
                Refusal::new("the journal cannot be written", STORAGE),
            );
        }
        journal.header = Some(header);
        journal.found.clear();
        journal.used = true;
        if let Some(log) = &mut journal.log {
            log.trim(header.first);
        }
        self.out.confirm(id, tag);
    }
}

impl Pipe {
    /// Is this slice-set to be recorded?
    pub(super) fn is_recorded(&self, set: &Set) -> bool {
        set.log && self.journal.as_ref().is_some_and(|journal| journal.used)
    }

    /// Records a slice-set when the records before are durable.
    pub(super) fn record(&mut self, number: u16, out: &mut Out) {
        if let Some(journal) = &mut self.journal {
            journal.waiting.push(number);
        }
        self.begin_batch(out);
    }

    /// Appends what waits.
    fn begin_batch(&mut self, out: &mut Out) {
        let idle = |journal: &Journal| journal.batch.is_none() && !journal.waiting.is_empty();
        let Some(mut journal) = self.journal.take_if(|journal| idle(journal)) else { return };
        let waiting = std::mem::take(&mut journal.waiting);
        let mut batch = Batch { step: Step::Sums, left: 0, ok: true, records: Vec::new() };
        let mut refused = Vec::new();
        for position in waiting {
            let (record, contents) = self.record_of(position);
            let room = journal.log.as_mut().filter(|_| !journal.broken);
            let room = room.and_then(|log| log.append(record.version, record.bytes()));
            let Some((at, sequence)) = room else {
                refused.push(position);
                continue;
            };
            if !contents.is_empty() {
                let flight =
                    Flight::JournalSum { client: self.client, record: batch.records.len() };
                out.compute(flight, Compute::Crc { before: 0, inputs: contents.clone() });
                batch.left += 1;
            }
            let sector = journal.log_sector + at / SECTOR_BYTES;
            let record = Record { sequence, ..record };
            batch.records.push(Recorded { position, sector, record, contents });
        }
        if !batch.records.is_empty() {
            journal.batch = Some(batch);
        }
        self.journal = Some(journal);
        for position in refused {
            self.recorded(position, false, out);
        }
        self.go_on_with_batch(out);
    }

    /// What is recorded of a slice-set, and where its content lies.
    fn record_of(&self, number: u16) -> (Record, Vec<Buf>) {
        let (set, part) = self.running(number).expect("it waits to be recorded");
        let (mut rows, mut contents, mut kind) = (Vec::new(), Vec::new(), Kind::Content);
        let byte = |row| self.pipeline.member_byte(set.stripe, row, set.offset);
        for task in &part.tasks {
            match task.work {
                Work::Store { row, from, .. } => {
                    rows.push(byte(row));
                    contents.push(self.slot(part, set, from));
                }
                Work::Blank { row } => {
                    rows.push(byte(row));
                    kind = Kind::Blank;
                }
                _ => {}
            }
        }
        if self.is_dropped(number) {
            (kind, rows, contents) = (Kind::Void, Vec::new(), Vec::new());
        }
        // Who is left out, and holds the array all the same, lacks it: then it was not answered.
        let involved = part.plan.involved(set.strategy, &set.touched).into_iter();
        let holders = involved.chain(set.missing.iter()).collect();
        let version = (self.epoch(), set.version);
        let (sequence, crc) = (0, 0);
        (Record { version, sequence, kind, holders, len: set.len, rows, crc }, contents)
    }

    fn batch_done(&mut self, ok: bool, out: &mut Out) {
        let batch = self.journal.as_mut().and_then(|journal| journal.batch.as_mut());
        if let Some(batch) = batch {
            batch.left -= 1;
            batch.ok &= ok;
        }
        self.go_on_with_batch(out);
    }

    /// Does the next thing with a batch when nothing of it is under way.
    fn go_on_with_batch(&mut self, out: &mut Out) {
        let Some(journal) = &mut self.journal else { return };
        let flight = Flight::Journal { client: self.client };
        while let Some(batch) = journal.batch.as_mut().filter(|batch| batch.left == 0) {
            match batch.step {
                Step::Sums => {
                    batch.step = Step::Writes;
                    let pages = journal.pages;
                    for Recorded { position, sector, record, contents } in &batch.records {
                        let page = pages + u64::from(*position) * PAGE_BYTES;
                        let page = Buf { offset: page, len: PAGE_BYTES as u32 };
                        out.push(Action::Store { buf: page, bytes: record.encode(&journal.array) });
                        let rows = (0..contents.len()).map(|row| record.row_byte(row));
                        let parts = rows.zip(contents.iter().copied()).chain([(0, page)]);
                        for (byte, buf) in parts {
                            let sector = sector + byte / SECTOR_BYTES;
                            let op = IoOp::Write { sector, buf, fua: false };
                            out.io(flight.clone(), journal.member, op);
                            batch.left += 1;
                        }
                    }
                }
                Step::Writes if batch.ok => {
                    (batch.step, batch.left) = (Step::Flush, 1);
                    out.io(flight.clone(), journal.member, IoOp::Flush);
                }
                Step::Writes | Step::Flush => break,
            }
        }
        let Some(batch) = journal.batch.take_if(|batch| batch.left == 0) else { return };
        journal.broken |= !batch.ok;
        for Recorded { position, .. } in batch.records {
            self.recorded(position, batch.ok, out);
        }
        self.begin_batch(out);
    }
}
