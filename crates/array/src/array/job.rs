//! Planned operations: whatever needs a lock, a plan, scratch memory or metadata first.
//!
//! ```text
//!  Staged ─► Locking ─► Metadata ─► Scratch ─► Reading ─► Computing ─► Writing ─► done
//!            (range of  (active,     ▲  (plan)    │            │  check: a second
//!             sync      bitmap bits) │            │            ▼  plan without reads
//!             space)                 └─ a read failed: plan again without that member
//! ```

use slab::Slab;

use super::Array;
use super::mending;
use super::work::goes_on_in_blocks;
use crate::action::Checked;
use crate::events::Fault;
use crate::keeper::{Fix, Unit, Unread};
use crate::plan::mirror::HeldCopy;
use crate::plan::parity::{Segment, Source};
use crate::plan::{Plan, RoleView, Taken};
use crate::{Buf, Instant, IoOp, MemberId, RequestError};

/// What a job is for.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// New contents for parts of one unit of a stripe with parity. Grows until it is planned.
    Write { unit: Unit, segments: Vec<Segment>, requests: Vec<usize> },
    /// New contents for a range of a mirror.
    MirrorWrite { request: usize, sector: u64, sectors: u64, source: Source },
    /// Zeroes for whole stripes with parity.
    ZeroStripes { request: usize, start: u64, end: u64, unmap: bool },
    /// A read that needs reconstruction or another copy. Array sector, within one unit. A larger
    /// read failed on `prefer`: it is asked again, to find out which unit cannot be read.
    Read { request: usize, sector: u64, buf: Buf, prefer: Option<MemberId> },
    /// Rebuild these members' strips of a unit.
    Rebuild { unit: Unit, targets: Vec<MemberId> },
    /// Rewrite a unit that a member holds and could not read, and read it again.
    Mend { unit: Unit, target: MemberId, fault: Fault },
    /// Compare what a member was given of a unit with what the others say.
    Verify { unit: Unit, target: MemberId },
    /// Compare a unit's redundancy with its data.
    Check { unit: Unit, fix: Fix },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Staged,
    Locking,
    Metadata(u64),
    Scratch,
    Reading,
    Computing,
    Writing,
    /// What was rewritten is read again.
    Rereading,
}

/// How to go on after the comparison of a unit.
#[derive(Clone, Debug)]
pub(crate) enum Compared {
    /// `missing`: a strip that no member holds, computed from the first sum it is part of.
    Parity { strips: Vec<Buf>, missing: Option<usize> },
    /// A strip, by the number of its cell, was computed from one sum and compared with others.
    Vouched { strip: usize, strips: Vec<Buf> },
    /// `unread`: copies that a resync writes without having compared them.
    Mirror { copies: Vec<HeldCopy>, unread: Vec<RoleView> },
}

/// An operation in flight.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) kind: Kind,
    pub(crate) fua: bool,
    /// More of a sequential stream is likely to fill this unit until then.
    pub(crate) hold_until: Option<Instant>,
    pub(crate) stage: Stage,
    pub(crate) plan: Plan,
    pub(crate) taken: Option<Taken>,
    pub(crate) pending: usize,
    pub(crate) compared: Option<Compared>,
    pub(crate) checked: Vec<Checked>,
    /// Members not to read from, and those of them whose medium failed and wants rewriting.
    pub(crate) avoid: Vec<MemberId>,
    pub(crate) unread: Vec<mending::Unread>,
    pub(crate) read_failed: bool,
    pub(crate) write_failed: Option<RequestError>,
    /// Where in sync space background work has it in its books.
    pub(crate) place: u64,
    /// It does not compare the unit, but makes it readable to be compared.
    pub(crate) incomplete: bool,
    /// What it makes readable from parity that may not fit.
    pub(crate) trusted: Vec<Unread>,
    /// There is nothing to compare the unit with.
    pub(crate) alone: bool,
    /// The unit was made readable before.
    pub(crate) again: bool,
    /// A read that was given up may still write into the buffer of the request.
    pub(crate) buffer_held: bool,
}

impl Job {
    pub(crate) fn new(kind: Kind, fua: bool) -> Self {
        Self {
            kind,
            fua,
            hold_until: None,
            stage: Stage::Staged,
            plan: Plan::default(),
            taken: None,
            pending: 0,
            compared: None,
            checked: Vec::new(),
            avoid: Vec::new(),
            unread: Vec::new(),
            read_failed: false,
            write_failed: None,
            place: 0,
            incomplete: false,
            trusted: Vec::new(),
            alone: false,
            again: false,
            buffer_held: false,
        }
    }

