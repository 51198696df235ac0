//! Requests: taken in, cut into pieces, answered when the last piece is done.
//!
//! Reads that need no plan, and everything on levels without redundancy, go straight to the
//! members: no lock, no allocation. Writes to parity are gathered by unit until the executor has
//! no more to hand in, so that what arrives together is written together.

use slab::Slab;

use super::io::{Owner, PlainRead};
use super::job::{Job, JobKind};
use super::jobs::Jobs;
use super::lane::Lane;
use super::recording::LogKind;
use crate::action::{Action, IoError, IoErrorKind};
use crate::keeper::{BLOCK_SECTORS, KeeperView, LaneReport, Unit};
use crate::plan::Rows;
use crate::plan::parity::{Segment, Source};
use crate::request::Full;
use crate::{Buf, IoOp, MemberId, Op, Request, RequestError, SECTOR_BYTES};

/// Requests in flight at most.
pub(crate) const MAX_REQUESTS: usize = 256;
/// The time for which a unit that a sequential stream has begun waits to be filled.
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
    /// The rest is to be written where data are being moved, and waits.
    waits: bool,
    error: Option<RequestError>,
}

/// The rest of a request that pieces are cut off: from where, and how much is left.
#[derive(Clone, Copy)]
struct RequestRest {
    request: usize,
    sector: u64,
    left: u64,
}

/// The requests in flight. [`take`](Self::take) cuts one into pieces, which become I/O or jobs;
/// [`piece_done`](Self::piece_done) cuts off more, and with the last piece answers the request, or
/// has it wait until superblocks tell of a failure: see [`answer_told`](Self::answer_told).
#[derive(Debug)]
pub(crate) struct Requests {
    table: Slab<InFlight>,
    /// Done but for the superblocks that tell of a failure.
    untold: Vec<usize>,
    /// Where the last write ended, and whether it began where the one before did.
    write_end: u64,
    sequential: bool,
    /// Came while none was to begin.
    held: Vec<Request>,
    /// Have something to write where data are being moved.
    windowed: Vec<usize>,
}

