//! Where parity may not fit its data after a power cut: the write hole.
//!
//! A column is one sector of every member's data area, at the same height: what parity ties
//! together. When the power goes off while a column is being written, its parity may fit neither
//! the old nor the new data. As long as no resync has put that right, a member that is missing
//! cannot be reconstructed there. Plain resync and bitmap promise no more; and no less: all other
//! data must be right.

use braid_array::geometry::{Geometry, Strip};

use crate::judge::Judge;
use crate::oracle::Range;
use crate::scenario::Scenario;

/// The columns in doubt.
#[derive(Debug)]
pub struct Suspects {
    /// By sector of the data area; empty for levels without parity.
    columns: Vec<bool>,
    data_offset: u64,
    any: bool,
    /// Roles already exempted there.
    exempted: Vec<bool>,
}

impl Suspects {
    /// None yet.
    pub fn new(scenario: &Scenario) -> Self {
        let largest = scenario.data_sectors.iter().copied().max().unwrap_or(0);
        Self {
            columns: vec![false; if scenario.has_parity() { largest as usize } else { 0 }],
            data_offset: scenario.data_offset,
            any: false,
            exempted: vec![false; usize::from(scenario.members)],
        }
    }

    /// Nothing is in doubt.
    pub const fn is_empty(&self) -> bool {
        !self.any
    }

    /// Is this device sector in a column in doubt?
    pub fn contains(&self, device_sector: u64) -> bool {
        let column = device_sector.wrapping_sub(self.data_offset);
        usize::try_from(column).ok().and_then(|c| self.columns.get(c)).copied().unwrap_or(false)
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

    /// Nothing is promised of a missing role's data in these columns.
    pub fn exempt(&mut self, role: u16, geometry: &Geometry, judge: &mut Judge) {
        if std::mem::replace(&mut self.exempted[usize::from(role)], true) {
            return;
        }
        for (sector, _) in (0..).zip(&self.columns).filter(|(_, doubtful)| **doubtful) {
            if let Some(sector) = geometry.array_sector_at(Strip { role, sector }) {
                judge.exempt(sector);
            }
        }
    }

    /// Nothing is promised of what a role has in these columns, where they are in doubt.
    pub fn exempt_range(
        &self,
        role: u16,
        columns: std::ops::Range<u64>,
        geometry: &Geometry,
        judge: &mut Judge,
    ) {
        for sector in columns.filter(|column| self.columns.get(*column as usize) == Some(&true)) {
            if let Some(sector) = geometry.array_sector_at(Strip { role, sector }) {
                judge.exempt(sector);
            }
        }
    }
}