    /// Changes user data, so the superblocks and the bitmap must say so first.
    pub(super) const fn writes_data(&self) -> bool {
        matches!(
            self.kind,
            Kind::Write { .. } | Kind::MirrorWrite { .. } | Kind::ZeroStripes { .. }
        )
    }
}

impl Job {
    /// Is this a read into the buffer of a request?
    pub(super) fn reads_into(&self, op: IoOp) -> bool {
        match (&self.kind, op) {
            (Kind::Read { buf, .. }, IoOp::Read { buf: to, .. }) => buf.overlaps(to),
            _ => false,
        }
    }

    /// New contents gathered so far, over all strips of the unit.
    pub(crate) fn gathered_sectors(&self) -> u64 {
        match &self.kind {
            Kind::Write { segments, .. } => {
                segments.iter().map(|segment| u64::from(segment.rows.sectors())).sum()
            }
            _ => 0,
        }
    }
}

/// The table of jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs(Slab<Job>);

impl Jobs {
    pub(crate) fn insert(&mut self, job: Job) -> usize {
        self.0.insert(job)
    }

    pub(crate) fn get(&self, index: usize) -> &Job {
        &self.0[index]
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> &mut Job {
        &mut self.0[index]
    }

    pub(crate) fn remove(&mut self, index: usize) -> Job {
        self.0.remove(index)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> slab::Iter<'_, Job> {
        self.0.iter()
    }

    pub(crate) fn find(&self, index: usize) -> Option<&Job> {
        self.0.get(index)
    }

    /// Is I/O on this member planned?
    pub(crate) fn mention(&self, id: MemberId) -> bool {
        self.0.iter().any(|(_, job)| {
            let io = job.plan.reads.iter().chain(&job.plan.writes);
            let planned = io.clone().any(|io| io.member == id);
            planned
                || match &job.kind {
                    Kind::Rebuild { targets, .. } => targets.contains(&id),
                    Kind::Mend { target, .. } | Kind::Verify { target, .. } => *target == id,
                    _ => false,
                }
        })
    }
}

impl Array {
    /// Puts a new job on its way.
    pub(crate) fn start_job(&mut self, job: Job) -> usize {
        let index = self.jobs.insert(job);
        self.queues.ready.push_back(index);
        index
    }

    /// The range of sync space a job locks.
    pub(super) fn lock_range(&self, kind: &Kind) -> (u64, u64) {
        match *kind {
            Kind::Write { unit, .. }
            | Kind::Rebuild { unit, .. }
            | Kind::Mend { unit, .. }
            | Kind::Verify { unit, .. }
            | Kind::Check { unit, .. } => (unit.start, unit.end()),
            Kind::MirrorWrite { sector, sectors, .. } => (sector, sector + sectors),
            Kind::ZeroStripes { start, end, .. } => (start, end),
            Kind::Read { sector, buf, .. } => {
                let sectors = u64::from(buf.len) / crate::SECTOR_BYTES;
                let start = self.sync_sector(sector);
                (start, start + sectors)
            }
        }
    }

    /// Takes a job as far as it goes without waiting.
    pub(crate) fn advance_job(&mut self, index: usize) {
        match self.jobs.get(index).stage {
            Stage::Staged => {
                let (start, end) = self.lock_range(&self.jobs.get(index).kind);
                self.jobs.get_mut(index).stage = Stage::Locking;
                if self.locks.request(start, end, index) {
                    self.job_locked(index);
                }
            }
            Stage::Locking => self.job_locked(index),
            Stage::Metadata(_) | Stage::Scratch => self.plan_job(index),
            Stage::Reading | Stage::Computing | Stage::Writing | Stage::Rereading => {}
        }
    }

    fn job_locked(&mut self, index: usize) {
        let job = self.jobs.get(index);
        if job.writes_data() && !self.keeper.has_failed() {
            let (start, end) = self.lock_range(&job.kind);
            let ticket = self.keeper.begin_write(start, end);
            self.jobs.get_mut(index).stage = Stage::Metadata(ticket);
            if !self.keeper.is_told(ticket) {
                self.queues.meta_waiters.push(index);
                return;
            }
        }
        self.plan_job(index);
    }

    pub(super) fn plan_job(&mut self, index: usize) {
        let needed = self.strips_needed(&self.jobs.get(index).kind);
        let Some(strips) = self.pool.take(needed) else {
            self.jobs.get_mut(index).stage = Stage::Scratch;
            self.queues.scratch_waiters.push_back(index);
            return;
        };
        if let Kind::Write { unit, .. } = self.jobs.get(index).kind
            && self.queues.open_units.get(&unit.start) == Some(&index)
        {
            self.queues.open_units.remove(&unit.start);
        }
        let mut taken = Taken::new(strips);
        let planned = self.make_plan(index, &mut taken);
        let job = self.jobs.get_mut(index);
        job.taken = Some(taken);
        match planned {
            Ok(plan) => {
                job.plan = plan;
                job.read_failed = false;
                self.begin_reads(index);
            }
            Err(error) => self.finish_job(index, Err(error)),
        }
    }

