//! What is found in the journal of a volume at the start: the header that counts, and then records
//! with all of their contents, up to the first that is not there.

use braid_array::action::Compute;
use braid_array::{IoOp, Refusal, SECTOR_BYTES};

use super::Node;
use super::ids::ClientId;
use super::journal::{Check, Journal, Start};
use super::out::Flight;
use crate::journal::{HEADERS_BYTES, Header, Log, Look, PAGE_BYTES, Record};
use crate::wire::Message;

impl Node {
    /// A pipeline stands: is there a journal on its volume? `OpenPipeline` is answered when that is
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
        let bytes = Journal::page_bytes(&pipe.pipeline);
        let Ok(pages) = self.rings.take(bytes, bytes) else {
            let why = Refusal::new("no memory is left for a journal", "start it with more --ring");
            return self.out.refuse(id, tag, why);
        };
        let journal = Journal {
            array,
            member: pipe.member,
            headers_sector: headers / SECTOR_BYTES,
            log_sector: 0,
            data: (data_byte, end),
            pages,
            positions,
            rows: pipe.pipeline.rows(),
            prepare: tag,
            start: Start::Headers,
            window: (0, 0),
            header: None,
            log: None,
            found: Vec::new(),
            waiting: Vec::new(),
            batch: None,
            trimming: None,
            broken: false,
            unreadable: false,
            used: false,
        };
        let (sector, buf) = (journal.headers_sector, journal.page(0, HEADERS_BYTES));
        let op = IoOp::Read { sector, buf };
        self.out.io(Flight::Journal { client: id }, journal.member, op);
        pipe.journal = Some(Box::new(journal));
    }

    /// Answers `OpenPipeline`. Without a log there is no journal.
    pub(super) fn prepared(&mut self, id: ClientId, tag: u32, log_bytes: Option<u64>) {
        let Some(pipe) = self.clients.get_mut(&id).and_then(|client| client.pipe.as_mut()) else {
            return;
        };
        let unused = pipe.journal.take_if(|_| log_bytes.is_none());
        let (ring, journal_bytes) = (pipe.ring, log_bytes.unwrap_or(0));
        let header = pipe.journal.as_ref().and_then(|journal| journal.header);
        unused.into_iter().for_each(|journal| self.give_ring(journal.pages));
        let parts_only = header.is_some_and(|header| header.parts_only);
        self.out.answer(id, &Message::PipelineReady { tag, ring, journal_bytes, parts_only });
    }

    /// A part of the journal has been read, or cannot be. Whether that is needed is for the client
    /// to say.
    pub(super) fn journal_read(&mut self, id: ClientId, ok: bool) {
        let Some(journal) = self.journal_of(id) else { return };
        let (tag, needed) = (journal.prepare, journal.wanted().map(|(_, len)| len));
        let (at, len) = journal.window;
        match needed {
            None if ok => {
                let buf = journal.page(0, HEADERS_BYTES);
                self.out.load(Flight::JournalLoad { client: id }, buf);
            }
            Some(_) if ok => self.scan(id),
            // What is behind it may not be needed.
            Some(needed) if len > needed => self.read_log(id, at, needed),
            Some(_) => {
                journal.unreadable = true;
                self.look_at(id, None);
            }
            None => self.prepared(id, tag, None),
        }
    }

    /// Headers or the first bytes of a record have been read.
    pub(super) fn journal_loaded(&mut self, id: ClientId, bytes: &[u8]) {
        let Some(journal) = self.journal_of(id) else { return };
        match journal.start {
            Start::Headers => {
                let header = Header::newest(&journal.array, bytes);
                let before = journal.headers_sector * SECTOR_BYTES - journal.data.1;
                let Some(header) = header.filter(|header| header.log_bytes <= before) else {
                    let tag = journal.prepare;
                    return self.prepared(id, tag, None);
                };
                journal.log_sector = journal.headers_sector - header.log_bytes / SECTOR_BYTES;
                journal.header = Some(header);
                let look = journal.log.insert(Log::new(&header)).look();
                self.look_at(id, Some(look));
            }
            Start::Look(look) => {
                let (Some(log), found) = (&journal.log, Record::decode(&journal.array, bytes))
                else {
                    return;
                };
                // What nobody has recorded who meant well may take memory without end.
                let few = |record: &Record| record.rows.len() <= usize::from(journal.rows);
                match found.filter(|record| few(record) && log.is_due(look, record)) {
                    Some(record) if record.content_bytes() > 0 => {
                        journal.start = Start::Check(Check { look, record, done: 0, crc: 0 });
                        self.scan(id);
                    }
                    found => self.found(id, look, found),
                }
            }
            Start::Check(_) | Start::Flushing | Start::Known | Start::Replay { .. } => {}
        }
    }

    /// The CRC of contents up to where they were looked at.
    pub(super) fn journal_checked(&mut self, id: ClientId, crc: u32) {
        let Some(journal) = self.journal_of(id) else { return };
        let most = journal.buffer().len;
        let Start::Check(check) = &mut journal.start else { return };
        check.done += check.next(most).1;
        check.crc = crc;
        if check.done < check.record.content_bytes() {
            return self.scan(id);
        }
        let (look, record) = (check.look, check.record.clone());
        self.found(id, look, Some(record).filter(|record| record.crc == crc));
    }

    /// A look is over.
    fn found(&mut self, id: ClientId, look: Look, found: Option<Record>) {
        let Some(journal) = self.journal_of(id) else { return };
        let Some(log) = &mut journal.log else { return };
        let next = log.looked(look, found.as_ref());
        journal.found.extend(found.map(|record| (look.at, record)));
        self.look_at(id, next);
    }

    /// Looks for a record there. Without a place all are found.
    fn look_at(&mut self, id: ClientId, look: Option<Look>) {
        let Some(journal) = self.journal_of(id) else { return };
        let (tag, end) = (journal.prepare, journal.header.map_or(0, |header| header.log_bytes));
        match look {
            Some(look) => {
                let behind = look.at >= end;
                let first = Look { at: 0, again: true, ..look };
                journal.start = Start::Look(if behind { first } else { look });
                self.scan(id);
            }
            None if journal.found.is_empty() => {
                journal.start = Start::Known;
                self.prepared(id, tag, Some(end));
            }
            None => {
                journal.start = Start::Flushing;
                let member = journal.member;
                self.out.io(Flight::Journal { client: id }, member, IoOp::Flush);
            }
        }
    }

    /// What was found is durable, or may not be: a node that died may have left records that were
    /// on their way, and what they say is decided now for good.
    pub(super) fn found_is_durable(&mut self, id: ClientId, ok: bool) {
        let Some(journal) = self.journal_of(id) else { return };
        let (tag, end) = (journal.prepare, journal.header.map_or(0, |header| header.log_bytes));
        journal.start = Start::Known;
        journal.unreadable |= !ok;
        self.prepared(id, tag, Some(end));
    }

    /// Looks at what is wanted if it has been read, and reads it otherwise.
    fn scan(&mut self, id: ClientId) {
        let Some(journal) = self.journal_of(id) else { return };
        let Some((at, len)) = journal.wanted() else { return };
        let (from, bytes) = journal.window;
        if at < from || at + len > from + bytes {
            let end = journal.header.map_or(0, |header| header.log_bytes);
            let most = (end - at).min(journal.buffer().len.into());
            return self.read_log(id, at, most);
        }
        let buf = journal.buffer().slice((at - from) as u32, len as u32);
        if let Start::Check(check) = &journal.start {
            let compute = Compute::Crc { before: check.crc, inputs: vec![buf] };
            self.out.compute(Flight::JournalSum { client: id, record: 0 }, compute);
        } else {
            self.out.load(Flight::JournalLoad { client: id }, buf);
        }
    }

    fn read_log(&mut self, id: ClientId, at: u64, len: u64) {
        let Some(journal) = self.journal_of(id) else { return };
        journal.window = (at, len);
        let sector = journal.log_sector + at / SECTOR_BYTES;
        let (member, buf) = (journal.member, journal.page(0, len));
        self.out.io(Flight::Journal { client: id }, member, IoOp::Read { sector, buf });
    }
}
