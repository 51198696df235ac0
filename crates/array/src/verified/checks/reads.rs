//! Reads: a block whose checksum is known is only handed on if it fits.

use std::ops::Range;

use super::Checks;
use crate::action::{Action, Compute, IoError, IoOp, Outcome, SUMMED_BLOCKS};
use crate::events::ArrayEvent;
use crate::verified::area_io::{Errand, Flight};
use crate::verified::blocks::{BlockRange, groups};
use crate::verified::guard::Guard;
use crate::verified::op::{GuardedOp, GuardedRead, OpKind, ReadStage};
use crate::{Buf, IoId, MemberId};

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
        if self.comes_first(index) {
            return;
        }
        // Those that came after it, while it waited, go on beside it now.
        let disturbed = self.meets_writes(index);
        if let OpKind::Read(read) = &mut self.ops[index].kind {
            read.stage = ReadStage::Reading;
            read.disturbed = disturbed;
            self.issue(index);
        }
    }

    /// The data have come, or cannot be read.
    pub(super) fn read_answered(&mut self, index: usize, result: Result<Outcome, IoError>) {
        let abandoned = self.ops[index].abandoned;
        match (result, &mut self.ops[index].kind) {
            (Ok(_), OpKind::Read(read)) if !abandoned => {
                read.stage = ReadStage::Loading;
                self.woken.push_back(index);
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
        let member = *member;
        let Some(guard) = self.guards.get_mut(&member) else { return };
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
            self.io.compute(Compute::SumBlocks { buf }, Flight::Sums { op: index, blocks });
        }
        let blocks = cut.into_iter().map(|block| Errand::Block { op: index, member, block });
        self.io.errands.extend(blocks);
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
        let mut misfits = std::mem::take(&mut read.misfits);
        let failed = read.failed.take();
        let member = op.member;
        if self.guards.get(&member).is_none_or(Guard::is_retired) {
            // Nobody has told of writes since.
            misfits.clear();
        }
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
        if result.is_ok() {
            self.comparisons.note_read(&self.ops[index]);
        }
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
        if !guard.rot.found(block) {
            return;
        }
        let sectors = guard.place.area.block(block);
        let sector = guard.place.data_offset + sectors.start;
        let sectors = sectors.end - sectors.start;
        let event = ArrayEvent::ChecksumMismatch { member, sector, sectors };
        self.io.actions.push_back(Action::Notify(event));
    }
}
