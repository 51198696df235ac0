//! The jobs in flight, and what each waits for. A job goes through its stages here; what is to be
//! done about it elsewhere is returned.

use std::collections::{BTreeMap, VecDeque};

use slab::Slab;

use super::compare::{ComparisonOutcome, Mismatch};
use super::elders::Elders;
use super::io::Owner;
use super::job::{Job, JobKind, JobStage, UnitWrite};
use super::job_io::{has_read, read, write};
use super::lane::Lane;
use super::locks::Locks;
use super::map::ArrayMap;
use super::recording::{LogKind, Way, is_consecutive};
use super::spare::Spare;
use crate::code::Answers;
use crate::keeper::Unit;
use crate::plan::parity::Segment;
use crate::plan::{Plan, PlanNext, PlanStage as RunStage, Run};
use crate::{Instant, MemberId, RequestError};

/// The next step that the array is to take for a job.
#[must_use]
pub(super) enum JobEvent {
    /// The job is done: [`Jobs::remove`] is due.
    Ended(usize, Result<(), RequestError>),
    /// Its changes are to be recorded in the log; then [`Jobs::write`] is due.
    Record(usize),
    /// The dirty pages of its unit are in place; then [`Jobs::plan_rest`] is due.
    Destaged(usize),
    /// A comparison has found something, which is to be told; then [`Jobs::repair`] is due.
    Differs(usize, Mismatch, Option<Plan>),
}

/// The table of jobs, and the queues of those that wait. [`start`](Self::start) and
/// [`gather`](Self::gather) put a job in; [`advance`](Self::advance) takes it from one stage to the
/// next while nothing is waited for, and so does [`go_on`](Self::go_on) when I/O of its plan is
/// answered.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    table: Slab<Job>,
    /// Jobs that wait for nothing: they can go on.
    pub(super) ready: VecDeque<usize>,
    /// Writes of units not yet started, and those that may still grow, by unit.
    pub(super) staged: VecDeque<usize>,
    pub(super) open_units: BTreeMap<u64, usize>,
    /// Another write is about to come.
    pub(super) more_expected: bool,
    pub(super) meta_waiters: Vec<usize>,
    pub(super) scratch_waiters: VecDeque<usize>,
    /// Jobs that wait until dirty pages are in place.
    pub(super) room_waiters: Vec<usize>,
    pub(super) locks: Locks,
    /// The memory of a list of those that were granted a lock.
    granted: Vec<usize>,
    /// Results of earlier questions about the codes of stripes.
    answers: Answers,
    spare: Spare,
    pub(super) elders: Elders,
}