    fn begin_reads(&mut self, index: usize) {
        let job = self.jobs.get_mut(index);
        job.stage = Stage::Reading;
        let count = job.plan.reads.len();
        job.pending = count;
        for at in 0..count {
            let io = self.jobs.get(index).plan.reads[at];
            self.issue(io.member, io.op, super::io::Owner::Job(index));
        }
        if count == 0 {
            self.next_compute(index);
        }
    }

    pub(super) fn next_compute(&mut self, index: usize) {
        let job = self.jobs.get_mut(index);
        job.stage = Stage::Computing;
        if let Some(compute) = job.plan.computes.pop_front() {
            self.issue_compute(compute, index);
            return;
        }
        if let Some(compared) = job.compared.take() {
            match self.after_check(index, compared) {
                Ok(Some(plan)) => {
                    let job = self.jobs.get_mut(index);
                    job.plan = plan;
                    self.next_compute(index);
                }
                Ok(None) => self.finish_job(index, Ok(())),
                Err(error) => self.finish_job(index, Err(error)),
            }
            return;
        }
        self.begin_writes(index);
    }

    fn begin_writes(&mut self, index: usize) {
        if self.keeper.has_failed() && self.jobs.get(index).writes_data() {
            self.finish_job(index, Err(RequestError::Failed));
            return;
        }
        let job = self.jobs.get_mut(index);
        job.stage = Stage::Writing;
        let mut issued = 0;
        for at in 0..job.plan.writes.len() {
            let io = self.jobs.get(index).plan.writes[at];
            if self.keeper.members().live(io.member) {
                self.issue(io.member, io.op, super::io::Owner::Job(index));
                issued += 1;
            }
        }
        self.jobs.get_mut(index).pending = issued;
        if issued == 0 {
            self.job_written(index);
        }
    }

    pub(super) fn job_written(&mut self, index: usize) {
        let job = self.jobs.get(index);
        let result = if self.keeper.has_failed() && job.writes_data() {
            Err(RequestError::Failed)
        } else {
            job.write_failed.map_or(Ok(()), Err)
        };
        let rereads = self.rereads(self.jobs.get(index));
        if result.is_err() || rereads.is_empty() {
            self.finish_job(index, result);
            return;
        }
        let job = self.jobs.get_mut(index);
        job.stage = Stage::Rereading;
        job.pending = rereads.len();
        for (member, op) in rereads {
            self.issue(member, op, super::io::Owner::Job(index));
        }
    }

    pub(super) fn give_scratch(&mut self, index: usize) {
        if let Some(taken) = self.jobs.get_mut(index).taken.take() {
            self.pool.give(taken.into_bufs());
            self.queues.ready.extend(self.queues.scratch_waiters.drain(..));
        }
    }

    /// Ends a job: gives back what it holds and tells who waits for it.
    pub(super) fn finish_job(&mut self, index: usize, result: Result<(), RequestError>) {
        self.give_scratch(index);
        let mut granted = std::mem::take(&mut self.queues.granted);
        self.locks.release(index, &mut granted);
        self.queues.ready.extend(granted.drain(..));
        self.queues.granted = granted;
        let (start, end) = self.lock_range(&self.jobs.get(index).kind);
        let mut job = self.jobs.remove(index);
        if job.writes_data() && !matches!(job.stage, Stage::Staged | Stage::Locking) {
            self.keeper.end_write(start, end, result.is_err());
        }
        if result == Err(RequestError::NoSpace) && job.writes_data() {
            self.keeper.note_torn(start, end);
            self.carry_out();
        }
        if result.is_ok() {
            self.note_fitting(&job);
            self.note_rewritten(&job);
            self.start_mending(&job, start, end);
        } else if !goes_on_in_blocks(&job) {
            self.tell_unread(&job);
        }
        if matches!(job.kind, Kind::Write { .. } | Kind::MirrorWrite { .. }) {
            self.spare_plans.push(std::mem::take(&mut job.plan).cleared());
        }
        match &job.kind {
            Kind::Write { requests, .. } => {
                for request in requests {
                    self.piece_done(*request, result);
                }
            }
            Kind::MirrorWrite { request, .. }
            | Kind::ZeroStripes { request, .. }
            | Kind::Read { request, .. } => self.piece_done(*request, result),
            Kind::Mend { unit, target, fault } => self.mended(*target, *unit, *fault, result),
            Kind::Rebuild { .. } | Kind::Check { .. } | Kind::Verify { .. } => {
                self.work_done(job, result);
            }
        }
    }
}
