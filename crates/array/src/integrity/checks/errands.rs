//! I/O on areas, which takes pages of memory, and answers to all that was asked for.

use super::{Checks, PAGE_BYTES, id};
use crate::action::{Action, Compute, IoError, IoOp, Outcome};
use crate::format::integrity::TablePage;
use crate::integrity::guard::CourseKind;
use crate::integrity::op::{GuardedOp, OpKind};
use crate::integrity::step::IntegrityWrite;
use crate::{Buf, IoId, MemberId};
use slab::Slab;
use std::ops::Range;

/// Something that takes a page of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// A write of a course.
    Write { member: MemberId, kind: CourseKind, write: IntegrityWrite },
    /// A page of the table is read.
    Load { member: MemberId, page: u64 },
    /// A whole block is read of which an operation has asked for a part.
    Block { op: usize, block: u64 },
}

/// Something that was asked for and is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Flight {
    /// An operation, on its member.
    Op(usize),
    /// Checksums of blocks of an operation.
    Sums {
        op: usize,
        blocks: Range<u64>,
    },
    /// A write of a course from this page of memory.
    Write {
        member: MemberId,
        kind: CourseKind,
        write: IntegrityWrite,
        buf: Buf,
    },
    Flush {
        member: MemberId,
        kind: CourseKind,
    },
    /// A page of the table is read into this page of memory.
    Load {
        member: MemberId,
        page: u64,
        buf: Buf,
    },
    /// It was read, and is looked at.
    Loaded {
        member: MemberId,
        page: u64,
        buf: Buf,
    },
    /// A whole block is read, ...
    Block {
        op: usize,
        block: u64,
        buf: Buf,
    },
    /// ... its checksum formed, ...
    BlockSum {
        op: usize,
        block: u64,
        buf: Buf,
    },
    /// ... and what was asked for of it copied.
    BlockCopy {
        op: usize,
        buf: Buf,
    },
    /// ... or what is written to it laid over it, ...
    BlockLaid {
        op: usize,
        block: u64,
        buf: Buf,
    },
    /// ... and summed.
    LaidSum {
        op: usize,
        block: u64,
        buf: Buf,
    },
    /// Given up: its member is gone. The memory is set aside until it is answered.
    Nobody {
        buf: Option<Buf>,
    },
}

impl Errand {
    /// The member that it is about.
    pub(super) fn member(&self, ops: &Slab<GuardedOp>) -> MemberId {
        match self {
            Self::Write { member, .. } | Self::Load { member, .. } => *member,
            Self::Block { op, .. } => ops[*op].member,
        }
    }
}

impl Flight {
    /// The memory of something that was asked of a member for its area, or to verify a read; `None`
    /// in that for a flush. `None` if it is none of these.
    pub(super) fn on_area_of(&self, asked: MemberId, ops: &Slab<GuardedOp>) -> Option<Option<Buf>> {
        match self {
            Self::Write { member, buf, .. } | Self::Load { member, buf, .. } => {
                (*member == asked).then_some(Some(*buf))
            }
            Self::Flush { member, .. } => (*member == asked).then_some(None),
            Self::Block { op, buf, .. } => (ops[*op].member == asked).then_some(Some(*buf)),
            _ => None,
        }
    }
}

impl Checks {
    /// Names something that is asked for.
    pub(super) fn flight(&mut self, flight: Flight) -> IoId {
        self.generation = (self.generation + 1) & 0xff_ffff;
        let slot = self.flights.insert((self.generation, flight));
        id(slot, self.generation)
    }

    pub(super) fn compute(&mut self, compute: Compute, flight: Flight) {
        let io = self.flight(flight);
        self.actions.push_back(Action::Compute { io, compute });
    }

    /// Begins with what waits for pages of memory, as long as there are any.
    pub(super) fn run_errands(&mut self) {
        while !self.errands.is_empty() {
            let Some(buf) = self.free_pages.pop() else { return };
            let Some(errand) = self.errands.pop_front() else { return };
            match errand {
                Errand::Write { member, kind, write } => self.write(member, kind, write, buf),
                Errand::Load { member, page } => {
                    let guard = &self.guards[&member];
                    let sector = guard.sector(guard.place.area.page_at(page));
                    let io = self.flight(Flight::Load { member, page, buf });
                    self.actions.push_back(Action::Io {
                        io,
                        member,
                        op: IoOp::Read { sector, buf },
                    });
                }
                Errand::Block { op, block } => self.read_block(op, block, buf),
            }
        }
    }

