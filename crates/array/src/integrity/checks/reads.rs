//! Reads: a block whose checksum is known is only handed on if it fits.

use std::ops::Range;

use super::Checks;
use super::errands::{Errand, Flight};
use crate::action::{Action, Compute, IoError, IoOp, Outcome, SUMMED_BLOCKS};
use crate::events::ArrayEvent;
use crate::integrity::blocks::{BlockRange, groups};
use crate::integrity::op::{GuardedOp, GuardedRead, OpKind, ReadStage};
use crate::plan::copied;
use crate::{Buf, IoId, MemberId, SECTOR_BYTES};

impl Checks {
    /// Begins a read of these sectors of a member's data.
    pub(super) fn take_read(&mut self, io: IoId, member: MemberId, op: IoOp, data: Range<u64>) {
        let guard = &self.guards[&member];
        let range = BlockRange::new(guard.place.area, data.start, data.end);
        let read = GuardedRead {
            range,
            stage: ReadStage::Waiting,
            disturbed: false,
            expected: Vec::new(),
            misfits: Vec::new(),
            failed: None,
        };
        let kind = OpKind::Read(read);
        let op = GuardedOp { io, member, op, kind, pending: 0, abandoned: false };
        let index = self.insert_op(op);
        self.begin_read(index);
        self.want_pages(index);
    }

    /// Reads, unless a write to the same blocks comes first.
    fn begin_read(&mut self, index: usize) {
        if !self.comes_first(index)
            && let OpKind::Read(read) = &mut self.ops[index].kind
        {
            read.stage = ReadStage::Reading;
            read.disturbed = false;
            self.issue(index);
        }
    }

    /// Returns whether a write to blocks of this operation was asked for before it.
    pub(super) fn comes_first(&self, index: usize) -> bool {
        let op = &self.ops[index];
        let (Some(touched), Some(guard)) = (op.touched(), self.guards.get(&op.member)) else {
            return false;
        };
        let before = guard.ops.iter().take_while(|other| **other != index);
        before.into_iter().any(|other| self.ops[*other].writes_to(touched))
    }

    /// Reads the pages of the table that an operation needs, side by side with its data.
    pub(super) fn want_pages(&mut self, index: usize) {
        let Some(pages) = self.pages_of(index) else { return };
        let member = self.ops[index].member;
        let Some(guard) = self.guards.get_mut(&member) else { return };
        let absent = guard.want(pages);
        self.errands.extend(absent.into_iter().map(|page| Errand::Load { member, page }));
    }

    /// The pages of the table that have the checksums of an operation's blocks.
    pub(super) fn pages_of(&self, index: usize) -> Option<Range<u64>> {
        let op = &self.ops[index];
        let area = self.guards.get(&op.member)?.place.area;
        let (start, end) = match &op.kind {
            OpKind::Read(GuardedRead { range, .. }) => (range.start, range.end),
            OpKind::Write(write) => (write.range.start, write.range.end),
            OpKind::Superblock { .. } => return None,
        };
        Some(area.pages_of(start..end))
    }

    /// The data have come, or cannot be read.
    pub(super) fn read_answered(&mut self, index: usize, result: Result<Outcome, IoError>) {
        let abandoned = self.ops[index].abandoned;
        match (result, &mut self.ops[index].kind) {
            (Ok(_), OpKind::Read(read)) if !abandoned => {
                read.stage = ReadStage::Loading;
                self.due.insert(self.ops[index].member);
            }
            (result, _) => self.end_op(index, result),
        }
    }

    /// Verifies a read once the checksums are in memory.
    pub(super) fn advance_read(&mut self, index: usize) {
        let Some(pages) = self.pages_of(index) else { return };
        let GuardedOp { member, op, kind: OpKind::Read(read), abandoned, .. } =
            &mut self.ops[index]
        else {
            return;
        };
        let Some(guard) = self.guards.get_mut(member) else { return };
        if read.stage == ReadStage::Waiting {
            if *abandoned {
                return self.end_op(index, Err(IoError::ABANDONED));
            }
            return self.begin_read(index);
        }
        if read.stage != ReadStage::Loading {
            return;
        }
        if !guard.is_retired() && !guard.has(pages) {
            return self.want_pages(index);
        }
        let IoOp::Read { buf, .. } = *op else { return };
        let touched = read.range.touched.clone();
        read.stage = ReadStage::Verifying;
        if !guard.is_retired() {
            read.expected = touched.map(|block| guard.table.get(block)).collect();
        }
        let is_due = |block: &u64| read.expected(*block).is_some();
        let whole = groups(read.range.whole.clone(), SUMMED_BLOCKS);
        let whole: Vec<_> = whole.filter(|blocks| blocks.clone().any(|b| is_due(&b))).collect();
        let cut: Vec<u64> = read.range.cut().filter(is_due).collect();
        let bufs: Vec<Buf> = whole.iter().map(|blocks| read.range.blocks(buf, blocks)).collect();
        // One more, for this.
        self.ops[index].pending = 1 + whole.len() + cut.len();
        for (blocks, buf) in whole.into_iter().zip(bufs) {
            self.compute(Compute::SumBlocks { buf }, Flight::Sums { op: index, blocks });
        }
        self.errands.extend(cut.into_iter().map(|block| Errand::Block { op: index, block }));
        self.verified(index);
    }

