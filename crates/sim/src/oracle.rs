//! Allowed contents of every sector of the array.
//!
//! Writes to one sector that overlap in time may land in any order. A read returns the content at
//! its beginning or a content written since. An answered write is safe from a power cut only after
//! a later flush, or its own FUA, was answered: after a cut a sector holds any one of its contents
//! since it was last durable.

use std::fmt;

use crate::stamp::{self, Serial, ZEROES};
use braid_array::SECTOR_BYTES;

const SECTOR: usize = SECTOR_BYTES as usize;
const NEVER: u64 = u64::MAX;

/// Serial of contents without any promise.
const ANY: Serial = Serial::MAX;

/// Data that nothing allows.
#[derive(Clone, Debug)]
pub struct Violation {
    /// First bad sector.
    pub sector: u64,
    /// Allowed contents.
    pub expected: String,
    /// Content found.
    pub actual: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sector {} should hold {}, holds {}", self.sector, self.expected, self.actual)
    }
}

/// A range of array sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// First sector.
    pub sector: u64,
    /// Number of sectors.
    pub sectors: u64,
}

impl Range {
    /// Returns whether the ranges have sectors in common.
    pub const fn overlaps(self, other: Self) -> bool {
        self.sector < other.sector + other.sectors && other.sector < self.sector + self.sectors
    }
}

/// A time of the oracle's logical clock, which orders submissions and completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogicalTime(u64);

/// A write in flight, as the oracle gave it out.
#[derive(Clone, Copy, Debug)]
pub struct WriteToken {
    pub(crate) range: Range,
    pub(crate) serial: Serial,
    pub(crate) submitted: LogicalTime,
}

/// The contents that each sector may have: one that is durable (a *settled* cell), or several with
/// the times at which they were submitted, answered and replaced (an *open* one).
///
/// Submissions and answers are reported in the order of the events: writes by
/// [`write_submitted`](Self::write_submitted) and [`write_completed`](Self::write_completed), reads
/// and flushes alike, each with the [`LogicalTime`] of its submission. An answered flush and a
/// [`power_cut`](Self::power_cut) make cells settled again.
#[derive(Debug)]
pub struct Oracle {
    cells: Vec<Cell>,
    /// Cells that are open, so that a flush need not look at all.
    open: Vec<u64>,
    now: u64,
    next_serial: Serial,
    /// Submission times of the reads in flight.
    reads: Vec<LogicalTime>,
    /// Blocks of 4 KiB are written as a whole.
    pub(crate) whole_blocks: bool,
    /// What becomes part of the array may have been one before.
    was_larger: bool,
}

#[derive(Clone, Debug)]
enum Cell {
    /// One durable content.
    Settled(Serial),
    /// Several contents, or one that is not durable.
    Open(Vec<Entry>),
}

/// A content that a sector may have.
#[derive(Clone, Copy, Debug)]
struct Entry {
    serial: Serial,
    submitted: u64,
    completed: u64,
    /// Time at which a later content surely replaced it.
    replaced: u64,
    /// A power cut cannot take it away.
    durable: bool,
    /// A power cut cannot bring it back.
    superseded: bool,
    /// An entry that may not have happened: it replaces no other entry.
    weak: bool,
    /// A power cut has left it as one of several.
    cut: bool,
}

/// Sectors of a block.
const BLOCK_SECTORS: u64 = 8;

impl Oracle {
    /// An array of zeroes.
    pub fn new(sectors: u64) -> Self {
        Self {
            cells: vec![Cell::Settled(ZEROES); sectors as usize],
            open: Vec::new(),
            now: 1,
            next_serial: ZEROES + 1,
            reads: Vec::new(),
            whole_blocks: false,
            was_larger: false,
        }
    }

    /// Returns the size of the array.
    pub fn sectors(&self) -> u64 {
        self.cells.len() as u64
    }

    /// What lies further is given up; the array may still have it.
    pub fn shrink(&mut self, sectors: u64) {
        self.cells.truncate(sectors as usize);
        self.open.retain(|sector| *sector < sectors);
        self.was_larger = true;
    }

