//! Requests of guests, as requests to the array. Data to be written are copied into our memory, as
//! they must not change while parity is computed from them.
//!
//! Long reads go to the guest's memory at once, where that lies as members want it (`windows`);
//! others are copied from ours. A request of any length goes piece by piece, each with memory of
//! its own for as long as it is under way.
//!
//! A member that does not answer is given up, and the data of its reads come from other members,
//! into our memory. A given-up read into the guest's memory may still arrive at any time: until
//! that member has answered, the guest is not told that the request is over.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use braid_array::{Buf, Op, Request, RequestError, SECTOR_BYTES};
use slab::Slab;
use vm_memory::{Bytes, GuestAddress};

use super::chain::Area;
use super::memory::MappedGuest;
use super::request::{BlockOperation, Status, copy_in, copy_out};
use super::windows::Windows;
use crate::arena::Holder;
use crate::engine::core::Core;
use crate::token::{ExportId, JobRef, Owner};

/// Origin of a request, and destination of its answer.
#[derive(Clone, Debug)]
pub(super) struct RequestOrigin {
    pub(super) ring: usize,
    pub(super) head: u16,
    /// Memory of the guest when the request came.
    pub(super) guest: Arc<MappedGuest>,
    pub(super) windows: Arc<Windows>,
    pub(super) status: GuestAddress,
}

/// A request that is over; its status has been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FinishedRequest {
    pub(super) ring: usize,
    pub(super) head: u16,
    /// Bytes of the guest's memory that were written.
    pub(super) written: u32,
}

#[derive(Debug)]
struct VhostJob {
    origin: RequestOrigin,
    /// Transfer of data, if it is one: areas of the guest's memory, range of the array, and end of
    /// the part for which requests were made.
    op: Op,
    areas: Vec<Area>,
    range: Range<u64>,
    next: u64,
    in_flight: u32,
    error: Option<RequestError>,
}

/// A request to the array that is done, while a member that was given up may still read into the
/// guest's memory.
#[derive(Debug)]
struct Held {
    job: usize,
    /// Buffer in our memory.
    place: Buf,
    request: Request,
    result: Result<(), RequestError>,
}

impl VhostJob {
    fn new(origin: RequestOrigin, (op, range): (Op, Range<u64>), areas: Vec<Area>) -> Self {
        let next = range.start;
        Self { origin, op, areas, range, next, in_flight: 0, error: None }
    }

    /// Returns the place in the guest's memory that a part of a long read can go to.
    fn window(&self, range: &Range<u64>) -> Option<Buf> {
        if self.op != Op::Read {
            return None;
        }
        let offset = range.start - self.range.start;
        self.origin.windows.find(&self.areas, offset, range.end - range.start)
    }

    /// All its requests have been made, or no more are worth it.
    const fn is_issued(&self) -> bool {
        self.error.is_some() || self.next == self.range.end
    }
}

/// The requests of one front end that are under way. Each [begins](Self::begin) and comes back as
/// [`FinishedRequest`]. Requests that wait for memory get it in the order in which they came.
#[derive(Debug)]
pub(super) struct VhostJobs {
    export: ExportId,
    client: usize,
    holder: Holder,
    jobs: Slab<VhostJob>,
    short: VecDeque<usize>,
    held: Vec<Held>,
    finished: VecDeque<FinishedRequest>,
}

impl VhostJobs {
    pub(super) fn new((export, client): (ExportId, usize), holder: Holder) -> Self {
        let jobs = Slab::new();
        Self {
            export,
            client,
            holder,
            jobs,
            short: VecDeque::new(),
            held: Vec::new(),
            finished: VecDeque::new(),
        }
    }

    /// Begins the operation of a request. Without `flushes`, written data are durable at the end.
    pub(super) fn begin(
        &mut self,
        core: &mut Core,
        origin: RequestOrigin,
        ask: BlockOperation,
        flushes: bool,
    ) {
        let fua = !flushes;
        match ask {
            BlockOperation::Read { range, into } => {
                self.transfer(core, VhostJob::new(origin, (Op::Read, range), into));
            }
            BlockOperation::Write { range, from } => {
                self.transfer(core, VhostJob::new(origin, (Op::Write { fua }, range), from));
            }
            BlockOperation::Flush => self.plain(core, origin, [(Op::Flush, 0..0)]),
            BlockOperation::Discard(ranges) => {
                self.plain(core, origin, ranges.into_iter().map(|range| (Op::Discard, range)));
            }
            BlockOperation::Zero(ranges) => {
                let op = |unmap| Op::WriteZeroes { fua, unmap };
                let zeroes = ranges.into_iter().map(|(range, unmap)| (op(unmap), range));
                self.plain(core, origin, zeroes);
            }
            BlockOperation::Id { .. } => unreachable!("that is known without the array"),
        }
    }

    /// Begins a job of operations without data.
    fn plain(
        &mut self,
        core: &mut Core,
        origin: RequestOrigin,
        operations: impl IntoIterator<Item = (Op, Range<u64>)>,
    ) {
        let index = self.jobs.insert(VhostJob::new(origin, (Op::Flush, 0..0), Vec::new()));
        for (op, range) in operations {
            self.request(core, index, op, &range, Buf::default());
        }
        self.finish_if_over(index);
    }

