//! The memory of writes that are done with, for the next ones.

use super::job::{Job, JobKind, UnitWrite};
use super::recording::Way;
use crate::keeper::Unit;
use crate::plan::parity::Segment;
use crate::plan::{Plan, RoleView};

/// Lists that writes have used, empty and with their room. [`write`](Self::write) and
/// [`plan`](Self::plan) give some out, [`keep`](Self::keep) takes those of a write back.
#[derive(Debug, Default)]
pub(super) struct Spare {
    plans: Vec<Plan>,
    cells: Vec<RoleView>,
    segments: Vec<Vec<Segment>>,
    requests: Vec<Vec<usize>>,
}

impl Spare {
    /// An empty plan.
    pub(super) fn plan(&mut self) -> Plan {
        self.plans.pop().unwrap_or_default()
    }

    /// No cells of a stripe.
    pub(super) fn cells(&mut self) -> Vec<RoleView> {
        std::mem::take(&mut self.cells)
    }

    /// Takes back the cells of a stripe for which all is planned.
    pub(super) fn keep_cells(&mut self, mut cells: Vec<RoleView>) {
        cells.clear();
        self.cells = cells;
    }

    /// A write of this unit, of nothing yet. Its lists come back when it is [kept](Self::keep).
    pub(super) fn write(&mut self, unit: Unit) -> JobKind {
        let segments = self.segments.pop().unwrap_or_default();
        let requests = self.requests.pop().unwrap_or_default();
        JobKind::Write(UnitWrite {
            unit,
            segments,
            requests,
            hold_until: None,
            in_stream: false,
            seen: false,
            read_at: None,
            whole_blocks: None,
            way: Way::Through,
        })
    }

    /// Takes back the memory of a write that is over.
    pub(super) fn keep(&mut self, job: Job) {
        self.plans.push(job.run.into_plan().cleared());
        if let JobKind::Write(UnitWrite { mut segments, mut requests, .. }) = job.kind {
            segments.clear();
            self.segments.push(segments);
            requests.clear();
            self.requests.push(requests);
        }
    }
}
