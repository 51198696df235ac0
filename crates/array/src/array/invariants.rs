//! Invariants of a local array, true whenever [`poll`](crate::Machine::poll) has got empty. The
//! simulator looks after every event: what is broken here shows long before a wrong byte does.

use super::Array;
use super::io::Owner;
use super::job::{Job, JobKind, JobStage, UnitWrite};
use super::jobs::Jobs;
use super::lane::Lane;
use super::recording::Way;
use super::requests::{MAX_REQUESTS, Requests};
use super::scratch::PAGE_BYTES;
use super::write_log::WriteLog;
use crate::Machine;
use crate::keeper::Carried;

/// Counts, for each waiting part, the I/O, computations and writes without room that it waits for.
#[derive(Default)]
struct WaitCounts {
    /// By index.
    jobs: Vec<usize>,
    requests: Vec<usize>,
    members: Vec<usize>,
    /// Parts of the keeper's update, and those of them that have a page.
    updates: usize,
    pages: usize,
    /// The number of I/Os in flight.
    ios: usize,
}

impl Array {
    pub(super) fn check(&self) -> Result<(), String> {
        let waiting = self.who_waits();
        jobs_hold_locks(&self.jobs)?;
        jobs_wait(&self.jobs, &self.logging.log, &self.lane, &waiting)?;
        pieces_are_counted(&self.requests, &waiting)?;
        scratch_is_somewhere(self, &waiting)?;
        dirty_memory_is_somewhere(self)?;
        self.queues_are_right(&waiting)?;
        let begun = |(_, job): (usize, &Job)| {
            let (start, end) = job.kind.range();
            job.write_begun().then_some((start, end, !matches!(job.stage, JobStage::Metadata(_))))
        };
        let unit_sectors = self.lane.map.unit_sectors();
        let destages = self.lane.destages().then(|| self.lane.dirty.units());
        let dirty =
            destages.into_iter().flatten().map(|start| (start, start + unit_sectors, false));
        let writes: Vec<_> = self.jobs.iter().filter_map(begun).chain(dirty).collect();
        let works = |job: &Job| {
            matches!(
                job.kind,
                JobKind::Rebuild { .. }
                    | JobKind::Check { .. }
                    | JobKind::Verify { .. }
                    | JobKind::Save { .. }
                    | JobKind::Move { .. }
            )
        };
        self.lane.keeper().invariants(Carried {
            writers: self.requests.writers(),
            writes: &writes,
            work: self.jobs.iter().filter(|(_, job)| works(job)).count(),
            updates: waiting.updates + self.meta_writes.len(),
            on: &|id| Some(waiting.members.get(usize::from(id.0)).copied().unwrap_or(0)),
        })
    }

    /// Requests that it has not answered, and I/O that its members have not.
    pub(crate) fn under_way(&self) -> (usize, usize) {
        (self.requests.in_flight(), self.lane.ios.on_members())
    }

    fn who_waits(&self) -> WaitCounts {
        let room = || Vec::with_capacity(32);
        let mut waiting =
            WaitCounts { jobs: room(), requests: room(), members: room(), ..WaitCounts::default() };
        for (owner, member) in self.lane.ios.owners() {
            if owner != Owner::Nobody {
                waiting.ios += 1;
                member.iter().for_each(|id| add(&mut waiting.members, usize::from(id.0)));
            }
            waiting.count(owner);
        }
        self.logging.overlay.owners().for_each(|owner| waiting.count(owner));
        self.put_offs.0.iter().for_each(|put_off| waiting.count(put_off.owner));
        self.requests.windowed().iter().for_each(|request| add(&mut waiting.requests, *request));
        for (_, job) in self.jobs.iter() {
            match &job.kind {
                JobKind::Write(UnitWrite { requests, .. }) => {
                    requests.iter().for_each(|request| add(&mut waiting.requests, *request));
                }
                JobKind::MirrorWrite { request, .. }
                | JobKind::ZeroStripes { request, .. }
                | JobKind::Read { request, .. } => add(&mut waiting.requests, *request),
                JobKind::Rebuild { .. }
                | JobKind::Mend { .. }
                | JobKind::Verify { .. }
                | JobKind::Check { .. }
                | JobKind::Save { .. }
                | JobKind::Move { .. } => {}
            }
        }
        waiting
    }

    fn queues_are_right(&self, waiting: &WaitCounts) -> Result<(), String> {
        if waiting.ios != self.lane.ios.in_flight {
            let counted = self.lane.ios.in_flight;
            return Err(format!("{} I/Os in flight, counted {counted}", waiting.ios));
        }
        if !self.jobs.ready.is_empty() {
            return Err("jobs could go on, and do not".to_owned());
        }
        if waiting.ios == 0 && self.put_offs.0.is_empty() && !self.meta_writes.is_empty() {
            return Err("metadata wait for a page that nobody has".to_owned());
        }
        let grows = |(start, index): (&u64, &usize)| {
            let write = self.jobs.find(*index)?.write()?;
            (write.unit.start == *start).then_some(())
        };
        if self.jobs.open_units.iter().any(|open| grows(open).is_none()) {
            return Err("a unit grows that no job writes".to_owned());
        }
        let mends = self.jobs.iter().filter(|(_, job)| matches!(job.kind, JobKind::Mend { .. }));
        if mends.count() != self.mending.len() {
            return Err(format!("{} units are mended, without as many jobs", self.mending.len()));
        }
        Ok(())
    }
}

