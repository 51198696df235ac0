//! Requests, cut where the two arrays meet, [`Split`].

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use braid_array::request::Full;
use braid_array::{Buf, Instant, Op, Request, RequestError, RequestId, SECTOR_BYTES};

use super::Side;
use super::arrays::Arrays;

/// Ids of parts have this in them; those of requests are far smaller.
const PART: u64 = 1 << 63;

/// Returns whether this is the id of a part.
pub(super) const fn is_part(id: RequestId) -> bool {
    id.0 & PART != 0
}

/// The purpose of a part.
#[derive(Clone, Copy, Debug)]
enum PartPurpose {
    /// A part of this request.
    Request(RequestId),
    /// A piece of what is being moved: its slot.
    Piece(usize),
    /// The flush behind it.
    Flush,
}

/// A request to one of the arrays.
#[derive(Clone, Debug)]
struct RequestPart {
    purpose: PartPurpose,
    side: Side,
    /// The sectors that it changes; none of a read.
    changes: Range<u64>,
}

/// A request that has come in.
#[derive(Clone, Copy, Debug)]
struct Whole {
    left: u32,
    result: Result<(), RequestError>,
}

/// The end of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartEnd {
    /// A request, with its result.
    Request(RequestId, Result<(), RequestError>),
    /// A part of a piece.
    Piece(usize, Result<(), RequestError>),
    /// The flush behind the pieces.
    Flush(Result<(), RequestError>),
}

/// All requests under way, by the parts that the two arrays have.
#[derive(Debug, Default)]
pub(super) struct Split {
    next: u64,
    parts: BTreeMap<RequestId, RequestPart>,
    wholes: BTreeMap<RequestId, Whole>,
    /// Parts that the old and the new array have not taken yet.
    queues: [VecDeque<Request>; 2],
}

impl Split {
    /// Cuts a request where the new array ends and the old one begins.
    pub(super) fn cut(&mut self, request: &Request, front: u64) {
        let Request { id, op, sector, sectors, buf } = *request;
        let end = sector + sectors;
        let middle = front.clamp(sector, end);
        let carries = matches!(op, Op::Read | Op::Write { .. });
        let part = |range: Range<u64>| {
            let bytes = |sectors: u64| (sectors * SECTOR_BYTES) as u32;
            let buf = if carries {
                buf.slice(bytes(range.start - sector), bytes(range.end - range.start))
            } else {
                buf
            };
            (range, buf)
        };
        let parts = [(Side::New, sector..middle), (Side::Old, middle..end)];
        let parts = parts.into_iter().filter(|(_, range)| !range.is_empty());
        let mut left = 0;
        for (side, range) in parts {
            let (range, buf) = part(range);
            self.add(side, PartPurpose::Request(id), op, range, buf);
            left += 1;
        }
        self.wholes.insert(id, Whole { left, result: Ok(()) });
    }

    /// Flushes these arrays.
    pub(super) fn flush(&mut self, id: RequestId, sides: &[Side]) {
        for &side in sides {
            self.add(side, PartPurpose::Request(id), Op::Flush, 0..0, Buf::default());
        }
        self.wholes.insert(id, Whole { left: sides.len() as u32, result: Ok(()) });
    }

    /// Flushes what has moved to this array.
    pub(super) fn flush_moved(&mut self, side: Side) {
        self.add(side, PartPurpose::Flush, Op::Flush, 0..0, Buf::default());
    }

    /// Reads or writes a piece.
    pub(super) fn piece(&mut self, side: Side, slot: usize, op: Op, sector: u64, buf: Buf) {
        let range = sector..sector + u64::from(buf.len) / SECTOR_BYTES;
        self.add(side, PartPurpose::Piece(slot), op, range, buf);
    }

    fn add(&mut self, side: Side, purpose: PartPurpose, op: Op, range: Range<u64>, buf: Buf) {
        let id = RequestId(self.next | PART);
        self.next += 1;
        let sectors = range.end - range.start;
        let request = Request { id, op, sector: range.start, sectors, buf };
        let changes = if op.changes_data() { range } else { 0..0 };
        self.parts.insert(id, RequestPart { purpose, side, changes });
        self.queues[side as usize].push_back(request);
    }

