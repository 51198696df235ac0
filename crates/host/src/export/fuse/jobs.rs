//! Operations on the array's content, as requests for whole blocks.
//!
//! Ranges that begin and end with blocks are not copied: data to be written go to the machine from
//! where they landed, and data read are sent from where they were read to. Other ranges become a
//! read of the blocks they touch, a change of them and a write, with nothing else written
//! meanwhile.

use std::collections::VecDeque;
use std::ops::Range;

use braid_array::{Buf, Op, Request, RequestError, SECTOR_BYTES};

use super::gate::{Gate, Turn};
use super::tree::FileOperation;
use crate::arena::Holder;
use crate::engine::core::Core;
use crate::token::{ExportId, JobRef, Owner};
use slab::Slab;

/// Destination of an answer: the mount, and the kernel's number of the request there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) mount: usize,
    pub(super) unique: u64,
}

/// A job that is over, but for the memory that its answer is in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FinishedJob {
    pub(super) job: usize,
    pub(super) asker: Asker,
    /// Buffer in which the request landed, no longer in use.
    pub(super) landing: Option<Buf>,
    pub(super) result: Result<Came, RequestError>,
}

/// Result of a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// Done.
    Nothing,
    /// Number of bytes written.
    Written { len: u32 },
    /// Data, which lie here until the job is released.
    Data(Vec<Buf>),
}

/// Step of a job. Its steps are done one after the other.
#[derive(Debug)]
enum JobStep {
    /// A request without memory, or with the landed data.
    Request { op: Op, range: Range<u64>, buf: Buf },
    /// Read the blocks around a range.
    Read(Range<u64>),
    /// Read the blocks around a range, copy the landed data into them, or zeroes, and write them.
    Patch { range: Range<u64>, from: Option<Buf>, fua: bool },
}

#[derive(Debug)]
struct FuseJob {
    asker: Asker,
    ask: FileOperation,
    /// Buffer in which the request landed, while it is in use.
    landing: Option<Buf>,
    steps: VecDeque<JobStep>,
    /// The first step is one that changes blocks, and writes them now.
    storing: bool,
    /// Blocks that are read, or written back.
    pieces: Vec<JobPiece>,
    in_flight: u32,
    error: Option<RequestError>,
    /// Way in which it runs beside other writes, if it writes.
    turn: Option<Turn>,
}

/// Blocks that lie in memory.
#[derive(Clone, Debug)]
struct JobPiece {
    range: Range<u64>,
    buf: Buf,
    /// Index of the holder whose memory it is.
    holder: usize,
}

/// The jobs of an array's mounts. Each [begins](Self::begin), comes back as a [`FinishedJob`] from
/// [`completed`](Self::completed), and is [released](Self::release) when that was answered.
///
/// A job may need memory for two requests at once, one more than a client is sure to get: so there
/// are two holders. Jobs that wait for memory get it in the order in which they came, and only the
/// first of them has some already; so there is always one that ends.
#[derive(Debug)]
pub(super) struct FuseJobs {
    export: ExportId,
    block: u64,
    holders: [Holder; 2],
    jobs: Slab<FuseJob>,
    gate: Gate,
    /// Wait for memory, in this order.
    short: VecDeque<usize>,
}

