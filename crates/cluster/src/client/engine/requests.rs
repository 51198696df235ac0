//! Requests under way, and their parts that are not over.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use braid_array::{Buf, Instant, Op, Request, RequestError, RequestId, SECTOR_BYTES};

use super::context::{Cx, Shared};
use super::extent::Extent;
use super::gather::{Fragment, Patience};

/// Writes of which it is remembered where they were.
const LATEST: usize = 16;
/// Blocks of zeroes of one request that are under way at once.
const ZEROES_AT_ONCE: u32 = 256;

/// A request that is being served.
#[derive(Debug)]
pub(super) struct Pending {
    /// Parts that are not over.
    left: u32,
    op: Op,
    bytes: u64,
    error: Option<RequestError>,
}

/// Requests that were taken and are not answered.
#[derive(Debug)]
pub(in crate::client) struct Requests {
    pending: BTreeMap<RequestId, Pending>,
    /// Length from which a write counts as long.
    long_bytes: u64,
    /// When the last one that changes data was answered.
    answered_at: Instant,
    /// Another write is being received.
    pub(in crate::client) expects_writes: bool,
}

impl Requests {
    /// Creates an empty list. `long_bytes`: length from which a write counts as long.
    pub(super) const fn new(long_bytes: u64) -> Self {
        Self {
            pending: BTreeMap::new(),
            long_bytes,
            answered_at: Instant(0),
            expects_writes: false,
        }
    }

    /// The request itself is a part until all others are known.
    pub(super) fn begin(&mut self, request: &Request) {
        let bytes = request.sectors.saturating_mul(SECTOR_BYTES);
        let pending = Pending { left: 1, op: request.op, bytes, error: None };
        self.pending.insert(request.id, pending);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Requests under way that change data.
    pub(super) fn writers(&self) -> usize {
        self.pending.values().filter(|request| request.op.changes_data()).count()
    }

    /// Returns whether exactly one request changes data, is long, and no other is known to come.
    pub(super) fn is_lone(&self) -> bool {
        let mut writers = self.pending.values().filter(|request| request.op.changes_data());
        let long = writers.next().is_some_and(|request| request.bytes >= self.long_bytes);
        long && writers.next().is_none() && !self.expects_writes
    }

    /// Returns the time from which a lone write waits for no other, if there is one.
    pub(super) fn lone_at(&self) -> Option<Instant> {
        self.is_lone().then(|| Patience::lone_after(self.answered_at))
    }

    /// Returns a request that has no parts left and was not answered; a violated invariant.
    pub(super) fn unanswered(&self) -> Option<RequestId> {
        self.pending.iter().find(|(_, request)| request.left == 0).map(|(&id, _)| id)
    }

    pub(super) fn add_part(&mut self, id: RequestId) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.left += 1;
        }
    }

    fn parts(&self, id: RequestId) -> u32 {
        self.pending.get(&id).map_or(0, |pending| pending.left)
    }

    /// Ends one part of a request. Returns the result after the last part.
    pub(super) fn part_over(
        &mut self,
        id: RequestId,
        result: Result<(), RequestError>,
        now: Instant,
    ) -> Option<(Op, Result<(), RequestError>)> {
        let pending = self.pending.get_mut(&id)?;
        pending.error = pending.error.or(result.err());
        pending.left -= 1;
        if pending.left > 0 {
            return None;
        }
        let Pending { op, error, .. } = self.pending.remove(&id)?;
        if op.changes_data() {
            self.answered_at = now;
        }
        Some((op, error.map_or(Ok(()), Err)))
    }
}

/// A range that is to read as zeroes.
#[derive(Debug)]
struct Zeroing {
    id: RequestId,
    fua: bool,
    /// No space need be kept.
    unmap: bool,
    /// Ranges that would have to be written are left unchanged.
    hint: bool,
    /// Bytes of the array.
    start: u64,
    next: u64,
    end: u64,
}

/// Writes, cut into fragments that are gathered by slice: those with content at once, ranges of
/// zeroes some at a time.
#[derive(Debug, Default)]
pub(super) struct Writes {
    zeroing: VecDeque<Zeroing>,
    /// Where the latest writes began and ended.
    latest: VecDeque<(u64, u64)>,
}

impl Writes {
    pub(super) fn write(&mut self, cx: &mut Cx<'_>, request: &Request, fua: bool) {
        let start = request.sector * SECTOR_BYTES;
        let end = start + u64::from(request.buf.len);
        let patience = self.patience(cx, start, end);
        let mut next = start;
        while next < end {
            let extent = cx.shared.extent(next, end);
            let buf = request.buf.slice((next - start) as u32, extent.len);
            gather(cx.shared, &extent, buf, (request.id, fua, false), patience);
            next += u64::from(extent.len);
        }
    }

