//! Cells that members are known not to know: nobody could tell a member what it is to hold there,
//! and its bad-block log says so. Until such a cell is written anew it is missing to everybody,
//! though its node is there: it is neither read nor changed by a difference.

use braid_array::SECTOR_BYTES;
use braid_array::code::{Cell, Content, StripeCode};
use braid_array::keeper::{LaneReport, Redundancy, SyncSpace};

use super::context::Cx;
use super::extent::Extent;
use crate::set::{Roles, Set, WriteStrategy};

impl Cx<'_> {
    /// The rows of a member at which it holds a part of a cell: the first one, and how many.
    fn rows_of(&self, range: &Extent, cell: Cell) -> (u64, u64) {
        let byte = self.shared.pipeline.member_byte(range.stripe, cell.row, range.at);
        (byte / SECTOR_BYTES, u64::from(range.len) / SECTOR_BYTES)
    }

    /// Tells whether the member that holds this part of a cell does not know it.
    pub(super) fn is_unknown(&self, range: &Extent, cell: Cell) -> bool {
        let (row, sectors) = self.rows_of(range, cell);
        self.keeper.is_bad(cell.node, row, sectors) && !braid_array::broken("unknown-read")
    }

    /// Tells whether any cell of a part of a stripe is unknown, but for those of some roles.
    pub(super) fn any_unknown(&self, range: &Extent, code: &StripeCode, but: Roles) -> bool {
        self.keeper.has_bad_blocks()
            && code.cells().any(|cell| !but.contains(cell.node) && self.is_unknown(range, cell))
    }

    /// The data blocks of a stripe that are lost or unknown there, by index.
    pub(super) fn unreadable(&self, range: &Extent, code: &StripeCode) -> Vec<u32> {
        let lost = self.lost();
        let cells = (0..).zip(code.data());
        let gone = |cell: Cell| lost.contains(cell.node) || self.is_unknown(range, cell);
        cells.filter(|&(_, &cell)| gone(cell)).map(|(index, _)| index).collect()
    }

    /// Tells whether the sums of this part of a slice say what lost data was. Copies do, each of
    /// which is all there is to know.
    pub(super) fn sums_count(&self, range: &Extent) -> bool {
        let space = &self.shared.space;
        let copies = space.redundancy() == Redundancy::Copies;
        let (start, end) = space.part(self.shared.key_of(range), range.at, range.len);
        copies || self.keeper.is_vouched_for() || self.keeper.in_step(start, end)
    }

    /// Tells whether a slice-set makes known what some of its members do not know.
    pub(super) fn makes_known(&self, set: &Set, code: &StripeCode, parts: Roles) -> bool {
        let range = extent_of(set);
        self.keeper.has_bad_blocks()
            && code
                .cells()
                .any(|cell| is_whole(set, code, cell, parts) && self.is_unknown(&range, cell))
    }

    /// Tells the keeper what a slice-set has stored: its sums fit, and nothing of it is unknown any
    /// more.
    pub(super) fn note_stored(&mut self, set: &Set, code: &StripeCode, parts: Roles) {
        let range = extent_of(set);
        let sums = matches!(self.shared.space.redundancy(), Redundancy::Parity(_));
        let waits = sums && self.keeper.has_to_resync();
        if waits && makes_all_sums(set) && !braid_array::broken("whole-slice-ends-torn") {
            let key = self.shared.key_of(&range);
            let (start, end) = self.shared.space.part(key, range.at, range.len);
            self.report(LaneReport::Fitting(start, end));
        }
        if !self.keeper.has_bad_blocks() || braid_array::broken("unknown-cleared") {
            return;
        }
        for cell in code.cells().filter(|&cell| is_whole(set, code, cell, parts)) {
            let (row, sectors) = self.rows_of(&range, cell);
            let data = self.members.entry(cell.node).data_sector;
            self.report_of(cell.node, |id| LaneReport::Rewritten(id, data + row, sectors));
        }
    }
}

fn extent_of(set: &Set) -> Extent {
    Extent { stripe: set.stripe, index: 0, at: set.offset, len: set.len }
}

/// Tells whether a slice-set forms all sums, of all data.
const fn makes_all_sums(set: &Set) -> bool {
    match set.strategy {
        WriteStrategy::FullStripe | WriteStrategy::Reconstruct | WriteStrategy::Zero => true,
        WriteStrategy::ReadModifyWrite | WriteStrategy::Restore(_) => false,
    }
}

/// Tells whether a slice-set stores all that this cell is to hold of its range.
fn is_whole(set: &Set, code: &StripeCode, cell: Cell, parts: Roles) -> bool {
    if !parts.contains(cell.node) {
        return false;
    }
    let all = set.touched.is_all() || set.strategy == WriteStrategy::Reconstruct;
    match (set.strategy, code.content(cell)) {
        (WriteStrategy::Restore(role), _) => cell.node == role,
        (WriteStrategy::ReadModifyWrite, _) => false,
        (WriteStrategy::Zero, _) => true,
        (_, Content::Data(index)) => set.touched.contains(index),
        // A copy is whole with what it is a copy of.
        (_, Content::Sum(number)) => {
            let terms = &code.equations()[number].terms;
            let is_new = |cell: Cell| match code.content(cell) {
                Content::Data(index) => set.touched.contains(index),
                Content::Sum(_) => false,
            };
            all || terms.iter().all(|term| is_new(term.cell))
        }
    }
}
