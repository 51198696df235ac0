//! Writes: a page of the table is marked before its blocks change, and knows their new checksums
//! when they have.

use std::ops::Range;

use super::Checks;
use crate::action::{Compute, IoError, IoOp, Outcome, SUMMED_BLOCKS};
use crate::format::integrity::{BLOCK_BYTES, block_sum};
use crate::verified::area_io::{Errand, Flight};
use crate::verified::blocks::{BlockRange, groups};
use crate::verified::guard::Readiness;
use crate::verified::op::{GuardedOp, GuardedWrite, OpKind};
use crate::{IoId, MemberId, SECTOR_BYTES};

impl Checks {
    /// Begins a write, zeroing or discard of these sectors of a member's data.
    pub(super) fn take_write(&mut self, io: IoId, member: MemberId, op: IoOp, data: Range<u64>) {
        let Some(guard) = self.guards.get_mut(&member) else { return };
        let area = guard.place.area;
        let range = BlockRange::new(area, data.start, data.end);
        let ticket = guard.begin_write(data);
        for index in &guard.ops {
            self.ops[*index].meets_write(&range.touched);
        }
        self.comparisons.changed(member, &range.touched);
        let whole = range.whole.clone();
        let zeroes = |block: u64| {
            let sectors = area.block(block);
            let bytes = (sectors.end - sectors.start) * SECTOR_BYTES;
            Some(block_sum(&[0; BLOCK_BYTES as usize][..bytes as usize]))
        };
        let sums = match op {
            IoOp::WriteZeroes { .. } => whole.clone().map(zeroes).collect(),
            _ => whole.clone().map(|_| None).collect(),
        };
        let parts: Vec<_> = match op {
            IoOp::Write { buf, .. } => groups(whole, SUMMED_BLOCKS)
                .map(|blocks| (range.blocks(buf, &blocks), blocks))
                .collect(),
            _ => Vec::new(),
        };
        let kind = OpKind::Write(GuardedWrite {
            range,
            ticket,
            sums,
            cut: Vec::new(),
            rotten: Vec::new(),
            looked: false,
            issued: false,
        });
        let pending = parts.len();
        let index = self.insert_op(GuardedOp { io, member, op, kind, pending, abandoned: false });
        for (buf, blocks) in parts {
            self.io.compute(Compute::SumBlocks { buf }, Flight::Sums { op: index, blocks });
        }
        self.want_pages(index);
    }

    /// Hands a write to the member once all that it waits for is there.
    pub(super) fn advance_write(&mut self, index: usize) {
        let Some(pages) = self.pages_of(index) else { return };
        let waits = self.comes_first(index);
        let GuardedOp { member, op, kind: OpKind::Write(write), pending, abandoned, .. } =
            &mut self.ops[index]
        else {
            return;
        };
        let member = *member;
        let Some(guard) = self.guards.get_mut(&member) else { return };
        if write.issued || *pending > 0 {
            return;
        }
        if *abandoned {
            guard.marks.end(write.range.start..write.range.end, false);
            return self.end_op(index, Err(IoError::ABANDONED));
        }
        match guard.readiness(write.ticket, pages.clone()) {
            Readiness::Waits => self.want_pages(index),
            Readiness::Fails(error) => {
                guard.marks.end(write.range.start..write.range.end, false);
                self.end_op(index, Err(error));
            }
            // Blocks are written to by one at a time: the last one says what is in them.
            Readiness::Ready if waits => {}
            Readiness::Ready if !write.looked && !matches!(op, IoOp::Discard { .. }) => {
                write.looked = true;
                let is_retired = guard.is_retired();
                let known = |block: &u64| !is_retired && guard.table.get(*block).is_some();
                let cut: Vec<u64> = write.range.cut().filter(known).collect();
                // One more, for this.
                *pending += 1 + cut.len();
                let blocks =
                    cut.into_iter().map(|block| Errand::Block { op: index, member, block });
                self.io.errands.extend(blocks);
                self.looked_at(index);
            }
            Readiness::Ready => {
                write.issued = true;
                if !guard.is_retired() {
                    let touched = write.range.touched.clone();
                    let blocks = touched.filter(|block| !write.rotten.contains(block));
                    guard.in_flux(blocks, pages);
                }
                self.issue(index);
            }
        }
    }

    /// A block that a write changes a part of was looked at.
    pub(super) fn looked_at(&mut self, index: usize) {
        self.ops[index].pending -= 1;
        self.woken.push_back(index);
    }

    /// A write is over, or has failed.
    pub(super) fn write_answered(&mut self, index: usize, result: Result<Outcome, IoError>) {
        let GuardedOp { member, kind: OpKind::Write(write), .. } = &self.ops[index] else {
            return;
        };
        if let Some(guard) = self.guards.get_mut(member) {
            if result.is_ok() && !guard.is_retired() {
                for (block, sum) in write.known() {
                    guard.table.set(block, Some(sum));
                    guard.rot.written(block);
                }
            }
            guard.marks.end(write.range.start..write.range.end, false);
        }
        self.end_op(index, result);
    }
}
