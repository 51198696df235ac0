//! Ways to write a part of a stripe when some roles have no part in it, and the choice of the best
//! one.

use crate::set::{Roles, Touched, WriteStrategy};
use braid_array::code::{Cell, Equation, Recovery, Strategy, StripeCode, WriteChoice};

/// Returns the data blocks that the missing roles hold, by index, ascending.
pub fn lost_blocks(code: &StripeCode, missing: Roles) -> impl Iterator<Item = u32> {
    let cells = (0..).zip(code.data());
    cells.filter(move |(_, cell)| missing.contains(cell.node)).map(|(index, _)| index)
}

/// Knowledge of the part of a stripe that is written.
#[derive(Clone, Copy)]
pub struct Knowledge<'a> {
    /// Roles that have no part in it.
    pub missing: Roles,
    /// Returns whether the node of a cell, which has a part, does not know its content.
    pub unknown: &'a dyn Fn(Cell) -> bool,
    /// The sums fit the data, so that they can be changed along with it.
    pub in_step: bool,
}

impl Knowledge<'_> {
    fn readable(&self, cell: Cell) -> bool {
        !self.missing.contains(cell.node) && !(self.unknown)(cell)
    }

    /// Returns whether sums may be updated by the differences of these blocks: everything that
    /// changes is known.
    fn differs_by_known(&self, code: &StripeCode, touched: &Touched) -> bool {
        let changes = |cell: Cell| touched.contains(code.number(cell) as u32);
        let known = |cell: Cell| self.missing.contains(cell.node) || !(self.unknown)(cell);
        let changed = |sum: &&Equation| sum.terms.iter().any(|term| changes(term.cell));
        let mut sums = code.equations().iter().filter(changed);
        let mut data = code.data().iter().filter(|cell| changes(**cell));
        self.in_step && sums.all(|sum| known(sum.parity)) && data.all(|&cell| known(cell))
    }

    /// Returns the blocks that are neither written nor known to any node, if the written content
    /// can be known without them. All their sums are unknown. The other sums, among them all held
    /// sums of content written to lost members, are formed anew and restore that content.
    fn not_needed(&self, code: &StripeCode, touched: &Touched) -> Option<Vec<u32>> {
        let held = |sum: &&Equation| !self.missing.contains(sum.parity.node);
        if !code.equations().iter().filter(held).any(|sum| (self.unknown)(sum.parity)) {
            return None;
        }
        let cell = |index: u32| code.data()[index as usize];
        let before: Vec<Cell> = code.cells().filter(|&cell| !self.readable(cell)).collect();
        let told = |cell: Cell| self.in_step && Recovery::of(code, &before, &[cell]).is_some();
        let rest = (0..touched.blocks()).filter(|&index| !touched.contains(index));
        let unknown = rest.filter(|&index| !self.readable(cell(index)) && !told(cell(index)));
        let unknown: Vec<u32> = unknown.collect();
        let cells: Vec<Cell> = unknown.iter().map(|&index| cell(index)).collect();
        let stays = |sum: &&Equation| sum.terms.iter().any(|term| cells.contains(&term.cell));
        let mut stay = code.equations().iter().filter(stays).filter(held);
        if unknown.is_empty() || !stay.all(|sum| (self.unknown)(sum.parity)) {
            return None;
        }
        let written = lost_blocks(code, self.missing).filter(|&index| touched.contains(index));
        let written: Vec<Cell> = written.map(cell).collect();
        // What is in no known sum counts as not written when its member comes back.
        let half_known = |sum: &Equation| sum.terms.iter().any(|term| written.contains(&term.cell));
        if code.equations().iter().filter(stays).filter(held).any(half_known) {
            return None;
        }
        let stay = code.equations().iter().filter(stays).map(|sum| sum.parity);
        let gone = code.cells().filter(|cell| self.missing.contains(cell.node));
        let after: Vec<Cell> = gone.chain(stay).chain(cells.iter().copied()).collect();
        Recovery::of(code, &after, &written).map(|_| unknown)
    }
}

/// A way to write some blocks of a part of a stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Strategy of its sums.
    pub strategy: WriteStrategy,
    /// All blocks that are put. See [`brought_back`](Self::brought_back) for the blocks that the
    /// client needs before.
    pub put: Touched,
    /// Blocks that are neither written nor known to any node. Sums of them stay unknown, so the
    /// content that is put in place of the lost ones does not matter.
    pub unknown: Vec<u32>,
}

impl Way {
    /// Creates a way for which all blocks are known.
    pub(crate) const fn new(strategy: WriteStrategy, put: Touched) -> Self {
        Self { strategy, put, unknown: Vec::new() }
    }