/// Checks that all work under way comes to its end: by an answer, by a deadline, or by a command.
pub(super) fn every_wait_ends(array: &Array) -> Result<(), String> {
    let answered = array.lane.ios.in_flight > 0 || !array.lane.ios.abandoning.is_empty();
    // What was asked of the array waits for a time only to be gathered with more, and for room on
    // members; and for memory that members have which hang.
    let timed = !array.put_offs.0.is_empty() || array.jobs.hold_deadline().is_some();
    let answered_later = answered || array.lane.pool.has_lent();
    // Background work that keeps to its limits, too, goes on by itself.
    let moves = !array.requests.windowed().is_empty() && array.deadline().is_some();
    if array.requests.in_flight() > 0 && !answered_later && !timed && !moves {
        return Err("requests wait, and nothing is in flight".to_owned());
    }
    let quiet = array.requests.in_flight() == 0 && array.jobs.is_empty();
    let paused = quiet && array.lane.keeper().is_paused();
    if array.idle() || paused || answered_later || array.deadline().is_some() {
        return Ok(());
    }
    Err("it waits, and nothing is in flight or due".to_owned())
}

/// All scratch is free, or with somebody.
fn scratch_is_somewhere(array: &Array, waiting: &WaitCounts) -> Result<(), String> {
    let taken = array.jobs.iter().filter_map(|(_, job)| job.taken.as_ref());
    let strips: u64 = taken.map(|taken| taken.bytes()).sum();
    let pages = waiting.pages as u64 * u64::from(PAGE_BYTES);
    let starting = array.logging.held_bytes();
    let cached = array.lane.cache.bytes();
    let found = array.lane.pool.free_bytes() + strips + pages + starting + cached;
    let all = array.lane.pool.all_bytes();
    if found != all { Err(format!("{found} of {all} bytes of scratch")) } else { Ok(()) }
}

/// Memory for dirty pages is free, or a page's, or with somebody who has it filled.
fn dirty_memory_is_somewhere(array: &Array) -> Result<(), String> {
    let left = |job: &Job| match job.way() {
        Way::Back(pages) => pages.len(),
        Way::Through | Way::Destage => 0,
    };
    let jobs: usize = array.jobs.iter().map(|(_, job)| left(job)).sum();
    let filled = jobs + array.logging.loading_pages();
    let (dirty, taken) = array.lane.dirty.held();
    if taken != filled {
        return Err(format!("{dirty} dirty pages, {taken} are being filled, counted {filled}"));
    }
    Ok(())
}

/// Each job holds, or waits for, the lock of its range, and no other is held.
fn jobs_hold_locks(jobs: &Jobs) -> Result<(), String> {
    jobs.locks.check()?;
    let mut held = 0;
    for (index, job) in jobs.iter() {
        let expected = match job.stage {
            JobStage::Staged => None,
            stage => Some((job.kind.range(), stage != JobStage::Locking)),
        };
        let found = jobs.locks.held_by(index);
        if found != expected {
            let what = format!("{expected:?}, has {found:?}");
            return Err(format!("job {index} in {:?} needs the lock {what}", job.stage));
        }
        held += usize::from(found.is_some());
    }
    if held != jobs.locks.len() {
        return Err(format!("{} locks, {held} of jobs", jobs.locks.len()));
    }
    Ok(())
}

/// Each job waits for something that is to come.
fn jobs_wait(jobs: &Jobs, log: &WriteLog, lane: &Lane, waiting: &WaitCounts) -> Result<(), String> {
    for (index, job) in jobs.iter() {
        let ios = waiting.jobs.get(index).copied().unwrap_or(0);
        let waits = match job.stage {
            JobStage::Staged => jobs.staged.contains(&index),
            JobStage::Locking => true,
            JobStage::Metadata(write) => {
                jobs.meta_waiters.contains(&index) && !lane.keeper().may_start(write)
            }
            JobStage::Scratch => jobs.scratch_waiters.contains(&index),
            JobStage::Room => jobs.room_waiters.contains(&index) && lane.dirty.goes_on(),
            JobStage::Running => ios > 0 && ios == job.run.pending(),
            JobStage::Recording => log.waits_for(lane, index),
        };
        if !waits {
            let counted = job.run.pending();
            let what = format!("{ios} I/Os, counted {counted}, and is in no other queue");
            return Err(format!("job {index} in {:?} has {what}", job.stage));
        }
    }
    Ok(())
}

/// The pieces of each request are those under way.
fn pieces_are_counted(requests: &Requests, waiting: &WaitCounts) -> Result<(), String> {
    if requests.in_flight() > MAX_REQUESTS {
        return Err("more requests than there may be".to_owned());
    }
    for (index, pending) in requests.pending() {
        let found = waiting.requests.get(index).copied().unwrap_or(0);
        if found != pending {
            return Err(format!("{found} pieces of request {index}, counted {pending}"));
        }
        if (pending == 0) != requests.is_untold(index) {
            return Err(format!("request {index} with {pending} pieces is not answered"));
        }
    }
    Ok(())
}

impl WaitCounts {
    fn count(&mut self, owner: Owner) {
        match owner {
            Owner::PlainRead(read) => add(&mut self.requests, read.request),
            Owner::Plain { request } => add(&mut self.requests, request),
            Owner::Job(job) => add(&mut self.jobs, job),
            Owner::Meta { page } => {
                self.updates += 1;
                self.pages += usize::from(page.is_some());
            }
            Owner::Spill { page } => self.pages += usize::from(page.is_some()),
            Owner::PartialParity(_)
            | Owner::Journal(_)
            | Owner::Recovery(_)
            | Owner::Loading(_)
            | Owner::Overlay(_)
            | Owner::Nobody => {}
        }
    }
}

fn add(counts: &mut Vec<usize>, index: usize) {
    if counts.len() <= index {
        counts.resize(index + 1, 0);
    }
    counts[index] += 1;
}
