//! Pages of data that are in the journal and in memory, and not in place: of an array whose journal
//! writes back.
//!
//! ```text
//!           admitted              recorded                    destaged
//!  a write ─────────► its pages ──────────► dirty, answered ──────────► in place with parity
//!           room in memory and in the ring                    unit by unit, the oldest first
//! ```
//! Any write to a unit brings all of its dirty pages in place with it or before it: parity that is
//! recorded closes all data that was recorded of its rows before. Room in the ring for destaging is
//! kept free from the moment at which a page is admitted, so that a full ring always gets room.

use std::collections::{BTreeMap, VecDeque};

use super::map::ArrayMap;
use super::recording::{LeftPage, PageKey, Way};
use crate::format::journal::{BLOCK_BYTES, BLOCK_SECTORS};
use crate::keeper::Unit;
use crate::plan::Rows;
use crate::plan::parity::{Segment, Source};
use crate::status::JournalMode;
use crate::{Buf, Instant, SECTOR_BYTES};

/// The time for which a page is dirty at most while nothing presses, as in md.
const DIRTY_MS: u64 = 30_000;

/// When a unit is tried again that could not be destaged.
const AGAIN_MS: u64 = 1_000;

/// Units that are destaged at once at most.
const MOST_UNITS: usize = 16;

/// Memory for dirty pages at most, in bytes.
const MOST_BYTES: u64 = 128 << 20;

/// Memory for the dirty pages of a journal of this size, in bytes.
pub(super) fn memory_bytes(journal_sectors: u64) -> u64 {
    let half = journal_sectors / 2 * SECTOR_BYTES;
    half.min(MOST_BYTES) / u64::from(BLOCK_BYTES) * u64::from(BLOCK_BYTES)
}

/// A dirty page: where its data are, and the journal's batch that they are in.
#[derive(Clone, Copy, Debug)]
struct DirtyPage {
    buf: Buf,
    batch: u64,
}

/// A unit with dirty pages.
#[derive(Clone, Copy, Debug)]
struct DirtyUnit {
    since: Instant,
    /// Set after a failure to destage: the unit is not tried again before.
    not_before: Option<Instant>,
    /// A job is to destage it.
    asked: bool,
}

/// The dirty pages, their memory, and how much of the ring is kept for them. A write is
/// [admitted](Self::way); when it is recorded its pages are [dirty](Self::insert), and when they
/// are in place they are [clean](Self::clean). [`next_unit`](Self::next_unit) says what to destage.
#[derive(Debug, Default)]
pub(super) struct DirtyPages {
    pub(super) mode: JournalMode,
    free: Vec<Buf>,
    /// Pages of memory in all.
    all: usize,
    pages: BTreeMap<PageKey, DirtyPage>,
    units: BTreeMap<u64, DirtyUnit>,
    /// The units, the oldest first.
    order: VecDeque<u64>,
    /// Blocks of the ring that each write needs which was admitted and is not over, and all those.
    admitted: BTreeMap<usize, u64>,
    admitted_blocks: u64,
    /// Sums of a row.
    sums: u64,
    /// Free room of the ring, in sectors.
    ring_room: u64,
    /// A write waits for room in the ring: no page is admitted before it has that.
    ring_is_short: bool,
    /// Set while a write waits so, or much of the ring is in use.
    ring_presses: bool,
    /// Much of the memory is in use: units are destaged until little is.
    memory_presses: bool,
    /// Jobs that destage.
    destaging: usize,
    /// There may be room that was not there before.
    has_changed: bool,
}

