//! Requests: taken in, cut into pieces, answered when the last piece is done.
//!
//! Reads that need no plan, and everything on levels without redundancy, go straight to the
//! members: no lock, no allocation. Writes to parity are gathered by unit until the executor has
//! no more to hand in, so that what arrives together is written together.

use slab::Slab;

use super::Array;
use super::io::{Owner, PlainRead};
use super::job::{Job, Kind};
use crate::action::{Action, IoError, IoErrorKind};
use crate::keeper::{BLOCK_SECTORS, Unit};
use crate::plan::Rows;
use crate::plan::parity::{Segment, Source};
use crate::request::Full;
use crate::{Buf, Instant, IoOp, MemberId, Op, Request, RequestError, SECTOR_BYTES};

/// Requests in flight at most.
pub(crate) const MAX_REQUESTS: usize = 256;
/// How long a unit that a sequential stream has begun waits to be filled.
const HOLD_MS: u64 = 1;
/// Pieces of one zeroing or discard in flight at most.
const MAX_PIECES: usize = 32;
/// Longest piece of a zeroing or discard, in sectors of the array or of a member.
const MAX_ZERO_SECTORS: u64 = (64 << 20) / SECTOR_BYTES;

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) request: Request,
    /// Pieces not yet done, plus one while pieces are being made.
    pending: usize,
    /// Sectors for which pieces have been made.
    cut: u64,
    /// Pieces are being made right now.
    cutting: bool,
    error: Option<RequestError>,
}

/// The table of requests.
#[derive(Debug)]
pub(crate) struct Requests {
    table: Slab<InFlight>,
    /// Done but for the superblocks that tell of a failure.
    settling: Vec<usize>,
    /// Where the last write ended, and whether it began where the one before did.
    write_end: u64,
    sequential: bool,
}

impl Requests {
    pub(crate) fn new() -> Self {
        let table = Slab::with_capacity(MAX_REQUESTS);
        Self { table, settling: Vec::new(), write_end: u64::MAX, sequential: false }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.table.len()
    }

    /// Those that change data.
    pub(crate) fn writers(&self) -> usize {
        self.table.iter().filter(|(_, in_flight)| in_flight.request.op.changes_data()).count()
    }

    /// The pieces of each that are not done.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.table.iter().map(|(index, in_flight)| (index, in_flight.pending))
    }

    /// Is it done but for the superblocks?
    pub(crate) fn settles(&self, index: usize) -> bool {
        self.settling.contains(&index)
    }

    fn get_mut(&mut self, index: usize) -> &mut InFlight {
        &mut self.table[index]
    }
}

impl Array {
    pub(crate) fn take_request(&mut self, request: Request) -> Result<(), Full> {
        if let Err(error) = self.validate(&request) {
            self.actions.push_back(Action::Complete { id: request.id, result: Err(error) });
            return Ok(());
        }
        if self.requests.in_flight() == MAX_REQUESTS {
            return Err(Full);
        }
        let in_flight = InFlight { request, pending: 1, cut: 0, cutting: false, error: None };
        let index = self.requests.table.insert(in_flight);
        self.keeper.request_came(request.op);
        if matches!(request.op, Op::Write { .. }) {
            self.requests.sequential = request.sector == self.requests.write_end;
            self.requests.write_end = request.sector + request.sectors;
        }
        if request.op == Op::Flush {
            self.flush_members(index);
        } else {
            self.cut_request(index);
        }
        self.piece_done(index, Ok(()));
        Ok(())
    }

    fn validate(&self, request: &Request) -> Result<(), RequestError> {
        request.fits(self.geometry.array_sectors(), self.keeper.block_bytes())?;
        self.keeper.admits(request.op)
    }

    fn flush_members(&mut self, index: usize) {
        if self.keeper.is_read_only() {
            return;
        }
        for id in 0..self.keeper.members().len() as u16 {
            let id = MemberId(id);
            let holds_data = self
                .keeper
                .members()
                .get(id)
                .is_some_and(|m| m.state.is_live() && m.state.role().is_some());
            if holds_data {
                self.requests.get_mut(index).pending += 1;
                self.issue(id, IoOp::Flush, Owner::Plain { request: index });
            }
        }
    }

