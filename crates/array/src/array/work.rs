//! Units of background work that the keeper asks for, as jobs.

use super::Array;
use super::compare::too_high_to_tell;
use super::job::{Job, Kind};
use crate::RequestError;
use crate::keeper::{BLOCK_SECTORS, Done, Unit, Work};

impl Array {
    /// Begins with a unit.
    pub(super) fn start_work(&mut self, place: u64, unit: Unit, work: Work) {
        let kind = match work {
            Work::Compare(fix) => Kind::Check { unit, fix },
            Work::Rebuild(targets) => Kind::Rebuild { unit, targets },
            Work::Verify(target) => Kind::Verify { unit, target },
            // Spares are members here while they are copied to.
            Work::Copy => return self.keeper.work_done(place, unit, &work, Done::Failed),
        };
        self.start_job(Job { place, ..Job::new(kind, false) });
    }

    /// A job of background work is done.
    pub(super) fn work_done(&mut self, job: Job, result: Result<(), RequestError>) {
        let (Kind::Rebuild { unit, .. } | Kind::Check { unit, .. } | Kind::Verify { unit, .. }) =
            job.kind
        else {
            return;
        };
        if result.is_ok() && job.incomplete {
            let Job { kind, place, trusted, .. } = job;
            self.keeper.note_trusted(trusted);
            self.start_job(Job { place, again: true, ..Job::new(kind, false) });
            return;
        }
        let done = match result {
            Ok(()) if job.alone => Done::Alone,
            Ok(()) => Done::Well { equal: job.checked.iter().all(|c| c.differs() == 0) },
            Err(RequestError::Medium) if !self.keeper.work_goes_on() => Done::Failed,
            Err(RequestError::Medium) if goes_on_in_blocks(&job) => {
                return self.take_apart(&job, unit);
            }
            Err(RequestError::Medium) => Done::Unread(self.unread_of(&job, unit)),
            Err(RequestError::NoSpace) => Done::Full,
            Err(_) => Done::Failed,
        };
        let work = match job.kind {
            Kind::Check { fix, .. } => Work::Compare(fix),
            Kind::Rebuild { targets, .. } => Work::Rebuild(targets),
            Kind::Verify { target, .. } => Work::Verify(target),
            _ => return,
        };
        self.keeper.work_done(job.place, unit, &work, done);
        self.carry_out();
    }

    /// A unit that could not be done as a whole is done block by block.
    fn take_apart(&mut self, job: &Job, unit: Unit) {
        let (mut start, mut parts) = (unit.start, 0);
        while start < unit.end() {
            let end = unit.end().min(start - start % BLOCK_SECTORS + BLOCK_SECTORS);
            let block = Unit { start, sectors: (end - start) as u32 };
            let mut kind = job.kind.clone();
            if let Kind::Rebuild { unit, .. } | Kind::Check { unit, .. } = &mut kind {
                *unit = block;
            }
            self.start_job(Job { place: job.place, ..Job::new(kind, false) });
            start = end;
            parts += 1;
        }
        self.keeper.work_parted(job.place, parts - 1);
    }
}

/// Is this a unit that, not done as a whole, is done block by block?
pub(super) fn goes_on_in_blocks(job: &Job) -> bool {
    match job.kind {
        Kind::Rebuild { unit, .. } | Kind::Check { unit, .. } => too_high_to_tell(unit),
        _ => false,
    }
}