impl DirtyPages {
    /// None. `free`: memory for so many; `sums`: how many sums a row has. The mode may have been
    /// set before there was memory.
    pub(super) fn new(mode: JournalMode, free: Vec<Buf>, sums: u32) -> Self {
        Self { mode, all: free.len(), free, sums: sums.into(), ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Returns the size of all dirty pages, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.pages.len() as u64 * u64::from(BLOCK_BYTES)
    }

    /// Returns whether this unit has any.
    pub(super) fn has(&self, unit: Unit) -> bool {
        self.units.contains_key(&unit.start)
    }

    /// Notes the free room of the ring. `waits`: a write waits for more than that; `much`: of the
    /// ring is in use.
    pub(super) fn note_ring(&mut self, room: u64, waits: bool, much: bool) {
        self.has_changed |= room > self.ring_room || self.ring_is_short && !waits;
        self.ring_room = room;
        self.ring_is_short = waits;
        self.ring_presses = waits || much;
    }

    /// Returns the room of the ring that is kept: for writes that were admitted, and to destage all
    /// pages.
    pub(super) fn kept_sectors(&self) -> u64 {
        let dirty = self.units.len() as u64 + self.pages.len() as u64 * self.sums;
        (self.admitted_blocks + dirty) * BLOCK_SECTORS
    }

    /// Blocks of the ring that a write of so many pages takes, and to destage them later.
    const fn blocks(&self, pages: u64) -> u64 {
        let told_in = 1 + pages / 128;
        told_in + pages + 1 + pages * self.sums
    }

    /// Decides how a write goes that is planned now. `None`: it waits, until something [has
    /// changed](Self::has_changed). `healthy`: no member is missing, and the journal lives.
    pub(super) fn way(
        &mut self,
        job: usize,
        unit: Unit,
        segments: &[Segment],
        healthy: bool,
        full_sectors: u64,
    ) -> Option<Way> {
        let back = healthy && self.mode == JournalMode::WriteBack && suits(segments, full_sectors);
        if back && let Some(pages) = self.admit(job, unit, segments) {
            return Some(Way::Back(pages));
        }
        if self.has(unit) && (segments.is_empty() || !crate::broken("destage-first")) {
            return Some(Way::Destage);
        }
        if back && self.goes_on() { None } else { Some(Way::Through) }
    }

    /// Returns whether something is under way after which there may be more room.
    pub(super) fn goes_on(&self) -> bool {
        !self.admitted.is_empty() || !self.is_stuck()
    }

    /// Memory for the pages of a write, if there is room for it.
    fn admit(&mut self, job: usize, unit: Unit, segments: &[Segment]) -> Option<Vec<LeftPage>> {
        let sectors: u64 = segments.iter().map(|segment| u64::from(segment.rows.sectors())).sum();
        let pages = sectors / BLOCK_SECTORS;
        let blocks = self.blocks(pages);
        let needed = self.kept_sectors() + blocks * BLOCK_SECTORS;
        let short = self.ring_is_short || self.ring_room < needed;
        if short || self.free.len() < pages as usize {
            return None;
        }
        self.admitted.insert(job, blocks);
        self.admitted_blocks += blocks;
        let rest = self.free.len() - pages as usize;
        let bufs = self.free.split_off(rest);
        self.memory_presses |= self.free.len() < self.all / 4;
        let keys = segments.iter().flat_map(|segment| {
            let rows = (segment.rows.start..segment.rows.end).step_by(BLOCK_SECTORS as usize);
            rows.map(move |row| (unit.start, segment.index, row))
        });
        Some(keys.zip(bufs).map(|(key, buf)| LeftPage { key, buf }).collect())
    }

    /// A write that was admitted is over.
    pub(super) fn admitted_over(&mut self, job: usize) {
        self.admitted_blocks -= self.admitted.remove(&job).unwrap_or(0);
        self.has_changed = true;
    }

    /// Returns whether all memory is taken.
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Counts the pages of memory that are held: by dirty pages, and by others.
    pub(super) fn held(&self) -> (usize, usize) {
        let dirty = self.pages.len();
        (dirty, self.all - self.free.len() - dirty)
    }

    /// Names the memory that neither a dirty page has, nor one that is to be.
    pub(super) fn each_free(&self, found: &mut dyn FnMut(Buf)) {
        self.free.iter().for_each(|buf| found(*buf));
    }

    /// Memory for a page.
    pub(super) fn take_buf(&mut self) -> Option<Buf> {
        self.free.pop()
    }

    /// These pages of one unit are dirty, and in this batch; without a batch it did not come to
    /// that. Returned are the batches of pages that they take the place of, and whether the unit
    /// had none before.
    pub(super) fn insert(
        &mut self,
        pages: Vec<LeftPage>,
        batch: Option<u64>,
        now: Instant,
    ) -> (Vec<u64>, bool) {
        let Some(batch) = batch else {
            self.free.extend(pages.into_iter().map(|page| page.buf));
            return (Vec::new(), false);
        };
        let Some(start) = pages.first().map(|page| page.key.0) else {
            return (Vec::new(), false);
        };
        let first = !self.units.contains_key(&start);
        if first {
            self.order.push_back(start);
            let unit = DirtyUnit { since: now, not_before: None, asked: false };
            self.units.insert(start, unit);
        }
        let mut replaced = Vec::new();
        for LeftPage { key, buf } in pages {
            if let Some(old) = self.pages.insert(key, DirtyPage { buf, batch }) {
                self.free.push(old.buf);
                replaced.push(old.batch);
            }
        }
        (replaced, first)
    }

    /// All pages of this unit are in place: the batches that they were in.
    pub(super) fn clean(&mut self, unit: Unit) -> Vec<u64> {
        let keys: Vec<PageKey> = self.of_unit(unit.start).map(|(key, _)| *key).collect();
        let pages = keys.iter().filter_map(|key| self.pages.remove(key));
        let (bufs, batches): (Vec<Buf>, Vec<u64>) = pages.map(|p| (p.buf, p.batch)).unzip();
        self.free.extend(bufs);
        self.units.remove(&unit.start);
        if let Some(at) = self.order.iter().position(|start| *start == unit.start) {
            self.order.remove(at);
        }
        self.memory_presses &= self.free.len() < self.all / 2;
        self.has_changed = true;
        batches
    }

    /// Puts a unit off that could not be brought in place.
    pub(super) fn put_off(&mut self, unit: Unit, now: Instant) {
        if let Some(unit) = self.units.get_mut(&unit.start) {
            unit.not_before = Some(now.plus_millis(AGAIN_MS));
        }
    }

    /// A unit that a job is to destage now, if one is due. `all`: each one is; `except`: not this
    /// one.
    pub(super) fn next_unit(
        &mut self,
        now: Instant,
        all: bool,
        except: Option<u64>,
    ) -> Option<u64> {
        if self.destaging == MOST_UNITS {
            return None;
        }
        let presses = all
            || self.ring_presses
            || self.memory_presses
            || self.mode == JournalMode::WriteThrough;
        let due = |unit: &DirtyUnit| {
            let aged = unit.since.plus_millis(DIRTY_MS) <= now;
            let due = unit.not_before.map_or(presses || aged, |at| at <= now);
            due && !unit.asked
        };
        let next = self
            .order
            .iter()
            .copied()
            .find(|start| Some(*start) != except && self.units.get(start).is_some_and(due));
        let unit = self.units.get_mut(&next?)?;
        unit.asked = true;
        self.destaging += 1;
        next
    }

    /// A job that was to destage is over.
    pub(super) fn destaged(&mut self, unit: Unit) {
        self.destaging -= 1;
        self.has_changed = true;
        if let Some(unit) = self.units.get_mut(&unit.start) {
            unit.asked = false;
        }
    }

    /// When a job is to destage one more unit, but for `except`. As long as there may be no more of
    /// such jobs, the end of one is waited for and no time.
    pub(super) fn deadline(&self, except: Option<u64>) -> Option<Instant> {
        if self.destaging == MOST_UNITS {
            return None;
        }
        let due = |unit: &DirtyUnit| unit.not_before.unwrap_or(unit.since.plus_millis(DIRTY_MS));
        let waits = |(start, unit): &(&u64, &DirtyUnit)| Some(**start) != except && !unit.asked;
        self.units.iter().filter(waits).map(|(_, unit)| due(unit)).min()
    }

    /// Returns whether waiting is of no use: all units that are left could not be brought in place.
    pub(super) fn is_stuck(&self) -> bool {
        self.units.values().all(|unit| unit.not_before.is_some() && !unit.asked)
    }

    /// Writes that wait may be carried out in another way: members have changed.
    pub(super) const fn look_again(&mut self) {
        self.has_changed = true;
    }

    /// Writes that were refused may be admitted now.
    pub(super) fn has_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// The first rows of the units that have dirty pages.
    pub(super) fn units(&self) -> impl Iterator<Item = u64> + '_ {
        self.units.keys().copied()
    }