    /// Begins a job that moves data.
    fn transfer(&mut self, core: &mut Core, job: VhostJob) {
        let index = self.jobs.insert(job);
        if !self.short.is_empty() || !self.advance(core, index) {
            self.short.push_back(index);
        }
        self.finish_if_over(index);
    }

    /// Makes requests for data as long as there is memory. True when there are no more to be made.
    fn advance(&mut self, core: &mut Core, index: usize) -> bool {
        loop {
            let job = &mut self.jobs[index];
            if job.is_issued() {
                return true;
            }
            let op = job.op;
            let len = Request::first_bytes(job.next, job.range.end - job.next);
            let range = job.next..job.next + u64::from(len);
            let window = job.window(&range);
            let buf = window.or_else(|| core.arena.allocate(&mut self.holder, len));
            let Some(buf) = buf else { return false };
            if op != Op::Read {
                let offset = range.start - job.range.start;
                // SAFETY: just allocated, so nobody else has it.
                let bytes = unsafe { core.arena.memory().bytes_mut(buf) };
                if copy_out(&job.origin.guest, &job.areas, offset, bytes).is_err() {
                    core.arena.release(&mut self.holder, buf);
                    job.error = Some(RequestError::Malformed);
                    return true;
                }
            }
            job.next = range.end;
            self.request(core, index, op, &range, buf);
        }
    }

    fn request(&mut self, core: &mut Core, index: usize, op: Op, range: &Range<u64>, buf: Buf) {
        self.jobs[index].in_flight += 1;
        let owner = Owner::Export(self.export, JobRef { client: self.client, job: index });
        core.request(op, range.start, range.end - range.start, buf, owner);
    }

    /// Goes on with those that wait for memory, or for a member that was given up.
    pub(super) fn work(&mut self, core: &mut Core) {
        let is_over = |held: &mut Held| !core.arena.is_lent(held.place);
        let over: Vec<Held> = self.held.extract_if(.., is_over).collect();
        for Held { job, request, result, .. } in over {
            self.end(core, job, &request, result);
        }
        while let Some(index) = self.short.front().copied() {
            if !self.advance(core, index) {
                return;
            }
            self.short.pop_front();
            self.finish_if_over(index);
        }
    }

    /// A request to the array is done.
    pub(super) fn completed(
        &mut self,
        core: &mut Core,
        index: usize,
        request: &Request,
        result: Result<(), RequestError>,
    ) {
        let start = request.sector * SECTOR_BYTES;
        let range = start..start + request.sectors * SECTOR_BYTES;
        match self.jobs[index].window(&range) {
            Some(place) if core.arena.is_lent(place) => {
                self.held.push(Held { job: index, place, request: *request, result });
            }
            _ => self.end(core, index, request, result),
        }
    }

    /// A request to the array is done, and nothing of it is left.
    fn end(
        &mut self,
        core: &mut Core,
        index: usize,
        request: &Request,
        result: Result<(), RequestError>,
    ) {
        let job = &mut self.jobs[index];
        job.in_flight -= 1;
        job.error = job.error.or(result.err());
        if request.buf.len > 0 && !core.arena.memory().is_window(request.buf) {
            if job.op == Op::Read && result.is_ok() {
                let offset = request.sector * SECTOR_BYTES - job.range.start;
                // SAFETY: the request is done, so the buffer is this job's alone.
                let bytes = unsafe { core.arena.memory().bytes(request.buf) };
                let copied = copy_in(&job.origin.guest, &job.areas, offset, bytes);
                job.error = job.error.or(copied.err().map(|_| RequestError::Malformed));
            }
            core.arena.release(&mut self.holder, request.buf);
        }
        self.finish_if_over(index);
    }

    fn finish_if_over(&mut self, index: usize) {
        let job = &self.jobs[index];
        // One that waits for memory is finished when its turn comes.
        if job.in_flight > 0 || !job.is_issued() || self.short.contains(&index) {
            return;
        }
        let VhostJob { origin, op, range, error, .. } = self.jobs.remove(index);
        let bytes = if op == Op::Read { range.end - range.start } else { 0 };
        let status = if error.is_some() { Status::IoError } else { Status::Ok };
        self.finished.push_back(tell(&origin, status, bytes));
    }

    /// The next request that is over.
    pub(super) fn next_finished(&mut self) -> Option<FinishedRequest> {
        self.finished.pop_front()
    }

    /// Returns whether nothing is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.finished.is_empty()
    }

    /// Gives up the place of a client. Nothing may be under way.
    pub(super) fn into_holder(self) -> Holder {
        debug_assert!(self.is_empty());
        self.holder
    }
}

/// Tells the guest how a request ended; so many bytes of data were written for it.
pub(super) fn tell(origin: &RequestOrigin, status: Status, bytes: u64) -> FinishedRequest {
    // It was looked at when the request came, and this is the memory of that time.
    let _ = origin.guest.write_obj(status as u8, origin.status);
    let written = u32::try_from(bytes + 1).unwrap_or(u32::MAX);
    FinishedRequest { ring: origin.ring, head: origin.head, written }
}
