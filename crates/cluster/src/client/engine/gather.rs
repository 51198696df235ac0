//! Writes of one slice of a stripe, collected until they go out together.

use std::collections::{BTreeMap, BTreeSet};

use braid_array::{Buf, Instant, RequestId};

use crate::set::Touched;

/// A part of a write that lies in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    /// Data index of the block.
    pub(super) index: u32,
    /// First byte, from the beginning of the block.
    pub(super) at: u32,
    /// The new content.
    pub(super) buf: Buf,
    /// The write request.
    pub(super) request: RequestId,
    /// To be durable when it is answered.
    pub(super) fua: bool,
    /// The new content is zeroes, for which no space need be kept.
    pub(super) blank: bool,
}

impl Fragment {
    const fn end(&self) -> u32 {
        self.at + self.buf.len
    }
}

/// The writes to one slice of a stripe.
#[derive(Debug)]
pub(super) struct Gather {
    fragments: Vec<Fragment>,
    bytes: u64,
    pub(super) patience: Patience,
}

/// Deadlines until which a write waits for others to its stripe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Until then, even when its request is the only one.
    pub(super) lone: Instant,
    /// Until then, even when nothing else is being written.
    pub(super) alone: Instant,
    /// Until then, while something is.
    pub(super) busy: Instant,
    /// Until then, while the client's link has things to send, or no position is free.
    pub(super) full: Instant,
}

impl Patience {
    const LONE_NANOS: u64 = 150_000;
    const ALONE_NANOS: u64 = 300_000;
    const BUSY_MILLIS: u64 = 4;
    const FULL_MILLIS: u64 = 50;

    /// None: the write is on its own.
    pub(super) const fn none(now: Instant) -> Self {
        Self { lone: now, alone: now, busy: now, full: now }
    }

    /// The write is one of several side by side.
    pub(super) const fn some(now: Instant) -> Self {
        Self {
            lone: Self::lone_after(now),
            alone: Instant(now.0 + Self::ALONE_NANOS),
            busy: now.plus_millis(Self::BUSY_MILLIS),
            full: now.plus_millis(Self::FULL_MILLIS),
        }
    }

    /// Returns the time until which the sender of an answered write may send more, before a write
    /// counts as the only one.
    pub(super) const fn lone_after(now: Instant) -> Instant {
        Instant(now.0 + Self::LONE_NANOS)
    }

    /// Extends the deadlines to the longer of both, but not the one for a busy link.
    pub(super) fn extend(&mut self, other: Self) {
        self.alone = self.alone.max(other.alone);
        self.busy = self.busy.max(other.busy);
    }

    /// Returns the next deadline if nothing else happens; for the only request, see `lone`.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        [self.alone, self.busy, self.full].into_iter().find(|&at| at > now)
    }
}

/// A range with the same blocks touched everywhere.
#[derive(Debug)]
pub(super) struct Stretch {
    pub(super) offset: u32,
    pub(super) len: u32,
    pub(super) touched: Touched,
    /// For each touched block, ascending, its new content in pieces.
    pub(super) pieces: BTreeMap<u32, Vec<Buf>>,
    pub(super) requests: BTreeSet<RequestId>,
    pub(super) fua: bool,
    /// All of the new content is zeroes, for which no space need be kept.
    pub(super) blank: bool,
}

impl Gather {
    pub(super) const fn new(patience: Patience) -> Self {
        Self { fragments: Vec::new(), bytes: 0, patience }
    }

    /// Whether another write to the same bytes is in here.
    pub(super) fn overlaps(&self, new: &Fragment) -> bool {
        let hit =
            |old: &Fragment| old.index == new.index && old.at < new.end() && new.at < old.end();
        self.fragments.iter().any(hit)
    }

    /// Adds a write that does not overlap.
    pub(super) fn add(&mut self, fragment: Fragment, patience: Patience) {
        self.patience.extend(patience);
        self.bytes += u64::from(fragment.buf.len);
        self.fragments.push(fragment);
    }

    /// Bytes gathered.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The requests, each as often as it has fragments.
    pub(super) fn requests(&self) -> impl Iterator<Item = RequestId> {
        self.fragments.iter().map(|fragment| fragment.request)
    }

    /// Cuts the gathered writes into ranges, in order.
    pub(super) fn cut(&self, blocks: u32) -> Vec<Stretch> {
        let ends = self.fragments.iter().flat_map(|fragment| [fragment.at, fragment.end()]);
        let bounds: Vec<u32> = ends.collect::<BTreeSet<u32>>().into_iter().collect();
        let mut fragments = self.fragments.clone();
        fragments.sort_by_key(|fragment| (fragment.index, fragment.at));
        let mut ranges: Vec<(u32, u32, Touched)> = Vec::new();
        for pair in bounds.windows(2) {
            let mut touched = Touched::none(blocks);
            let inside = |f: &&Fragment| f.at <= pair[0] && f.end() >= pair[1];
            fragments.iter().filter(inside).for_each(|f| touched.insert(f.index));
            match ranges.last_mut() {
                Some((_, end, same)) if *end == pair[0] && *same == touched => *end = pair[1],
                _ if touched.count() == 0 => {}
                _ => ranges.push((pair[0], pair[1], touched)),
            }
        }
        let range = |(from, to, touched)| range(&fragments, from, to, touched);
        ranges.into_iter().map(range).collect()
    }
}