impl Requests {
    pub(super) fn new() -> Self {
        let table = Slab::with_capacity(MAX_REQUESTS);
        Self {
            table,
            untold: Vec::new(),
            write_end: u64::MAX,
            sequential: false,
            held: Vec::new(),
            windowed: Vec::new(),
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.table.len()
    }

    /// Counts those that change data.
    pub(super) fn writers(&self) -> usize {
        self.table.iter().filter(|(_, in_flight)| in_flight.request.op.changes_data()).count()
    }

    /// Those that wait until what is being moved lies elsewhere.
    pub(super) fn windowed(&self) -> &[usize] {
        &self.windowed
    }

    /// The pieces of each that are not done.
    pub(super) fn pending(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.table.iter().map(|(index, in_flight)| (index, in_flight.pending))
    }

    /// Returns whether a request is done but for the superblocks.
    pub(super) fn is_untold(&self, index: usize) -> bool {
        self.untold.contains(&index)
    }

    fn get_mut(&mut self, index: usize) -> &mut InFlight {
        &mut self.table[index]
    }

    pub(super) fn take(
        &mut self,
        lane: &mut Lane,
        jobs: &mut Jobs,
        request: Request,
    ) -> Result<(), Full> {
        if let Err(error) = validate(lane, &request) {
            lane.actions.push_back(Action::Complete { id: request.id, result: Err(error) });
            return Ok(());
        }
        if self.table.len() == MAX_REQUESTS {
            return Err(Full);
        }
        self.begin(lane, jobs, request);
        Ok(())
    }

    /// Keeps a request that is not to begin yet.
    pub(super) fn hold(&mut self, lane: &mut Lane, request: Request) -> Result<(), Full> {
        if let Err(error) = validate(lane, &request) {
            lane.actions.push_back(Action::Complete { id: request.id, result: Err(error) });
            return Ok(());
        }
        if self.held.len() == MAX_REQUESTS {
            return Err(Full);
        }
        self.held.push(request);
        Ok(())
    }

    pub(super) fn any_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Begins with the requests that were held. The array may have become smaller.
    pub(super) fn release(&mut self, lane: &mut Lane, jobs: &mut Jobs) {
        for request in std::mem::take(&mut self.held) {
            match request.fits(lane.map.array_sectors(), lane.keeper().block_bytes()) {
                Ok(()) => self.begin(lane, jobs, request),
                Err(error) => {
                    let result = Err(error);
                    lane.actions.push_back(Action::Complete { id: request.id, result });
                }
            }
        }
    }

    /// Begins with a request that was taken.
    fn begin(&mut self, lane: &mut Lane, jobs: &mut Jobs, request: Request) {
        let in_flight =
            InFlight { request, pending: 1, cut: 0, cutting: false, waits: false, error: None };
        let index = self.table.insert(in_flight);
        lane.report(LaneReport::RequestCame(request.op));
        if matches!(request.op, Op::Write { .. }) {
            self.sequential = request.sector == self.write_end;
            self.write_end = request.sector + request.sectors;
        }
        if request.op == Op::Flush {
            self.flush_members(lane, index);
        } else {
            self.cut_request(lane, jobs, index);
        }
        self.piece_done(lane, jobs, index, Ok(()));
    }

    fn flush_members(&mut self, lane: &mut Lane, index: usize) {
        let over = lane.keeper().writes_over();
        // What a journal has recorded is durable, as long as the journal is there.
        if lane.keeper().is_read_only() || lane.log == LogKind::Journal && !over {
            return;
        }
        if over && !lane.dirty.is_empty() {
            self.get_mut(index).error = Some(RequestError::Failed);
            return;
        }
        for id in 0..lane.keeper().members().len() as u16 {
            let id = MemberId(id);
            let holds_data = lane
                .keeper()
                .members()
                .get(id)
                .is_some_and(|m| m.state.is_live() && m.state.role().is_some());
            if holds_data {
                self.get_mut(index).pending += 1;
                lane.issue(id, IoOp::Flush, Owner::Plain { request: index });
            }
        }
    }

    /// Makes pieces of a request: all of a read or write, a bounded number of a zeroing.
    fn cut_request(&mut self, lane: &mut Lane, jobs: &mut Jobs, index: usize) {
        self.get_mut(index).cutting = true;
        loop {
            let InFlight { request, cut, pending, .. } = *self.get_mut(index);
            let left = request.sectors.saturating_sub(cut);
            let bounded = !matches!(request.op, Op::Read | Op::Write { .. });
            if left == 0 || (bounded && pending > MAX_PIECES) {
                self.get_mut(index).cutting = false;
                return;
            }
            let sector = request.sector + cut;
            let is_moving = lane.map.is_moving(sector) && !crate::broken("reshape-window");
            let is_saved = lane.map.saved_to().is_some() && !crate::broken("spill-reads");
            let waits = request.op.changes_data() || is_saved;
            if waits && left > 0 && is_moving {
                let is_over = lane.map.saved_to().is_some() && lane.moves_no_more();
                let in_flight = self.get_mut(index);
                if is_over {
                    // Neither map holds there, and nothing goes on.
                    in_flight.error = Some(RequestError::Failed);
                    (in_flight.cut, in_flight.cutting) = (in_flight.request.sectors, false);
                    return;
                }
                (in_flight.waits, in_flight.cutting) = (true, false);
                in_flight.pending += 1;
                return self.windowed.push(index);
            }
            let left = left.min(lane.map.alike(sector));
            let piece = RequestRest { request: index, sector, left };
            let done = match request.op {
                Op::Read => self.read_piece(lane, jobs, piece, part(&request, cut, left)),
                Op::Write { fua } => {
                    self.write_piece(lane, jobs, piece, Some(part(&request, cut, left)), fua)
                }
                Op::WriteZeroes { fua, unmap } => self.zero_piece(lane, jobs, piece, fua, unmap),
                // What a journal would have to record is more than what is given back.
                Op::Discard if lane.log == LogKind::Journal => left,
                Op::Discard if lane.keeper().is_redundant() => {
                    self.zero_piece(lane, jobs, piece, false, true)
                }
                Op::Discard | Op::Flush => self.discard_piece(lane, jobs, piece),
            };
            self.get_mut(index).cut += done;
        }
    }

    /// What was being moved lies elsewhere now: goes on with the writes that waited for it.
    pub(super) fn window_moved(&mut self, lane: &mut Lane, jobs: &mut Jobs) {
        for index in std::mem::take(&mut self.windowed) {
            let in_flight = self.get_mut(index);
            in_flight.waits = false;
            if in_flight.error.is_some() {
                in_flight.cut = in_flight.request.sectors;
            }
            self.piece_done(lane, jobs, index, Ok(()));
        }
    }

    /// One more piece of a request is in flight.
    fn add_piece(&mut self, index: usize) {
        self.get_mut(index).pending += 1;
    }

    fn read_piece(
        &mut self,
        lane: &mut Lane,
        jobs: &mut Jobs,
        piece: RequestRest,
        buf: Buf,
    ) -> u64 {
        let RequestRest { request: index, sector, left } = piece;
        let sectors = left.min(lane.map.run(sector));
        let buf = buf.slice(0, (sectors * SECTOR_BYTES) as u32);
        self.add_piece(index);
        let newer = lane.dirty.within(&lane.map, sector, sectors).next().is_some();
        let place = if newer {
            None
        } else if lane.map.has_parity() {
            let (data, row) = lane.map.parity_place(sector);
            let map = lane.map.at(sector);
            let role = map.data_role(row / u64::from(map.chunk_sectors()), data);
            lane.keeper().members().view(role, row, sectors, &[]).reader
        } else {
            lane.planner().choose_copy(sector, sectors)
        };
        let read = PlainRead { request: index, sector, buf };
        match place {
            Some(place) => {
                let op = IoOp::Read { sector: place.sector, buf };
                lane.issue(place.member, op, Owner::PlainRead(read));
            }
            None => self.read_with_plan(lane, jobs, read, None),
        }
        sectors
    }

    /// A plain read is answered; one that failed is tried again by other means.
    pub(super) fn plain_read_done(
        &mut self,
        lane: &mut Lane,
        jobs: &mut Jobs,
        read: PlainRead,
        failed: Option<(MemberId, IoError)>,
    ) {
        match failed {
            None => self.piece_done(lane, jobs, read.request, Ok(())),
            Some((_, error)) if error.kind == IoErrorKind::Abandoned => {
                self.piece_done(lane, jobs, read.request, Err(RequestError::BufferHeld));
            }
            Some(_) if !lane.keeper().is_redundant() => {
                self.piece_done(lane, jobs, read.request, Err(RequestError::Medium));
            }
            Some((failed, _)) => self.read_with_plan(lane, jobs, read, Some(failed)),
        }
    }

    /// Reads unit by unit through jobs that reconstruct or use another copy.
    fn read_with_plan(
        &mut self,
        lane: &mut Lane,
        jobs: &mut Jobs,
        read: PlainRead,
        failed: Option<MemberId>,
    ) {
        if !lane.keeper().is_redundant() {
            self.piece_done(lane, jobs, read.request, Err(RequestError::Failed));
            return;
        }
        // A member that cannot read is asked block by block: what it can read is not computed.
        let unreadable = failed.is_some_and(|id| lane.keeper().members().live(id));
        let unit = if unreadable { BLOCK_SECTORS } else { lane.map.unit_sectors() };
        let total = u64::from(read.buf.len) / SECTOR_BYTES;
        let mut done = 0;
        while done < total {
            let sector = read.sector + done;
            let start = lane.map.sync_sector(sector);
            let sectors = (total - done).min(unit - start % unit);
            let bytes = |count: u64| (count * SECTOR_BYTES) as u32;
            let buf = read.buf.slice(bytes(done), bytes(sectors));
            let request = read.request;
            let kind = JobKind::Read { request, sector, start, buf, prefer: failed };
            self.add_piece(read.request);
            jobs.start(Job::new(kind, false));
            done += sectors;
        }
        self.piece_done(lane, jobs, read.request, Ok(()));
    }

    /// One piece of a write; without a buffer it writes zeroes.
    fn write_piece(
        &mut self,
        lane: &mut Lane,
        jobs: &mut Jobs,
        piece: RequestRest,
        buf: Option<Buf>,
        fua: bool,
    ) -> u64 {
        let RequestRest { request: index, sector, left } = piece;
        let run = left.min(lane.map.run(sector));
        let cut = |sectors: u64| match buf {
            Some(buf) => Source::Buf(buf.slice(0, (sectors * SECTOR_BYTES) as u32)),
            None => Source::Zeroes { unmap: false },
        };
        if lane.map.has_parity() {
            let unit = lane.map.unit_sectors();
            let (strip, row) = lane.map.parity_place(sector);
            let start = row % unit;
            let sectors = run.min(unit - start);
            let rows = Rows::new(start as u32, (start + sectors) as u32);
            let segment = Segment { index: strip, rows, source: cut(sectors) };
            let unit = Unit { start: row - start, sectors: unit as u32 };
            self.add_piece(index);
            // More of a sequential stream is likely to come soon.
            let waits = self.sequential && !fua;
            let hold_until = waits.then(|| lane.keeper().now().plus_millis(HOLD_MS));
            let fua = fua && lane.log != LogKind::Journal;
            let job = jobs.gather(lane.log, unit, segment, index, fua, hold_until);
            if let Some(write) = jobs.get_mut(job).write_mut() {
                write.in_stream |= self.sequential;
            }
            return sectors;
        }
        self.add_piece(index);
        if lane.map.is_mirror() {
            let source = cut(run);
            let kind = JobKind::MirrorWrite { request: index, sector, sectors: run, source };
            jobs.start(Job::new(kind, fua));
            return run;
        }
        let strip = lane.map.geometry.copy(sector, 0);
        let view = lane.keeper().members().view(strip.role, strip.sector, run, &[]);
        match (view.writers[0], cut(run)) {
            (Some(place), Source::Buf(buf)) => {
                let op = IoOp::Write { sector: place.sector, buf, fua, fill: false };
                lane.issue(place.member, op, Owner::Plain { request: index });
            }
            _ => self.piece_done(lane, jobs, index, Err(RequestError::Failed)),
        }
        run
    }

    /// One piece of a zeroing.
    fn zero_piece(
        &mut self,
        lane: &mut Lane,
        jobs: &mut Jobs,
        piece: RequestRest,
        fua: bool,
        unmap: bool,
    ) -> u64 {
        let RequestRest { request: index, sector, left } = piece;
        if lane.map.has_parity() {
            let geometry = lane.map.at(sector);
            let chunk = u64::from(geometry.chunk_sectors());
            let stripe = chunk * u64::from(geometry.data_disks());
            let at_once = match lane.log {
                LogKind::None => MAX_ZERO_SECTORS / stripe,
                // The parity of each stripe has another log.
                LogKind::PartialParity => 1,
                LogKind::Journal => 0,
            };
            let stripes = (left / stripe).min(at_once);
            if sector.is_multiple_of(stripe) && stripes > 0 {
                let start = lane.map.parity_place(sector).1;
                let end = start + stripes * chunk;
                self.add_piece(index);
                let kind = JobKind::ZeroStripes { request: index, start, end, unmap };
                jobs.start(Job::new(kind, fua));
                return stripes * stripe;
            }
            let to_stripe = RequestRest { left: left.min(stripe - sector % stripe), ..piece };
            return self.write_piece(lane, jobs, to_stripe, None, fua);
        }
        let sectors = left.min(lane.map.run(sector)).min(MAX_ZERO_SECTORS);
        self.add_piece(index);
        if lane.map.is_mirror() {
            let source = Source::Zeroes { unmap };
            let kind = JobKind::MirrorWrite { request: index, sector, sectors, source };
            jobs.start(Job::new(kind, fua));
            return sectors;
        }
        self.issue_striped(lane, jobs, RequestRest { left: sectors, ..piece }, |first| {
            IoOp::WriteZeroes { sector: first, sectors, unmap, fua }
        });
        sectors
    }

    /// One piece of a discard on a level without redundancy: members may keep or lose the bytes.
    fn discard_piece(&mut self, lane: &mut Lane, jobs: &mut Jobs, piece: RequestRest) -> u64 {
        let RequestRest { request: index, sector, left } = piece;
        let sectors = left.min(lane.map.geometry.run(sector)).min(MAX_ZERO_SECTORS);
        self.add_piece(index);
        self.issue_striped(lane, jobs, RequestRest { left: sectors, ..piece }, |first| {
            IoOp::Discard { sector: first, sectors }
        });
        sectors
    }

    fn issue_striped(
        &mut self,
        lane: &mut Lane,
        jobs: &mut Jobs,
        piece: RequestRest,
        op: impl Fn(u64) -> IoOp,
    ) {
        let RequestRest { request: index, sector, left: sectors } = piece;
        let strip = lane.map.geometry.copy(sector, 0);
        match lane.keeper().members().view(strip.role, strip.sector, sectors, &[]).writers[0] {
            Some(place) => {
                lane.issue(place.member, op(place.sector), Owner::Plain { request: index });
            }
            None => self.piece_done(lane, jobs, index, Err(RequestError::Failed)),
        }
    }

    /// A piece of a request is done; the last one answers it.
    pub(super) fn piece_done(
        &mut self,
        lane: &mut Lane,
        jobs: &mut Jobs,
        index: usize,
        result: Result<(), RequestError>,
    ) {
        let in_flight = self.get_mut(index);
        if let Err(error) = result {
            in_flight.error = Some(error);
            in_flight.cut = in_flight.request.sectors;
        }
        let InFlight { request, cut, cutting, .. } = *in_flight;
        let waits = in_flight.waits;
        if !cutting && !waits && cut < request.sectors && request.op != Op::Flush {
            self.cut_request(lane, jobs, index);
        }
        let in_flight = self.get_mut(index);
        in_flight.pending -= 1;
        if in_flight.pending > 0 {
            return;
        }
        let told = matches!(in_flight.request.op, Op::Read);
        if !told && !lane.keeper().failures_told() {
            self.untold.push(index);
            return;
        }
        self.answer(lane, index);
    }

    /// Answers what waited for the superblocks to tell of a failure.
    pub(super) fn answer_told(&mut self, lane: &mut Lane) {
        if !lane.keeper().failures_told() {
            return;
        }
        for request in std::mem::take(&mut self.untold) {
            self.answer(lane, request);
        }
    }

    /// Answers a request whose pieces are all done. The superblocks of an array that has failed
    /// never tell of it: what was not written to a member, or is not durable there, counts when the
    /// member is back.
    fn answer(&mut self, lane: &mut Lane, index: usize) {
        let in_flight = self.table.remove(index);
        let op = in_flight.request.op;
        lane.report(LaneReport::RequestOver(op));
        let untold = lane.keeper().has_failed() && !lane.keeper().is_read_only();
        let result = match in_flight.error {
            Some(error) => Err(error),
            None if untold && op != Op::Read => Err(RequestError::Failed),
            None => Ok(()),
        };
        lane.actions.push_back(Action::Complete { id: in_flight.request.id, result });
    }
}

/// Checks that a request fits the array, and that it is served now.
pub(super) fn validate(lane: &Lane, request: &Request) -> Result<(), RequestError> {
    request.fits(lane.map.array_sectors(), lane.keeper().block_bytes())?;
    lane.keeper().admits(request.op)
}

/// Returns what a failed unplanned write, zeroing, discard or flush means to its request.
pub(super) fn plain_error(
    keeper: KeeperView<'_>,
    member: MemberId,
    op: IoOp,
    error: IoError,
) -> Option<RequestError> {
    match op {
        IoOp::Discard { .. } => None,
        // The member is faulty now; what the others hold is durable.
        IoOp::Flush if keeper.is_redundant() && !keeper.members().live(member) => {
            keeper.has_failed().then_some(RequestError::Failed)
        }
        _ if error.kind == IoErrorKind::Full => Some(RequestError::NoSpace),
        _ => Some(RequestError::Medium),
    }
}

/// The part of a request's buffer for sectors `[cut, cut + left)`.
fn part(request: &Request, cut: u64, left: u64) -> Buf {
    request.buf.slice((cut * SECTOR_BYTES) as u32, (left * SECTOR_BYTES) as u32)
}
