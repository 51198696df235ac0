//! Writes on their way to the areas that gather them.

use std::collections::VecDeque;
use std::ops::Range;

use braid_array::{Buf, Op, Request, RequestError, RequestId, SECTOR_BYTES};

use super::context::{Cx, Shared};
use super::extent::Extent;
use super::gather::{Fragment, Patience};

/// Writes of which it is remembered where they were.
const LATEST: usize = 16;
/// Blocks of zeroes of one request that are under way at once.
const ZEROES_AT_ONCE: u32 = 256;

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
