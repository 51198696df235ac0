//! Requests of clients to a journal at a takeover, its replay, and answers of the executor.

use std::collections::VecDeque;

use braid_array::{Action, IoOp, Refusal, SECTOR_BYTES};

use super::replay::{self, Places};
use super::scan::Ready;
use super::{Journal, JournalState};
use crate::ids::SetVersion;
use crate::journal::{Header, Kind, PAGE_BYTES, Record};
use crate::node::STORAGE;
use crate::node::ids::Violation;
use crate::node::out::{Flight, NodeOut};
use crate::wire::{JournalEntry, Message};

/// Records in one message.
const MAX_LISTED: usize = 256;

impl Journal {
    /// Handles a finished operation.
    pub(crate) fn done(&mut self, ok: bool, out: &mut NodeOut) -> Option<Ready> {
        match &mut self.start {
            JournalState::Known => self.batch_done(ok),
            JournalState::Headers | JournalState::Look(_) | JournalState::Check(_) => {
                return self.scanned(ok, out);
            }
            JournalState::Flushing => return self.found_is_durable(ok),
            JournalState::Replay { tag, steps } => {
                let tag = *tag;
                match steps.pop_front() {
                    Some(op) if ok => self.io(op, out),
                    _ => {
                        self.start = JournalState::Known;
                        out.report(self.client, tag, ok, "the journal cannot be replayed");
                    }
                }
            }
        }
        None
    }

    /// Takes the CRC of contents.
    pub(crate) fn summed(&mut self, record: usize, crc: u32, out: &mut NodeOut) -> Option<Ready> {
        if self.record_summed(record, crc) {
            return self.done(true, out);
        }
        self.checked(crc, out)
    }

    /// Handles a request of the client.
    pub(crate) fn request(
        &mut self,
        message: &Message,
        out: &mut NodeOut,
    ) -> Result<(), Violation> {
        let (JournalState::Known, Some(header)) = (&self.start, self.header) else {
            return Err(Violation("a request to a journal that is not there"));
        };
        match *message {
            Message::ListJournal { tag, .. } | Message::ReplayJournal { tag, .. }
                if self.unreadable =>
            {
                out.refuse(self.client, tag, Refusal::new("its journal cannot be read", STORAGE));
            }
            Message::ListJournal { tag, from } => self.list(tag, from as usize, &header, out),
            Message::ReplayJournal { tag, above, ref without } => {
                let mut steps = self.steps(above, without);
                if let Some(op) = steps.pop_front() {
                    self.io(op, out);
                }
                self.start = JournalState::Replay { tag, steps };
            }
            Message::TrimJournal { tag, mark, all } => {
                return self.trim(tag, mark, all, header, out);
            }
            _ => {}
        }
        Ok(())
    }

    fn list(&self, tag: u32, from: usize, header: &Header, out: &mut NodeOut) {
        let item = |(_, record): &(u64, Record)| JournalEntry {
            version: record.version,
            holders: record.holders,
            void: record.kind == Kind::Void,
        };
        let items: Vec<JournalEntry> =
            self.found.iter().skip(from).take(MAX_LISTED).map(item).collect();
        let end = from.saturating_add(items.len());
        let next = if end < self.found.len() { end as u32 } else { 0 };
        out.answer(self.client, &Message::JournalEntries { tag, mark: header.mark, items, next });
    }

    /// Trims the log: drops records that no longer count, or all of them.
    fn trim(
        &mut self,
        tag: u32,
        mark: SetVersion,
        all: bool,
        header: Header,
        out: &mut NodeOut,
    ) -> Result<(), Violation> {
        let violation = Violation("a second Trim at a time");
        if self.trimming.is_some() || all && self.is_recording() {
            return Err(violation);
        }
        let log = self.log.as_mut().ok_or(violation)?;
        let (tail, first) = if all { log.empty() } else { log.begins(mark) };
        let passed = !(all && braid_array::broken("mark-passed-on"));
        let mark = if passed { mark.max(header.mark) } else { header.mark };
        let header = Header { sequence: header.sequence + 1, tail, first, mark, ..header };
        self.trimming = Some((tag, header));
        let buf = self.page(self.positions, PAGE_BYTES);
        let sector = self.headers_sector + header.byte() / SECTOR_BYTES;
        out.push(Action::Store { buf, bytes: header.encode(&self.array) });
        let op = IoOp::Write { sector, buf, fua: true, fill: false };
        out.io(Flight::JournalTrim { client: self.client }, self.member, op);
        Ok(())
    }

    /// Handles a finished trim.
    pub(crate) fn trimmed(&mut self, ok: bool, out: &mut NodeOut) {
        let Some((tag, header)) = self.trimming.take() else { return };
        if ok {
            self.header = Some(header);
            self.found.clear();
            self.used = true;
            if let Some(log) = &mut self.log {
                log.trim(header.first);
            }
        }
        out.report(self.client, tag, ok, "the journal cannot be written");
    }

    /// Returns the operations that replay the records above a version, except for those in
    /// `without`.
    fn steps(&self, above: SetVersion, without: &[SetVersion]) -> VecDeque<IoOp> {
        let counts = |version: SetVersion| version > above && !without.contains(&version);
        let found = self.found.iter().filter(|(_, record)| counts(record.version));
        let data = self.data.0..self.data.1;
        let places = Places { log: self.log_byte(), data, buffer: self.buffer() };
        replay::steps(found.map(|(at, record)| (*at, record)), &places)
    }
}