    /// A part of a read is verified, or found not to fit.
    pub(super) fn verified(&mut self, index: usize) {
        let op = &mut self.ops[index];
        op.pending -= 1;
        if op.pending > 0 {
            return;
        }
        let OpKind::Read(read) = &mut op.kind else { return };
        let misfits = std::mem::take(&mut read.misfits);
        let failed = read.failed.take();
        let member = op.member;
        if read.disturbed && !misfits.is_empty() && !op.abandoned {
            read.stage = ReadStage::Waiting;
            return self.again(index);
        }
        for block in &misfits {
            self.tell_misfit(member, *block);
        }
        let result = match failed {
            Some(error) => Err(error),
            None if misfits.is_empty() || crate::broken("verify") => Ok(Outcome::Done),
            None => Err(IoError::MEDIUM),
        };
        self.end_op(index, result);
    }

    /// Has a read wait for all writes that were asked for until now.
    fn again(&mut self, index: usize) {
        let member = self.ops[index].member;
        if let Some(guard) = self.guards.get_mut(&member) {
            guard.ops.retain(|other| *other != index);
            guard.ops.push(index);
        }
        self.due.insert(member);
    }

    fn tell_misfit(&mut self, member: MemberId, block: u64) {
        let Some(guard) = self.guards.get_mut(&member) else { return };
        guard.mismatches += 1;
        let sectors = guard.place.area.block(block);
        let sector = guard.place.data_offset + sectors.start;
        let sectors = sectors.end - sectors.start;
        let event = ArrayEvent::ChecksumMismatch { member, sector, sectors };
        self.actions.push_back(Action::Notify(event));
    }

    /// Reads a whole block of which an operation has asked for a part.
    pub(super) fn read_block(&mut self, op: usize, block: u64, buf: Buf) {
        let member = self.ops[op].member;
        let guard = &self.guards[&member];
        let sectors = guard.place.area.block(block);
        let buf = buf.slice(0, ((sectors.end - sectors.start) * SECTOR_BYTES) as u32);
        let sector = guard.place.data_offset + sectors.start;
        let io = self.flight(Flight::Block { op, block, buf });
        self.actions.push_back(Action::Io { io, member, op: IoOp::Read { sector, buf } });
    }

    /// The block has come, or cannot be read.
    pub(super) fn block_read(
        &mut self,
        op: usize,
        block: u64,
        buf: Buf,
        result: Result<Outcome, IoError>,
    ) {
        if let Err(error) = result {
            self.give_block(buf);
            return self.block_fails(op, error);
        }
        self.compute(Compute::SumBlocks { buf }, Flight::BlockSum { op, block, buf });
    }

    /// A block of which an operation has asked for a part cannot be read as a whole.
    pub(super) fn block_fails(&mut self, op: usize, error: IoError) {
        match &mut self.ops[op].kind {
            OpKind::Read(read) => {
                read.failed = Some(error);
                self.verified(op);
            }
            _ => self.looked_at(op),
        }
    }

    /// The block's checksum is formed. What was asked for of it is copied from there: what was read
    /// before may be something else. A write is laid over it, and summed.
    pub(super) fn block_summed(&mut self, op: usize, block: u64, buf: Buf, sum: u32) {
        let guard = &mut self.guards.get_mut(&self.ops[op].member).expect("one with operations");
        let sectors = guard.place.area.block(block);
        let GuardedOp { op: asked, kind, .. } = &mut self.ops[op];
        match (kind, *asked) {
            (OpKind::Read(read), IoOp::Read { buf: to, .. }) => {
                read.compare(block, sum);
                if read.misfits.contains(&block) {
                    self.give_block(buf);
                    return self.verified(op);
                }
                let (part, at) = read.range.within(sectors);
                let to = read.range.part(to, part);
                let from = buf.slice(at, to.len);
                self.compute(copied(from, to), Flight::BlockCopy { op, buf });
            }
            (OpKind::Write(write), op_of_write) => {
                // What does not fit now does not fit afterwards either, and is found.
                if guard.table.get(block) != Some(sum) {
                    self.give_block(buf);
                    return self.looked_at(op);
                }
                let (part, at) = write.range.within(sectors);
                let from = match op_of_write {
                    IoOp::Write { buf, .. } => write.range.part(buf, part),
                    _ => self.zeroes.slice(0, ((part.end - part.start) * SECTOR_BYTES) as u32),
                };
                let to = buf.slice(at, from.len);
                self.compute(copied(from, to), Flight::BlockLaid { op, block, buf });
            }
            _ => {}
        }
    }

    /// Gives back the memory of a block, which may be shorter than a page.
    pub(super) fn give_block(&mut self, buf: Buf) {
        self.free_pages.push(Buf { len: super::PAGE_BYTES, ..buf });
    }
}