    fn of_unit(&self, start: u64) -> impl Iterator<Item = (&PageKey, &DirtyPage)> {
        self.pages.range((start, 0, 0)..=(start, u32::MAX, u32::MAX))
    }

    /// The dirty pages of a unit, as its new contents.
    pub(super) fn segments(&self, unit: Unit) -> Vec<Segment> {
        let segment = |((_, strip, row), page): (&PageKey, &DirtyPage)| Segment {
            index: *strip,
            rows: Rows::new(*row, *row + BLOCK_SECTORS as u32),
            source: Source::Buf(page.buf),
        };
        self.of_unit(unit.start).map(segment).collect()
    }

    /// Returns whether this row of a unit has any.
    pub(super) fn has_row(&self, start: u64, row: u32) -> bool {
        self.of_unit(start).any(|((_, _, dirty), _)| *dirty == row)
    }

    /// The dirty pages in a range of the array that crosses no chunk: which of its sectors, and
    /// where they are.
    pub(super) fn within<'a>(
        &'a self,
        map: &'a ArrayMap,
        sector: u64,
        sectors: u64,
    ) -> impl Iterator<Item = (Rows, Buf)> + 'a {
        let place = (!self.pages.is_empty()).then(|| map.parity_place(sector));
        place.into_iter().flat_map(move |(strip, first)| {
            let end = first + sectors;
            let unit_sectors = map.unit_sectors();
            let starts = (first - first % unit_sectors..end).step_by(unit_sectors as usize);
            let rows = move |start| (start, strip, 0)..=(start, strip, u32::MAX);
            let pages = starts.flat_map(move |start| self.pages.range(rows(start)));
            pages.filter_map(move |((start, _, row), page)| {
                let at = start + u64::from(*row);
                let from = at.max(first);
                let until = (at + BLOCK_SECTORS).min(end);
                let part = |base: u64| Rows::new((from - base) as u32, (until - base) as u32);
                (from < until).then(|| (part(first), part(at).of(page.buf)))
            })
        })
    }
}

/// Returns whether these may be left to be written later. Not parts of pages, and not what is
/// written with nothing read anyway.
fn suits(segments: &[Segment], full_sectors: u64) -> bool {
    const BLOCK: u32 = BLOCK_SECTORS as u32;
    let whole = |segment: &Segment| {
        segment.rows.start.is_multiple_of(BLOCK)
            && segment.rows.end.is_multiple_of(BLOCK)
            && matches!(segment.source, Source::Buf(_))
    };
    let sectors: u64 = segments.iter().map(|segment| u64::from(segment.rows.sectors())).sum();
    !segments.is_empty() && segments.iter().all(whole) && sectors < full_sectors
}
