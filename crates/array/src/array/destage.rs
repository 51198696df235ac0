//! Data that a journal holds alone: how they come about, and go in place.

use super::job::{Job, JobKind, UnitWrite};
use super::jobs::Jobs;
use super::lane::Lane;
use super::recording::Way;
use super::starting::{Excepted, Logging};
use crate::keeper::LaneReport;
use crate::{Instant, RequestError};

impl Logging {
    /// A write is over by which pages become dirty, or was to bring dirty pages in place. True: it
    /// stays in the keeper's books until those pages are.
    pub(super) fn leave_pages(
        &mut self,
        lane: &mut Lane,
        job: &mut Job,
        index: usize,
        result: Result<(), RequestError>,
    ) -> bool {
        let JobKind::Write(UnitWrite { unit, .. }) = job.kind else { return false };
        let now = lane.keeper().now();
        if *job.way() == Way::Destage && result.is_err() {
            lane.dirty.put_off(unit, now);
        }
        if job.only_destages() {
            lane.dirty.destaged(unit);
        }
        let JobKind::Write(UnitWrite { way: Way::Back(pages), .. }) = &mut job.kind else {
            return false;
        };
        let pages = std::mem::take(pages);
        let batch = if result.is_ok() { self.log.keep(index, pages.len()) } else { None };
        lane.dirty.admitted_over(index);
        let (replaced, first) = lane.dirty.insert(pages, batch, now);
        self.log.release(lane, &replaced);
        first
    }

    /// The dirty pages of a unit are in place.
    pub(super) fn destaged(&mut self, lane: &mut Lane, index: usize, kind: &JobKind) {
        let JobKind::Write(UnitWrite { unit, .. }) = *kind else { return };
        let batches = lane.dirty.clean(unit);
        if !batches.is_empty() {
            let end = unit.end();
            lane.report(LaneReport::EndWrite { start: unit.start, end, failed: false });
        }
        self.log.release(lane, &batches);
        self.log.in_place(lane, index);
    }

    /// When there is a unit to begin with.
    pub(super) fn destage_deadline(&self, lane: &Lane) -> Option<Instant> {
        let Excepted(except) = if lane.destages() { self.may_destage(lane) } else { None }?;
        lane.dirty.deadline(except)
    }

    /// Begins with dirty pages that are to go in place, and with writes that waited for that.
    pub(super) fn destage(&self, lane: &mut Lane, jobs: &mut Jobs) {
        if lane.dirty.has_changed() {
            jobs.room_given();
        }
        if lane.dirty.is_empty() || !lane.destages() {
            return;
        }
        let Some(Excepted(except)) = self.may_destage(lane) else { return };
        let all = !lane.is_healthy() || !jobs.room_waiters.is_empty();
        while let Some(start) = lane.dirty.next_unit(lane.keeper().now(), all, except) {
            jobs.start_destaging(&lane.map, start);
        }
    }
}
