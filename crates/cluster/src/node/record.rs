//! The journal at a node: what is staged is recorded first, many slice-sets under one flush.
//!
//! ```text
//! found with the volume ─► scanned ─► listed for the client ─► replayed ─► emptied ─► in use
//! a batch: contents ── flush ── first pages of the records, durably ──► staged, or closed
//! ```
//! See [`journal`](crate::journal) for what lies on the volume.

use braid_array::{Action, Buf, IoOp, Refusal, SECTOR_BYTES};

use super::ids::{ClientId, Violation};
use super::journal::{Batch, Journal, Start, Step};
use super::out::{Flight, Out};
use super::part::Work;
use super::pipe::Pipe;
use super::{Node, STORAGE};
use crate::journal::{HEADERS_BYTES, Header, Kind, Log, Look, PAGE_BYTES, Record};
use crate::set::{Mode, Set};
use crate::wire::{Message, Noted};

/// Records in one message.
const MAX_LISTED: usize = 256;

impl Node {
    /// A pipeline stands: is there a journal on its volume? `Prepare` is answered when that is
    /// known.
    pub(super) fn look_for_journal(&mut self, id: ClientId, tag: u32, volume_bytes: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let (Some(pipe), Some((array, _))) = (&mut client.pipe, client.vote) else { return };
        let params = pipe.pipeline.params();
        let data_byte = pipe.data_sector * SECTOR_BYTES;
        let end = data_byte + pipe.pipeline.member_byte(params.stripes, 0, 0);
        let headers = (volume_bytes / PAGE_BYTES * PAGE_BYTES).checked_sub(HEADERS_BYTES);
        let Some(headers) = headers.filter(|&headers| headers >= end) else {
            return self.prepared(id, tag, None);
        };
        let positions = pipe.pipeline.positions();
        let Ok(pages) = self.rings.take(Journal::page_bytes(&pipe.pipeline)) else {
            let why = Refusal::new("no memory is left for a journal", "start it with more --ring");
            return self.refuse(id, tag, why);
        };
        let journal = Journal {
            array,
            member: pipe.member,
            headers_sector: headers / SECTOR_BYTES,
            log_sector: 0,
            data: (data_byte, end),
            pages,
            positions,
            prepare: tag,
            start: Start::Headers,
            header: None,
            log: None,
            found: Vec::new(),
            waiting: Vec::new(),
            batch: None,
            trimming: None,
            broken: false,
        };
        let (sector, buf) = (journal.headers_sector, journal.page(0, HEADERS_BYTES));
        let op = IoOp::Read { sector, buf };
        self.out.io(Flight::Journal { client: id }, journal.member, op);
        pipe.journal = Some(Box::new(journal));
    }

    /// Answers `Prepare`. Without a log there is no journal.
    pub(super) fn prepared(&mut self, id: ClientId, tag: u32, log_bytes: Option<u64>) {
        let Some(pipe) = self.clients.get_mut(&id).and_then(|client| client.pipe.as_mut()) else {
            return;
        };
        if log_bytes.is_none()
            && let Some(journal) = pipe.journal.take()
        {
            self.rings.give(journal.pages);
        }
        let (ring, journal_bytes) = (pipe.ring, log_bytes.unwrap_or(0));
        self.answer(id, &Message::Prepared { tag, ring, journal_bytes });
    }

    fn journal_of(&mut self, id: ClientId) -> Option<&mut Journal> {
        self.clients.get_mut(&id)?.pipe.as_mut()?.journal.as_deref_mut()
    }

