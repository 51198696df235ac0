//! Operations of the machine on verified data, from when it asks for them until they are answered.

use std::ops::Range;

use super::blocks::{BlockRange, overlap};
use crate::format::integrity::SuperblockDigest;
use crate::{IoError, IoId, IoOp, MemberId, Outcome};

/// An operation that was asked for.
#[derive(Debug)]
pub(super) struct GuardedOp {
    /// The machine's name for it.
    pub(super) io: IoId,
    pub(super) member: MemberId,
    pub(super) op: IoOp,
    pub(super) kind: OpKind,
    /// Computations and I/O beside that are not answered.
    pub(super) pending: usize,
    /// The machine does not wait for it any more.
    pub(super) abandoned: bool,
}

#[derive(Debug)]
pub(super) enum OpKind {
    Read(GuardedRead),
    Write(GuardedWrite),
    /// A superblock, once the header accepts it.
    Superblock {
        issued: bool,
        digest: Option<SuperblockDigest>,
    },
}

/// Stage of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadStage {
    /// Writes to its blocks come first.
    Waiting,
    Reading,
    /// The data are there, and pages of the table are missing.
    Loading,
    /// What it read is compared with the checksums.
    Verifying,
}

#[derive(Debug)]
pub(super) struct GuardedRead {
    pub(super) range: BlockRange,
    pub(super) stage: ReadStage,
    /// A write to its blocks has begun meanwhile: what does not fit is read again.
    pub(super) disturbed: bool,
    /// What the checksums should be, of the blocks that it touches.
    pub(super) expected: Vec<Option<u32>>,
    /// Blocks that do not fit.
    pub(super) misfits: Vec<u64>,
    /// A block of which a part was asked for could not be read as a whole.
    pub(super) failed: Option<IoError>,
}

#[derive(Debug)]
pub(super) struct GuardedWrite {
    pub(super) range: BlockRange,
    /// The marks that it waits for.
    pub(super) ticket: u64,
    /// The checksums of its whole blocks.
    pub(super) sums: Vec<Option<u32>>,
    /// The checksums of blocks that it changes a part of, by their new content: those that were
    /// right before.
    pub(super) cut: Vec<(u64, u32)>,
    /// Blocks that it changes a part of and whose old content does not fit: they keep their
    /// checksums, and are found when they are read.
    pub(super) rotten: Vec<u64>,
    /// The old content of blocks that it changes a part of is looked at, or was.
    pub(super) looked: bool,
    pub(super) issued: bool,
}

impl GuardedRead {
    /// Returns what the checksum of a block should be.
    pub(super) fn expected(&self, block: u64) -> Option<u32> {
        self.expected.get((block - self.range.touched.start) as usize).copied().flatten()
    }

    /// Compares a block with what is expected of it.
    pub(super) fn compare(&mut self, block: u64, sum: u32) {
        if self.expected(block).is_some_and(|expected| expected != sum) {
            self.misfits.push(block);
        }
    }
}

impl GuardedWrite {
    /// The checksums that hold once it is over.
    pub(super) fn known(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let whole = self.range.whole.clone().zip(&self.sums);
        let whole = whole.filter_map(|(block, sum)| sum.map(|sum| (block, sum)));
        whole.chain(self.cut.iter().copied())
    }
}

impl GuardedOp {
    /// The blocks that it touches.
    pub(super) fn touched(&self) -> Option<&Range<u64>> {
        match &self.kind {
            OpKind::Read(read) => Some(&read.range.touched),
            OpKind::Write(write) => Some(&write.range.touched),
            OpKind::Superblock { .. } => None,
        }
    }

    /// Returns whether this is a write to any of these blocks.
    pub(super) fn writes_to(&self, blocks: &Range<u64>) -> bool {
        matches!(&self.kind, OpKind::Write(write) if overlap(&write.range.touched, blocks))
    }

    /// A write was laid over the old content of a block, which has this checksum now.
    pub(super) fn laid(&mut self, block: u64, sum: u32) {
        if let OpKind::Write(write) = &mut self.kind {
            write.cut.push((block, sum));
        }
    }

    /// Takes note of a write to these blocks that begins while this is under way.
    pub(super) fn meets_write(&mut self, blocks: &Range<u64>) {
        if let OpKind::Read(read) = &mut self.kind {
            read.disturbed |= overlap(&read.range.touched, blocks);
        }
    }
}

/// The answer to an operation.
pub(super) type GuardedAnswer = (IoId, Result<Outcome, IoError>);
