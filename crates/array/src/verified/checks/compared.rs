//! Comparisons of the machine: what it has found to fit becomes known.

use super::Checks;
use crate::IoId;
use crate::action::{Compute, IoError, Outcome};
use crate::verified::area_io::Flight;

impl Checks {
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
}
