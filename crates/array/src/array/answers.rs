//! Answers to I/O and computations, and their consequences.
//!
//! A member that has failed may never answer, and holds up no request, job, update, removal or
//! stop. I/O in flight on it counts as failed at once. Until it is really answered, the kernel
//! may still read or write its memory: scratch is set aside so long, and a read into a request's
//! own buffer is asked for again with another buffer.

use super::Array;
use super::full::{PutOff, must_land};
use super::io::Owner;
use super::jobs::JobEvent;
use super::mending::UnreadMember;
use super::requests::plain_error;
use super::write_log::WriteLog;
use crate::action::{Action, IoError, IoErrorKind, Outcome};
use crate::events::Fault;
use crate::keeper::{LaneReport, Tried};
use crate::plan::{MemberPlace, PlanStage};
use crate::{IoId, IoOp, MemberId, RequestError, SECTOR_BYTES};

/// An I/O that failed, and how.
type Failed = (MemberId, IoOp, IoError);

impl Array {
    /// An answer came.
    pub(super) fn io_done(&mut self, io: IoId, result: Result<Outcome, IoError>) {
        let entry = self.lane.ios.remove(io);
        if entry.owner == Owner::Nobody {
            return self.unlend(io);
        }
        let mut failed = None;
        if let Some((id, op)) = entry.member {
            self.lane.report(LaneReport::Answered(id));
            match (result, op) {
                (Err(error), _) if self.put_off(id, op, entry.owner, error) => return,
                (Err(error), _) => {
                    failed = Some((id, op, error));
                    self.note_error(id, op, entry.owner, error);
                }
                (Ok(_), IoOp::Read { sector, buf }) => {
                    let sectors = u64::from(buf.len) / SECTOR_BYTES;
                    self.lane.report(LaneReport::Readable(id, sector, sectors));
                    if !entry.owner.is_log()
                        && self.logging.overlay.apply(
                            &mut self.lane,
                            (entry.owner, id, op),
                            buf,
                            sector,
                        )
                    {
                        return;
                    }
                }
                (Ok(_), IoOp::Write { .. }) => self.lane.report(LaneReport::HasRoom(id)),
                _ => {}
            }
        }
        self.tell_owner(entry.owner, failed, result.ok());
    }

    /// Answers what was given up, as failed.
    pub(super) fn fail_abandoned(&mut self) {
        while let Some(io) = self.lane.ios.abandoning.pop_front() {
            let Some((owner, id, op)) = self.lane.ios.abandon(io) else { continue };
            let buf = op.buf();
            self.lend(io, buf);
            self.lane.actions.push_back(Action::Abandon { io, buf });
            self.lane.report(LaneReport::Answered(id));
            self.tell_owner(owner, Some((id, op, IoError::ABANDONED)), None);
        }
    }

    /// Tries again what was put off and is due; what is for a member that has failed meanwhile
    /// fails.
    pub(super) fn retry_put_off(&mut self) {
        for put_off in std::mem::take(&mut self.put_offs.0) {
            let PutOff { at, member, op, owner } = put_off;
            if !self.lane.keeper().members().live(member) {
                self.tell_owner(owner, Some((member, op, IoError::ABANDONED)), None);
            } else if at <= self.lane.keeper().now() {
                self.lane.issue(member, op, owner);
            } else {
                self.put_offs.0.push(put_off);
            }
        }
    }

    /// Takes a job as far as it goes without waiting.
    pub(super) fn advance_job(&mut self, index: usize) {
        let event = self.jobs.advance(&mut self.lane, index);
        self.follow(event);
    }

    /// Puts a write off that must land and has no room. False when it is none, or has waited for
    /// too long.
    fn put_off(&mut self, member: MemberId, op: IoOp, owner: Owner, error: IoError) -> bool {
        let is_spill = self.lane.is_spill(member, owner);
        if error.kind != IoErrorKind::Full || is_spill || !must_land(&self.lane, owner) {
            return false;
        }
        let fault = Fault { sector: op.sector(), errno: error.errno };
        if !self.lane.waits_for_room(member, fault) {
            return false;
        }
        self.carry_out();
        self.put_offs.add(self.lane.keeper().now(), member, op, owner);
        true
    }