impl FuseJobs {
    pub(super) fn new(export: ExportId, block_bytes: u32, holders: [Holder; 2]) -> Self {
        let block = u64::from(block_bytes);
        let jobs = Slab::default();
        let gate = Gate::default();
        Self { export, block, holders, jobs, gate, short: VecDeque::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Returns whether a job of this mount is not over.
    pub(super) fn serve(&self, mount: usize) -> bool {
        self.jobs.iter().any(|(_, job)| job.asker.mount == mount)
    }

    /// Begins a job. Data to be written are at the beginning of `landing`.
    pub(super) fn begin(
        &mut self,
        core: &mut Core,
        asker: Asker,
        ask: FileOperation,
        landing: Option<Buf>,
    ) {
        let (steps, turn) = self.steps(&ask, landing);
        let index = self.jobs.insert(FuseJob {
            asker,
            ask,
            landing,
            steps,
            storing: false,
            pieces: Vec::new(),
            in_flight: 0,
            error: None,
            turn,
        });
        if turn.is_none_or(|turn| self.gate.enter(turn, index)) {
            self.advance(core, index);
        }
    }

    fn steps(
        &self,
        ask: &FileOperation,
        landing: Option<Buf>,
    ) -> (VecDeque<JobStep>, Option<Turn>) {
        let whole = |op, range: &Range<u64>, buf| {
            let range = range.clone();
            VecDeque::from([JobStep::Request { op, range, buf }])
        };
        match ask {
            FileOperation::Flush => (whole(Op::Flush, &(0..0), Buf::default()), None),
            FileOperation::Read(range) => (VecDeque::from([JobStep::Read(range.clone())]), None),
            FileOperation::Write { range, fua } => {
                let landed = landing.expect("a write has landed somewhere");
                let data = landed.slice(0, (range.end - range.start) as u32);
                if self.cover(range) == *range {
                    return (whole(Op::Write { fua: *fua }, range, data), Some(Turn::Together));
                }
                let patch = JobStep::Patch { range: range.clone(), from: Some(data), fua: *fua };
                (VecDeque::from([patch]), Some(Turn::Alone))
            }
            FileOperation::Zero { range, unmap } => {
                let inner =
                    range.start.next_multiple_of(self.block)..range.end - range.end % self.block;
                let op = Op::WriteZeroes { fua: false, unmap: *unmap };
                if inner == *range {
                    return (whole(op, range, Buf::default()), Some(Turn::Together));
                }
                let patch = |range| JobStep::Patch { range, from: None, fua: false };
                let mut steps = VecDeque::new();
                if inner.is_empty() {
                    steps.push_back(patch(range.clone()));
                } else {
                    let edges = [range.start..inner.start, inner.end..range.end];
                    steps.extend(edges.into_iter().filter(|edge| !edge.is_empty()).map(patch));
                    steps.push_back(JobStep::Request { op, range: inner, buf: Buf::default() });
                }
                (steps, Some(Turn::Alone))
            }
        }
    }

    /// The whole blocks around a range.
    fn cover(&self, range: &Range<u64>) -> Range<u64> {
        range.start - range.start % self.block..range.end.next_multiple_of(self.block)
    }

    /// Goes on with jobs that got memory, and with writes whose turn has come.
    pub(super) fn work(&mut self, core: &mut Core) {
        while let Some(index) = self.short.front().copied() {
            if !self.take_memory(core, index) {
                break;
            }
            self.short.pop_front();
            self.request_pieces(core, index);
        }
        while let Some(index) = self.gate.next() {
            self.advance(core, index);
        }
    }

    /// Takes the next step of a job that has nothing under way.
    fn advance(&mut self, core: &mut Core, index: usize) {
        let step = self.jobs[index].steps.front();
        if let Some(JobStep::Request { op, range, buf }) = step {
            let op = *op;
            let buf = *buf;
            let range = range.clone();
            return self.request(core, index, op, &range, buf);
        }
        if self.short.is_empty() && self.take_memory(core, index) {
            self.request_pieces(core, index);
        } else {
            self.short.push_back(index);
        }
    }

    fn request(&mut self, core: &mut Core, index: usize, op: Op, range: &Range<u64>, buf: Buf) {
        let job = &mut self.jobs[index];
        job.in_flight += 1;
        let owner = Owner::Export(self.export, JobRef { client: job.asker.mount, job: index });
        core.request(op, range.start, range.end - range.start, buf, owner);
    }

    /// Memory for all blocks of the first step, as far as there is some. True when that is all.
    fn take_memory(&mut self, core: &mut Core, index: usize) -> bool {
        let job = &self.jobs[index];
        let range = match job.steps.front() {
            Some(JobStep::Read(range) | JobStep::Patch { range, .. }) => range,
            _ => return true,
        };
        let cover = self.cover(range);
        let job = &mut self.jobs[index];
        let mut next = job.pieces.last().map_or(cover.start, |piece| piece.range.end);
        while next < cover.end {
            let len = Request::first_bytes(next, cover.end - next);
            let mut holders = self.holders.iter_mut().enumerate();
            let found =
                holders.find_map(|(holder, of)| Some((holder, core.arena.allocate(of, len)?)));
            let Some((holder, buf)) = found else { return false };
            let range = next..next + u64::from(len);
            next = range.end;
            self.jobs[index].pieces.push(JobPiece { range, buf, holder });
        }
        true
    }

    /// Reads all pieces of a job, or writes them back.
    fn request_pieces(&mut self, core: &mut Core, index: usize) {
        let job = &self.jobs[index];
        let op = match job.steps.front() {
            Some(JobStep::Patch { fua, .. }) if job.storing => Op::Write { fua: *fua },
            _ => Op::Read,
        };
        for piece in job.pieces.clone() {
            self.request(core, index, op, &piece.range, piece.buf);
        }
    }

    /// A request of a job is done. Returns the job when that is over.
    pub(super) fn completed(
        &mut self,
        core: &mut Core,
        index: usize,
        request: &Request,
        result: Result<(), RequestError>,
    ) -> Option<FinishedJob> {
        let job = &mut self.jobs[index];
        job.in_flight -= 1;
        job.error = job.error.or(result.err());
        let at = request.sector * SECTOR_BYTES;
        if let Some(piece) = job.pieces.iter_mut().find(|piece| piece.range.start == at) {
            // It may have been read to another place than was asked for.
            piece.buf = request.buf;
        }
        if job.in_flight > 0 {
            return None;
        }
        if job.error.is_some() {
            return Some(self.finish(index));
        }
        if let Some(JobStep::Patch { range, from, .. }) = job.steps.front() {
            if !job.storing {
                job.storing = true;
                for piece in &job.pieces {
                    patch(core, piece, range, *from);
                }
                self.request_pieces(core, index);
                return None;
            }
            job.storing = false;
            let pieces = std::mem::take(&mut job.pieces);
            self.release_pieces(core, &pieces);
        }
        let steps = &mut self.jobs[index].steps;
        steps.pop_front();
        if steps.is_empty() {
            return Some(self.finish(index));
        }
        self.advance(core, index);
        None
    }

    fn finish(&mut self, index: usize) -> FinishedJob {
        let job = &mut self.jobs[index];
        if job.turn.is_some() {
            self.gate.leave();
        }
        let result = match job.error {
            Some(error) => Err(error),
            None => Ok(job.came()),
        };
        let landing = job.landing.take();
        FinishedJob { job: index, asker: job.asker, landing, result }
    }

    /// Removes a job once its answer was given, and releases the data read for it.
    pub(super) fn release(&mut self, core: &mut Core, index: usize) {
        let job = self.jobs.remove(index);
        self.release_pieces(core, &job.pieces);
    }

    fn release_pieces(&mut self, core: &mut Core, pieces: &[JobPiece]) {
        for piece in pieces {
            core.arena.release(&mut self.holders[piece.holder], piece.buf);
        }
    }
}

impl FuseJob {
    /// Returns the result of a job without errors.
    fn came(&self) -> Came {
        match &self.ask {
            FileOperation::Read(range) => {
                let parts = self.pieces.iter().map(|piece| piece.part(range));
                Came::Data(parts.filter(|buf| buf.len > 0).collect())
            }
            FileOperation::Write { range, .. } => {
                Came::Written { len: (range.end - range.start) as u32 }
            }
            FileOperation::Flush | FileOperation::Zero { .. } => Came::Nothing,
        }
    }
}

impl JobPiece {
    /// Returns the buffer of the part of a range that lies in it.
    fn part(&self, range: &Range<u64>) -> Buf {
        let start = range.start.clamp(self.range.start, self.range.end);
        let end = range.end.clamp(start, self.range.end);
        self.buf.slice((start - self.range.start) as u32, (end - start) as u32)
    }
}

/// Copies the bytes of a range into the blocks it touches: landed data, or zeroes.
fn patch(core: &Core, piece: &JobPiece, range: &Range<u64>, from: Option<Buf>) {
    let to = piece.part(range);
    // SAFETY: the blocks were read for this job, which has no request under way.
    let bytes = unsafe { core.arena.memory().bytes_mut(to) };
    match from {
        Some(landed) => {
            let at = piece.range.start.max(range.start) - range.start;
            let landed = landed.slice(at as u32, to.len);
            // SAFETY: where the request landed is this job's, and another allocation.
            bytes.copy_from_slice(unsafe { core.arena.memory().bytes(landed) });
        }
        None => bytes.fill(0),
    }
}
