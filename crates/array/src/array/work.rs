//! Units of background work that the keeper asks for, as jobs.

use super::Array;
use super::job::{Check, Comparison, Job, JobKind};
use crate::RequestError;
use crate::keeper::{BLOCK_SECTORS, Done, LaneReport, Unit, Work};

impl Array {
    /// A job of background work is done.
    pub(super) fn work_done(&mut self, mut job: Job, result: Result<(), RequestError>) {
        if result.is_ok()
            && let JobKind::Check(check) = &mut job.kind
            && let Comparison::Mends(trusted) = &mut check.state
        {
            let trusted = std::mem::take(trusted);
            let again = Check { again: true, ..Check::new(check.unit, check.fix) };
            self.lane.report(LaneReport::Trusted(trusted));
            self.jobs.start(Job { place: job.place, ..Job::new(JobKind::Check(again), false) });
            return;
        }
        let (JobKind::Rebuild { unit, .. }
        | JobKind::Check(Check { unit, .. })
        | JobKind::Verify { unit, .. }
        | JobKind::Save { unit }
        | JobKind::Move { unit }) = job.kind
        else {
            return;
        };
        let alone = matches!(job.kind, JobKind::Check(Check { state: Comparison::Alone, .. }));
        let is_save = matches!(job.kind, JobKind::Save { .. });
        let done = match result {
            Ok(()) if alone => Done::Alone,
            Ok(()) => Done::Well { equal: job.run.checked().iter().all(|c| c.differs() == 0) },
            Err(_) if is_save && job.write_failed.is_some() => Done::Full,
            Err(RequestError::Medium) if !self.lane.keeper().work_goes_on() => Done::Failed,
            Err(RequestError::Medium) if job.goes_on_in_blocks() => {
                return self.take_apart(&job, unit);
            }
            Err(RequestError::Medium) if is_save || matches!(job.kind, JobKind::Move { .. }) => {
                Done::Unread(self.lane.planner().unmoved(&job, unit))
            }
            Err(RequestError::Medium) => Done::Unread(self.lane.planner().unread_of(&job, unit)),
            Err(RequestError::NoSpace) => Done::Full,
            Err(_) => Done::Failed,
        };
        let work = match job.kind {
            JobKind::Check(Check { fix, .. }) => Work::Compare(fix),
            JobKind::Rebuild { targets, .. } => Work::Rebuild(targets),
            JobKind::Verify { target, .. } => Work::Verify(target),
            JobKind::Save { .. } => Work::Save,
            JobKind::Move { .. } => Work::Move,
            _ => return,
        };
        self.lane.report(LaneReport::WorkDone { place: job.place, unit, work, done });
        self.carry_out();
    }

    /// A unit that could not be done as a whole is done block by block.
    fn take_apart(&mut self, job: &Job, unit: Unit) {
        let mut start = unit.start;
        let mut parts = 0;
        while start < unit.end() {
            let end = unit.end().min(start - start % BLOCK_SECTORS + BLOCK_SECTORS);
            let block = Unit { start, sectors: (end - start) as u32 };
            let kind = match &job.kind {
                JobKind::Rebuild { targets, .. } => {
                    JobKind::Rebuild { unit: block, targets: targets.clone() }
                }
                JobKind::Check(Check { fix, .. }) => JobKind::Check(Check::new(block, *fix)),
                _ => return,
            };
            self.jobs.start(Job { place: job.place, ..Job::new(kind, false) });
            start = end;
            parts += 1;
        }
        self.lane.report(LaneReport::WorkParted(job.place, parts - 1));
    }
}
