//! I/O on areas that takes pages of memory, and answers to all that was asked for.

use super::Checks;
use crate::action::{Action, Compute, IoError, IoOp, Outcome};
use crate::format::integrity::TablePage;
use crate::integrity::IntegrityWrite;
use crate::integrity::found::AreaPlace;
use crate::verified::area_io::{Errand, Flight, PAGE_BYTES};
use crate::verified::guard::CourseKind;
use crate::verified::op::OpKind;
use crate::{Buf, IoId, MemberId};

impl Checks {
    /// Begins with what waits for pages of memory, as long as there are any.
    pub(super) fn run_errands(&mut self) {
        while let Some((errand, buf)) = self.io.next_errand() {
            match errand {
                Errand::Write { member, kind, write } => self.write(member, kind, write, buf),
                Errand::Load { member, page } => {
                    let guard = &self.guards[&member];
                    let sector = guard.sector(guard.place.area.page_at(page));
                    let read = IoOp::Read { sector, buf };
                    let stored = guard.place.stored;
                    self.io.ask_area(stored, member, read, Flight::Load { member, page, buf });
                }
                Errand::Block { op, block, .. } => self.read_block(op, block, buf),
            }
        }
    }

    /// Writes metadata of an area.
    fn write(&mut self, member: MemberId, kind: CourseKind, write: IntegrityWrite, buf: Buf) {
        let Some(guard) = self.guards.get_mut(&member) else { return self.io.give(buf) };
        let AreaPlace { area, stored, .. } = guard.place;
        let (byte, bytes) = match &write {
            IntegrityWrite::Header { copy, bytes } => {
                let mut bytes = bytes.clone();
                bytes.resize(PAGE_BYTES as usize, 0);
                (*copy as u64 * u64::from(PAGE_BYTES), Some(bytes))
            }
            IntegrityWrite::Marks(page) => {
                let byte = area.marks_at() + *page as u64 * u64::from(PAGE_BYTES);
                (byte, Some(guard.marks.marks().encode(*page)))
            }
            IntegrityWrite::Page(page) => {
                let area_id = guard.area_id;
                let number = *page as u64;
                let written = guard.table.write(number);
                (area.page_at(number), written.map(|page| page.encode(area_id, number)))
            }
            IntegrityWrite::Superblock => (0, None),
        };
        let Some(bytes) = bytes else {
            // The member has the page as it is.
            self.io.give(buf);
            return self.course_answered(member, kind, Ok(()));
        };
        let fua = guard.course(kind).is_some_and(|course| course.is_fua());
        let op = IoOp::Write { sector: guard.sector(byte), buf, fua, fill: false };
        self.io.actions.push_back(Action::Store { buf, bytes });
        self.io.ask_area(stored, member, op, Flight::Write { member, kind, write, buf });
    }

    /// Something was asked of what holds the area of a member, and is answered. Returns whether the
    /// area is given up because of that.
    fn store_answered(&mut self, member: MemberId, error: Option<IoError>) -> bool {
        if self.guards.get(&member).is_none_or(|guard| !guard.place.stored) {
            return false;
        }
        self.io.stores.answered(member);
        if error.is_some() {
            self.give_up_store(member, error);
        }
        error.is_some()
    }

    /// Takes an answer.
    pub(in crate::verified) fn done(&mut self, io: IoId, result: Result<Outcome, IoError>) {
        match self.io.landed(io) {
            Flight::Op(op) => self.op_answered(op, result),
            Flight::Sums { op, blocks } => {
                if let Ok(Outcome::BlockSums(sums)) = result {
                    self.summed(op, blocks, &sums);
                }
            }
            Flight::Write { member, kind, write, buf } => {
                self.io.give(buf);
                if let (IntegrityWrite::Page(page), Err(_)) = (&write, &result)
                    && let Some(guard) = self.guards.get_mut(&member)
                {
                    guard.table.unwritten(*page as u64);
                }
                if !self.store_answered(member, result.err()) {
                    self.course_answered(member, kind, result.map(drop));
                }
            }
            Flight::Flush { member, kind, stored } => {
                if !stored || !self.store_answered(member, result.err()) {
                    self.course_answered(member, kind, result.map(drop));
                }
            }
            Flight::Load { member, page, buf } => {
                self.store_answered(member, None);
                if result.is_ok() {
                    self.io.load(buf, Flight::Loaded { member, page, buf });
                } else {
                    self.io.give(buf);
                    self.table_page(member, page, TablePage::unknown());
                }
            }
            Flight::Loaded { member, page, buf } => {
                self.io.give(buf);
                self.table_page(member, page, TablePage::unknown());
            }
            Flight::Block { op, block, buf, .. } => self.block_read(op, block, buf, result),
            Flight::BlockSum { op, block, buf } => {
                if let Ok(Outcome::BlockSums([sum, ..])) = result {
                    self.block_summed(op, block, buf, sum);
                }
            }
            Flight::BlockLaid { op, block, buf } => {
                self.io.compute(Compute::SumBlocks { buf }, Flight::LaidSum { op, block, buf });
            }
            Flight::LaidSum { op, block, buf } => {
                self.io.give(buf);
                if let Ok(Outcome::BlockSums([sum, ..])) = result {
                    self.ops[op].laid(block, sum);
                    self.looked_at(op);
                }
            }
            Flight::Confirmed { comparison, sums } => {
                let guard = self.guards.get_mut(&sums.member);
                let answer = self.comparisons.confirmed(comparison, &sums, result, guard);
                self.answers.extend(answer);
                self.due.insert(sums.member);
            }
            Flight::Nobody { buf } => buf.into_iter().for_each(|buf| self.io.give(buf)),
            Flight::BlockCopy { op, buf } => {
                self.io.give(buf);
                self.verified(op);
            }
        }
        self.run_errands();
    }

    /// Takes the bytes of a page of a table.
    pub(in crate::verified) fn loaded(&mut self, io: IoId, bytes: &[u8]) {
        if let Flight::Loaded { member, page, buf } = self.io.landed(io) {
            self.io.give(buf);
            let area_id = self.guards[&member].area_id;
            // A page that does not fit knows nothing.
            let table = TablePage::decode(area_id, page, bytes);
            self.table_page(member, page, table.unwrap_or_else(TablePage::unknown));
        }
        self.run_errands();
    }

    fn table_page(&mut self, member: MemberId, page: u64, table: TablePage) {
        if let Some(guard) = self.guards.get_mut(&member) {
            guard.loaded(page, table);
        }
        self.due.insert(member);
    }

    fn op_answered(&mut self, index: usize, result: Result<Outcome, IoError>) {
        match self.ops[index].kind {
            OpKind::Read(_) => self.read_answered(index, result),
            OpKind::Write(_) => self.write_answered(index, result),
            OpKind::Superblock { .. } => self.superblock_answered(index, result),
        }
    }
}