    /// Makes pieces of a request: all of a read or write, a bounded number of a zeroing.
    fn cut_request(&mut self, index: usize) {
        self.requests.get_mut(index).cutting = true;
        loop {
            let InFlight { request, cut, pending, .. } = *self.requests.get_mut(index);
            let left = request.sectors.saturating_sub(cut);
            let bounded = !matches!(request.op, Op::Read | Op::Write { .. });
            if left == 0 || (bounded && pending > MAX_PIECES) {
                self.requests.get_mut(index).cutting = false;
                return;
            }
            let sector = request.sector + cut;
            let done = match request.op {
                Op::Read => self.read_piece(index, sector, left, part(&request, cut, left)),
                Op::Write { fua } => {
                    self.write_piece(index, sector, left, Some(part(&request, cut, left)), fua)
                }
                Op::WriteZeroes { fua, unmap } => self.zero_piece(index, sector, left, fua, unmap),
                Op::Discard if self.is_redundant() => {
                    self.zero_piece(index, sector, left, false, true)
                }
                Op::Discard | Op::Flush => self.discard_piece(index, sector, left),
            };
            self.requests.get_mut(index).cut += done;
        }
    }

    /// One more piece of a request is in flight.
    fn add_piece(&mut self, index: usize) {
        self.requests.get_mut(index).pending += 1;
    }

    fn read_piece(&mut self, index: usize, sector: u64, left: u64, buf: Buf) -> u64 {
        let sectors = left.min(self.geometry.run(sector));
        let buf = buf.slice(0, (sectors * SECTOR_BYTES) as u32);
        self.add_piece(index);
        let place = if self.has_parity() {
            let (data, row) = self.parity_place(sector);
            let stripe = row / u64::from(self.geometry.chunk_sectors());
            let role = self.geometry.data_role(stripe, data);
            self.keeper.members().view(role, row, sectors, &[]).reader
        } else {
            self.choose_copy(sector, sectors)
        };
        let read = PlainRead { request: index, sector, buf };
        match place {
            Some(place) => {
                let op = IoOp::Read { sector: place.sector, buf };
                self.issue(place.member, op, Owner::PlainRead(read));
            }
            None => self.read_with_plan(read, None),
        }
        sectors
    }

    /// A plain read is answered; one that failed is tried again by other means.
    pub(crate) fn plain_read_done(&mut self, read: PlainRead, failed: Option<(MemberId, IoError)>) {
        match failed {
            None => self.piece_done(read.request, Ok(())),
            Some((_, error)) if error.kind == IoErrorKind::Abandoned => {
                self.piece_done(read.request, Err(RequestError::BufferHeld));
            }
            Some(_) if !self.is_redundant() => {
                self.piece_done(read.request, Err(RequestError::Medium));
            }
            Some((failed, _)) => self.read_with_plan(read, Some(failed)),
        }
    }

    /// Reads unit by unit through jobs that reconstruct or use another copy.
    fn read_with_plan(&mut self, read: PlainRead, failed: Option<MemberId>) {
        if !self.is_redundant() {
            self.piece_done(read.request, Err(RequestError::Failed));
            return;
        }
        // A member that cannot read is asked block by block: what it can read is not computed.
        let unreadable = failed.is_some_and(|id| self.keeper.members().live(id));
        let unit = if unreadable { BLOCK_SECTORS } else { self.unit_sectors() };
        let total = u64::from(read.buf.len) / SECTOR_BYTES;
        let mut done = 0;
        while done < total {
            let sector = read.sector + done;
            let sectors = (total - done).min(unit - self.sync_sector(sector) % unit);
            let bytes = |count: u64| (count * SECTOR_BYTES) as u32;
            let buf = read.buf.slice(bytes(done), bytes(sectors));
            let kind = Kind::Read { request: read.request, sector, buf, prefer: failed };
            self.add_piece(read.request);
            self.start_job(Job::new(kind, false));
            done += sectors;
        }
        self.piece_done(read.request, Ok(()));
    }

