//! Scan of a volume's journal at the start: the header that counts, and then records with all of
//! their contents, up to the first that is missing.

use braid_array::action::Compute;
use braid_array::{IoOp, MemberId, SECTOR_BYTES};

use super::{Journal, JournalState, RecordCheck};
use crate::journal::{HEADERS_BYTES, Header, Log, Look, PAGE_BYTES, Record, headers_byte};
use crate::node::ids::{ArrayId, ClientId};
use crate::node::out::{Flight, NodeOut};

/// Possible place of a journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) array: ArrayId,
    pub(crate) member: MemberId,
    /// First byte of the data on the volume, and the byte behind the data.
    pub(crate) data: (u64, u64),
    pub(crate) volume_bytes: u64,
    pub(crate) positions: u16,
    /// No record has more rows.
    pub(crate) rows: u16,
}

impl Bounds {
    /// First byte of the headers; `None` when there is no room for them behind the data.
    fn headers_byte(&self) -> Option<u64> {
        headers_byte(self.volume_bytes).filter(|&headers| headers >= self.data.1)
    }

    /// Memory for a journal, beside a ring; `None` when there cannot be one.
    pub(crate) fn page_bytes(&self) -> Option<u64> {
        self.headers_byte().map(|_| (u64::from(self.positions) + 2) * PAGE_BYTES)
    }
}

/// Result of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    /// The tag of `OpenPipeline`.
    pub(crate) tag: u32,
    /// Length of the log; `None` when there is no journal.
    pub(crate) log_bytes: Option<u64>,
}

