//! Blocks of which an operation has asked for a part, and checksums of the others.

use std::ops::Range;

use super::Checks;
use crate::action::{Compute, IoError, IoOp, Outcome};
use crate::plan::copied;
use crate::verified::area_io::Flight;
use crate::verified::op::{GuardedOp, OpKind};
use crate::{Buf, SECTOR_BYTES};

impl Checks {
    /// Reads a whole block of which an operation has asked for a part.
    pub(super) fn read_block(&mut self, op: usize, block: u64, buf: Buf) {
        let member = self.ops[op].member;
        let guard = &self.guards[&member];
        let sectors = guard.place.area.block(block);
        let buf = buf.slice(0, ((sectors.end - sectors.start) * SECTOR_BYTES) as u32);
        let sector = guard.place.data_offset + sectors.start;
        self.io.ask(member, IoOp::Read { sector, buf }, Flight::Block { op, member, block, buf });
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
            self.io.give(buf);
            return self.block_fails(op, error);
        }
        self.io.compute(Compute::SumBlocks { buf }, Flight::BlockSum { op, block, buf });
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
        let GuardedOp { op: asked, kind, abandoned, .. } = &mut self.ops[op];
        if *abandoned {
            // The memory of an operation that was given up may be somebody else's.
            self.io.give(buf);
            return self.block_fails(op, IoError::ABANDONED);
        }
        match (kind, *asked) {
            (OpKind::Read(read), IoOp::Read { buf: to, .. }) => {
                read.compare(block, sum);
                if read.misfits.contains(&block) {
                    self.io.give(buf);
                    return self.verified(op);
                }
                let (part, at) = read.range.within(sectors);
                let to = read.range.part(to, part);
                let from = buf.slice(at, to.len);
                self.io.compute(copied(from, to), Flight::BlockCopy { op, buf });
            }
            (OpKind::Write(write), op_of_write) => {
                if guard.table.get(block) != Some(sum) {
                    write.rotten.push(block);
                    self.io.give(buf);
                    return self.looked_at(op);
                }
                let (part, at) = write.range.within(sectors);
                let from = match op_of_write {
                    IoOp::Write { buf, .. } => write.range.part(buf, part),
                    _ => self.io.zeroes.slice(0, ((part.end - part.start) * SECTOR_BYTES) as u32),
                };
                let to = buf.slice(at, from.len);
                self.io.compute(copied(from, to), Flight::BlockLaid { op, block, buf });
            }
            _ => {}
        }
    }

    /// Checksums of blocks of an operation are formed.
    pub(super) fn summed(&mut self, index: usize, blocks: Range<u64>, sums: &[u32]) {
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
                self.woken.push_back(index);
            }
            OpKind::Superblock { .. } => {}
        }
    }
}