    /// Gives an array the parts that it has not taken yet. Returns whether it took any.
    pub(super) fn feed(&mut self, side: Side, now: Instant, arrays: &mut Arrays) -> bool {
        let mut any = false;
        while let Some(&part) = self.queue(side).front() {
            if arrays.submit(side, now, part) == Err(Full) {
                break;
            }
            self.queue(side).pop_front();
            any = true;
        }
        any
    }

    fn queue(&mut self, side: Side) -> &mut VecDeque<Request> {
        &mut self.queues[side as usize]
    }

    /// Takes the answer to a part; returns what has ended with it.
    pub(super) fn answered(
        &mut self,
        id: RequestId,
        result: Result<(), RequestError>,
    ) -> Option<PartEnd> {
        match self.parts.remove(&id)?.purpose {
            PartPurpose::Piece(slot) => Some(PartEnd::Piece(slot, result)),
            PartPurpose::Flush => Some(PartEnd::Flush(result)),
            PartPurpose::Request(id) => {
                let whole = self.wholes.get_mut(&id)?;
                whole.left -= 1;
                whole.result = whole.result.and(result);
                let Whole { left, result } = *whole;
                if left > 0 {
                    return None;
                }
                self.wholes.remove(&id);
                Some(PartEnd::Request(id, result))
            }
        }
    }

    /// Returns whether requests are changing something there.
    pub(super) fn is_changed(&self, range: &Range<u64>) -> bool {
        let touches = |part: &RequestPart| {
            matches!(part.purpose, PartPurpose::Request(_))
                && part.changes.start < range.end
                && range.start < part.changes.end
        };
        self.parts.values().any(touches)
    }

    /// Returns whether an array has not answered all of its parts.
    pub(super) fn has_parts(&self, side: Side) -> bool {
        self.parts.values().any(|part| part.side == side)
    }

    /// Returns whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: Op, sector: u64, sectors: u64) -> Request {
        let len = (sectors * SECTOR_BYTES) as u32;
        Request { id: RequestId(9), op, sector, sectors, buf: Buf { offset: 4096, len } }
    }

    #[test]
    fn a_request_over_the_front_has_two_parts_and_one_result() {
        let mut split = Split::default();
        split.cut(&request(Op::Write { fua: false }, 8, 32), 16);
        assert!(split.is_changed(&(0..9)) && split.is_changed(&(39..50)));
        assert!(!split.is_changed(&(40..99)) && !split.is_changed(&(0..8)));
        assert!(Side::BOTH.iter().all(|&side| split.has_parts(side)));
        let new = split.queue(Side::New).pop_front().unwrap();
        let old = split.queue(Side::Old).pop_front().unwrap();
        assert_eq!((new.sector, new.sectors, new.buf), (8, 8, Buf { offset: 4096, len: 4096 }));
        assert_eq!((old.sector, old.sectors, old.buf), (16, 24, Buf { offset: 8192, len: 12288 }));
        assert_eq!(split.answered(old.id, Err(RequestError::Medium)), None);
        assert!(split.has_parts(Side::New) && !split.has_parts(Side::Old));
        let ended = PartEnd::Request(RequestId(9), Err(RequestError::Medium));
        assert_eq!(split.answered(new.id, Ok(())), Some(ended));
        assert!(split.is_empty());
    }

    #[test]
    fn a_request_on_one_side_has_one_part() {
        for (front, side) in
            [(8, Side::Old), (0, Side::Old), (16, Side::New), (u64::MAX, Side::New)]
        {
            let mut split = Split::default();
            split.cut(&request(Op::Discard, 8, 8), front);
            assert!(split.queue(side.other()).is_empty());
            let part = *split.queue(side).front().unwrap();
            assert_eq!((part.sector, part.sectors), (8, 8));
            let ended = PartEnd::Request(RequestId(9), Ok(()));
            assert_eq!(split.answered(part.id, Ok(())), Some(ended));
        }
    }
}