impl Journal {
    /// Begins to scan a volume, for `OpenPipeline` with this tag; `pages` is the beginning of the
    /// memory for that in the arena.
    pub(crate) fn start(
        client: ClientId,
        tag: u32,
        bounds: &Bounds,
        pages: u64,
        out: &mut NodeOut,
    ) -> Option<Self> {
        let journal = Self {
            client,
            opening: tag,
            array: bounds.array,
            member: bounds.member,
            headers_sector: bounds.headers_byte()? / SECTOR_BYTES,
            log_sector: 0,
            data: bounds.data,
            pages,
            positions: bounds.positions,
            rows: bounds.rows,
            start: JournalState::Headers,
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
        let sector = journal.headers_sector;
        journal.io(IoOp::Read { sector, buf: journal.page(0, HEADERS_BYTES) }, out);
        Some(journal)
    }

    /// Ends the scan.
    fn known(&mut self) -> Option<Ready> {
        self.start = JournalState::Known;
        self.ready(Some(self.end()))
    }

    fn ready(&self, log_bytes: Option<u64>) -> Option<Ready> {
        Some(Ready { tag: self.opening, log_bytes })
    }

    /// Returns the end of the log.
    fn end(&self) -> u64 {
        self.header.map_or(0, |header| header.log_bytes)
    }

    /// Handles a part of the journal that was read, or cannot be. The client decides whether an
    /// unreadable journal matters.
    pub(super) fn scanned(&mut self, ok: bool, out: &mut NodeOut) -> Option<Ready> {
        let (at, len) = self.window;
        let Some((_, needed)) = self.wanted() else {
            if !ok {
                return self.ready(None);
            }
            out.load(Flight::JournalLoad { client: self.client }, self.page(0, HEADERS_BYTES));
            return None;
        };
        if ok {
            self.scan(out);
        } else if len > needed {
            // What is behind it may not be needed.
            self.read_log(at, needed, out);
        } else {
            self.unreadable = true;
            return self.look_at(None, out);
        }
        None
    }

    /// Takes the headers, or the first bytes of a record, that were read.
    pub(crate) fn loaded(&mut self, bytes: &[u8], out: &mut NodeOut) -> Option<Ready> {
        match self.start {
            JournalState::Headers => {
                let header = Header::newest(&self.array, bytes);
                let before = self.headers_sector * SECTOR_BYTES - self.data.1;
                let Some(header) = header.filter(|header| header.log_bytes <= before) else {
                    return self.ready(None);
                };
                self.log_sector = self.headers_sector - header.log_bytes / SECTOR_BYTES;
                self.header = Some(header);
                let look = self.log.insert(Log::new(&header)).look();
                self.look_at(Some(look), out)
            }
            JournalState::Look(look) => {
                let log = self.log.as_ref()?;
                let found = Record::decode(&self.array, bytes);
                // A record that no node has written must not take memory without end.
                let few = |record: &Record| record.rows.len() <= usize::from(self.rows);
                match found.filter(|record| few(record) && log.is_due(look, record)) {
                    Some(record) if record.content_bytes() > 0 => {
                        self.start =
                            JournalState::Check(RecordCheck { look, record, done: 0, crc: 0 });
                        self.scan(out);
                        None
                    }
                    found => self.found(look, found, out),
                }
            }
            JournalState::Check(_)
            | JournalState::Flushing
            | JournalState::Known
            | JournalState::Replay { .. } => None,
        }
    }

    /// Takes the CRC of the contents that were checked so far.
    pub(super) fn checked(&mut self, crc: u32, out: &mut NodeOut) -> Option<Ready> {
        let most = self.buffer().len;
        let JournalState::Check(check) = &mut self.start else { return None };
        check.done += check.next(most).1;
        check.crc = crc;
        if check.done < check.record.content_bytes() {
            self.scan(out);
            return None;
        }
        let look = check.look;
        let record = check.record.clone();
        self.found(look, Some(record).filter(|record| record.crc == crc), out)
    }

    /// Ends the look for a record at one place.
    fn found(&mut self, look: Look, found: Option<Record>, out: &mut NodeOut) -> Option<Ready> {
        let next = self.log.as_mut()?.looked(look, found.as_ref());
        self.found.extend(found.map(|record| (look.at, record)));
        self.look_at(next, out)
    }

    /// Looks for a record at this place. Without a place all are found.
    fn look_at(&mut self, look: Option<Look>, out: &mut NodeOut) -> Option<Ready> {
        if let Some(look) = look {
            let behind = look.at >= self.end();
            let first = Look { at: 0, again: true, ..look };
            self.start = JournalState::Look(if behind { first } else { look });
            self.scan(out);
            return None;
        }
        if self.found.is_empty() {
            return self.known();
        }
        self.start = JournalState::Flushing;
        self.io(IoOp::Flush, out);
        None
    }

    /// Ends the scan when the found records are durable. If the flush has failed, the journal
    /// counts as unreadable. A node that died may have left records in flight; the flush makes sure
    /// that the decision on these is final.
    pub(super) fn found_is_durable(&mut self, ok: bool) -> Option<Ready> {
        self.unreadable |= !ok;
        self.known()
    }

    /// Checks the wanted part of the log if it has been read, and reads it otherwise.
    fn scan(&mut self, out: &mut NodeOut) {
        let Some((at, len)) = self.wanted() else { return };
        let (from, bytes) = self.window;
        if at < from || at + len > from + bytes {
            let most = (self.end() - at).min(self.buffer().len.into());
            return self.read_log(at, most, out);
        }
        let client = self.client;
        let buf = self.buffer().slice((at - from) as u32, len as u32);
        if let JournalState::Check(check) = &self.start {
            let compute = Compute::Crc { before: check.crc, inputs: vec![buf] };
            out.compute(Flight::JournalSum { client, record: 0 }, compute);
        } else {
            out.load(Flight::JournalLoad { client }, buf);
        }
    }

    fn read_log(&mut self, at: u64, len: u64, out: &mut NodeOut) {
        self.window = (at, len);
        let sector = self.log_sector + at / SECTOR_BYTES;
        self.io(IoOp::Read { sector, buf: self.page(0, len) }, out);
    }
}
