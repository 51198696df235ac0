//! State that the exports of an engine share: the driver, the arena, and the requests on their way
//! through the machine.

use std::collections::VecDeque;
use std::ops::Range;

use braid_array::{BlockMachine, Buf, Instant, Op, Request, RequestError, RequestId, SECTOR_BYTES};

use super::scattered::ScatteredRanges;
use crate::arena::Arena;
use crate::driver::Driver;
use crate::token::{ExportId, Owner, Token};
use braid_array::figures::{IoFigures, OperationKind};
use slab::Slab;

/// The driver, the arena, and the requests of all exports that the machine has not answered. An
/// export queues one with [`request`](Self::request); the engine [submits](Self::submit) the queue
/// in order until the machine is full, and takes a request out when it is
/// [`completed`](Self::completed), or asks for it [again](Self::ask_again) with another buffer. The
/// id of a request is its index here.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) driver: Driver<Token>,
    pub(crate) arena: Arena,
    requests: Slab<AskedRequest>,
    scattered: ScatteredRanges,
    /// Requests for bytes of scattered ranges.
    spreads: Slab<Spread>,
    /// Requests the machine has not taken yet, in order.
    pending: VecDeque<usize>,
    /// The time of this turn of the loop.
    pub(crate) now: Instant,
    /// Counters of completed requests.
    figures: IoFigures,
}

/// A request, its owner, and the time at which it came.
#[derive(Debug)]
struct AskedRequest {
    request: Request,
    owner: Owner,
    at: Instant,
}

/// A request that was asked of the array in pieces.
#[derive(Debug)]
struct Spread {
    request: Request,
    owner: Owner,
    /// Pieces that have not completed.
    left: usize,
    result: Result<(), RequestError>,
}

impl Core {
    pub(crate) fn new(arena: Arena, driver: Driver<Token>, scattered: ScatteredRanges) -> Self {
        let requests = Slab::default();
        let pending = VecDeque::new();
        let now = Instant::default();
        let spreads = Slab::default();
        let figures = IoFigures::default();
        Self { driver, arena, requests, scattered, spreads, pending, now, figures }
    }

    /// Queues a request for the machine; offsets in bytes, multiples of a sector.
    pub(crate) fn request(&mut self, op: Op, offset: u64, len: u64, buf: Buf, owner: Owner) {
        if len > 0 && self.scattered.hold(offset) {
            self.spread(op, &(offset..offset + len), buf, owner);
        } else {
            self.queue(op, offset, len, buf, owner);
        }
    }

    /// Queues the pieces of a request for a scattered range.
    fn spread(&mut self, op: Op, bytes: &Range<u64>, buf: Buf, owner: Owner) {
        let pieces = self.scattered.pieces(bytes);
        let sector = bytes.start / SECTOR_BYTES;
        let len = bytes.end - bytes.start;
        if super::scattered::length(&pieces) < len {
            // Beyond the end of the range: refused by the array, as beyond its own.
            return self.queue(op, bytes.start, len, buf, owner);
        }
        let request = Request { id: RequestId(0), op, sector, sectors: len / SECTOR_BYTES, buf };
        let spread = Spread { request, owner, left: pieces.len(), result: Ok(()) };
        let index = self.spreads.insert(spread);
        let mut done = 0;
        for piece in pieces {
            let len = piece.end - piece.start;
            // Zeroing and discarding have no memory.
            let part = if buf.len == 0 { buf } else { buf.slice(done as u32, len as u32) };
            self.queue(op, piece.start, len, part, Owner::Spread(index));
            done += len;
        }
    }

    fn queue(&mut self, op: Op, offset: u64, len: u64, buf: Buf, owner: Owner) {
        let sector = offset / SECTOR_BYTES;
        let sectors = len / SECTOR_BYTES;
        let request = Request { id: RequestId(0), op, sector, sectors, buf };
        let index = self.requests.insert(AskedRequest { request, owner, at: self.now });
        self.requests[index].request.id = RequestId(index as u64);
        self.pending.push_back(index);
    }

    /// Offers the queued requests to the machine. True when it took one.
    pub(crate) fn submit(&mut self, machine: &mut dyn BlockMachine) -> bool {
        let before = self.pending.len();
        while let Some(&index) = self.pending.front() {
            if machine.submit(self.now, self.requests[index].request).is_err() {
                break;
            }
            self.pending.pop_front();
        }
        self.pending.len() < before
    }

    /// The buffer of a read is still in use: asks for it again with another one. False when there
    /// is none, or it is a part of one.
    pub(crate) fn ask_again(&mut self, id: RequestId) -> bool {
        let index = usize::try_from(id.0).expect("request ids are slab indices");
        if matches!(self.requests[index].owner, Owner::Spread(_)) {
            return false;
        }
        let request = &mut self.requests[index].request;
        let Some(other) = self.arena.replace(request.buf) else { return false };
        request.buf = other;
        self.pending.push_back(index);
        true
    }

    /// Takes a completed request out, and counts it. `None` while other pieces of the same request
    /// are in flight.
    pub(crate) fn completed(
        &mut self,
        id: RequestId,
        result: Result<(), RequestError>,
    ) -> Option<(Request, Owner, Result<(), RequestError>)> {
        let index = usize::try_from(id.0).expect("request ids are slab indices");
        let AskedRequest { request, owner, at } = self.requests.remove(index);
        let kind = match request.op {
            Op::Read => OperationKind::Read,
            Op::Write { .. } => OperationKind::Write,
            Op::WriteZeroes { .. } => OperationKind::Zero,
            Op::Discard => OperationKind::Discard,
            Op::Flush => OperationKind::Flush,
        };
        let good = result.is_ok();
        self.figures.note((kind, request.sectors * SECTOR_BYTES), at, self.now, good);
        let Owner::Spread(of) = owner else { return Some((request, owner, result)) };
        let spread = &mut self.spreads[of];
        spread.left -= 1;
        spread.result = spread.result.and(result);
        if spread.left > 0 {
            return None;
        }
        let Spread { request, owner, result, .. } = self.spreads.remove(of);
        Some((request, owner, result))
    }

    /// Returns the counters of requests to the array so far.
    pub(crate) fn figures(&self) -> IoFigures {
        IoFigures { in_flight: self.requests.len() as u64, ..self.figures.clone() }
    }

    /// Returns whether an operation or a request of an export is in flight.
    pub(crate) fn serves(&self, id: ExportId) -> bool {
        let is_its = |token: &Token| matches!(token, Token::Export(of, _) if *of == id);
        self.driver.is_under_way(is_its) || self.asks(id)
    }

    /// Returns whether a request of an export is in flight.
    pub(crate) fn asks(&self, id: ExportId) -> bool {
        let asked = self.requests.iter().map(|(_, asked)| asked.owner);
        let mut owners = asked.chain(self.spreads.iter().map(|(_, spread)| spread.owner));
        owners.any(|owner| matches!(owner, Owner::Export(of, _) if of == id))
    }

    /// Requests that have not completed.
    pub(crate) fn requests(&self) -> usize {
        self.requests.len()
    }
}