    /// One piece of a write; without a buffer it writes zeroes.
    fn write_piece(
        &mut self,
        index: usize,
        sector: u64,
        left: u64,
        buf: Option<Buf>,
        fua: bool,
    ) -> u64 {
        let run = left.min(self.geometry.run(sector));
        let cut = |sectors: u64| match buf {
            Some(buf) => Source::Buf(buf.slice(0, (sectors * SECTOR_BYTES) as u32)),
            None => Source::Zeroes { unmap: false },
        };
        if self.has_parity() {
            let unit = self.unit_sectors();
            let (_, row) = self.parity_place(sector);
            let sectors = run.min(unit - row % unit);
            self.stage_segment(index, sector, sectors as u32, cut(sectors), fua);
            return sectors;
        }
        self.add_piece(index);
        if self.is_mirror() {
            let sectors = run;
            let source = cut(sectors);
            let kind = Kind::MirrorWrite { request: index, sector, sectors, source };
            self.start_job(Job::new(kind, fua));
            return run;
        }
        let strip = self.geometry.copy(sector, 0);
        let view = self.keeper.members().view(strip.role, strip.sector, run, &[]);
        match (view.writers[0], cut(run)) {
            (Some(place), Source::Buf(buf)) => {
                let op = IoOp::Write { sector: place.sector, buf, fua };
                self.issue(place.member, op, Owner::Plain { request: index });
            }
            _ => self.piece_done(index, Err(RequestError::Failed)),
        }
        run
    }

    /// Adds new contents to the open job of their unit, or opens one.
    fn stage_segment(
        &mut self,
        request: usize,
        sector: u64,
        sectors: u32,
        source: Source,
        fua: bool,
    ) {
        let (index, row) = self.parity_place(sector);
        let height = self.unit_sectors();
        let unit = Unit { start: row - row % height, sectors: height as u32 };
        let start = (row % height) as u32;
        let segment = Segment { index, rows: Rows::new(start, start + sectors), source };
        self.add_piece(request);
        if let Some(&open) = self.queues.open_units.get(&unit.start) {
            let job = self.jobs.get_mut(open);
            if let Kind::Write { segments, requests, .. } = &mut job.kind
                && !segments.iter().any(|held| overlap(held, &segment))
            {
                segments.push(segment);
                requests.push(request);
                job.fua |= fua;
                return;
            }
        }
        let kind = Kind::Write { unit, segments: vec![segment], requests: vec![request] };
        let mut job = Job::new(kind, fua);
        job.hold_until =
            (self.requests.sequential && !fua).then(|| self.keeper.now().plus_millis(HOLD_MS));
        let job = self.jobs.insert(job);
        self.queues.staged.push_back(job);
        self.queues.open_units.insert(unit.start, job);
    }

    /// Starts the gathered writes: those whose unit is full or will not be filled. A unit that a
    /// sequential stream has begun waits a moment, as long as other I/O is on its way.
    pub(crate) fn start_staged(&mut self) {
        let full = u64::from(self.geometry.data_disks()) * self.unit_sectors();
        let hurry =
            self.keeper.has_failed() || self.keeper.is_stopping() || self.ios.in_flight == 0;
        for _ in 0..self.queues.staged.len() {
            let Some(index) = self.queues.staged.pop_front() else { return };
            let job = self.jobs.get(index);
            let held = !hurry && job.hold_until.is_some_and(|until| self.keeper.now() < until);
            if held && job.gathered_sectors() < full {
                self.queues.staged.push_back(index);
            } else {
                self.queues.ready.push_back(index);
            }
        }
    }

    /// When a gathered write has waited long enough.
    pub(crate) fn hold_deadline(&self) -> Option<Instant> {
        self.queues.staged.iter().filter_map(|index| self.jobs.get(*index).hold_until).min()
    }

