//! Results of jobs, and the steps that follow when jobs are done.
//!
//! Sectors that cannot be read are rewritten from the rest of their stripe or another copy, and
//! read again: only then are they called corrected.

use super::Array;
use super::compare::Mismatch;
use super::job::{Job, JobKind, UnitWrite};
use super::jobs::JobEvent;
use super::mending::UnreadMember;
use super::recording::Way;
use crate::action::Action;
use crate::events::ArrayEvent;
use crate::keeper::{LaneReport, Unit};
use crate::plan::parity::Segment;
use crate::{IoOp, RequestError, SECTOR_BYTES};

impl Array {
    /// Carries out the request of a job.
    pub(super) fn follow(&mut self, mut event: Option<JobEvent>) {
        while let Some(next) = event {
            event = match next {
                JobEvent::Differs(index, found, plan) => {
                    let Mismatch { array_sector, sectors, wrong: member } = found;
                    let block = None;
                    let report = LaneReport::Mismatch { array_sector, sectors, member, block };
                    self.lane.report(report);
                    self.carry_out();
                    self.jobs.repair(&mut self.lane, index, plan)
                }
                JobEvent::Record(index) => {
                    let recorded = self.jobs.get(index).recorded(self.lane.log);
                    let waits = recorded.is_some_and(|recorded| {
                        self.logging.log.record(&mut self.lane, index, recorded)
                    });
                    if waits { None } else { self.jobs.write(&mut self.lane, index) }
                }
                JobEvent::Destaged(index) => {
                    let kind = &self.jobs.get(index).kind;
                    self.logging.destaged(&mut self.lane, index, kind);
                    self.jobs.plan_rest(&mut self.lane, index)
                }
                JobEvent::Ended(index, result) => {
                    self.end_job(index, result);
                    None
                }
            };
        }
    }

    /// Ends a job: tells who waits for it.
    fn end_job(&mut self, index: usize, result: Result<(), RequestError>) {
        self.lane.cache_ends(index, result.is_ok());
        let mut job = self.jobs.remove(&mut self.lane, index);
        let (start, end) = job.kind.range();
        let kept_open = self.logging.leave_pages(&mut self.lane, &mut job, index, result);
        if job.write_begun() {
            if !kept_open {
                let failed = result.is_err();
                self.lane.report(LaneReport::EndWrite { start, end, failed });
            }
            self.logging.log.in_place(&mut self.lane, index);
        }
        if result == Err(RequestError::NoSpace) && job.writes_data() {
            self.lane.report(LaneReport::Torn(start, end));
            self.carry_out();
        }
        if result.is_ok() {
            self.note_fitting(&job);
            self.note_rewritten(&job);
            self.start_mending(&job, start, end);
        } else if !job.goes_on_in_blocks() {
            // Nobody could make up for what it could not read.
            for UnreadMember { member, fault } in job.unread.iter().copied() {
                let event = ArrayEvent::ReadFailed { member, fault };
                self.lane.actions.push_back(Action::Notify(event));
            }
        }
        let Self { lane, requests, jobs, .. } = self;
        match &job.kind {
            JobKind::Write(UnitWrite { requests: waiting, .. }) => {
                for request in waiting {
                    requests.piece_done(lane, jobs, *request, result);
                }
                jobs.keep_memory(job);
            }
            JobKind::MirrorWrite { request, .. } => {
                requests.piece_done(lane, jobs, *request, result);
                jobs.keep_memory(job);
            }
            JobKind::ZeroStripes { request, .. } | JobKind::Read { request, .. } => {
                requests.piece_done(lane, jobs, *request, result)
            }
            JobKind::Mend { unit, target, fault } => {
                self.mending.end(*target, *unit);
                self.lane.report(LaneReport::Mended(*target, *fault, result.is_ok()));
                self.carry_out();
            }
            JobKind::Rebuild { .. }
            | JobKind::Check { .. }
            | JobKind::Verify { .. }
            | JobKind::Save { .. }
            | JobKind::Move { .. } => {
                self.work_done(job, result);
            }
        }
    }

    /// Members whose medium failed under this job get the unit rewritten.
    fn start_mending(&mut self, job: &Job, start: u64, end: u64) {
        let keeper = self.lane.keeper();
        if keeper.is_read_only() || keeper.is_stopping() || !keeper.is_redundant() {
            return;
        }
        if matches!(job.kind, JobKind::Save { .. } | JobKind::Move { .. }) {
            // Soon it lies elsewhere. Rows of the job are those of the map that it moves to.
            return;
        }
        if self.lane.map.has_parity() && !keeper.in_step(start, end) {
            // Where parity may not fit, it does not tell what a strip held.
            return;
        }
        let unit = Unit { start, sectors: (end - start) as u32 };
        for UnreadMember { member: id, fault } in job.unread.iter().copied() {
            // Who asked for the same meanwhile did not find another error.
            if self.mending.is_known(id, unit) {
                continue;
            }
            self.lane.report(LaneReport::MendingWanted(id, fault));
            self.carry_out();
            if !self.lane.keeper().is_worth_mending(id) {
                continue;
            }
            let mut mend = Job::new(JobKind::Mend { unit, target: id, fault }, false);
            mend.avoid.push(id);
            self.mending.begin(id, unit);
            self.jobs.start(mend);
        }
    }

    /// Reports that stripes which a job wrote have sums of all their data.
    fn note_fitting(&mut self, job: &Job) {
        if !self.lane.map.has_parity() || !self.lane.keeper().has_to_resync() {
            return;
        }
        match &job.kind {
            JobKind::Write(UnitWrite { way: Way::Back(_), .. }) => {}
            JobKind::Write(UnitWrite { unit, segments, .. }) => {
                for Segment { rows, .. } in segments {
                    let start = unit.start + u64::from(rows.start);
                    let end = unit.start + u64::from(rows.end);
                    self.lane.report(LaneReport::Fitting(start, end));
                }
            }
            JobKind::ZeroStripes { start, end, .. } => {
                self.lane.report(LaneReport::Fitting(*start, *end))
            }
            _ => {}
        }
    }

    /// Reports that sectors which a job wrote, data or parity, are no longer bad.
    fn note_rewritten(&mut self, job: &Job) {
        if !self.lane.keeper().doubts_any() {
            return;
        }
        for io in &job.run.plan().writes {
            let (sector, sectors) = match io.op {
                IoOp::Write { sector, buf, .. } => (sector, u64::from(buf.len) / SECTOR_BYTES),
                IoOp::WriteZeroes { sector, sectors, .. } => (sector, sectors),
                IoOp::Read { .. } | IoOp::Discard { .. } | IoOp::Flush => continue,
            };
            self.lane.report(LaneReport::Rewritten(io.member, sector, sectors));
        }
    }
}