    /// An operation of a journal is over.
    pub(super) fn journal_done(&mut self, id: ClientId, fine: bool) {
        if !self.is_here(id) {
            return;
        }
        let Some(journal) = self.journal_of(id) else { return };
        let (positions, member) = (journal.positions, journal.member);
        match &mut journal.start {
            Start::Known => {
                if let Some(pipe) = self.clients.get_mut(&id).and_then(|c| c.pipe.as_mut()) {
                    pipe.batch_done(fine, &mut self.out);
                }
            }
            Start::Headers | Start::Look(_) if !fine => {
                let tag = journal.prepare;
                // Whether it is needed is for the client to say.
                self.prepared(id, tag, None);
            }
            Start::Headers => {
                let buf = journal.page(0, HEADERS_BYTES);
                self.out.load(Flight::JournalLoad { client: id }, buf);
            }
            Start::Look(_) => {
                let buf = journal.page(0, PAGE_BYTES);
                self.out.load(Flight::JournalLoad { client: id }, buf);
            }
            Start::Replay { tag, steps } => {
                let (tag, next) = (*tag, steps.pop_front());
                debug_assert!(positions > 0);
                match next {
                    Some(op) if fine => self.out.io(Flight::Journal { client: id }, member, op),
                    _ => {
                        journal.start = Start::Known;
                        let why = Refusal::new("the journal cannot be replayed", STORAGE);
                        if fine {
                            self.answer(id, &Message::Ok { tag });
                        } else {
                            self.refuse(id, tag, why);
                        }
                    }
                }
            }
        }
    }

