//! Columns whose parity may not fit the data after a power cut: the write hole.
//!
//! A column is one sector of every member's data area, at the same height: the sectors of one
//! parity. When the power goes off while a column is being written, its parity may fit neither the
//! old nor the new data. Until a resync has mended that, a missing member cannot be reconstructed
//! there. Policies resync and bitmap promise no more, but no less: all other data must be right.

use braid_array::Role;
use std::collections::BTreeSet;

use braid_array::geometry::{Geometry, Strip};

use crate::judge::Judge;
use crate::local::scenario::Scenario;
use crate::oracle::Range;

/// The columns in doubt.
#[derive(Debug)]
pub struct Suspects {
    /// By sector of the data area; empty for levels without parity.
    columns: Vec<bool>,
    data_offset: u64,
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
            data_offset: scenario.data_offset,
            any: false,
            exempted: vec![false; usize::from(scenario.members)],
            written: BTreeSet::new(),
            served: false,
        }
    }

    /// Returns whether nothing is in doubt.
    pub const fn is_empty(&self) -> bool {
        !self.any
    }

    /// Returns whether this device sector is in a column in doubt.
    pub fn contains(&self, device_sector: u64) -> bool {
        let column = device_sector.wrapping_sub(self.data_offset);
        usize::try_from(column).ok().and_then(|c| self.columns.get(c)).copied().unwrap_or(false)
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
                self.doubt(column.wrapping_sub(self.data_offset));
            }
        }
    }

    /// A write of this range of the array was in flight when the power went off: some members may
    /// have it for good, and others not at all.
    pub fn in_flight(&mut self, range: Range, geometry: &Geometry) {
        if self.columns.is_empty() {
            return;
        }
        for sector in range.sector..range.sector + range.sectors {
            self.doubt(geometry.copy(sector, 0).sector);
        }
    }

    /// A write of this range was answered: its columns were made to fit, also where no resync has
    /// been yet.
    pub fn written(&mut self, range: Range, geometry: &Geometry) {
        if self.is_empty() {
            return;
        }
        for sector in range.sector..range.sector + range.sectors {
            if let Some(column) = self.columns.get_mut(geometry.copy(sector, 0).sector as usize) {
                *column = false;
            }
        }
    }

    fn doubt(&mut self, column: u64) {
        if let Some(column) = self.columns.get_mut(column as usize) {
            *column = true;
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
    pub fn exempt(&mut self, role: Role, geometry: &Geometry, judge: &mut Judge) {
        if std::mem::replace(&mut self.exempted[role.index()], true) {
            return;
        }
        self.exempt_range(role, 0..self.columns.len() as u64, geometry, judge);
    }

    /// Takes the promise off the unfinished writes of a missing role: a partial parity log does not
    /// protect them.
    pub fn exempt_being_written(&mut self, role: Role, geometry: &Geometry, judge: &mut Judge) {
        for sector in (0..self.columns.len()).filter(|column| self.columns[*column]) {
            let strip = Strip { role, sector: sector as u64 };
            if let Some(sector) = geometry.array_sector_at(strip)
                && self.written.contains(&sector)
            {
                judge.oracle.exempt(sector);
            }
        }
    }

    /// Takes the promise off the data of a role in these columns, where they are in doubt.
    pub fn exempt_range(
        &self,
        role: Role,
        columns: std::ops::Range<u64>,
        geometry: &Geometry,
        judge: &mut Judge,
    ) {
        for sector in columns.filter(|column| self.columns.get(*column as usize) == Some(&true)) {
            if let Some(sector) = geometry.array_sector_at(Strip { role, sector }) {
                judge.oracle.exempt(sector);
            }
        }
    }
}