    /// Returns the lost blocks that the client has to restore before it puts slices; some of them
    /// are not in `written`. A sum that is formed anew needs the block itself. A sum that is
    /// updated needs the block's difference, which the client puts in place of the new content.
    #[must_use]
    pub fn brought_back(&self, code: &StripeCode, written: &Touched, missing: Roles) -> Vec<u32> {
        let put = &self.put;
        if self.strategy == WriteStrategy::ReadModifyWrite {
            return lost_blocks(code, missing).filter(|&index| put.contains(index)).collect();
        }
        let back = |index: &u32| !written.contains(*index) && !self.unknown.contains(index);
        put.iter().filter(back).collect()
    }
}

/// Returns the way to write these blocks with the fewest reads and writes of members.
#[must_use]
pub fn write_strategy(code: &StripeCode, touched: &Touched, known: Knowledge<'_>) -> Way {
    let missing = known.missing;
    let part = WriteChoice {
        code,
        covered: &|index| touched.contains(index as u32),
        readable: &|cell| known.readable(cell),
        held: &|cell| !missing.contains(cell.node),
        noted: &|cell| !missing.contains(cell.node) && (known.unknown)(cell),
        in_step: known.in_step,
    };
    let mut put = touched.clone();
    let mut unknown = Vec::new();
    let strategy = match part.strategy() {
        Strategy::FullStripe => WriteStrategy::FullStripe,
        // Of sums that are unknown, and stay so, it does not matter what is added to them.
        Strategy::ReadModifyWrite | Strategy::KnownSums => WriteStrategy::ReadModifyWrite,
        Strategy::ReconstructWrite => WriteStrategy::Reconstruct,
        Strategy::RecoverFirst
            if known.differs_by_known(code, touched)
                && is_less_by_difference(code, touched, missing) =>
        {
            WriteStrategy::ReadModifyWrite
        }
        Strategy::RecoverFirst => {
            unknown = known.not_needed(code, touched).unwrap_or_default();
            let is_put = |index: u32, cell: Cell| {
                missing.contains(cell.node) || !known.readable(cell) && !unknown.contains(&index)
            };
            let data = (0..).zip(code.data()).filter(|&(index, &cell)| is_put(index, cell));
            data.for_each(|(index, _)| put.insert(index));
            if put.is_all() { WriteStrategy::FullStripe } else { WriteStrategy::Reconstruct }
        }
    };
    Way { strategy, put, unknown }
}

/// Returns whether updating the sums costs less than forming them anew, when some lost blocks are
/// written and others are not. An update restores the written lost blocks, and changes sums by
/// their differences. Forming anew restores the other lost blocks.
fn is_less_by_difference(code: &StripeCode, touched: &Touched, missing: Roles) -> bool {
    let is_lost = |cell: Cell| missing.contains(cell.node);
    let bring_back = |written: bool| -> usize {
        let lost = lost_blocks(code, missing).filter(|&index| touched.contains(index) == written);
        lost.map(|index| read_for(code, code.data()[index as usize], missing)).sum()
    };
    let held = code.equations().iter().filter(|equation| !is_lost(equation.parity));
    let changes = |cell: Cell| touched.contains(code.number(cell) as u32);
    let changed = held.clone().filter(|sum| sum.terms.iter().any(|term| changes(term.cell)));
    let there = code.data().iter().filter(|cell| !is_lost(**cell));
    let (stored, rest): (Vec<Cell>, Vec<Cell>) = there.partition(|cell| changes(**cell));
    // What changes is read and written; or the rest is read, and all sums are written.
    let by_difference = bring_back(true) + 2 * (stored.len() + changed.count());
    by_difference < bring_back(false) + rest.len() + stored.len() + held.count()
}

/// Returns the number of blocks that are read to restore a lost one: the other blocks of the
/// shortest sum without another lost block, or a whole stripe.
fn read_for(code: &StripeCode, lost: Cell, missing: Roles) -> usize {
    let there = |cell: Cell| cell == lost || !missing.contains(cell.node);
    let sums = code.involved(lost).iter().map(|&sum| &code.equations()[sum]);
    let sums = sums.filter(|sum| sum.cells().all(there)).map(|sum| sum.terms.len());
    sums.min().unwrap_or(code.data().len())
}

