//! Figures of I/O: how much was asked for, how much of it failed, and how long it took. The part
//! that asks for the I/O counts, without locks or allocations; readers get a copy.

use std::collections::BTreeMap;

use crate::{Instant, MemberId};

/// Bounds of the buckets for latencies: [`SHORTEST_NS`], and each twice the one before.
pub const BOUNDS: usize = 20;
/// The upper bound of the first bucket, 64 µs; that of the last is 33.6 s.
pub const SHORTEST_NS: u64 = 64_000;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// All that was written becomes durable.
    Flush,
    /// A range is to read as zeroes.
    Zero,
    /// The contents of a range are not needed any more.
    Discard,
}

/// Numbers of operations by the time that they took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "Vec<u64>", into = "Vec<u64>"))]
pub struct Latencies([u64; BOUNDS + 1]);

/// Operations of one kind that have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Operations {
    /// Number of operations, with those that failed.
    pub operations: u64,
    /// Bytes of those that did not fail.
    pub bytes: u64,
    /// Number of those that failed.
    pub errors: u64,
    /// Time that all of them took together.
    pub total_ns: u64,
    /// Numbers of operations by the time that they took. In JSON a list: up to 64 µs, up to 128 µs
    /// and so on, the 21st more than 33.6 s; zeroes at its end are left out.
    pub latency_counts: Latencies,
}

/// Figures of an array or of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct IoFigures {
    /// Operations that have begun and not ended.
    pub in_flight: u64,
    /// Reads.
    pub read: Operations,
    /// Writes.
    pub write: Operations,
    /// Flushes.
    pub flush: Operations,
    /// Ranges zeroed.
    pub zero: Operations,
    /// Ranges discarded.
    pub discard: Operations,
}

/// Figures of what one process serves, since it began to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Figures {
    /// Requests of users of the array.
    pub requests: IoFigures,
    /// Requests to members.
    pub members: Vec<MemberFigures>,
    /// Number of clients that use the array, by kind of export, of those kinds that can tell.
    pub clients: BTreeMap<String, u64>,
}

/// Figures of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemberFigures {
    /// The member.
    pub member: MemberId,
    /// Requests to it.
    pub io: IoFigures,
}

impl Figures {
    /// Returns the figures of a member.
    #[must_use]
    pub fn of(&self, member: MemberId) -> Option<&IoFigures> {
        self.members.iter().find(|figures| figures.member == member).map(|figures| &figures.io)
    }
}

impl Latencies {
    /// The upper bound of a bucket; the last bucket has none.
    #[must_use]
    pub fn bound_ns(bucket: usize) -> Option<u64> {
        (bucket < BOUNDS).then(|| SHORTEST_NS << bucket)
    }

    /// Returns how many operations are in each bucket, and in none before it.
    #[must_use]
    pub const fn counts(&self) -> &[u64] {
        &self.0
    }

    const fn note(&mut self, ns: u64) {
        let units = ns.div_ceil(SHORTEST_NS);
        // The binary logarithm, rounded up.
        let bucket = (u64::BITS - units.saturating_sub(1).leading_zeros()) as usize;
        self.0[if bucket < BOUNDS { bucket } else { BOUNDS }] += 1;
    }
}

impl From<Vec<u64>> for Latencies {
    /// Adds the buckets that another version has more to the last one.
    fn from(list: Vec<u64>) -> Self {
        let mut counts = Self::default();
        for (bucket, count) in list.into_iter().enumerate() {
            counts.0[bucket.min(BOUNDS)] += count;
        }
        counts
    }
}

impl From<Latencies> for Vec<u64> {
    fn from(counts: Latencies) -> Self {
        let used = counts.0.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        counts.0[..used].to_vec()
    }
}

impl Operations {
    /// Returns the operations since an earlier look; all of them where counting has begun anew
    /// meanwhile, as that of another process does.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        if self.operations < before.operations {
            return self.clone();
        }
        let mut latency_counts = self.latency_counts.clone();
        let counts = latency_counts.0.iter_mut().zip(before.latency_counts.0);
        counts.for_each(|(count, before)| *count = count.saturating_sub(before));
        Self {
            operations: self.operations - before.operations,
            bytes: self.bytes.saturating_sub(before.bytes),
            errors: self.errors.saturating_sub(before.errors),
            total_ns: self.total_ns.saturating_sub(before.total_ns),
            latency_counts,
        }
    }

    /// Adds other operations to these.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.total_ns += other.total_ns;
        let counts = self.latency_counts.0.iter_mut().zip(other.latency_counts.0);
        counts.for_each(|(count, other)| *count += other);
    }

    const fn note(&mut self, bytes: u64, ns: u64, good: bool) {
        self.operations += 1;
        if good {
            self.bytes += bytes;
        } else {
            self.errors += 1;
        }
        self.total_ns += ns;
        self.latency_counts.note(ns);
    }
}

impl IoFigures {
    /// All kinds, with their names.
    #[must_use]
    pub const fn kinds(&self) -> [(&'static str, &Operations); 5] {
        [
            ("read", &self.read),
            ("write", &self.write),
            ("flush", &self.flush),
            ("zero", &self.zero),
            ("discard", &self.discard),
        ]
    }

    /// An operation has ended.
    pub const fn note(
        &mut self,
        (kind, bytes): (OperationKind, u64),
        begun: Instant,
        now: Instant,
        good: bool,
    ) {
        let of_kind = match kind {
            OperationKind::Read => &mut self.read,
            OperationKind::Write => &mut self.write,
            OperationKind::Flush => &mut self.flush,
            OperationKind::Zero => &mut self.zero,
            OperationKind::Discard => &mut self.discard,
        };
        of_kind.note(bytes, now.0.saturating_sub(begun.0), good);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_takes_what_is_up_to_its_bound() {
        let bucket = |ns| {
            let mut latencies = Latencies::default();
            latencies.note(ns);
            latencies.counts().iter().position(|count| *count == 1).expect("one")
        };
        assert_eq!((bucket(0), bucket(SHORTEST_NS), bucket(SHORTEST_NS + 1)), (0, 0, 1));
        for number in 1..BOUNDS {
            let bound = Latencies::bound_ns(number).expect("a bound");
            assert_eq!((bucket(bound), bucket(bound + 1)), (number, number + 1));
        }
        assert_eq!((bucket(u64::MAX), Latencies::bound_ns(BOUNDS)), (BOUNDS, None));
    }

    #[test]
    fn what_came_since_and_what_was_before_are_all() {
        let mut figures = IoFigures::default();
        figures.note((OperationKind::Read, 512), Instant(0), Instant(SHORTEST_NS), true);
        let before = figures.read.clone();
        figures.note((OperationKind::Read, 512), Instant(0), Instant(SHORTEST_NS * 4), false);
        let mut since = figures.read.since(&before);
        assert_eq!((since.operations, since.errors, since.bytes), (1, 1, 0));
        assert_eq!(since.latency_counts, vec![0, 0, 1].into());
        since.add(&before);
        assert_eq!(since, figures.read);
        assert_eq!(before.since(&figures.read), before, "it counts anew");
    }
}