    /// Writes metadata of an area.
    fn write(&mut self, member: MemberId, kind: CourseKind, write: IntegrityWrite, buf: Buf) {
        let Some(guard) = self.guards.get_mut(&member) else { return self.free_pages.push(buf) };
        let area = guard.place.area;
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
            self.free_pages.push(buf);
            return self.course_answered(member, kind, Ok(()));
        };
        let fua = guard.course(kind).is_some_and(|course| course.is_fua());
        let op = IoOp::Write { sector: guard.sector(byte), buf, fua, fill: false };
        self.actions.push_back(Action::Store { buf, bytes });
        let io = self.flight(Flight::Write { member, kind, write, buf });
        self.actions.push_back(Action::Io { io, member, op });
    }

    /// Takes an answer.
    pub(in crate::integrity) fn done(&mut self, io: IoId, result: Result<Outcome, IoError>) {
        let flight = self.landed(io);
        match flight {
            Flight::Op(op) => self.op_answered(op, result),
            Flight::Sums { op, blocks } => {
                if let Ok(Outcome::BlockSums(sums)) = result {
                    self.summed(op, blocks, &sums);
                }
            }
            Flight::Write { member, kind, write, buf } => {
                self.free_pages.push(buf);
                if let (IntegrityWrite::Page(page), Err(_)) = (&write, &result)
                    && let Some(guard) = self.guards.get_mut(&member)
                {
                    guard.table.unwritten(*page as u64);
                }
                self.course_answered(member, kind, result.map(drop));
            }
            Flight::Flush { member, kind } => {
                self.course_answered(member, kind, result.map(drop));
            }
            Flight::Load { member, page, buf } if result.is_ok() => {
                let io = self.flight(Flight::Loaded { member, page, buf });
                self.actions.push_back(Action::Load { io, buf });
            }
            Flight::Load { member, page, buf } | Flight::Loaded { member, page, buf } => {
                self.free_pages.push(buf);
                self.table_page(member, page, TablePage::unknown());
            }
            Flight::Block { op, block, buf } => self.block_read(op, block, buf, result),
            Flight::BlockSum { op, block, buf } => {
                if let Ok(Outcome::BlockSums([sum, ..])) = result {
                    self.block_summed(op, block, buf, sum);
                }
            }
            Flight::BlockLaid { op, block, buf } => {
                self.compute(Compute::SumBlocks { buf }, Flight::LaidSum { op, block, buf });
            }
            Flight::LaidSum { op, block, buf } => {
                self.give_block(buf);
                if let Ok(Outcome::BlockSums([sum, ..])) = result {
                    self.laid(op, block, sum);
                }
            }
            Flight::Nobody { buf } => buf.into_iter().for_each(|buf| self.give_block(buf)),
            Flight::BlockCopy { op, buf } => {
                self.give_block(buf);
                self.verified(op);
            }
        }
        self.run_errands();
    }

    /// Takes the bytes of a page of a table.
    pub(in crate::integrity) fn loaded(&mut self, io: IoId, bytes: &[u8]) {
        if let Flight::Loaded { member, page, buf } = self.landed(io) {
            self.free_pages.push(buf);
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

    fn landed(&mut self, io: IoId) -> Flight {
        let slot = (io.0 & 0xffff_ffff) as usize;
        let (generation, flight) = self.flights.remove(slot);
        assert_eq!(id(slot, generation), io, "an answer for an I/O that is over");
        flight
    }

    fn op_answered(&mut self, index: usize, result: Result<Outcome, IoError>) {
        match self.ops[index].kind {
            OpKind::Read(_) => self.read_answered(index, result),
            OpKind::Write(_) => self.write_answered(index, result),
            OpKind::Superblock { .. } => self.superblock_answered(index, result),
        }
    }

    /// Checksums of blocks of an operation are formed.
    fn summed(&mut self, index: usize, blocks: Range<u64>, sums: &[u32]) {
        match &mut self.ops[index].kind {
            OpKind::Read(read) => {
                for (block, sum) in blocks.zip(sums) {
                    read.compare(block, *sum);
                }
                self.verified(index);
            }
            OpKind::Write(write) => {
                let first = (blocks.start - write.range.whole.start) as usize;
                for (known, sum) in write.sums[first..].iter_mut().zip(sums).take(blocks.count()) {
                    *known = Some(*sum);
                }
                self.ops[index].pending -= 1;
                self.due.insert(self.ops[index].member);
            }
            OpKind::Superblock { .. } => {}
        }
    }
}
