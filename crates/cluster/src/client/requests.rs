//! Requests cut into pieces of blocks, and their completion.

use std::ops::Range;

use braid_array::Op;

use super::extent::Extent;
use super::gather::{Fragment, Patience};
use super::{
    Action, BLOCK_BYTES, BlockMachine, Buf, Client, Phase, Request, RequestError, RequestId,
    SECTOR_BYTES,
};

/// Writes of which it is remembered where they were.
const LATEST: usize = 16;
/// Blocks of zeroes of one request that are under way at once.
const ZEROES_AT_ONCE: u32 = 256;

/// A request that is being served.
#[derive(Debug)]
pub(super) struct Pending {
    /// Parts that are not over.
    left: u32,
    pub(super) op: Op,
    error: Option<RequestError>,
}

impl Pending {
    pub(super) const fn is_over(&self) -> bool {
        self.left == 0
    }
}

/// A range that is to read as zeroes.
#[derive(Debug)]
pub(super) struct Zeroing {
    id: RequestId,
    fua: bool,
    /// No space need be kept.
    unmap: bool,
    /// What would have to be written is left as it is.
    hint: bool,
    /// Bytes of the array.
    start: u64,
    next: u64,
    end: u64,
}

impl Zeroing {
    fn of(request: &Request, start: u64, end: u64) -> Self {
        let (fua, unmap, hint) = match request.op {
            Op::WriteZeroes { fua, unmap } => (fua, unmap, false),
            _ => (false, true, true),
        };
        Self { id: request.id, fua, unmap, hint, start, next: start, end }
    }
}

impl Client {
    pub(super) fn take_request(&mut self, request: Request) {
        let result = self.check(&request);
        if let Err(error) = result {
            let id = request.id;
            self.actions.push_back(Action::Complete { id, result: Err(error) });
            return;
        }
        self.keeper.request_came(request.op);
        // The request itself is a part until all others are known.
        self.requests.insert(request.id, Pending { left: 1, op: request.op, error: None });
        let start = request.sector * SECTOR_BYTES;
        let end = start + request.sectors * SECTOR_BYTES;
        match request.op {
            Op::Read => self.read(&request),
            Op::Write { fua } => self.write(start, request.buf, request.id, fua),
            Op::WriteZeroes { .. } | Op::Discard => {
                self.add_parts(request.id, 1);
                self.zeroing.push_back(Zeroing::of(&request, start, end));
            }
            Op::Flush => {
                self.add_parts(request.id, 1);
                self.flush_nodes(request.id);
            }
        }
        self.piece_over(request.id, Ok(()));
    }

    fn check(&self, request: &Request) -> Result<(), RequestError> {
        if !matches!(self.phase, Phase::Running) || self.keeper.is_stopping() {
            return Err(RequestError::Failed);
        }
        request.fits(self.array_sectors(), BLOCK_BYTES)?;
        self.keeper.admits(request.op)
    }

    pub(super) fn add_parts(&mut self, id: RequestId, parts: u32) {
        if let Some(pending) = self.requests.get_mut(&id) {
            pending.left += parts;
        }
    }

    /// One part of a request is over.
    pub(super) fn piece_over(&mut self, id: RequestId, result: Result<(), RequestError>) {
        let Some(pending) = self.requests.get_mut(&id) else { return };
        pending.error = pending.error.or(result.err());
        pending.left -= 1;
        if pending.left == 0 {
            let result = pending.error.map_or(Ok(()), Err);
            self.keeper.request_over(pending.op);
            self.requests.remove(&id);
            self.actions.push_back(Action::Complete { id, result });
        }
    }

    /// The first part of a byte range.
    pub(super) fn extent(&self, start: u64, end: u64) -> Extent {
        let chunk = u64::from(self.params().chunk_bytes);
        let slice = u64::from(self.slice_bytes());
        let (block, at) = (start / chunk, start % chunk);
        let data = u64::from(self.pipeline.data_blocks());
        let len = (slice - at % slice).min(chunk - at).min(end - start);
        Extent {
            stripe: block / data,
            index: (block % data) as u32,
            at: at as u32,
            len: len as u32,
        }
    }

    fn write(&mut self, start: u64, buf: Buf, request: RequestId, fua: bool) {
        let end = start + u64::from(buf.len);
        let patience = self.patience(start, end);
        let mut next = start;
        while next < end {
            let extent = self.extent(next, end);
            let buf = buf.slice((next - start) as u32, extent.len);
            self.add_parts(request, 1);
            let (index, at) = (extent.index, extent.at);
            self.gather(
                extent.stripe,
                Fragment { index, at, buf, request, fua, blank: false },
                patience,
            );
            next += u64::from(extent.len);
        }
    }

    /// Whether a write waits for others to its stripe: not when it is short, and none of the
    /// latest was near.
    fn patience(&mut self, start: u64, end: u64) -> Patience {
        let blocks = u64::from(self.pipeline.data_blocks());
        let stripe = blocks * u64::from(self.params().chunk_bytes);
        let near = |&(from, to): &(u64, u64)| from <= end + stripe && start <= to + stripe;
        let bulk = end - start > u64::from(self.params().narrow.bytes);
        let one_of_several = bulk || self.latest.iter().any(near);
        self.latest.push_back((start, end));
        if self.latest.len() > LATEST {
            self.latest.pop_front();
        }
        if one_of_several {
            Patience::some(self.keeper.now())
        } else {
            Patience::none(self.keeper.now())
        }
    }

    /// Does a range of the array have in it what an extent is a part of: that slice of all blocks?
    fn covers(&self, range: Range<u64>, extent: &Extent) -> bool {
        let chunk = u64::from(self.params().chunk_bytes);
        let blocks = u64::from(self.pipeline.data_blocks());
        let slice = extent.at / self.slice_bytes();
        let first = extent.stripe * blocks * chunk + u64::from(slice * self.slice_bytes());
        let last = first + (blocks - 1) * chunk + u64::from(self.slice_len(slice));
        range.start <= first && last <= range.end
    }

    /// Cuts ranges of zeroes into writes, some at a time.
    pub(super) fn work_on_zeroes(&mut self) {
        let over = self.writes_over();
        while let Some(zeroing) = self.zeroing.front_mut() {
            let id = zeroing.id;
            let busy = self.requests.get(&id).map_or(0, |pending| pending.left);
            if over || zeroing.next == zeroing.end {
                let whole = zeroing.next == zeroing.end;
                self.zeroing.pop_front();
                self.piece_over(id, if whole { Ok(()) } else { Err(RequestError::Failed) });
                continue;
            }
            if busy > ZEROES_AT_ONCE.max(2 * self.pipeline.data_blocks()) {
                return;
            }
            let Zeroing { start, next, end, fua, unmap: blank, hint, .. } = *zeroing;
            let extent = self.extent(next, end);
            self.zeroing[0].next += u64::from(extent.len);
            if hint && !self.covers(start..end, &extent) {
                continue;
            }
            self.add_parts(id, 1);
            let buf = self.zeroes.slice(0, extent.len);
            let (index, at) = (extent.index, extent.at);
            let fragment = Fragment { index, at, buf, request: id, fua, blank };
            self.gather(extent.stripe, fragment, Patience::some(self.keeper.now()));
        }
    }
}
