//! Strips of stripes that were written a moment ago: the next write of a part of such a stripe
//! reads nothing again.
//!
//! ```text
//!              a write reads, or writes          it has ended well
//!   no strip ───────────────────────────► coming ─────────────────► valid ─► a copy, not a read
//!      ▲                                    │                         │
//!      └────────────────────────────────────┴── anything failed, anybody else writes, time passes
//! ```
//! The cache has strips of units that are written for the second time within a while, and of those
//! that a sequential stream writes: their rest is read along. Strips are scratch, which jobs may
//! have back at any time. The cache is for members that let reads wait: where they are answered at
//! once, a copy to keep costs more than the next read. A journal has memory of its own for this.
//!
//! A job that writes to a unit has its lock; so a strip has one job at a time.

use std::collections::BTreeMap;

use super::scratch::{Pool, UNIT_BYTES};
use crate::keeper::{UNIT_SECTORS, Unit};
use crate::plan::Rows;
use crate::{Buf, Instant, MemberId};

/// The time for which unused strips are kept.
const KEEP_MS: u64 = 1_000;
/// The share of the scratch's strips: one of so many at most.
const SHARE: u64 = 3;
/// About so many units are remembered as written.
const SEEN: usize = 1024;

/// Rows of a unit, a bit each.
type RowSet = u128;
const _: () = assert!(UNIT_SECTORS == RowSet::BITS, "a bit for each row of the highest unit");

/// A strip of a unit on a member.
type Key = (u64, MemberId);

#[derive(Debug)]
struct CachedStrip {
    buf: Buf,
    /// As they are on the member.
    valid: RowSet,
    /// Being read or written by the job.
    coming: RowSet,
    job: Option<usize>,
    /// Nothing of it counts any more; it goes when its job ends.
    doomed: bool,
    used: u64,
}

/// The strips. A write [asks](Self::find) before it reads, [keeps](Self::keep) what it is to read
/// or write, and [ends](Self::end). Any other change of members: [`clear`](Self::clear).
#[derive(Debug)]
pub(super) struct StripeCache {
    strips: BTreeMap<Key, CachedStrip>,
    most: usize,
    /// Units that were written, by their numbers.
    seen: Vec<Option<u64>>,
    /// Members let reads wait.
    pub(super) reads_wait: bool,
    clock: u64,
    used_at: Instant,
}

