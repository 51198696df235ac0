//! Blocks whose checksums become known because redundancy confirms them: where copies agree, or a
//! parity fits its data.
//!
//! A check, a repair and a resync read all of a unit, compare it in memory, and hold the unit until
//! they have the result. So whatever the machine has compared and found to fit is what lies on the
//! members, and its checksums are made before the result is handed to it. It compares nothing but
//! what it has just read into memory of its own: of memory that clients fill nothing is noted here.

use std::collections::BTreeMap;
use std::ops::Range;

use super::blocks::{BlockRange, groups, overlap};
use super::guard::Guard;
use super::op::{GuardedAnswer, GuardedOp, OpKind};
use crate::action::{Action, Checked, Compute, IoOp, SUMMED_BLOCKS};
use crate::events::{ArrayEvent, SyncAction};
use crate::{Buf, IoError, IoId, MemberId, Outcome};

/// Blocks in memory as they were read from a member.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BlocksRead {
    member: MemberId,
    range: BlockRange,
    buf: Buf,
}

/// Neighbouring blocks of a member that are summed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConfirmedBlocks {
    pub(super) member: MemberId,
    pub(super) blocks: Range<u64>,
    /// Bit *i*: block *i* of these is confirmed.
    fits: u32,
}

impl ConfirmedBlocks {
    /// The blocks that are confirmed, with their checksums.
    pub(super) fn sums<'a>(&self, sums: &'a [u32]) -> impl Iterator<Item = (u64, u32)> + use<'a> {
        let fits = self.fits;
        let numbered = self.blocks.clone().zip(sums).enumerate();
        numbered.filter(move |(bit, _)| fits >> bit & 1 == 1).map(|(_, (block, sum))| (block, *sum))
    }
}

/// A comparison that the machine has asked for.
#[derive(Debug)]
struct MemoryComparison {
    /// All of one length.
    inputs: Vec<Buf>,
    abandoned: bool,
    /// The answer, once it is there, and the number of sums that are still to be formed.
    held: Option<(Result<Outcome, IoError>, usize)>,
}

/// Comparisons under way, and what they are about.
#[derive(Debug, Default)]
pub(super) struct Comparisons {
    /// Jobs that compare what members hold.
    scrubs: usize,
    /// By their places in memory.
    readings: BTreeMap<u64, BlocksRead>,
    under_way: BTreeMap<IoId, MemoryComparison>,
}

impl Comparisons {
    /// Checksums of blocks that fit are formed, for the guard of their member. Returns the answer
    /// to the comparison, if these were the last.
    pub(super) fn confirmed(
        &mut self,
        comparison: IoId,
        confirmed: &ConfirmedBlocks,
        result: Result<Outcome, IoError>,
        guard: Option<&mut Guard>,
    ) -> Option<GuardedAnswer> {
        if self.summed(comparison)
            && let Ok(Outcome::BlockSums(sums)) = result
            && let Some(guard) = guard
        {
            guard.confirm(confirmed.blocks.clone(), confirmed.sums(&sums));
        }
        self.answer(comparison)
    }

    /// Takes note of what an action of the machine does to memory that may be compared.
    pub(super) fn take_note(&mut self, action: &Action, read_only: bool) {
        match action {
            Action::Io { op: IoOp::Read { buf, .. }, .. } | Action::Store { buf, .. } => {
                self.overwritten(*buf);
            }
            Action::Compute { io, compute } => self.computes(*io, compute),
            Action::Abandon { io, .. } => self.abandon(*io),
            // Nothing may be written.
            Action::Notify(event) if !read_only => self.heard(event),
            _ => {}
        }
    }

    /// Takes note of a read, if any of its blocks are not known.
    pub(super) fn note_read(&mut self, op: &GuardedOp) {
        if let (OpKind::Read(read), IoOp::Read { buf, .. }) = (&op.kind, op.op)
            && read.range.whole.clone().any(|block| read.expected(block).is_none())
        {
            self.read(op.member, &read.range, buf);
        }
    }

    /// Takes note of jobs that begin and end.
    fn heard(&mut self, event: &ArrayEvent) {
        let compares = |action: &SyncAction| {
            matches!(action, SyncAction::Check | SyncAction::Repair | SyncAction::Resync)
        };
        match event {
            ArrayEvent::SyncStarted(action) if compares(action) => self.scrubs += 1,
            ArrayEvent::SyncFinished { action, .. } if compares(action) => {
                self.scrubs = self.scrubs.saturating_sub(1);
                if self.scrubs == 0 {
                    self.readings.clear();
                }
            }
            ArrayEvent::Within { event, .. } => self.heard(event),
            _ => {}
        }
    }

    /// Takes note of what was read from a member, if anything may be compared.
    fn read(&mut self, member: MemberId, range: &BlockRange, buf: Buf) {
        if self.scrubs > 0 {
            let reading = BlocksRead { member, range: range.clone(), buf };
            self.readings.insert(buf.offset, reading);
        }
    }

    /// Something else comes into this memory.
    fn overwritten(&mut self, buf: Buf) {
        if crate::broken("read-before") {
            return;
        }
        let offsets: Vec<u64> = self.within(buf).map(|reading| reading.buf.offset).collect();
        for offset in offsets {
            self.readings.remove(&offset);
        }
    }

