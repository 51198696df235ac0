//! Comparisons of the machine: what it has found to fit becomes known.

use super::Checks;
use crate::IoId;
use crate::action::{Action, Compute, IoError, IoOp, Outcome};
use crate::verified::area_io::Flight;
use crate::verified::confirmed::ConfirmedBlocks;
use crate::verified::op::OpKind;

impl Checks {
    /// Takes note of what an action of the machine does to memory that may be compared.
    pub(super) fn note(&mut self, action: &Action) {
        match action {
            Action::Io { op: IoOp::Read { buf, .. }, .. } | Action::Store { buf, .. } => {
                self.comparisons.overwritten(*buf);
            }
            Action::Compute { io, compute } => self.comparisons.computes(*io, compute),
            Action::Abandon { io, .. } => self.comparisons.abandon(*io),
            // Nothing may be written.
            Action::Notify(event) if !self.read_only => self.comparisons.heard(event),
            _ => {}
        }
    }

    /// Takes note of a read, if any of its blocks are not known.
    pub(super) fn note_read(&mut self, index: usize) {
        let op = &self.ops[index];
        if let (OpKind::Read(read), IoOp::Read { buf, .. }) = (&op.kind, op.op)
            && read.range.whole.clone().any(|block| read.expected(block).is_none())
        {
            self.comparisons.read(op.member, &read.range, buf);
        }
    }

    /// Takes the answer to a comparison by which more may become known. Returns it if it is none.
    pub(in crate::verified) fn compared(
        &mut self,
        io: IoId,
        result: Result<Outcome, IoError>,
    ) -> Option<Result<Outcome, IoError>> {
        if !self.comparisons.has(io) {
            return Some(result);
        }
        let guards = &mut self.guards;
        let confirmed = self.comparisons.compared(io, result, |member, block| {
            guards.get_mut(&member).is_none_or(|guard| guard.needs_no_sum(block))
        });
        for (buf, sums) in confirmed {
            let flight = Flight::Confirmed { comparison: io, sums };
            self.io.compute(Compute::SumBlocks { buf }, flight);
        }
        self.answers.extend(self.comparisons.answer(io));
        None
    }

    /// Checksums of blocks that fit are formed.
    pub(super) fn confirmed(
        &mut self,
        comparison: IoId,
        confirmed: &ConfirmedBlocks,
        result: Result<Outcome, IoError>,
    ) {
        if self.comparisons.summed(comparison)
            && let Ok(Outcome::BlockSums(sums)) = result
            && let Some(guard) = self.guards.get_mut(&confirmed.member)
        {
            guard.confirm(confirmed.blocks.clone(), confirmed.sums(&sums));
            self.due.insert(confirmed.member);
        }
        self.answers.extend(self.comparisons.answer(comparison));
    }
}