impl StripeCache {
    /// Empty, beside this scratch.
    pub(super) fn new(pool: &Pool) -> Self {
        Self {
            strips: BTreeMap::new(),
            most: usize::try_from(pool.all_bytes() / u64::from(UNIT_BYTES) / SHARE)
                .unwrap_or(usize::MAX),
            seen: Vec::new(),
            reads_wait: false,
            clock: 0,
            used_at: Instant::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.strips.is_empty()
    }

    /// Returns the size of its scratch.
    pub(super) fn bytes(&self) -> u64 {
        self.strips.values().map(|strip| u64::from(strip.buf.len)).sum()
    }

    /// A unit is written. True where that was not long ago.
    pub(super) fn see(&mut self, unit: Unit) -> bool {
        if self.seen.is_empty() {
            self.seen = vec![None; SEEN];
        }
        let number = unit.start / u64::from(unit.sectors.max(1));
        let slot = usize::try_from(number % SEEN as u64).expect("below their number");
        self.seen[slot].replace(unit.start) == Some(unit.start)
    }

    /// These rows of a strip, where all are valid. The job has the strip until it ends.
    pub(super) fn find(&mut self, job: usize, key: Key, rows: Rows) -> Option<Buf> {
        let strip = self.strips.get_mut(&key)?;
        let wanted = set(rows);
        if strip.doomed || strip.valid & wanted != wanted {
            return None;
        }
        self.clock += 1;
        strip.used = self.clock;
        strip.job = Some(job);
        Some(rows.of(strip.buf))
    }

    /// These rows of a strip, where the job reads all of them already.
    pub(super) fn coming(&self, job: usize, key: Key, rows: Rows) -> Option<Buf> {
        let strip = self.strips.get(&key)?;
        let wanted = set(rows);
        let comes = !strip.doomed && strip.job == Some(job) && strip.coming & wanted == wanted;
        comes.then(|| rows.of(strip.buf))
    }

    /// Memory for rows that the job is about to read or write. `new`: also where there is no strip
    /// yet. Without memory they are not valid afterwards.
    pub(super) fn keep(
        &mut self,
        pool: &mut Pool,
        job: usize,
        key: Key,
        rows: Rows,
        new: bool,
    ) -> Option<Buf> {
        if new && !self.strips.contains_key(&key) {
            let buf = self.take(pool)?;
            let strip = CachedStrip { buf, valid: 0, coming: 0, job: None, doomed: false, used: 0 };
            self.strips.insert(key, strip);
        }
        let strip = self.strips.get_mut(&key).filter(|strip| !strip.doomed)?;
        debug_assert!(strip.job.is_none_or(|other| other == job), "the lock is one job's");
        self.clock += 1;
        strip.used = self.clock;
        strip.job = Some(job);
        strip.coming |= set(rows);
        strip.valid &= !set(rows);
        Some(rows.of(strip.buf))
    }

    /// These rows are written in a way of which nothing is kept.
    pub(super) fn forget(&mut self, key: Key, rows: Rows) {
        if let Some(strip) = self.strips.get_mut(&key) {
            strip.valid &= !set(rows);
            strip.coming &= !set(rows);
        }
    }

    /// All units that begin in this range of sync space are written by who keeps nothing, and has
    /// their locks.
    pub(super) fn forget_units(&mut self, pool: &mut Pool, start: u64, end: u64) {
        if self.strips.is_empty() || crate::broken("forget-cached") {
            return;
        }
        let range = (start, MemberId(0))..(end, MemberId(0));
        let keys: Vec<Key> = self.strips.range(range).map(|(key, _)| *key).collect();
        for key in keys {
            self.drop_strip(pool, key);
        }
    }

    /// A job has ended, or is planned anew: what it read and wrote counts if it went well.
    pub(super) fn end(&mut self, pool: &mut Pool, now: Instant, job: usize, well: bool) {
        if self.strips.is_empty() {
            return;
        }
        self.used_at = now;
        let mut gone = Vec::new();
        for (key, strip) in self.strips.iter_mut().filter(|(_, strip)| strip.job == Some(job)) {
            strip.job = None;
            strip.valid |= strip.coming;
            strip.coming = 0;
            if strip.doomed || !well {
                gone.push(*key);
            }
        }
        for key in gone {
            self.drop_strip(pool, key);
        }
    }

    /// Nothing that it has counts any more.
    pub(super) fn clear(&mut self, pool: &mut Pool) {
        for strip in self.strips.values_mut() {
            strip.doomed = true;
        }
        self.shed(pool);
    }

    /// Gives all back that no job has.
    pub(super) fn shed(&mut self, pool: &mut Pool) {
        let free = |(key, strip): (&Key, &CachedStrip)| strip.job.is_none().then_some(*key);
        let keys: Vec<Key> = self.strips.iter().filter_map(free).collect();
        for key in keys {
            self.drop_strip(pool, key);
        }
    }

    /// When it has been unused for long enough to be given back.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.strips.is_empty()).then(|| self.used_at.plus_millis(KEEP_MS))
    }

    /// Gives back what nobody used for long.
    pub(super) fn tick(&mut self, pool: &mut Pool, now: Instant) {
        if self.deadline().is_some_and(|at| at <= now) {
            self.shed(pool);
            self.used_at = now;
        }
    }

    /// A strip of scratch: a free one, or that of its own which was used the longest time ago.
    fn take(&mut self, pool: &mut Pool) -> Option<Buf> {
        if self.strips.len() >= self.most {
            let free = self.strips.iter().filter(|(_, strip)| strip.job.is_none());
            let oldest = *free.min_by_key(|(_, strip)| strip.used)?.0;
            self.drop_strip(pool, oldest);
        }
        pool.take(1)?.pop()
    }

    fn drop_strip(&mut self, pool: &mut Pool, key: Key) {
        if let Some(strip) = self.strips.remove(&key) {
            debug_assert!(strip.job.is_none(), "a job reads or writes it");
            pool.give(std::iter::once(strip.buf));
        }
    }
}

fn set(rows: Rows) -> RowSet {
    let below = |row: u32| if row >= RowSet::BITS { RowSet::MAX } else { (1 << row) - 1 };
    below(rows.end) & !below(rows.start)
}