    /// These blocks of a member are written to.
    pub(super) fn changed(&mut self, member: MemberId, blocks: &Range<u64>) {
        if !self.readings.is_empty() {
            self.readings.retain(|_, reading| {
                reading.member != member || !overlap(&reading.range.touched, blocks)
            });
        }
    }

    /// Readings that have any of this memory, from the last one. None overlaps another one.
    fn within(&self, buf: Buf) -> impl Iterator<Item = &BlocksRead> {
        let before = self.readings.range(..end(buf)).rev();
        before.map(|(_, reading)| reading).take_while(move |reading| end(reading.buf) > buf.offset)
    }

    /// Looks at a computation that the machine asks for.
    fn computes(&mut self, io: IoId, compute: &Compute) {
        if self.readings.is_empty() {
            return;
        }
        let inputs = match compute {
            Compute::Sum { outputs, .. } => {
                return outputs.iter().for_each(|buf| self.overwritten(*buf));
            }
            Compute::Check { data, p, q, .. } => {
                data.iter().chain([p]).chain(q).copied().collect::<Vec<_>>()
            }
            Compute::Compare { a, b } => vec![*a, *b],
            Compute::Crc { .. } | Compute::SumBlocks { .. } => return,
        };
        if inputs.iter().any(|buf| self.within(*buf).next().is_some()) {
            self.under_way.insert(io, MemoryComparison { inputs, abandoned: false, held: None });
        }
    }

    /// The machine gives something up that may be a comparison.
    fn abandon(&mut self, io: IoId) {
        if let Some(comparison) = self.under_way.get_mut(&io) {
            comparison.abandoned = true;
        }
    }

    /// Returns whether this is a comparison.
    pub(super) fn has(&self, io: IoId) -> bool {
        self.under_way.contains_key(&io)
    }

    /// A comparison is answered: the answer is held back until all sums are formed. Returns what to
    /// sum, and where it lies; `is_known` says which blocks need not be.
    pub(super) fn compared(
        &mut self,
        io: IoId,
        result: Result<Outcome, IoError>,
        mut is_known: impl FnMut(MemberId, u64) -> bool,
    ) -> Vec<(Buf, ConfirmedBlocks)> {
        let mut confirmed = Vec::new();
        let Some(MemoryComparison { inputs, abandoned, .. }) = self.under_way.get(&io) else {
            return confirmed;
        };
        if let Ok(Outcome::Checked(checked)) = result
            && !abandoned
        {
            for input in inputs {
                for reading in self.within(*input) {
                    reading.confirm(*input, checked, &mut is_known, &mut confirmed);
                }
            }
        }
        if let Some(comparison) = self.under_way.get_mut(&io) {
            comparison.held = Some((result, confirmed.len()));
        }
        confirmed
    }

    /// A sum is formed, which counts unless the comparison was given up meanwhile.
    fn summed(&mut self, io: IoId) -> bool {
        let Some(comparison) = self.under_way.get_mut(&io) else { return false };
        if let Some((_, pending)) = &mut comparison.held {
            *pending -= 1;
        }
        !comparison.abandoned
    }

    /// Returns the answer to a comparison of which all sums are formed.
    pub(super) fn answer(&mut self, io: IoId) -> Option<GuardedAnswer> {
        let (result, pending) = self.under_way.get(&io)?.held?;
        if pending > 0 {
            return None;
        }
        self.under_way.remove(&io);
        Some((io, result))
    }
}

impl BlocksRead {
    /// Adds those of its blocks that lie in the memory of an input, fit, and are not known.
    fn confirm(
        &self,
        input: Buf,
        checked: Checked,
        is_known: &mut impl FnMut(MemberId, u64) -> bool,
        confirmed: &mut Vec<(Buf, ConfirmedBlocks)>,
    ) {
        let place = |blocks: &Range<u64>| {
            let part = self.range.blocks(self.buf, blocks);
            (part.offset >= input.offset && end(part) <= end(input)).then_some(part)
        };
        for blocks in groups(self.range.whole.clone(), SUMMED_BLOCKS) {
            let mut fits = 0;
            for (bit, block) in blocks.clone().enumerate() {
                let part = place(&(block..block + 1));
                let is_confirmed = part.is_some_and(|part| differs(checked, input, part) == 0)
                    && !is_known(self.member, block);
                fits |= u32::from(is_confirmed) << bit;
            }
            if fits == 0 {
                continue;
            }
            // Not beyond the input: what lies there may be something else by now.
            let first = blocks.start + u64::from(fits.trailing_zeros());
            let behind = blocks.start + u64::from(u32::BITS - fits.leading_zeros());
            let fits = fits >> fits.trailing_zeros();
            let blocks = first..behind;
            if let Some(part) = place(&blocks) {
                confirmed.push((part, ConfirmedBlocks { member: self.member, blocks, fits }));
            }
        }
    }
}

/// The bits of a comparison that are set and about a part of an input; some, where none is about
/// it.
fn differs(checked: Checked, input: Buf, part: Buf) -> u64 {
    let block = Checked::BLOCK_BYTES as u64;
    let first = (part.offset - input.offset) / block;
    let behind = (end(part) - input.offset).div_ceil(block);
    let below = |bit: u64| if bit >= 64 { u64::MAX } else { (1 << bit) - 1 };
    if first >= 64 { u64::MAX } else { checked.differs() & below(behind) & !below(first) }
}

/// The byte behind a buffer.
const fn end(buf: Buf) -> u64 {
    buf.offset + buf.len as u64
}
