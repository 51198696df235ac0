//! In which ways a part of a stripe may be written when some roles have no part in it, and which of
//! them is best.

use crate::set::{Roles, Touched, WriteStrategy};
use braid_array::code::{Cell, Equation, Part, Strategy, StripeCode};

/// The data blocks that the missing roles hold, by index, ascending.
pub fn lost_blocks(code: &StripeCode, missing: Roles) -> impl Iterator<Item = u32> {
    let cells = (0..).zip(code.data());
    cells.filter(move |(_, cell)| missing.contains(cell.node)).map(|(index, _)| index)
}

/// Knowledge of the part of a stripe that is written.
#[derive(Clone, Copy)]
pub struct Knowledge<'a> {
    /// Roles that have no part in it.
    pub missing: Roles,
    /// Tells of a cell whose node has a part whether that node does not know it.
    pub unknown: &'a dyn Fn(Cell) -> bool,
    /// The sums fit the data, so that they can be changed along with it.
    pub in_step: bool,
}

impl Knowledge<'_> {
    fn readable(&self, cell: Cell) -> bool {
        !self.missing.contains(cell.node) && !(self.unknown)(cell)
    }

    /// Tells whether sums may be changed by what these blocks differ by: all that changes is known.
    fn differs_by_known(&self, code: &StripeCode, touched: &Touched) -> bool {
        let changes = |cell: Cell| touched.contains(code.number(cell) as u32);
        let known = |cell: Cell| self.missing.contains(cell.node) || !(self.unknown)(cell);
        let changed = |sum: &&Equation| sum.terms.iter().any(|term| changes(term.cell));
        let mut sums = code.equations().iter().filter(changed);
        let mut data = code.data().iter().filter(|cell| changes(**cell));
        self.in_step && sums.all(|sum| known(sum.parity)) && data.all(|&cell| known(cell))
    }
}

/// The way to write these blocks with the fewest reads and writes of members; and all blocks that
/// are put then. See [`brought_back`] for what the client has to have before.
#[must_use]
pub fn write_strategy(
    code: &StripeCode,
    touched: &Touched,
    known: Knowledge<'_>,
) -> (WriteStrategy, Touched) {
    let missing = known.missing;
    let part = Part {
        code,
        covered: &|index| touched.contains(index as u32),
        readable: &|cell| known.readable(cell),
        held: &|cell| !missing.contains(cell.node),
        in_step: known.in_step,
    };
    let mut put = touched.clone();
    let strategy = match part.strategy() {
        Strategy::FullStripe => WriteStrategy::FullStripe,
        Strategy::ReadModifyWrite => WriteStrategy::ReadModifyWrite,
        Strategy::ReconstructWrite => WriteStrategy::Reconstruct,
        Strategy::RecoverFirst
            if known.differs_by_known(code, touched)
                && is_less_by_difference(code, touched, missing) =>
        {
            WriteStrategy::ReadModifyWrite
        }
        Strategy::RecoverFirst => {
            let data = (0..).zip(code.data());
            let unreadable = data.filter(|&(_, &cell)| !known.readable(cell));
            unreadable.for_each(|(index, _)| put.insert(index));
            if put.is_all() { WriteStrategy::FullStripe } else { WriteStrategy::Reconstruct }
        }
    };
    (strategy, put)
}

/// The lost blocks that the client has to bring back before it puts these blocks, of which some
/// were not to be `written`: what a sum that is formed anew needs, or what a sum differs by, which
/// the client puts in place of the new content.
pub fn brought_back(
    code: &StripeCode,
    (strategy, put): (WriteStrategy, &Touched),
    written: &Touched,
    missing: Roles,
) -> Vec<u32> {
    match strategy {
        WriteStrategy::ReadModifyWrite => {
            lost_blocks(code, missing).filter(|&index| put.contains(index)).collect()
        }
        _ => put.iter().filter(|&index| !written.contains(index)).collect(),
    }
}

/// Lost blocks are written, and others are not. Is it less to bring back those that are written,
/// and change sums by what they differ by, than to bring back the others and form all sums anew?
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

/// Blocks that are read to bring back a lost one: those of the shortest sum of which nothing else
/// is lost, or a whole stripe.
fn read_for(code: &StripeCode, lost: Cell, missing: Roles) -> usize {
    let there = |cell: Cell| cell == lost || !missing.contains(cell.node);
    let sums = code.involved(lost).iter().map(|&sum| &code.equations()[sum]);
    let sums = sums.filter(|sum| sum.cells().all(there)).map(|sum| sum.terms.len());
    sums.min().unwrap_or(code.data().len())
}

/// May a slice-set be opened that puts these blocks in this strategy? Every value that goes into a
/// sum
/// has to come from somewhere: a block's from its node's store or from the client.
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

/// Does anybody hold a sum of several blocks?
fn sums(code: &StripeCode, missing: Roles) -> bool {
    let mut sums = code.equations().iter().filter(|equation| equation.terms.len() > 1);
    sums.any(|equation| !missing.contains(equation.parity.node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use braid_array::Role;
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
            assert_eq!(found, (strategy, some(code, put)), "{touched:?} without {missing:?}");
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
    fn a_lost_block_of_many_is_written_by_what_it_differs_by() {
        let code = Family::Xor2d.code(9, 0).expect("9 nodes");
        let lost = lost_blocks(&code, [Role(3)].into_iter().collect()).next().expect("it has data");
        let written = some(&code, &[lost]);
        let known = all_known([Role(3)].into_iter().collect());
        let found = write_strategy(&code, &written, known);
        assert_eq!(found, (WriteStrategy::ReadModifyWrite, written.clone()));
        let all =
            brought_back(&code, (found.0, &found.1), &written, [Role(3)].into_iter().collect());
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
                    let (strategy, put) = write_strategy(&code, &touched, all_known(missing));
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