    /// Returns how long a write waits for others to its stripe: a short one does not wait, unless a
    /// recent write was near.
    fn patience(&mut self, cx: &Cx<'_>, start: u64, end: u64) -> Patience {
        let params = cx.shared.params();
        let blocks = u64::from(cx.shared.pipeline.data_blocks());
        let stripe = blocks * u64::from(params.chunk_bytes);
        let near = |&(from, to): &(u64, u64)| from <= end + stripe && start <= to + stripe;
        let bulk = end - start > u64::from(params.narrow.bytes);
        let one_of_several = bulk || self.latest.iter().any(near);
        self.latest.push_back((start, end));
        if self.latest.len() > LATEST {
            self.latest.pop_front();
        }
        if one_of_several { Patience::some(cx.now()) } else { Patience::none(cx.now()) }
    }

    /// Queues a range that is to read as zeroes.
    pub(super) fn zero(&mut self, cx: &mut Cx<'_>, request: &Request) {
        let start = request.sector * SECTOR_BYTES;
        let end = start + request.sectors * SECTOR_BYTES;
        let id = request.id;
        let zeroing = match request.op {
            Op::WriteZeroes { fua, unmap } => {
                Zeroing { id, fua, unmap, hint: false, start, next: start, end }
            }
            _ => Zeroing { id, fua: false, unmap: true, hint: true, start, next: start, end },
        };
        cx.shared.requests.add_part(id);
        self.zeroing.push_back(zeroing);
    }

    /// Cuts ranges of zeroes into writes, some at a time.
    pub(super) fn advance_zeroes(&mut self, cx: &mut Cx<'_>) {
        let over = cx.writes_over();
        while let Some(zeroing) = self.zeroing.front_mut() {
            let id = zeroing.id;
            if over || zeroing.next == zeroing.end {
                let whole = zeroing.next == zeroing.end;
                self.zeroing.pop_front();
                cx.part_over(id, if whole { Ok(()) } else { Err(RequestError::Failed) });
                continue;
            }
            let most = ZEROES_AT_ONCE.max(2 * cx.shared.pipeline.data_blocks());
            if cx.shared.requests.parts(id) > most {
                return;
            }
            let extent = cx.shared.extent(zeroing.next, zeroing.end);
            zeroing.next += u64::from(extent.len);
            if zeroing.hint && !covers(cx.shared, zeroing.start..zeroing.end, &extent) {
                continue;
            }
            let buf = cx.shared.zeroes.slice(0, extent.len);
            let whose = (id, zeroing.fua, zeroing.unmap);
            let patience = Patience::some(cx.now());
            gather(cx.shared, &extent, buf, whose, patience);
        }
    }
}

fn gather(
    shared: &mut Shared,
    extent: &Extent,
    buf: Buf,
    (request, fua, blank): (RequestId, bool, bool),
    patience: Patience,
) {
    shared.requests.add_part(request);
    let key = shared.key_of(extent);
    let fragment = Fragment { index: extent.index, at: extent.at, buf, request, fua, blank };
    shared.areas.gather(key, fragment, patience);
}

/// Returns whether a range of the array contains the whole slice of an extent, in all blocks.
fn covers(shared: &Shared, range: Range<u64>, extent: &Extent) -> bool {
    let chunk = u64::from(shared.params().chunk_bytes);
    let blocks = u64::from(shared.pipeline.data_blocks());
    let slice = extent.at / shared.slice_bytes();
    let first = extent.stripe.0 * blocks * chunk + u64::from(slice * shared.slice_bytes());
    let last = first + (blocks - 1) * chunk + u64::from(shared.slice_len(slice));
    range.start <= first && last <= range.end
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_BYTES: u64 = 64 << 10;

    fn begin(requests: &mut Requests, id: u64, op: Op, bytes: u64) {
        let buf = Buf::default();
        let sectors = bytes / SECTOR_BYTES;
        requests.begin(&Request { id: RequestId(id), op, sector: 0, sectors, buf });
    }

    #[test]
    fn a_long_write_alone_waits_for_nobody_from_a_moment_after_the_last_answer_on() {
        let write = Op::Write { fua: false };
        let mut requests = Requests::new(LONG_BYTES);
        assert_eq!(requests.lone_at(), None);
        begin(&mut requests, 1, write, LONG_BYTES);
        begin(&mut requests, 2, Op::Read, LONG_BYTES);
        assert_eq!(requests.lone_at(), Some(Patience::lone_after(Instant(0))));
        requests.expects_writes = true;
        assert_eq!(requests.lone_at(), None, "more comes");
        requests.expects_writes = false;
        begin(&mut requests, 3, write, 512);
        assert_eq!(requests.lone_at(), None, "two");
        assert!(requests.part_over(RequestId(3), Ok(()), Instant(7)).is_some());
        assert_eq!(requests.lone_at(), Some(Patience::lone_after(Instant(7))));
        assert!(requests.part_over(RequestId(1), Ok(()), Instant(8)).is_some());
        begin(&mut requests, 4, write, LONG_BYTES - SECTOR_BYTES);
        assert_eq!(requests.lone_at(), None, "short");
    }
}