    /// Headers or a record have been read.
    pub(super) fn journal_loaded(&mut self, id: ClientId, bytes: &[u8]) {
        let Some(journal) = self.journal_of(id) else { return };
        let tag = journal.prepare;
        let next = match journal.start {
            Start::Headers => {
                let header = Header::newest(&journal.array, bytes);
                let before = journal.headers_sector * SECTOR_BYTES - journal.data.1;
                let Some(header) = header.filter(|header| header.log_bytes <= before) else {
                    return self.prepared(id, tag, None);
                };
                journal.log_sector = journal.headers_sector - header.log_bytes / SECTOR_BYTES;
                let log = journal.log.insert(Log::new(&header));
                journal.header = Some(header);
                Some(log.look()).filter(|look| look.at < header.log_bytes).or(Some(Look {
                    at: 0,
                    again: true,
                    ..log.look()
                }))
            }
            Start::Look(look) => {
                let Some(log) = &mut journal.log else { return };
                let found = Record::decode(&journal.array, bytes);
                let before = log.look();
                let next = log.looked(look, found.as_ref());
                if let Some(record) = found.filter(|_| log.look() != before) {
                    journal.found.push((look.at, record));
                }
                let end = journal.header.map_or(0, |header| header.log_bytes);
                match next {
                    Some(look) if look.at >= end => Some(Look { at: 0, again: true, ..look }),
                    next => next,
                }
            }
            Start::Known | Start::Replay { .. } => return,
        };
        match next {
            Some(look) => {
                journal.start = Start::Look(look);
                let sector = journal.log_sector + look.at / SECTOR_BYTES;
                let (member, buf) = (journal.member, journal.page(0, PAGE_BYTES));
                let flight = Flight::Journal { client: id };
                self.out.io(flight, member, IoOp::Read { sector, buf });
            }
            None => {
                journal.start = Start::Known;
                let bytes = journal.header.map(|header| header.log_bytes);
                self.prepared(id, tag, bytes);
            }
        }
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
            Message::Records { tag, from } => {
                let noted = |(_, record): &(u64, Record)| Noted {
                    version: record.version,
                    holders: record.holders,
                    void: record.kind == Kind::Void,
                };
                let from = from as usize;
                let items = journal.found.iter().skip(from).take(MAX_LISTED).map(noted);
                let items: Vec<Noted> = items.collect();
                let end = from.saturating_add(items.len());
                let next = if end < journal.found.len() { end as u32 } else { 0 };
                let mark = header.mark;
                self.answer(id, &Message::Recorded { tag, mark, items, next });
            }
            Message::Replay { tag, above, ref without } => {
                let mut steps = journal.steps(above, without);
                if let Some(op) = steps.pop_front() {
                    out.io(Flight::Journal { client: id }, journal.member, op);
                }
                journal.start = Start::Replay { tag, steps };
            }
            Message::Trim { tag, mark, all } => {
                let log = journal.log.as_mut();
                let log =
                    log.filter(|_| journal.trimming.is_none() && !(all && journal.batch.is_some()));
                let log = log.ok_or(Violation("a second Trim at a time"))?;
                let (tail, first) = if all { log.empty() } else { log.begins(mark) };
                let mark = mark.max(header.mark);
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
    pub(super) fn journal_trimmed(&mut self, id: ClientId, fine: bool) {
        let Some(journal) = self.journal_of(id) else { return };
        let Some((tag, header)) = journal.trimming.take() else { return };
        if !fine {
            return self.refuse(id, tag, Refusal::new("the journal cannot be written", STORAGE));
        }
        journal.header = Some(header);
        journal.found.clear();
        if let Some(log) = &mut journal.log {
            log.trim(header.first);
        }
        self.answer(id, &Message::Ok { tag });
    }
}

impl Pipe {
    /// Is this slice-set to be recorded?
    pub(super) fn is_recorded(&self, set: &Set) -> bool {
        self.journal.is_some() && !matches!(set.mode, Mode::Restore(_))
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
        let flight = Flight::Journal { client: self.client };
        let mut batch = Batch { step: Step::Contents, left: 0, fine: true, records: Vec::new() };
        let mut refused = Vec::new();
        for number in waiting {
            let (record, contents) = self.record_of(number);
            let room = journal.log.as_mut().filter(|_| !journal.broken);
            let room = room.and_then(|log| log.append(record.version, record.bytes()));
            let Some((at, sequence)) = room else {
                refused.push(number);
                continue;
            };
            let sector = journal.log_sector + at / SECTOR_BYTES;
            for (row, buf) in contents.into_iter().enumerate() {
                let sector = sector + record.row_byte(row) / SECTOR_BYTES;
                out.io(flight.clone(), self.member, IoOp::Write { sector, buf, fua: false });
                batch.left += 1;
            }
            let page = journal.page(number, PAGE_BYTES);
            let bytes = Record { sequence, ..record }.encode(&journal.array);
            out.push(Action::Store { buf: page, bytes });
            batch.records.push((number, sector));
        }
        if !batch.records.is_empty() {
            journal.batch = Some(batch);
        }
        self.journal = Some(journal);
        for number in refused {
            self.recorded(number, false, out);
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
        let holders = part.plan.involved(set.mode, &set.touched).into_iter().collect();
        let version = (self.epoch(), set.version);
        (Record { version, sequence: 0, kind, holders, len: set.len, rows }, contents)
    }

    fn batch_done(&mut self, fine: bool, out: &mut Out) {
        let batch = self.journal.as_mut().and_then(|journal| journal.batch.as_mut());
        if let Some(batch) = batch {
            batch.left -= 1;
            batch.fine &= fine;
        }
        self.go_on_with_batch(out);
    }

    /// Does the next thing with a batch when nothing of it is under way.
    fn go_on_with_batch(&mut self, out: &mut Out) {
        let Some(journal) = &mut self.journal else { return };
        let flight = Flight::Journal { client: self.client };
        while let Some(batch) = journal.batch.as_mut().filter(|batch| batch.left == 0) {
            match batch.step {
                Step::Contents if batch.fine => {
                    (batch.step, batch.left) = (Step::Flush, 1);
                    out.io(flight.clone(), journal.member, IoOp::Flush);
                }
                Step::Flush if batch.fine => {
                    (batch.step, batch.left) = (Step::Pages, batch.records.len());
                    for &(number, sector) in &batch.records {
                        let offset = journal.pages + u64::from(number) * PAGE_BYTES;
                        let buf = Buf { offset, len: PAGE_BYTES as u32 };
                        let op = IoOp::Write { sector, buf, fua: true };
                        out.io(flight.clone(), journal.member, op);
                    }
                }
                _ => break,
            }
        }
        let Some(batch) = journal.batch.take_if(|batch| batch.left == 0) else { return };
        journal.broken |= !batch.fine;
        for (number, _) in batch.records {
            self.recorded(number, batch.fine, out);
        }
        self.begin_batch(out);
    }
}
