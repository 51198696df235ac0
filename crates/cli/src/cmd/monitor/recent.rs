//! Requests of an array's users between two looks, computed from counters that only grow. No I/O.

use braid_array::figures::{IoFigures, Latencies, Operations};

/// Percentile of the latency that is reported as slow.
const SLOW_PERCENT: u64 = 99;

/// A period of time, and the operations in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    ms: u64,
    read: Operations,
    write: Operations,
    /// Requests of all kinds that failed.
    pub(super) errors: u64,
}

/// Rates per second, and latencies per request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rates {
    pub(super) read_bytes_s: u64,
    pub(super) write_bytes_s: u64,
    pub(super) reads_s: u64,
    pub(super) writes_s: u64,
    /// Average latency of a read.
    pub(super) read_us: u64,
    pub(super) write_us: u64,
    /// 99th percentile of the latency of reads and writes.
    pub(super) slow_us: u64,
}

impl Recent {
    /// Between two looks that are so far apart.
    pub(super) fn between(ms: u64, before: &IoFigures, now: &IoFigures) -> Self {
        let kinds = now.kinds().into_iter().zip(before.kinds());
        let errors = kinds.map(|((_, now), (_, before))| now.since(before).errors).sum();
        let read = now.read.since(&before.read);
        let write = now.write.since(&before.write);
        Self { ms, read, write, errors }
    }

    /// Adds a later period.
    pub(super) fn add(&mut self, later: &Self) {
        self.ms += later.ms;
        self.read.add(&later.read);
        self.write.add(&later.write);
        self.errors += later.errors;
    }

    pub(super) fn rates(&self) -> Rates {
        let per_s = |count: u64| count.saturating_mul(1000) / self.ms.max(1);
        let each_us = |of: &Operations| of.total_ns / of.operations.max(1) / 1000;
        let mut both = self.read.clone();
        both.add(&self.write);
        Rates {
            read_bytes_s: per_s(self.read.bytes),
            write_bytes_s: per_s(self.write.bytes),
            reads_s: per_s(self.read.operations),
            writes_s: per_s(self.write.operations),
            read_us: each_us(&self.read),
            write_us: each_us(&self.write),
            slow_us: slow_us(&both.latency_counts),
        }
    }
}

/// Returns the upper bound of the bucket in which the slowest hundredth begins. The last bucket has
/// no bound: twice the greatest bound is returned.
fn slow_us(latencies: &Latencies) -> u64 {
    let all: u64 = latencies.counts().iter().sum();
    let wanted = (all * SLOW_PERCENT).div_ceil(100);
    let mut within = 0;
    let mut ns = 0;
    for (bucket, count) in latencies.counts().iter().enumerate() {
        if within >= wanted {
            break;
        }
        within += count;
        ns = Latencies::bound_ns(bucket).unwrap_or(ns * 2);
    }
    ns / 1000
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Figures with so many reads of a kibibyte, each of which took a millisecond.
    pub(in crate::cmd::monitor) fn reads(operations: u64) -> IoFigures {
        let read = Operations {
            operations,
            bytes: operations << 10,
            errors: 0,
            total_ns: operations * 1_000_000,
            latency_counts: vec![0, 0, 0, 0, operations].into(),
        };
        IoFigures { read, ..IoFigures::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::reads;
    use super::*;

    #[test]
    fn speed_is_what_came_in_the_time_between() {
        let mut recent = Recent::between(500, &reads(100), &reads(150));
        let rates = recent.rates();
        assert_eq!((rates.reads_s, rates.read_bytes_s), (100, 100 << 10));
        assert_eq!((rates.read_us, rates.slow_us), (1000, 1024));
        assert_eq!((rates.writes_s, rates.write_us), (0, 0));
        recent.add(&Recent::between(1500, &reads(150), &reads(300)));
        assert_eq!(recent.rates().reads_s, 100);
        assert_eq!(Recent::between(0, &reads(1), &reads(1)).rates(), Rates::default());
    }

    #[test]
    fn a_process_that_has_begun_to_count_anew_is_no_jump() {
        let recent = Recent::between(1000, &reads(1_000_000), &reads(7));
        assert_eq!(recent.rates().reads_s, 7);
    }

    #[test]
    fn the_slowest_hundredth_is_found() {
        let slow = |list: &[u64]| slow_us(&list.to_vec().into());
        assert_eq!((slow(&[]), slow(&[99, 0, 1]), slow(&[98, 0, 2])), (0, 64, 256));
        let last = [&[0; 20][..], &[1]].concat();
        assert_eq!(slow(&last), 67_108_864);
    }
}