impl Stretch {
    /// Cuts a range of this length off the front.
    pub(super) fn cut_off(&mut self, len: u32) -> Self {
        let mut front = Self {
            len,
            touched: self.touched.clone(),
            pieces: BTreeMap::new(),
            requests: self.requests.clone(),
            ..*self
        };
        for (&index, pieces) in &mut self.pieces {
            let mut left = len;
            let mut before = Vec::new();
            let mut after = Vec::new();
            for piece in pieces.drain(..) {
                let here = piece.len.min(left);
                left -= here;
                before.extend((here > 0).then(|| piece.slice(0, here)));
                let rest = piece.len - here;
                after.extend((rest > 0).then(|| piece.slice(here, rest)));
            }
            *pieces = after;
            front.pieces.insert(index, before);
        }
        self.offset += len;
        self.len -= len;
        front
    }
}

/// The fragments by block and place.
fn range(fragments: &[Fragment], from: u32, to: u32, touched: Touched) -> Stretch {
    let mut range = Stretch {
        offset: from,
        len: to - from,
        touched,
        pieces: BTreeMap::new(),
        requests: BTreeSet::new(),
        fua: false,
        blank: true,
    };
    for fragment in fragments {
        let start = fragment.at.max(from);
        let end = fragment.end().min(to);
        if start >= end || !range.touched.contains(fragment.index) {
            continue;
        }
        let piece = fragment.buf.slice(start - fragment.at, end - start);
        let pieces: &mut Vec<Buf> = range.pieces.entry(fragment.index).or_default();
        match pieces.last_mut() {
            Some(last) if last.offset + u64::from(last.len) == piece.offset => {
                last.len += piece.len;
            }
            _ => pieces.push(piece),
        }
        range.requests.insert(fragment.request);
        range.fua |= fragment.fua;
        range.blank &= fragment.blank;
    }
    range
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(index: u32, at: u32, len: u32, offset: u64) -> Fragment {
        let buf = Buf { offset, len };
        Fragment { index, at, buf, request: RequestId(offset), fua: false, blank: false }
    }

    fn gather(fragments: &[Fragment]) -> Gather {
        let patience = Patience::none(Instant(0));
        let mut gather = Gather::new(patience);
        for fragment in fragments {
            assert!(!gather.overlaps(fragment));
            gather.add(*fragment, patience);
        }
        gather
    }

    #[test]
    fn a_write_across_a_block_boundary_is_three_ranges() {
        // The end of block 0, all of block 1, the beginning of block 2.
        let gather = gather(&[
            fragment(0, 12288, 4096, 0),
            fragment(1, 0, 16384, 4096),
            fragment(2, 0, 8192, 20480),
        ]);
        assert_eq!(gather.bytes(), 28672);
        let ranges = gather.cut(3);
        let seen: Vec<(u32, u32, Vec<u32>)> =
            ranges.iter().map(|r| (r.offset, r.len, r.touched.iter().collect())).collect();
        let expected = [(0, 8192, vec![1, 2]), (8192, 4096, vec![1]), (12288, 4096, vec![0, 1])];
        assert_eq!(seen, expected);
        assert_eq!(ranges[2].pieces[&1], [Buf { offset: 16384, len: 4096 }]);
        assert_eq!(ranges[2].pieces[&0], [Buf { offset: 0, len: 4096 }]);
    }

    #[test]
    fn small_writes_side_by_side_are_one_range_in_pieces() {
        let gather = gather(&[
            fragment(0, 4096, 4096, 1 << 20),
            fragment(0, 0, 4096, 0),
            fragment(0, 8192, 4096, (1 << 20) + 4096),
        ]);
        let ranges = gather.cut(2);
        assert_eq!(ranges.len(), 1);
        assert_eq!((ranges[0].offset, ranges[0].len), (0, 12288));
        let first = Buf { offset: 0, len: 4096 };
        let second = Buf { offset: 1 << 20, len: 8192 };
        assert_eq!(ranges[0].pieces[&0], [first, second]);
        assert_eq!(ranges[0].requests.len(), 3);
    }

    #[test]
    fn gaps_are_no_ranges_and_overlaps_are_seen() {
        let gather = gather(&[fragment(0, 0, 4096, 0), fragment(0, 8192, 4096, 8192)]);
        let ranges: Vec<u32> = gather.cut(1).iter().map(|range| range.offset).collect();
        assert_eq!(ranges, [0, 8192]);
        assert!(gather.overlaps(&fragment(0, 4096, 4097, 0)));
        assert!(!gather.overlaps(&fragment(0, 4096, 4096, 0)));
        assert!(!gather.overlaps(&fragment(1, 0, 4096, 0)));
    }
}