    /// One piece of a zeroing.
    fn zero_piece(&mut self, index: usize, sector: u64, left: u64, fua: bool, unmap: bool) -> u64 {
        if self.has_parity() {
            let stripe =
                u64::from(self.geometry.chunk_sectors()) * u64::from(self.geometry.data_disks());
            let stripes = (left / stripe).min(MAX_ZERO_SECTORS / stripe);
            if sector.is_multiple_of(stripe) && stripes > 0 {
                let start = self.parity_place(sector).1;
                let end = start + stripes * u64::from(self.geometry.chunk_sectors());
                self.add_piece(index);
                let kind = Kind::ZeroStripes { request: index, start, end, unmap };
                self.start_job(Job::new(kind, fua));
                return stripes * stripe;
            }
            return self.write_piece(index, sector, left.min(stripe - sector % stripe), None, fua);
        }
        let sectors = left.min(self.geometry.run(sector)).min(MAX_ZERO_SECTORS);
        self.add_piece(index);
        if self.is_mirror() {
            let source = Source::Zeroes { unmap };
            let kind = Kind::MirrorWrite { request: index, sector, sectors, source };
            self.start_job(Job::new(kind, fua));
            return sectors;
        }
        self.issue_striped(index, sector, sectors, |first| IoOp::WriteZeroes {
            sector: first,
            sectors,
            unmap,
            fua,
        });
        sectors
    }

    /// One piece of a discard on a level without redundancy: members may keep or lose the bytes.
    fn discard_piece(&mut self, index: usize, sector: u64, left: u64) -> u64 {
        let sectors = left.min(self.geometry.run(sector)).min(MAX_ZERO_SECTORS);
        self.add_piece(index);
        self.issue_striped(index, sector, sectors, |first| IoOp::Discard {
            sector: first,
            sectors,
        });
        sectors
    }

    fn issue_striped(&mut self, index: usize, sector: u64, sectors: u64, op: impl Fn(u64) -> IoOp) {
        let strip = self.geometry.copy(sector, 0);
        match self.keeper.members().view(strip.role, strip.sector, sectors, &[]).writers[0] {
            Some(place) => {
                self.issue(place.member, op(place.sector), Owner::Plain { request: index });
            }
            None => self.piece_done(index, Err(RequestError::Failed)),
        }
    }

    /// What an error of an unplanned write, zeroing, discard or flush means to its request.
    pub(crate) fn plain_error(
        &self,
        member: MemberId,
        op: IoOp,
        error: IoError,
    ) -> Option<RequestError> {
        match op {
            IoOp::Discard { .. } => None,
            // The member is faulty now; what the others hold is durable.
            IoOp::Flush if self.is_redundant() && !self.keeper.members().live(member) => {
                self.keeper.has_failed().then_some(RequestError::Failed)
            }
            _ if error.kind == IoErrorKind::Full => Some(RequestError::NoSpace),
            _ => Some(RequestError::Medium),
        }
    }

    /// A piece of a request is done; the last one answers it.
    pub(crate) fn piece_done(&mut self, index: usize, result: Result<(), RequestError>) {
        let in_flight = self.requests.get_mut(index);
        if let Err(error) = result {
            in_flight.error = Some(error);
            in_flight.cut = in_flight.request.sectors;
        }
        let InFlight { request, cut, cutting, .. } = *in_flight;
        if !cutting && cut < request.sectors && request.op != Op::Flush {
            self.cut_request(index);
        }
        let in_flight = self.requests.get_mut(index);
        in_flight.pending -= 1;
        if in_flight.pending > 0 {
            return;
        }
        let told = matches!(in_flight.request.op, Op::Read);
        if !told && !self.keeper.failures_told() {
            self.requests.settling.push(index);
            return;
        }
        self.answer(index);
    }

    /// Answers what waited for the superblocks to tell of a failure.
    pub(crate) fn answer_settled(&mut self) {
        if self.keeper.failures_told() {
            for request in std::mem::take(&mut self.requests.settling) {
                self.answer(request);
            }
        }
    }

    /// Answers a request whose pieces are all done.
    fn answer(&mut self, index: usize) {
        let in_flight = self.requests.table.remove(index);
        self.keeper.request_over(in_flight.request.op);
        let result = in_flight.error.map_or(Ok(()), Err);
        self.actions.push_back(Action::Complete { id: in_flight.request.id, result });
    }
}

/// The part of a request's buffer for sectors `[cut, cut + left)`.
fn part(request: &Request, cut: u64, left: u64) -> Buf {
    request.buf.slice((cut * SECTOR_BYTES) as u32, (left * SECTOR_BYTES) as u32)
}

fn overlap(a: &Segment, b: &Segment) -> bool {
    a.index == b.index && a.rows.start < b.rows.end && b.rows.start < a.rows.end
}