/// Returns whether a slice-set that puts these blocks with this strategy may be opened. Every value
/// in a sum needs a source: the store of the block's node, or the client.
pub(super) fn allowed(
    code: &StripeCode,
    strategy: WriteStrategy,
    touched: &Touched,
    missing: Roles,
) -> bool {
    match strategy {
        // Where no sum is formed, blocks do not depend on each other.
        WriteStrategy::FullStripe => {
            touched.count() > 0 && (touched.is_all() || !sums(code, missing))
        }
        WriteStrategy::ReadModifyWrite => touched.count() > 0,
        WriteStrategy::Reconstruct => {
            lost_blocks(code, missing).all(|index| touched.contains(index))
        }
        WriteStrategy::Zero => touched.is_all(),
        // It has no sums of data to form, but chains.
        WriteStrategy::Restore(_) => false,
    }
}

/// Returns whether a node that is there holds a sum of several blocks.
fn sums(code: &StripeCode, missing: Roles) -> bool {
    let mut sums = code.equations().iter().filter(|equation| equation.terms.len() > 1);
    sums.any(|equation| !missing.contains(equation.parity.node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use braid_array::Role;
    use braid_array::code::Content;
    use braid_array::level::{Layout, Level};

    fn code(level: Level, nodes: u16) -> StripeCode {
        let family = Family::Md { level, layout: Layout::default_for(level) };
        family.code(nodes, 0).expect("a code")
    }

    fn all_known(missing: Roles) -> Knowledge<'static> {
        Knowledge { missing, unknown: &|_| false, in_step: true }
    }

    fn some(code: &StripeCode, indices: &[u32]) -> Touched {
        let mut touched = Touched::none(code.data().len() as u32);
        indices.iter().for_each(|&index| touched.insert(index));
        touched
    }

    #[test]
    fn lost_blocks_are_brought_back_only_for_sums_that_need_them() {
        let mirror = code(Level::Raid1, 3);
        let raid5 = code(Level::Raid5, 6);
        let raid6 = code(Level::Raid6, 8);
        let home = |code: &StripeCode, index: usize| code.data()[index].node;
        let parity = raid5.equations()[0].parity.node;
        let two = [home(&raid6, 0), home(&raid6, 1)];
        let best = |code, touched: &[u32], missing: &[Role], strategy, put: &[u32]| {
            let missing = missing.iter().copied().collect();
            let found = write_strategy(code, &some(code, touched), all_known(missing));
            let way = Way::new(strategy, some(code, put));
            assert_eq!(found, way, "{touched:?} without {missing:?}");
        };
        best(&mirror, &[0], &[home(&mirror, 0)], WriteStrategy::FullStripe, &[0]);
        best(&raid5, &[0], &[], WriteStrategy::ReadModifyWrite, &[0]);
        // Another one is lost: its value does not change.
        best(&raid5, &[1], &[home(&raid5, 0)], WriteStrategy::ReadModifyWrite, &[1]);
        best(&raid5, &[1, 2, 3], &[home(&raid5, 0)], WriteStrategy::ReadModifyWrite, &[1, 2, 3]);
        // The old content is lost, the new goes into a sum with all the others.
        best(&raid5, &[0], &[home(&raid5, 0)], WriteStrategy::Reconstruct, &[0]);
        // No sum is held.
        best(&raid5, &[0], &[parity], WriteStrategy::FullStripe, &[0]);
        best(&raid6, &[2], &two, WriteStrategy::ReadModifyWrite, &[2]);
        best(&raid6, &[0], &two, WriteStrategy::ReadModifyWrite, &[0]);
        best(&raid6, &[0, 2], &two, WriteStrategy::Reconstruct, &[0, 1, 2]);
        best(&raid6, &[0, 2, 3, 4, 5], &two, WriteStrategy::FullStripe, &[0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_write_beside_lost_blocks_needs_no_sums_that_are_unknown() {
        let raid5 = code(Level::Raid5, 4);
        let raid6 = code(Level::Raid6, 5);
        let home = |code: &StripeCode, index: usize| code.data()[index].node;
        let best = |code, touched: &[u32], missing: &[Role], unknown: &[Cell], strategy, put| {
            let missing = missing.iter().copied().collect();
            let unknown = |cell| unknown.contains(&cell);
            let known = Knowledge { missing, unknown: &unknown, in_step: true };
            let found = write_strategy(code, &some(code, touched), known);
            let way = Way::new(strategy, some(code, put));
            assert_eq!(found, way, "{touched:?} without {missing:?}");
        };
        let difference = WriteStrategy::ReadModifyWrite;
        let sum = [raid5.equations()[0].parity];
        let first = home(&raid5, 0);
        best(&raid5, &[1], &[first], &sum, difference, &[1]);
        best(&raid5, &[1, 2], &[first], &sum, difference, &[1, 2]);
        // The lost one is written: the sum is known again.
        best(&raid5, &[0], &[first], &sum, WriteStrategy::Reconstruct, &[0]);
        // It is there again, and nobody could tell it.
        let gone = [sum[0], raid5.data()[0]];
        best(&raid5, &[1], &[], &gone, difference, &[1]);
        best(&raid5, &[0], &[], &gone, WriteStrategy::Reconstruct, &[0]);
        // Nobody would hold it. The lost ones are to be brought back, and cannot.
        let sums = [raid6.equations()[0].parity, raid6.equations()[1].parity];
        let two = [home(&raid6, 0), home(&raid6, 1)];
        best(&raid6, &[2], &two, &sums, difference, &[2]);
        best(&raid6, &[0], &two, &sums, WriteStrategy::Reconstruct, &[0, 1]);
        // One of the sums is known, and changes with what is known.
        best(&raid6, &[2], &two, &sums[..1], difference, &[2]);
        best(&raid6, &[2], &two[..1], &sums[..1], WriteStrategy::Reconstruct, &[0, 2]);
    }

    #[test]
    fn a_lost_block_is_written_by_the_sums_that_need_no_other() {
        let code = Family::Xor2d.code(5, 0).expect("5 nodes");
        let missing: Roles = [Role(1)].into_iter().collect();
        let unknown = |cell: Cell| matches!(code.content(cell), Content::Sum(_));
        let known = Knowledge { missing, unknown: &unknown, in_step: true };
        let lost: Vec<u32> = lost_blocks(&code, missing).collect();
        assert!(lost.len() > 1);
        for &index in &lost {
            let written = some(&code, &[index]);
            let way = write_strategy(&code, &written, known);
            let others: Vec<u32> = lost.iter().copied().filter(|&other| other != index).collect();
            assert_eq!(way.strategy, WriteStrategy::Reconstruct);
            assert_eq!((way.put.clone(), &way.unknown), (some(&code, &lost), &others));
            assert!(way.brought_back(&code, &written, missing).is_empty());
            assert!(allowed(&code, way.strategy, &way.put, missing));
        }
        // Once one is written its sums are known, and would not be any more without it.
        let first = code.data()[lost[0] as usize];
        let formed: Vec<Cell> =
            code.involved(first).iter().map(|&sum| code.equations()[sum].parity).collect();
        let rest = |cell: Cell| unknown(cell) && !formed.contains(&cell);
        let known = Knowledge { unknown: &rest, ..known };
        let written = some(&code, &lost[1..2]);
        let way = write_strategy(&code, &written, known);
        assert_eq!(way.brought_back(&code, &written, missing), lost[..1]);
        assert_eq!(way.unknown, lost[2..]);
    }

    #[test]
    fn a_lost_block_of_many_is_written_by_what_it_differs_by() {
        let code = Family::Xor2d.code(9, 0).expect("9 nodes");
        let lost = lost_blocks(&code, [Role(3)].into_iter().collect()).next().expect("it has data");
        let written = some(&code, &[lost]);
        let known = all_known([Role(3)].into_iter().collect());
        let found = write_strategy(&code, &written, known);
        assert_eq!(found, Way::new(WriteStrategy::ReadModifyWrite, written.clone()));
        let all = found.brought_back(&code, &written, [Role(3)].into_iter().collect());
        assert_eq!(all, [lost]);
    }

    #[test]
    fn the_best_way_may_always_be_gone() {
        for code in [code(Level::Raid6, 5), Family::Xor2d.code(4, 0).expect("4 nodes")] {
            for bits in 1..1_u32 << code.data().len() {
                let touched: Vec<u32> = (0..32).filter(|index| bits >> index & 1 == 1).collect();
                let touched = some(&code, &touched);
                for (a, b) in (0..code.nodes()).flat_map(|a| (0..=a).map(move |b| (a, b))) {
                    let missing = [a, b].into_iter().map(Role).collect();
                    let way = write_strategy(&code, &touched, all_known(missing));
                    let Way { strategy, put, .. } = way;
                    assert!(allowed(&code, strategy, &put, missing), "{put:?} without {missing:?}");
                    let lost: Vec<u32> = lost_blocks(&code, missing).collect();
                    for index in 0..touched.blocks() {
                        let decoded = put.contains(index) && !touched.contains(index);
                        assert!(put.contains(index) || !touched.contains(index));
                        assert!(!decoded || lost.contains(&index));
                    }
                }
            }
        }
    }
}
