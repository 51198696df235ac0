//! What the I/O and the computations of a job bring.

use super::Array;
use super::job::Stage;
use super::mending::Unread;
use crate::action::{IoError, IoErrorKind, Outcome};
use crate::events::Fault;
use crate::{IoOp, MemberId, RequestError};

/// An I/O that failed, and how.
type Failed = (MemberId, IoOp, IoError);

impl Array {
    /// An I/O or computation of a job is answered.
    pub(crate) fn job_io_done(
        &mut self,
        index: usize,
        failed: Option<Failed>,
        outcome: Option<Outcome>,
    ) {
        let job = self.jobs.get_mut(index);
        match job.stage {
            Stage::Computing => {
                if let Some(Outcome::Checked(checked)) = outcome {
                    job.checked.push(checked);
                }
                return self.next_compute(index);
            }
            Stage::Reading | Stage::Writing | Stage::Rereading => job.pending -= 1,
            Stage::Staged | Stage::Locking | Stage::Metadata(_) | Stage::Scratch => {
                unreachable!("no I/O in flight in this stage")
            }
        }
        let last = job.pending == 0;
        match job.stage {
            Stage::Reading => self.read_answered(index, failed, last),
            Stage::Writing => self.write_answered(index, failed, last),
            _ => self.reread_answered(index, failed, last),
        }
    }

    fn read_answered(&mut self, index: usize, failed: Option<Failed>, last: bool) {
        let job = self.jobs.get_mut(index);
        if let Some((member, op, error)) = failed {
            job.read_failed = true;
            if error.kind == IoErrorKind::Abandoned {
                job.buffer_held |= job.reads_into(op);
            } else {
                job.avoid.push(member);
            }
            if matches!(error.kind, IoErrorKind::Medium | IoErrorKind::Shrunk) {
                let fault = Fault { sector: op.sector(), errno: error.errno };
                job.unread.push(Unread { member, fault });
                self.note_unreadable(member, op);
            }
        }
        if !last {
            return;
        }
        let job = self.jobs.get(index);
        if job.buffer_held {
            self.finish_job(index, Err(RequestError::BufferHeld));
        } else if job.read_failed {
            self.give_scratch(index);
            self.plan_job(index);
        } else {
            self.next_compute(index);
        }
    }

    fn write_answered(&mut self, index: usize, failed: Option<Failed>, last: bool) {
        if let Some((member, _, error)) = failed
            && self.keeper.members().live(member)
        {
            // Still live: it is the last copy or has no room, so the array goes on and the request
            // fails.
            let full = error.kind == IoErrorKind::Full;
            let error = if full { RequestError::NoSpace } else { RequestError::Medium };
            self.jobs.get_mut(index).write_failed = Some(error);
        }
        if last {
            self.job_written(index);
        }
    }

    fn reread_answered(&mut self, index: usize, failed: Option<Failed>, last: bool) {
        if let Some((member, op, error)) = failed {
            self.jobs.get_mut(index).read_failed = true;
            if error.kind != IoErrorKind::Abandoned {
                self.not_correctable(member, op, error);
            }
        }
        if last {
            let read = !self.jobs.get(index).read_failed;
            self.finish_job(index, if read { Ok(()) } else { Err(RequestError::Medium) });
        }
    }
}