    /// Tells the keeper of an I/O that failed.
    fn note_error(&mut self, id: MemberId, op: IoOp, owner: Owner, error: IoError) {
        if matches!(op, IoOp::Discard { .. }) || self.lane.is_spill(id, owner) {
            return;
        }
        self.lane.members_change();
        let changes = matches!(op, IoOp::Write { .. } | IoOp::WriteZeroes { .. } | IoOp::Flush);
        let must_land = must_land(&self.lane, owner);
        let tried = Tried { sector: op.sector(), changes, must_land };
        self.lane.report(LaneReport::Failed(id, tried, error));
        self.carry_out();
    }

    /// Tells who asked for an I/O how it went.
    fn tell_owner(&mut self, owner: Owner, failed: Option<Failed>, outcome: Option<Outcome>) {
        let Self { lane, requests, jobs, logging, .. } = self;
        match owner {
            Owner::PlainRead(read) => {
                requests.plain_read_done(lane, jobs, read, failed.map(|f| (f.0, f.2)));
            }
            Owner::Plain { request } => {
                let error =
                    failed.and_then(|(id, op, error)| plain_error(lane.keeper(), id, op, error));
                requests.piece_done(lane, jobs, request, error.map_or(Ok(()), Err));
            }
            Owner::Job(job) => {
                let event = self.job_answered(job, failed, outcome);
                self.follow(event);
            }
            Owner::Meta { page } => self.meta_io_done(page),
            Owner::Spill { page } => {
                self.reshaping.spill_answered(lane, page, outcome.is_some());
                self.carry_out();
            }
            Owner::PartialParity(io) => {
                if let WriteLog::PartialParity(logs) = &mut logging.log {
                    logs.answered(lane, io, outcome);
                }
                self.carry_out();
            }
            Owner::Journal(io) => {
                if let WriteLog::Journal(journal) = &mut logging.log {
                    journal.answered(lane, io, outcome);
                }
                self.carry_out();
            }
            Owner::Recovery(io) => {
                logging.recovery_answered(lane, io, failed.map(|(_, op, _)| op), outcome);
                self.carry_out();
            }
            Owner::Loading(page) => {
                logging.page_loaded(lane, page, outcome.is_some());
                self.carry_out();
            }
            Owner::Overlay(read) => {
                let complete = logging.overlay.answered(read, outcome.is_some());
                self.carry_out();
                if let Some(((owner, id, op), failed)) = complete {
                    let failed = failed.then_some((id, op, IoError::MEDIUM));
                    let outcome = failed.is_none().then_some(Outcome::Done);
                    self.tell_owner(owner, failed, outcome);
                }
            }
            Owner::Nobody => {}
        }
    }

    /// An I/O or computation of a job is answered.
    fn job_answered(
        &mut self,
        index: usize,
        failed: Option<Failed>,
        outcome: Option<Outcome>,
    ) -> Option<JobEvent> {
        let stage = self.jobs.get(index).run.stage();
        match failed {
            Some(failed) if stage == PlanStage::Writing => self.write_failed(index, failed),
            Some(failed) => self.read_failed(index, stage, failed),
            None => self.jobs.get_mut(index).run.answered(outcome.unwrap_or(Outcome::Done)),
        }
        self.jobs.go_on(&mut self.lane, index)
    }

    fn read_failed(&mut self, index: usize, stage: PlanStage, (member, op, error): Failed) {
        let job = self.jobs.get_mut(index);
        let fault = Fault { sector: op.sector(), errno: error.errno };
        let abandoned = error.kind == IoErrorKind::Abandoned;
        let IoOp::Read { sector, buf } = op else { return };
        job.run.unreadable(MemberPlace { member, sector });
        if stage == PlanStage::Rereading {
            if !abandoned {
                // What was rewritten cannot be read all the same.
                self.lane.report(LaneReport::NotCorrectable(member, fault));
                self.carry_out();
            }
            return;
        }
        if abandoned {
            job.buffer_held |= job.reads_into(op);
        } else {
            job.avoid.push(member);
        }
        if matches!(error.kind, IoErrorKind::Medium | IoErrorKind::Shrunk) {
            job.unread.push(UnreadMember { member, fault });
            let sectors = u64::from(buf.len) / SECTOR_BYTES;
            self.lane.report(LaneReport::Unreadable(member, sector, sectors));
        }
    }

    fn write_failed(&mut self, index: usize, (member, _, error): Failed) {
        let job = self.jobs.get_mut(index);
        job.run.answered(Outcome::Done);
        if self.lane.takes_io(member) {
            // Still live: it is the last copy, no member, or has no room, so the array goes on and
            // the request fails.
            let full = error.kind == IoErrorKind::Full;
            let error = if full { RequestError::NoSpace } else { RequestError::Medium };
            job.write_failed = Some(error);
        }
    }
}
