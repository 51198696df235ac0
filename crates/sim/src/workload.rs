//! Requests: random, sequential and piled up in one place, in proportions drawn from the seed.

use braid_array::Op;

use crate::oracle::Range;
use crate::rng::Rng;

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read.
    Read,
    /// Write.
    Write {
        /// With FUA.
        fua: bool,
    },
    /// Write zeroes.
    Zeroes {
        /// With FUA.
        fua: bool,
        /// Space may be given back.
        unmap: bool,
    },
    /// Discard.
    Discard,
    /// Flush.
    Flush,
}

impl Kind {
    /// Returns the operation for a machine.
    pub const fn op(self) -> Op {
        match self {
            Self::Read => Op::Read,
            Self::Write { fua } => Op::Write { fua },
            Self::Zeroes { fua, unmap } => Op::WriteZeroes { fua, unmap },
            Self::Discard => Op::Discard,
            Self::Flush => Op::Flush,
        }
    }

    /// Returns whether the request is durable when it is answered.
    pub const fn fua(self) -> bool {
        matches!(self, Self::Write { fua: true } | Self::Zeroes { fua: true, .. })
    }
}

/// A stream of requests: [`next_request`](Self::next_request) again and again. Drawn when it is
/// made: how large they are, of which kinds, where they pile up, and how often a sequence begins.
#[derive(Debug)]
pub struct Workload {
    rng: Rng,
    sectors: u64,
    block_sectors: u64,
    largest_sectors: u64,
    /// Weights of read, write, zeroes, discard, flush.
    weights: [u64; 5],
    fua_percent: u64,
    /// In a hundred: requests that start or belong to a sequential burst.
    burst_percent: u64,
    /// In a hundred: requests that fall into a small part of the array.
    hot_percent: u64,
    hot: Range,
    /// The rest of the running burst, and whether it writes.
    burst: Option<(Range, bool)>,
}

impl Workload {
    /// Requests for an array of this size, in whole blocks.
    pub fn new(mut rng: Rng, sectors: u64, block_sectors: u64) -> Self {
        let hot_sectors = rng.between(8, 64).min(sectors);
        let hot_at = rng.below(sectors - hot_sectors + 1);
        let weights = [
            rng.between(10, 60),
            rng.between(20, 80),
            rng.pick(&[0, 0, 5]),
            rng.pick(&[0, 0, 5]),
            rng.pick(&[0, 1, 5, 20]),
        ];
        Self {
            sectors,
            block_sectors,
            largest_sectors: rng.pick(&[8, 16, 32, 128]).min(sectors).max(block_sectors),
            weights,
            fua_percent: rng.pick(&[0, 5, 30]),
            burst_percent: rng.pick(&[0, 2, 10]),
            hot_percent: rng.pick(&[0, 20, 60]),
            hot: Range { sector: hot_at, sectors: hot_sectors },
            burst: None,
            rng,
        }
    }

    /// The array has so many sectors now.
    pub fn resize(&mut self, sectors: u64) {
        self.sectors = sectors;
        self.burst.take_if(|(rest, _)| rest.sector + rest.sectors > sectors);
    }

    /// Reads everything once.
    pub fn sweep(sectors: u64) -> Self {
        let mut sweep = Self::new(Rng::new(0), sectors, 1);
        sweep.largest_sectors = 128;
        sweep.burst = Some((Range { sector: 0, sectors }, false));
        sweep
    }

    /// Sets the largest size of a request for data. Without it some requests have 64 KiB.
    pub const fn largest(&mut self, sectors: u64) {
        self.largest_sectors = sectors;
    }

    /// Returns whether a sequence of requests is unfinished.
    pub const fn more(&self) -> bool {
        self.burst.is_some()
    }

    /// The next request.
    pub fn next_request(&mut self) -> (Kind, Range) {
        if let Some((rest, writes)) = self.burst.take() {
            let sectors = rest.sectors.min(self.largest_sectors);
            if rest.sectors > sectors {
                let left = Range { sector: rest.sector + sectors, sectors: rest.sectors - sectors };
                self.burst = Some((left, writes));
            }
            let kind = if writes { Kind::Write { fua: false } } else { Kind::Read };
            return (kind, Range { sector: rest.sector, sectors });
        }
        if self.rng.percent(self.burst_percent) {
            let range =
                self.range(self.sectors.min(512), Range { sector: 0, sectors: self.sectors });
            self.burst = Some((range, self.rng.percent(80)));
            return self.next_request();
        }
        let kind = self.kind();
        let within = if self.rng.percent(self.hot_percent) {
            self.hot
        } else {
            Range { sector: 0, sectors: self.sectors }
        };
        let largest = match kind {
            Kind::Zeroes { .. } | Kind::Discard => self.sectors.min(1024),
            _ => self.largest_sectors,
        };
        (kind, self.range(largest, within))
    }

    fn kind(&mut self) -> Kind {
        let mut at = self.rng.below(self.weights.iter().sum());
        let fua = self.rng.percent(self.fua_percent);
        for (index, weight) in self.weights.into_iter().enumerate() {
            if at < weight {
                return match index {
                    0 => Kind::Read,
                    1 => Kind::Write { fua },
                    2 => Kind::Zeroes { fua, unmap: self.rng.percent(50) },
                    3 => Kind::Discard,
                    _ => Kind::Flush,
                };
            }
            at -= weight;
        }
        Kind::Flush
    }

    /// A range that starts in `within`: small ones more often than large ones.
    fn range(&mut self, largest: u64, within: Range) -> Range {
        let block = self.block_sectors;
        let limit = self.rng.between(1, largest.div_ceil(block));
        let blocks = self.rng.between(1, limit);
        let start = (within.sector + self.rng.below(within.sectors)) / block;
        let last = self.sectors / block;
        let start = start.min(last - 1);
        Range { sector: start * block, sectors: blocks.min(last - start) * block }
    }
}
