//! Cells whose content their member does not know: no source could restore it, and the member's
//! bad-block log records that. Until such a cell is written anew it counts as missing, though its
//! node is there. The cell is neither read nor updated by a difference.

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

    /// Returns the length of the leading part of a range in which every cell is either known or
    /// unknown as a whole.
    pub(super) fn alike(&self, range: &Extent, code: &StripeCode) -> u32 {
        let alike = |cell: Cell| {
            let (row, sectors) = self.rows_of(range, cell);
            self.keeper.alike(cell.node, row, sectors) * SECTOR_BYTES
        };
        let least = code.cells().map(alike).min();
        least.map_or(range.len, |bytes| range.len.min(bytes as u32))
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

    /// Returns whether a returning node that is there keeps its content of a cell: all sums over
    /// the cell that are held are unknown. The cell was not written meanwhile: a write would have
    /// formed them.
    pub(super) fn is_kept(&self, range: &Extent, code: &StripeCode, cell: Cell) -> bool {
        let lost = self.lost();
        let sums = code.involved(cell).iter().map(|&sum| code.equations()[sum].parity);
        let held: Vec<Cell> = sums.filter(|sum| !lost.contains(sum.node)).collect();
        let keeps = self.members.alive(cell.node) && self.keeper.keeps_own(cell.node);
        let unknown = |&sum: &Cell| self.is_unknown(range, sum);
        keeps && !self.is_unknown(range, cell) && !held.is_empty() && held.iter().all(unknown)
    }

    /// Returns whether the sums of this part of a slice can restore lost data. Copies always can:
    /// each copy is all that is known.
    pub(super) fn sums_count(&self, range: &Extent) -> bool {
        let space = &self.shared.space;
        let copies = space.redundancy() == Redundancy::Copies;
        let (start, end) = space.part(self.shared.key_of(range), range.at, range.len);
        copies || self.keeper.is_vouched_for() || self.keeper.in_step(start, end)
    }

    /// Returns whether a slice-set makes content known that some of its members do not know.
    pub(super) fn makes_known(&self, stored: StoredSet<'_>) -> bool {
        let range = extent_of(stored.set);
        self.keeper.has_bad_blocks()
            && stored
                .code
                .cells()
                .any(|cell| stored.is_whole(cell) && self.is_unknown(&range, cell))
    }

    /// Reports the effects of a stored slice-set to the keeper: its sums fit, and nothing of it is
    /// unknown any more.
    pub(super) fn note_stored(&mut self, stored: StoredSet<'_>) {
        let set = stored.set;
        let range = extent_of(set);
        let sums = matches!(self.shared.space.redundancy(), Redundancy::Parity(_));
        let waits = sums && self.keeper.has_to_resync();
        if waits && stored.makes_all_sums() && !braid_array::broken("whole-slice-ends-torn") {
            let key = self.shared.key_of(&range);
            let (start, end) = self.shared.space.part(key, range.at, range.len);
            self.report(LaneReport::Fitting(start, end));
        }
        if !self.keeper.has_bad_blocks() || braid_array::broken("unknown-cleared") {
            return;
        }
        for cell in stored.code.cells().filter(|&cell| stored.is_whole(cell)) {
            let (row, sectors) = self.rows_of(&range, cell);
            let data = self.members.entry(cell.node).data_sector;
            self.report_of(cell.node, |id| LaneReport::Rewritten(id, data + row, sectors));
        }
    }
}

fn extent_of(set: &Set) -> Extent {
    Extent { stripe: set.stripe, index: 0, at: set.offset, len: set.len }
}

/// A slice-set, seen as the content that it makes known where it is stored.
#[derive(Clone, Copy)]
pub(super) struct StoredSet<'a> {
    pub(super) set: &'a Set,
    pub(super) code: &'a StripeCode,
    /// Nodes that have a part in it.
    pub(super) parts: Roles,
    /// Blocks whose content is unknown everywhere; their sums stay unknown.
    pub(super) unknown: &'a [u32],
}

impl StoredSet<'_> {
    /// Tells whether it forms all sums, of all data.
    const fn makes_all_sums(&self) -> bool {
        match self.set.strategy {
            WriteStrategy::FullStripe | WriteStrategy::Reconstruct | WriteStrategy::Zero => {
                self.unknown.is_empty()
            }
            WriteStrategy::ReadModifyWrite | WriteStrategy::Restore(_) => false,
        }
    }

    /// Tells whether it stores all that this cell is to hold of its range.
    fn is_whole(&self, cell: Cell) -> bool {
        let Self { set, code, parts, unknown } = *self;
        if !parts.contains(cell.node) {
            return false;
        }
        let all = set.touched.is_all() || set.strategy == WriteStrategy::Reconstruct;
        match (set.strategy, code.content(cell)) {
            (WriteStrategy::Restore(role), _) => cell.node == role,
            (WriteStrategy::Zero, _) => true,
            (_, Content::Data(index)) => set.touched.contains(index) && !unknown.contains(&index),
            (WriteStrategy::ReadModifyWrite, Content::Sum(_)) => false,
            // A copy is whole with what it is a copy of.
            (_, Content::Sum(number)) => code.equations()[number].terms.iter().all(|term| {
                let Content::Data(index) = code.content(term.cell) else { return false };
                !unknown.contains(&index) && (all || set.touched.contains(index))
            }),
        }
    }
}
