//! Everything is read by the client that is there, and judged.

use super::session::Session;
use crate::report::Failure;
use crate::workload::Workload;

impl Session {
    /// Reads every sector once.
    pub(super) fn read_everything(&mut self) -> Result<(), Failure> {
        let mut sweep = Workload::sweep(self.cluster.layout.sectors());
        sweep.largest(self.cluster.scenario.largest_sectors);
        while sweep.more() || self.waits() || self.in_flight() > 0 {
            while (sweep.more() || self.waits()) && self.submit(&mut sweep) {
                self.outputs()?;
            }
            if !self.step()? && self.waits() {
                return Err(Failure("nothing is due, and no read is taken".to_owned()));
            }
        }
        Ok(())
    }
}