    /// The array has so many sectors now. What is new is of zeroes, or holds anything.
    pub fn grow(&mut self, sectors: u64, zeroes: bool) {
        let serial = if zeroes && !self.was_larger { ZEROES } else { ANY };
        self.cells.resize(sectors as usize, Cell::Settled(serial));
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// The serial with which the next write is to be stamped.
    pub fn new_serial(&mut self) -> Serial {
        self.next_serial += 1;
        self.next_serial - 1
    }

    /// A write ([`ZEROES`] for write-zeroes) is about to be submitted.
    pub fn write_submitted(&mut self, range: Range, serial: Serial) -> WriteToken {
        self.submitted(range, serial, false)
    }

    /// A discard is about to be submitted: the range may turn to zeroes.
    pub fn discard_submitted(&mut self, range: Range) -> WriteToken {
        self.submitted(range, ZEROES, true)
    }

    fn submitted(&mut self, range: Range, serial: Serial, weak: bool) -> WriteToken {
        let submitted = self.tick();
        let entry = Entry { serial, submitted, weak, ..Entry::in_flight() };
        for sector in range.sector..range.sector + range.sectors {
            self.open_cell(sector).push(entry);
        }
        WriteToken { range, serial, submitted: LogicalTime(submitted) }
    }

    fn open_cell(&mut self, sector: u64) -> &mut Vec<Entry> {
        let cell = &mut self.cells[sector as usize];
        if let Cell::Settled(serial) = *cell {
            let mut entries = Vec::with_capacity(4);
            entries.push(Entry::durable(serial));
            *cell = Cell::Open(entries);
            self.open.push(sector);
        }
        match cell {
            Cell::Open(entries) => entries,
            Cell::Settled(_) => unreachable!("opened above"),
        }
    }

    /// A write was answered; `durable` when it was FUA.
    pub fn write_completed(&mut self, token: WriteToken, ok: bool, durable: bool) {
        let now = self.tick();
        let oldest_read = self.oldest_read();
        for sector in token.range.sector..token.range.sector + token.range.sectors {
            let entries = self.open_cell(sector);
            let mut weak = !ok;
            for entry in entries.iter_mut() {
                if entry.submitted == token.submitted.0 && entry.serial == token.serial {
                    entry.completed = now;
                    entry.durable = durable && ok;
                    weak |= entry.weak;
                    entry.weak = weak;
                }
            }
            if weak {
                continue;
            }
            for entry in entries.iter_mut().filter(|e| e.completed < token.submitted.0) {
                entry.replaced = entry.replaced.min(now);
                entry.superseded |= durable;
            }
            entries.retain(|e| !e.forgotten(oldest_read));
        }
    }

    /// A read is about to be submitted.
    pub fn read_submitted(&mut self) -> LogicalTime {
        let moment = LogicalTime(self.tick());
        self.reads.push(moment);
        moment
    }

    /// A read failed or will never be answered.
    pub fn read_abandoned(&mut self, moment: LogicalTime) {
        self.reads.retain(|m| *m != moment);
    }

    /// Judges the answer of a read. `narrow`: every copy is known to be equal, so the content read
    /// is the content that stays.
    pub fn read_completed(
        &mut self,
        moment: LogicalTime,
        sector: u64,
        bytes: &[u8],
        narrow: bool,
        excused: &dyn Fn(u64) -> bool,
    ) -> Result<(), Violation> {
        self.read_abandoned(moment);
        let now = self.tick();
        let mut before: Option<(u64, Entry)> = None;
        for (number, data) in (sector..).zip(bytes.chunks_exact(SECTOR)) {
            if excused(number) {
                continue;
            }
            let found = self.found(number, data, moment);
            let Some((at, entry)) = found else {
                return Err(self.violation(number, moment, data));
            };
            let same_block =
                |(other, _): &(u64, Entry)| other / BLOCK_SECTORS == number / BLOCK_SECTORS;
            if self.whole_blocks
                && let Some((_, other)) = before.filter(same_block)
                && other.serial != entry.serial
                && !(other.cut || entry.cut)
            {
                return Err(Violation {
                    sector: number,
                    expected: format!("{} as the sector before", stamp::name(other.serial)),
                    actual: stamp::describe(data),
                });
            }
            before = Some((number, entry));
            if narrow && let Cell::Open(entries) = &mut self.cells[number as usize] {
                narrow_to(entries, at, moment, now);
            }
        }
        Ok(())
    }

    /// Returns the allowed content that matches the data.
    fn found(&self, sector: u64, data: &[u8], moment: LogicalTime) -> Option<(usize, Entry)> {
        match &self.cells[sector as usize] {
            Cell::Settled(serial) => {
                holds(data, sector, *serial).then(|| (0, Entry::durable(*serial)))
            }
            Cell::Open(entries) => {
                let is = |e: &Entry| e.replaced > moment.0 && holds(data, sector, e.serial);
                entries.iter().rposition(is).map(|at| (at, entries[at]))
            }
        }
    }

    fn violation(&self, sector: u64, moment: LogicalTime, data: &[u8]) -> Violation {
        let expected = self.expected(sector, moment);
        Violation { sector, expected, actual: stamp::describe(data) }
    }

    fn expected(&self, sector: u64, moment: LogicalTime) -> String {
        match &self.cells[sector as usize] {
            Cell::Settled(serial) => stamp::name(*serial),
            Cell::Open(entries) => {
                let names: Vec<_> = entries
                    .iter()
                    .filter(|e| e.replaced > moment.0)
                    .map(|e| stamp::name(e.serial))
                    .collect();
                names.join(" or ")
            }
        }
    }

    /// Describes the contents that a sector may hold now.
    pub fn may_hold(&mut self, sector: u64) -> String {
        let moment = LogicalTime(self.tick());
        self.expected(sector, moment)
    }

    /// A flush is about to be submitted.
    pub fn flush_submitted(&mut self) -> LogicalTime {
        LogicalTime(self.tick())
    }

    /// A flush was answered: writes answered before it was submitted are durable.
    pub fn flush_completed(&mut self, moment: LogicalTime) {
        let oldest_read = self.oldest_read();
        let mut open = std::mem::take(&mut self.open);
        open.retain(|&sector| {
            let cell = &mut self.cells[sector as usize];
            let Cell::Open(entries) = cell else { return false };
            let mut newest = 0;
            for entry in entries.iter_mut().filter(|e| e.completed < moment.0) {
                entry.durable = true;
                if !entry.weak {
                    newest = newest.max(entry.submitted);
                }
            }
            for entry in entries.iter_mut().filter(|e| e.completed < newest) {
                entry.superseded = true;
            }
            entries.retain(|e| !e.forgotten(oldest_read));
            match entries[..] {
                [Entry { serial, durable: true, weak: false, .. }] => {
                    *cell = Cell::Settled(serial);
                    false
                }
                _ => true,
            }
        });
        self.open = open;
    }

    /// Cuts the power: reads and writes in flight are void, and the remaining content is durable.
    pub fn power_cut(&mut self) {
        self.reads.clear();
        for sector in std::mem::take(&mut self.open) {
            let cell = &mut self.cells[sector as usize];
            let Cell::Open(entries) = cell else { continue };
            entries.retain(|e| !e.superseded);
            match &alternatives(entries)[..] {
                [Entry { serial, .. }] => *cell = Cell::Settled(*serial),
                several => {
                    *entries = several.to_vec();
                    self.open.push(sector);
                }
            }
        }
    }

    /// Marks writes answered before this moment and not durable as possibly lost, unless they were
    /// overwritten since.
    pub fn lose_before(&mut self, moment: LogicalTime) {
        for &sector in &self.open {
            let Cell::Open(entries) = &mut self.cells[sector as usize] else { continue };
            let old = |e: &mut Entry| e.completed < moment.0;
            let mut lost: Vec<Entry> = entries.extract_if(.., old).collect();
            lost.retain(|e| !e.superseded);
            let replaced = entries.iter().filter(|e| e.completed != NEVER && !e.weak);
            let replaced = replaced.map(|e| e.completed).min().unwrap_or(NEVER);
            let mut all = alternatives(&lost);
            all.iter_mut().for_each(|entry| entry.replaced = replaced);
            all.append(entries);
            *entries = all;
        }
    }

    /// Decides all unanswered writes: none of them lands later.
    pub fn decided(&mut self) {
        let now = self.tick();
        for &sector in &self.open {
            let Cell::Open(entries) = &mut self.cells[sector as usize] else { continue };
            for entry in entries.iter_mut().filter(|e| e.completed == NEVER) {
                entry.completed = now;
                entry.weak = true;
            }
        }
    }

    /// Returns whether all answered writes are durable.
    pub fn answers_are_durable(&self) -> bool {
        let answered = |e: &Entry| e.completed != NEVER && !e.weak;
        let lasting = |e: &Entry| !answered(e) || e.durable || e.superseded;
        self.open.iter().all(|&sector| match &self.cells[sector as usize] {
            Cell::Settled(_) => true,
            Cell::Open(entries) => entries.iter().all(lasting),
        })
    }

    /// Returns the sectors that a power cut may change to another content than the last one
    /// written.
    pub fn not_durable(&self) -> Vec<u64> {
        let open = self.open.iter().copied();
        open.filter(|&sector| match &self.cells[sector as usize] {
            Cell::Settled(_) => false,
            Cell::Open(entries) => {
                let mut left = entries.iter().filter(|e| !e.superseded);
                !matches!(left.next(), Some(Entry { durable: true, weak: false, .. }))
                    || left.next().is_some()
            }
        })
        .collect()
    }

    /// Takes the promise off this sector until it is written.
    pub fn exempt(&mut self, sector: u64) {
        let now = self.now;
        let entries = self.open_cell(sector);
        entries.retain(|e| e.completed == NEVER);
        entries.push(Entry { submitted: now, completed: now, ..Entry::durable(ANY) });
    }

    fn oldest_read(&self) -> u64 {
        self.reads.iter().map(|m| m.0).min().unwrap_or(NEVER)
    }
}

/// Returns these contents as alternatives after a loss of memory.
fn alternatives(entries: &[Entry]) -> Vec<Entry> {
    let mut serials: Vec<_> = entries.iter().map(|e| e.serial).collect();
    serials.sort_unstable();
    serials.dedup();
    let cut = serials.len() > 1;
    serials.into_iter().map(|serial| Entry { cut, ..Entry::durable(serial) }).collect()
}

fn holds(data: &[u8], sector: u64, serial: Serial) -> bool {
    serial == ANY || stamp::matches(data, sector, serial)
}

/// Drops contents that were complete before the read and differ from the content read.
fn narrow_to(entries: &mut [Entry], at: usize, moment: LogicalTime, now: u64) {
    if entries[at].completed >= moment.0 || entries[at].serial == ANY {
        return;
    }
    let in_flight = entries.iter().any(|e| e.completed >= moment.0);
    if in_flight {
        return;
    }
    for (i, entry) in entries.iter_mut().enumerate() {
        if i != at && entry.serial != ANY {
            entry.replaced = entry.replaced.min(now);
        }
    }
}

impl Entry {
    const fn in_flight() -> Self {
        Self {
            serial: ZEROES,
            submitted: 0,
            completed: NEVER,
            replaced: NEVER,
            durable: false,
            superseded: false,
            weak: false,
            cut: false,
        }
    }

    const fn durable(serial: Serial) -> Self {
        Self { serial, completed: 0, durable: true, ..Self::in_flight() }
    }

    /// Returns whether no power cut and no read can show it any more.
    const fn forgotten(&self, oldest_read: u64) -> bool {
        self.superseded && self.replaced < oldest_read
    }
}

#[cfg(test)]
mod tests;
