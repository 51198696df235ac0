//! Columns whose parity may not fit the data after a power cut: the write hole.
//!
//! A column is one sector of every member's data area, at the same height: the sectors of one
//! parity. When the power goes off while a column is being written, its parity may fit neither the
//! old nor the new data. Until a resync has mended that, a missing member cannot be reconstructed
//! there. Policies resync and bitmap promise no more, but no less: all other data must be right.

use braid_array::Role;
use std::collections::BTreeSet;

use crate::judge::Judge;
use crate::local::scenario::Scenario;
use crate::local::shape::Shape;
use crate::oracle::Range;

/// The columns in doubt, by device sector.
#[derive(Debug)]
pub struct Suspects {
    /// From `start` on; empty for levels without parity.
    columns: Vec<bool>,
    start: u64,
    any: bool,
    /// Roles already exempted there.
    exempted: Vec<bool>,
    /// Sectors of the array that were written in this life, and in earlier lives whose logs were
    /// not replayed.
    written: BTreeSet<u64>,
    /// Set if a request was served in this life: the log is replayed then.
    served: bool,
}

impl Suspects {
    /// Creates the set without any column.
    pub fn new(scenario: &Scenario) -> Self {
        let largest = scenario.data_sectors.iter().copied().max().unwrap_or(0);
        Self {
            columns: vec![false; if scenario.has_parity() { largest as usize } else { 0 }],
            start: scenario.data_offset,
            any: false,
            exempted: vec![false; usize::from(scenario.members)],
            written: BTreeSet::new(),
            served: false,
        }
    }

    /// The array has so many members now, with data between these device sectors; none are in doubt
    /// where no parity is.
    pub fn reshape(&mut self, data: std::ops::Range<u64>, has_parity: bool, members: u16) {
        let columns = if has_parity { data.clone() } else { 0..0 };
        self.columns = columns.map(|column| self.contains(column)).collect();
        self.start = data.start;
        self.any = self.columns.contains(&true);
        self.exempted = vec![false; usize::from(members)];
    }

    /// Returns whether nothing is in doubt.
    pub const fn is_empty(&self) -> bool {
        !self.any
    }

    /// Returns whether this device sector is in a column in doubt.
    pub fn contains(&self, device_sector: u64) -> bool {
        self.index(device_sector).is_some_and(|at| self.columns[at])
    }

    fn index(&self, column: u64) -> Option<usize> {
        let at = column.checked_sub(self.start)? as usize;
        (at < self.columns.len()).then_some(at)
    }

    /// A write of this range has come.
    pub fn note_write(&mut self, range: Range) {
        self.written.extend(range.sector..range.sector + range.sectors);
    }

    /// Records a successful answer: writes of earlier lives are in place.
    pub fn note_served(&mut self) {
        if !std::mem::replace(&mut self.served, true) {
            self.written.clear();
        }
    }

    /// Begins a life: the log is yet to be replayed.
    pub const fn begin_life(&mut self) {
        self.served = false;
    }

    /// These ranges of a member hung in the balance when the power went off.
    pub fn pending(&mut self, ranges: &[(u64, u64)]) {
        for &(sector, sectors) in ranges {
            for column in sector..sector + sectors {
                self.doubt(column);
            }
        }
    }

    /// A write of this range of the array was in flight when the power went off: some members may
    /// have it for good, and others not at all.
    pub fn in_flight(&mut self, range: Range, shape: &Shape) {
        if self.columns.is_empty() {
            return;
        }
        for sector in range.sector..range.sector + range.sectors {
            shape.columns(sector).for_each(|column| self.doubt(column));
        }
    }

    /// A write of this range was answered: its columns were made to fit, also where no resync has
    /// been yet. While data move, which ones these are is not asked.
    pub fn written(&mut self, range: Range, shape: &Shape) {
        if self.is_empty() || shape.moves() {
            return;
        }
        for sector in range.sector..range.sector + range.sectors {
            for column in shape.columns(sector) {
                if let Some(at) = self.index(column) {
                    self.columns[at] = false;
                }
            }
        }
    }

    fn doubt(&mut self, column: u64) {
        if let Some(at) = self.index(column) {
            self.columns[at] = true;
            self.any = true;
            self.exempted.fill(false);
        }
    }

    /// All columns are.
    pub fn doubt_all(&mut self) {
        self.any = !self.columns.is_empty();
        self.columns.fill(true);
    }

    /// A resync has reached the end.
    pub fn clear(&mut self) {
        self.columns.fill(false);
        self.exempted.fill(false);
        self.any = false;
    }

    /// Takes the promise off the data of a missing role in these columns.
    pub fn exempt(&mut self, role: Role, shape: &Shape, judge: &mut Judge) {
        if std::mem::replace(&mut self.exempted[role.index()], true) {
            return;
        }
        let all = self.start..self.start + self.columns.len() as u64;
        self.exempt_range(role, all, shape, judge);
    }

    /// Takes the promise off the unfinished writes of a missing role: a partial parity log does not
    /// protect them.
    pub fn exempt_being_written(&mut self, role: Role, shape: &Shape, judge: &mut Judge) {
        // An array that was to become smaller promises nothing of what was behind its end.
        let end = judge.oracle.sectors();
        for (column, _) in (self.start..).zip(&self.columns).filter(|(_, doubt)| **doubt) {
            let sectors = shape.array_sectors_at(role, column).filter(|sector| *sector < end);
            for sector in sectors.filter(|sector| self.written.contains(sector)) {
                judge.oracle.exempt(sector);
            }
        }
    }

    /// Takes the promise off the data of a role in these columns, where they are in doubt.
    pub fn exempt_range(
        &self,
        role: Role,
        columns: std::ops::Range<u64>,
        shape: &Shape,
        judge: &mut Judge,
    ) {
        for column in columns.filter(|column| self.contains(*column)) {
            for sector in shape.array_sectors_at(role, column) {
                // While data move there are none yet in what is going to be new.
                if sector < judge.oracle.sectors() {
                    judge.oracle.exempt(sector);
                }
            }
        }
    }
}
