//! The content of a window on its way from one array to the other, [`Pieces`].

use std::ops::Range;

use braid_array::array::Scratch;
use braid_array::{Buf, Request, RequestError, SECTOR_BYTES};

/// Pieces under way.
pub(super) const SLOTS: u32 = 8;

/// Bytes of memory for pieces as long as a request may be.
pub(super) const BYTES: u64 = Request::MAX_BYTES as u64 * SLOTS as u64;

/// Memory for pieces, and the place that each is for.
#[derive(Debug)]
pub(super) struct Pieces {
    memory: Buf,
    piece_bytes: u32,
    /// By slot, the piece that it has.
    slots: Vec<Option<Buf>>,
    places: Vec<u64>,
    left: Range<u64>,
    /// The first that failed, and its place.
    failed: Option<(RequestError, u64)>,
}

impl Pieces {
    /// Shares this memory out: of up to [`BYTES`], pieces are as long as fits.
    pub(super) fn new(scratch: Scratch) -> Self {
        let memory = Buf { offset: scratch.offset, len: scratch.bytes.min(BYTES) as u32 };
        let piece_bytes = memory.len / SLOTS;
        let slots = vec![None; SLOTS as usize];
        let places = vec![0; slots.len()];
        Self { memory, piece_bytes, slots, places, left: 0..0, failed: None }
    }

    /// Sectors of a piece.
    pub(super) fn piece_sectors(&self) -> u64 {
        u64::from(self.piece_bytes) / SECTOR_BYTES
    }

    /// Begins to copy these sectors.
    pub(super) fn begin(&mut self, range: Range<u64>) {
        self.left = range;
        self.failed = None;
    }

    /// Returns the next piece to read, while a slot is free: slot, place and memory.
    pub(super) fn next(&mut self) -> Option<(usize, u64, Buf)> {
        if self.left.is_empty() || self.failed.is_some() {
            return None;
        }
        let slot = self.slots.iter().position(Option::is_none)?;
        let start = self.left.start;
        // Ends where all pieces end: they are whole stripes more often so.
        let end = (start / self.piece_sectors() + 1) * self.piece_sectors();
        let end = end.min(self.left.end);
        self.left.start = end;
        let bytes = ((end - start) * SECTOR_BYTES) as u32;
        let buf = self.memory.slice(slot as u32 * self.piece_bytes, bytes);
        self.slots[slot] = Some(buf);
        self.places[slot] = start;
        Some((slot, start, buf))
    }

    /// Returns place and memory of a piece.
    pub(super) fn piece(&self, slot: usize) -> Option<(u64, Buf)> {
        Some((self.places[slot], self.slots[slot]?))
    }

    /// A piece is written, or is not to be.
    pub(super) fn done(&mut self, slot: usize, result: Result<(), RequestError>) {
        self.slots[slot] = None;
        let place = self.places[slot];
        self.failed = self.failed.or(result.err().map(|error| (error, place)));
    }

    /// Returns whether all is copied, once that is over, or what failed, and from which sector on.
    pub(super) fn result(&self) -> Option<Result<(), (RequestError, u64)>> {
        let idle = self.slots.iter().all(Option::is_none);
        match self.failed {
            Some(error) if idle => Some(Err(error)),
            None if idle && self.left.is_empty() => Some(Ok(())),
            _ => None,
        }
    }

    /// Returns the memory, at a moment at which nothing is copied.
    pub(super) const fn memory(&self) -> Buf {
        self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_of_their_length_but_at_both_ends() {
        let mut pieces = Pieces::new(Scratch { offset: 4096, bytes: BYTES });
        pieces.begin(2040..6160);
        let all: Vec<_> = std::iter::from_fn(|| pieces.next()).collect();
        let places: Vec<_> =
            all.iter().map(|(_, at, buf)| (*at, u64::from(buf.len) / 512)).collect();
        assert_eq!(places, [(2040, 8), (2048, 2048), (4096, 2048), (6144, 16)]);
        assert_eq!(pieces.piece(3), Some((6144, Buf { offset: 4096 + (3 << 20), len: 8192 })));
        (0..3).for_each(|slot| pieces.done(slot, Ok(())));
        assert_eq!(pieces.result(), None);
        pieces.done(3, Ok(()));
        assert_eq!(pieces.result(), Some(Ok(())));
    }

    #[test]
    fn what_fails_ends_when_nothing_is_under_way_any_more() {
        let mut pieces = Pieces::new(Scratch { offset: 0, bytes: BYTES });
        pieces.begin(0..1 << 20);
        assert_eq!(std::iter::from_fn(|| pieces.next()).count(), SLOTS as usize);
        pieces.done(3, Err(RequestError::Medium));
        assert_eq!((pieces.next(), pieces.result()), (None, None));
        (0..8).filter(|slot| *slot != 3).for_each(|slot| pieces.done(slot, Ok(())));
        assert_eq!(pieces.result(), Some(Err((RequestError::Medium, 3 * 2048))));
    }
}
