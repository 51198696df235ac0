//! Bounds of levels where its members share one medium, computed beforehand from what the medium
//! does without RAID.

use super::level::Level;
use crate::tool::fio;

/// Chunk that md and mdadm take unless told otherwise, and Braid too.
const CHUNK_BYTES: f64 = 512.0 * 1024.0;

/// Requests of a job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    direction: String,
    block_bytes: f64,
    /// Depth of all processes together.
    depth: f64,
}

impl Shape {
    /// `None` for a job that reads and writes, or that does not say.
    pub(super) fn of(job: &fio::FioFigures) -> Option<Self> {
        let direction = job.options.get("rw").or_else(|| job.options.get("readwrite"))?;
        let known = ["read", "write", "randread", "randwrite"].contains(&direction.as_str());
        let number = |name: &str| job.number(name).unwrap_or(1.0);
        let shape = Self {
            direction: direction.clone(),
            block_bytes: job.number("bs")?,
            depth: number("iodepth") * number("numjobs"),
        };
        known.then_some(shape)
    }

    /// The same in the other direction.
    pub(super) fn reading(&self) -> Self {
        let direction = self.direction.replace("write", "read");
        Self { direction, ..self.clone() }
    }
}

/// The rate by that without RAID, where that does `reads` requests a second of the same kind, and
/// `writes`.
pub(super) fn ratio(level: Level, members: u16, shape: &Shape, reads: f64, writes: f64) -> f64 {
    let data = f64::from(members.saturating_sub(level.facts().parities).max(1));
    match shape.direction.as_str() {
        "write" => 1.0 / level.stored(members),
        "randwrite" if level.facts().parities > 0 && shape.block_bytes < CHUNK_BYTES * data => {
            let parities = f64::from(level.facts().parities);
            // Either what is overwritten and its parities are read, or what stays as it is.
            let read = (1.0 + parities).min(data - 1.0);
            let written = 1.0 + parities;
            if shape.depth > 1.0 {
                // The medium is busy all the time: requests count.
                (1.0 / writes) / (read / reads + written / writes)
            } else {
                // It does all reads at once, and all writes at once after that.
                (1.0 / writes) / (read.min(1.0) / reads + 1.0 / writes)
            }
        }
        "randwrite" if shape.depth > 1.0 => 1.0 / level.stored(members),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(direction: &str, block_bytes: f64, depth: f64) -> Shape {
        Shape { direction: direction.to_owned(), block_bytes, depth }
    }

    #[test]
    fn what_was_published_lies_close_to_its_bound() {
        // Requests a second without RAID, as published.
        let deep = |level: Level, members| {
            ratio(level, members, &shape("randwrite", 4096.0, 512.0), 312_312.0, 145_832.0)
        };
        assert!((deep(Level::RAID_5, 3) - 0.405).abs() < 0.001);
        assert!((deep(Level::RAID_6, 4) - 0.288).abs() < 0.001);
        let one = ratio(Level::RAID_5, 3, &shape("randwrite", 4096.0, 1.0), 39405.0, 31083.0);
        assert!((one - 0.559).abs() < 0.001);
    }

    #[test]
    fn long_writes_cost_what_is_stored_and_reads_nothing() {
        let write = shape("write", 131_072.0, 32.0);
        let bound = |level: Level| ratio(level, level.facts().members, &write, 9.0, 5.0);
        assert_eq!(bound(Level::RAID_5), 1.0 / 1.5);
        assert_eq!(bound(Level::RAID_6), 0.5);
        assert_eq!(bound(Level::ALL[6]), 1.0);
        assert_eq!(ratio(Level::RAID_6, 4, &write.reading(), 9.0, 5.0), 1.0);
        // Whole stripes at random places are long writes, too.
        let stripes = shape("randwrite", 2.0 * CHUNK_BYTES, 8.0);
        assert_eq!(ratio(Level::RAID_5, 3, &stripes, 9.0, 5.0), 1.0 / 1.5);
    }

    #[test]
    fn a_wide_array_reads_what_it_overwrites() {
        let small = shape("randwrite", 4096.0, 32.0);
        assert_eq!(ratio(Level::RAID_5, 10, &small, 1.0, 1.0), 0.25);
        assert!((ratio(Level::RAID_6, 10, &small, 1.0, 1.0) - 1.0 / 6.0).abs() < 1e-12);
        assert_eq!(ratio(Level::ALL[0], 2, &small, 1.0, 1.0), 0.5);
    }
}