impl Jobs {
    pub(super) fn get(&self, index: usize) -> &Job {
        &self.table[index]
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut Job {
        &mut self.table[index]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub(super) fn iter(&self) -> slab::Iter<'_, Job> {
        self.table.iter()
    }

    pub(super) fn find(&self, index: usize) -> Option<&Job> {
        self.table.get(index)
    }

    /// Returns whether I/O on this member is planned.
    pub(super) fn mention(&self, id: MemberId) -> bool {
        self.table.iter().any(|(_, job)| {
            let plan = job.run.plan();
            let planned = plan.reads.iter().chain(&plan.writes).any(|io| io.member == id);
            planned
                || match &job.kind {
                    JobKind::Rebuild { targets, .. } => targets.contains(&id),
                    JobKind::Mend { target, .. } | JobKind::Verify { target, .. } => *target == id,
                    _ => false,
                }
        })
    }

    /// Puts a new job on its way.
    pub(super) fn start(&mut self, job: Job) {
        let index = self.insert(job);
        self.ready.push_back(index);
    }

    fn insert(&mut self, job: Job) -> usize {
        let born = self.elders.begin();
        self.table.insert(Job { born, ..job })
    }

    /// Forgets results about the codes of stripes: they are others now.
    pub(super) fn forget_answers(&mut self) {
        self.answers = Answers::default();
    }

    /// Adds new contents to the open job of their unit, or opens one; which it is.
    pub(super) fn gather(
        &mut self,
        log: LogKind,
        unit: Unit,
        segment: Segment,
        request: usize,
        fua: bool,
        hold_until: Option<Instant>,
    ) -> usize {
        if let Some(&open) = self.open_units.get(&unit.start) {
            let job = &mut self.table[open];
            if let JobKind::Write(UnitWrite { segments, requests, .. }) = &mut job.kind
                && !segments.iter().any(|held| overlap(held, &segment))
            {
                segments.push(segment);
                if log != LogKind::PartialParity || is_consecutive(segments) {
                    requests.push(request);
                    job.fua |= fua;
                    return open;
                }
                segments.pop();
            }
        }
        let mut kind = self.spare.write(unit);
        if let JobKind::Write(write) = &mut kind {
            write.segments.push(segment);
            write.requests.push(request);
            write.hold_until = hold_until;
        }
        let index = self.insert(Job::new(kind, fua));
        self.staged.push_back(index);
        self.open_units.insert(unit.start, index);
        index
    }

    /// Starts the gathered writes: those whose unit is full or will not be filled. A unit that a
    /// sequential stream has begun waits a moment, as long as other I/O or the next write is on its
    /// way.
    pub(super) fn start_staged(&mut self, lane: &Lane) {
        let keeper = lane.keeper();
        let awaited = lane.ios.in_flight > 0 || self.more_expected;
        let hurry = keeper.has_failed() || keeper.is_stopping() || !awaited;
        for _ in 0..self.staged.len() {
            let Some(index) = self.staged.pop_front() else { return };
            let job = self.get(index);
            let hold_until = job.write().and_then(|write| write.hold_until);
            let held = !hurry && hold_until.is_some_and(|until| keeper.now() < until);
            let (start, _) = job.kind.range();
            if held && job.gathered_sectors() < lane.map.unit_data(start) {
                self.staged.push_back(index);
            } else {
                self.ready.push_back(index);
            }
        }
    }

    /// When a gathered write has waited long enough.
    pub(super) fn hold_deadline(&self) -> Option<Instant> {
        let writes = self.staged.iter().filter_map(|index| self.get(*index).write());
        writes.filter_map(|write| write.hold_until).min()
    }

    /// Lets jobs go on that waited for superblocks or bitmap, where the members have them now.
    pub(super) fn updated(&mut self, lane: &Lane) {
        let Self { table, ready, meta_waiters, .. } = self;
        meta_waiters.retain(|index| {
            let waits = matches!(table[*index].stage,
                JobStage::Metadata(write) if !lane.keeper().may_start(write));
            if !waits {
                ready.push_back(*index);
            }
            waits
        });
    }

    /// Puts a job on its way that brings the dirty pages of a unit in place.
    pub(super) fn start_destaging(&mut self, map: &ArrayMap, start: u64) {
        let unit = Unit { start, sectors: map.unit_sectors() as u32 };
        let kind = self.spare.write(unit);
        self.start(Job::new(kind, false));
    }

    /// Dirty pages are in place, or there is room in the journal.
    pub(super) fn room_given(&mut self) {
        self.ready.extend(self.room_waiters.drain(..));
    }

    /// There is scratch again.
    pub(super) fn scratch_given(&mut self) {
        self.ready.extend(self.scratch_waiters.drain(..));
    }

    /// Takes a job as far as it goes without waiting.
    pub(super) fn advance(&mut self, lane: &mut Lane, index: usize) -> Option<JobEvent> {
        match self.get(index).stage {
            JobStage::Staged => {
                let (start, end) = self.get(index).kind.range();
                self.get_mut(index).stage = JobStage::Locking;
                if !self.locks.request(start, end, index) {
                    return None;
                }
                self.locked(lane, index)
            }
            JobStage::Locking => self.locked(lane, index),
            JobStage::Metadata(_) | JobStage::Room | JobStage::Scratch => self.plan(lane, index),
            JobStage::Running | JobStage::Recording => None,
        }
    }

    fn locked(&mut self, lane: &mut Lane, index: usize) -> Option<JobEvent> {
        let job = self.get_mut(index);
        if job.writes_data() && lane.keeper().has_failed() {
            self.close(index);
            return Some(JobEvent::Ended(index, Err(RequestError::Failed)));
        }
        if job.writes_data() {
            let (start, end) = job.kind.range();
            let begun = lane.begin_write(start, end);
            job.stage = JobStage::Metadata(begun.number);
            if !begun.may_start {
                self.meta_waiters.push(index);
                return None;
            }
        }
        self.plan(lane, index)
    }

    /// A write grows no more.
    fn close(&mut self, index: usize) {
        if let JobKind::Write(UnitWrite { unit, .. }) = self.table[index].kind
            && self.open_units.get(&unit.start) == Some(&index)
        {
            self.open_units.remove(&unit.start);
        }
    }

    /// Makes the plan of a job, and reads for it.
    pub(super) fn plan(&mut self, lane: &mut Lane, index: usize) -> Option<JobEvent> {
        if let JobKind::Read { sector, start, .. } = &mut self.table[index].kind
            && lane.map.sync_sector(*sector) != *start
        {
            *start = lane.map.sync_sector(*sector);
            return self.lock_again(lane, index);
        }
        let job = &mut self.table[index];
        if let JobKind::Write(write) = &mut job.kind
            && lane.log == LogKind::Journal
        {
            let full = lane.map.unit_data(write.unit.start);
            let healthy = lane.is_healthy();
            let Some(way) = lane.dirty.way(index, write.unit, &write.segments, healthy, full)
            else {
                job.stage = JobStage::Room;
                self.room_waiters.push(index);
                return None;
            };
            write.way = way;
        }
        let needed = job.kind.strips_needed(&lane.map, lane.log);
        let destages = *job.way() == Way::Destage;
        let Some(strips) = lane.take_strips(needed, destages) else {
            job.stage = JobStage::Scratch;
            self.scratch_waiters.push_back(index);
            return None;
        };
        self.close(index);
        let job = &mut self.table[index];
        let mut taken = job.taken(strips, std::mem::take(&mut self.answers));
        let planner = lane.planner();
        let planned = if lane.keeper().has_failed() && !matches!(job.kind, JobKind::Read { .. }) {
            Err(RequestError::Failed)
        } else if matches!(job.kind, JobKind::Check { .. }) {
            planner.check(job, &mut taken).map(|step| step.begin(job))
        } else {
            planner.plan(job, &mut taken, &mut self.spare, lane.pool.zero, lane.log)
        };
        self.answers = std::mem::take(&mut taken.answers);
        job.taken = Some(taken);
        match planned {
            Ok(plan) => {
                job.run = Run::new(plan);
                job.stage = JobStage::Running;
                self.go_on(lane, index)
            }
            Err(error) => Some(JobEvent::Ended(index, Err(error))),
        }
    }

    /// Data have moved that a job is to read: it has to hold the stripe that they are in now.
    fn lock_again(&mut self, lane: &mut Lane, index: usize) -> Option<JobEvent> {
        self.locks.release(index, &mut self.granted);
        self.ready.extend(self.granted.drain(..));
        let job = self.get_mut(index);
        job.stage = JobStage::Locking;
        let (start, end) = job.kind.range();
        if self.locks.request(start, end, index) { self.locked(lane, index) } else { None }
    }

    /// Takes the next steps of a job's plan, until something has to be waited for.
    pub(super) fn go_on(&mut self, lane: &mut Lane, index: usize) -> Option<JobEvent> {
        loop {
            let job = self.get_mut(index);
            match job.run.advance() {
                PlanNext::Wait => return None,
                PlanNext::Read(which) => read(lane, job, index, which),
                PlanNext::Compute(compute) => {
                    has_read(lane, job);
                    lane.issue_compute(compute, Owner::Job(index));
                }
                PlanNext::Write if lane.keeper().has_failed() && job.writes_data() => {
                    return Some(JobEvent::Ended(index, Err(RequestError::Failed)));
                }
                PlanNext::Write if job.recorded(lane.log).is_some() => {
                    job.stage = JobStage::Recording;
                    return Some(JobEvent::Record(index));
                }
                PlanNext::Write => write(lane, job, index),
                PlanNext::Done if matches!(job.way(), Way::Back(_)) => {
                    job.stage = JobStage::Recording;
                    return Some(JobEvent::Record(index));
                }
                PlanNext::Done => return self.done(lane, index),
                PlanNext::Failed => return self.unread(lane, index),
            }
        }
    }

    /// The dirty pages of a write's unit are in place: plans the write itself.
    pub(super) fn plan_rest(&mut self, lane: &mut Lane, index: usize) -> Option<JobEvent> {
        let job = self.get_mut(index);
        if let Some(write) = job.write_mut() {
            write.whole_blocks = None;
            write.way = Way::Through;
        }
        if job.only_destages() {
            return Some(JobEvent::Ended(index, Ok(())));
        }
        self.give_scratch(lane, index);
        self.plan(lane, index)
    }

    /// Writes what a job has recorded, or need not record.
    pub(super) fn write(&mut self, lane: &mut Lane, index: usize) -> Option<JobEvent> {
        let job = self.get_mut(index);
        job.stage = JobStage::Running;
        // Without the journal, what was acknowledged is in memory alone until it is in place.
        let over = lane.keeper().writes_over() && *job.way() != Way::Destage;
        if lane.keeper().has_failed() || over {
            return Some(JobEvent::Ended(index, Err(RequestError::Failed)));
        }
        if matches!(job.way(), Way::Back(_)) {
            return Some(JobEvent::Ended(index, Ok(())));
        }
        write(lane, job, index);
        self.go_on(lane, index)
    }

    /// All of a plan is done: goes on with what a comparison asks for, or reads again what was
    /// mended.
    fn done(&mut self, lane: &mut Lane, index: usize) -> Option<JobEvent> {
        let job = self.get_mut(index);
        if let Some(compared) = job.take_compared() {
            return match lane.planner().compared(job, compared) {
                Ok(ComparisonOutcome { mismatch: Some(mismatch), plan }) => {
                    Some(JobEvent::Differs(index, mismatch, plan))
                }
                Ok(ComparisonOutcome { mismatch: None, plan }) => self.repair(lane, index, plan),
                Err(error) => Some(JobEvent::Ended(index, Err(error))),
            };
        }
        let result = if lane.keeper().has_failed() && job.writes_data() {
            Err(RequestError::Failed)
        } else {
            job.write_failed.map_or(Ok(()), Err)
        };
        if result.is_ok() && *job.way() == Way::Destage {
            return Some(JobEvent::Destaged(index));
        }
        let again =
            matches!(job.kind, JobKind::Mend { .. }) && job.run.stage() == RunStage::Writing;
        if result.is_err() || !again {
            return Some(JobEvent::Ended(index, result));
        }
        let rereads = job.run.reread(|member| lane.keeper().members().live(member));
        for io in rereads {
            lane.issue(io.member, io.op, Owner::Job(index));
        }
        self.go_on(lane, index)
    }

    /// Something could not be read: plans again without the members that could not, unless that is
    /// of no use.
    fn unread(&mut self, lane: &mut Lane, index: usize) -> Option<JobEvent> {
        let job = self.get(index);
        if job.buffer_held {
            return Some(JobEvent::Ended(index, Err(RequestError::BufferHeld)));
        }
        if job.run.stage() == RunStage::Rereading {
            return Some(JobEvent::Ended(index, Err(RequestError::Medium)));
        }
        lane.cache_ends(index, false);
        let job = self.get_mut(index);
        let was_wide = job.write_mut().map(|write| &mut write.in_stream);
        if was_wide.is_some_and(std::mem::take) {
            // It may have been what was read along: each member is asked for what is needed alone.
            job.avoid.clear();
            job.unread.clear();
        }
        self.give_scratch(lane, index);
        self.plan(lane, index)
    }

    /// Goes on after a comparison with what it asks for.
    pub(super) fn repair(
        &mut self,
        lane: &mut Lane,
        index: usize,
        plan: Option<Plan>,
    ) -> Option<JobEvent> {
        let Some(plan) = plan else { return Some(JobEvent::Ended(index, Ok(()))) };
        self.get_mut(index).run.then(plan);
        self.go_on(lane, index)
    }

    pub(super) fn give_scratch(&mut self, lane: &mut Lane, index: usize) {
        if let Some(taken) = self.get_mut(index).taken.take() {
            lane.pool.give(taken.into_bufs());
            self.scratch_given();
        }
    }

    /// Takes a job out that is done: gives back what it holds.
    pub(super) fn remove(&mut self, lane: &mut Lane, index: usize) -> Job {
        self.give_scratch(lane, index);
        self.locks.release(index, &mut self.granted);
        self.ready.extend(self.granted.drain(..));
        let job = self.table.remove(index);
        self.elders.end(job.born);
        job
    }

    /// Keeps the memory of a write that is over.
    pub(super) fn keep_memory(&mut self, job: Job) {
        self.spare.keep(job);
    }
}

fn overlap(a: &Segment, b: &Segment) -> bool {
    a.index == b.index && a.rows.start < b.rows.end && b.rows.start < a.rows.end
}
