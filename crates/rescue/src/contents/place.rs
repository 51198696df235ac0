//! Where the bytes of a partition or a volume lie on arrays.

use std::ops::Range;

use crate::image::{Image, read};

/// Bytes in the order in which they are read, and where each of them lies. No byte of an array
/// comes twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// One after the other, without gaps; the first begins at 0.
    runs: Vec<Run>,
    /// Where in the runs this begins.
    offset_bytes: u64,
    size_bytes: u64,
}

/// Bytes that lie on arrays in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start_bytes: u64,
    /// As many whole stripes.
    pub(super) size_bytes: u64,
    /// The length that lies on one share before the next follows.
    pub(super) stripe_bytes: u64,
    /// The arrays, in turn, and where the share begins on each.
    pub(super) shares: Vec<(usize, u64)>,
}

/// Bytes that lie together on an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The array, by its place among those that were looked at.
    pub array: usize,
    /// Where they lie on it.
    pub offset_bytes: u64,
    /// The number of them.
    pub bytes: u64,
}

impl Piece {
    /// The bytes of its array.
    #[must_use]
    pub const fn range(&self) -> Range<u64> {
        self.offset_bytes..self.offset_bytes + self.bytes
    }
}

impl Place {
    /// A range of an array.
    #[must_use]
    pub fn range(array: usize, range: Range<u64>) -> Self {
        let size_bytes = range.end.saturating_sub(range.start);
        let shares = vec![(array, range.start)];
        let run = Run { start_bytes: 0, size_bytes, stripe_bytes: size_bytes, shares };
        Self { runs: vec![run], offset_bytes: 0, size_bytes }
    }

    /// All of these runs; an error where two of them share bytes.
    pub(super) fn runs(runs: Vec<Run>) -> Result<Self, &'static str> {
        let shares = runs.iter().flat_map(|run| {
            let share_bytes = run.size_bytes / run.shares.len() as u64;
            run.shares.iter().map(move |(array, at)| (*array, *at, share_bytes))
        });
        let mut sorted: Vec<(usize, u64, u64)> = shares.collect();
        sorted.sort_unstable();
        let meet = |pair: &[(usize, u64, u64)]| {
            pair[0].0 == pair[1].0 && pair[0].1.saturating_add(pair[0].2) > pair[1].1
        };
        if sorted.windows(2).any(meet) {
            return Err("the metadata has two parts of it in the same place");
        }
        let size_bytes = runs.last().map_or(0, |run| run.start_bytes + run.size_bytes);
        Ok(Self { runs, offset_bytes: 0, size_bytes })
    }

    /// A part of it, as far as there is one.
    #[must_use]
    pub fn part(&self, range: Range<u64>) -> Self {
        let start = range.start.min(self.size_bytes);
        let end = range.end.clamp(start, self.size_bytes);
        let runs = self.runs.clone();
        Self { runs, offset_bytes: self.offset_bytes + start, size_bytes: end - start }
    }

    /// Its length.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// All of it, where it lies together.
    #[must_use]
    pub fn whole(&self) -> Option<Piece> {
        self.piece(0).filter(|piece| piece.bytes == self.size_bytes)
    }

    /// All of it in order, each piece as long as it can be; `None` where that are more than `most`.
    #[must_use]
    pub fn pieces(&self, most: usize) -> Option<Vec<Piece>> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut at = 0;
        while let Some(piece) = self.piece(at) {
            at += piece.bytes;
            let goes_on = |last: &&mut Piece| {
                last.array == piece.array && last.offset_bytes + last.bytes == piece.offset_bytes
            };
            match pieces.last_mut().filter(goes_on) {
                Some(last) => last.bytes += piece.bytes,
                None => pieces.push(piece),
            }
            if pieces.len() > most {
                return None;
            }
        }
        Some(pieces)
    }

    /// The range that lies together from a byte on; `None` from the end on.
    #[must_use]
    pub fn piece(&self, offset_bytes: u64) -> Option<Piece> {
        let left = self.size_bytes.checked_sub(offset_bytes).filter(|left| *left > 0)?;
        let at = self.offset_bytes + offset_bytes;
        let after = self.runs.partition_point(|run| run.start_bytes <= at);
        let run = self.runs[..after].last()?;
        let within = at - run.start_bytes;
        let in_run = run.size_bytes.checked_sub(within).filter(|left| *left > 0)?;
        let turn = within / run.stripe_bytes;
        let into_stripe = within % run.stripe_bytes;
        let count = run.shares.len() as u64;
        let (array, share_at) = run.shares[(turn % count) as usize];
        Some(Piece {
            array,
            offset_bytes: share_at + turn / count * run.stripe_bytes + into_stripe,
            bytes: left.min(in_run).min(run.stripe_bytes - into_stripe),
        })
    }
}

/// A place, read as an image.
pub(super) struct View<'a, 'b> {
    pub(super) images: &'a mut [&'b mut dyn Image],
    pub(super) place: &'a Place,
}

impl Image for View<'_, '_> {
    fn size_bytes(&self) -> u64 {
        self.place.size_bytes
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), String> {
        let mut done = 0;
        while done < into.len() {
            let piece = self.place.piece(offset_bytes + done as u64).ok_or("beyond the end")?;
            let rest = (into.len() - done) as u64;
            let len = rest.min(piece.bytes) as usize;
            let image = self.images.get_mut(piece.array).ok_or("not there")?;
            let bytes = read(&mut **image, piece.offset_bytes, len);
            let bytes = bytes.map_err(|unreadable| unreadable.reason)?;
            into[done..done + len].copy_from_slice(&bytes);
            done += len;
        }
        Ok(())
    }
}
