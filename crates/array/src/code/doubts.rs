//! The block that is wrong, when sums do not fit: the one that is in all of them and in no other,
//! if all of them say the same of it.

use std::collections::BTreeMap;

use super::stripe::{Cell, Equation, StripeCode};

/// Sums that do not fit, and the cells that may be the reason. Comparisons find what the equations
/// say of each [suspect](Self::to_compare); a suspect of which they say different things is
/// [cleared](Self::clear). Then the [misfits](Self::misfits) are known.
#[derive(Debug)]
pub struct Doubt {
    /// The numbers of their equations, ascending.
    equations: Vec<usize>,
    /// Bit `i` stands for block `i` of the strips.
    blocks: u64,
    /// The lowest data block in them.
    first_data: u32,
    suspects: Vec<Suspect>,
}

#[derive(Debug)]
struct Suspect {
    cell: Cell,
    /// Blocks in which its change does not explain the misfit.
    cleared: u64,
}

/// Blocks that do not fit, for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Bit `i` stands for block `i` of the strips.
    pub blocks: u64,
    /// The cell that alone is wrong, where that can be told.
    pub wrong: Option<Cell>,
    /// The number of the equation that gives it back.
    pub equation: usize,
    /// The lowest data block in the sums.
    pub first_data: u32,
}

impl Doubt {
    /// The numbers of its equations, ascending.
    #[must_use]
    pub fn equations(&self) -> &[usize] {
        &self.equations
    }

    /// The suspects that are cleared where two of the equations say different things of them.
    #[must_use]
    pub fn to_compare(&self) -> Vec<Cell> {
        if self.equations.len() < 2 {
            return Vec::new();
        }
        self.suspects.iter().map(|suspect| suspect.cell).collect()
    }

    /// In these blocks, that suspect is not the one.
    pub fn clear(&mut self, suspect: usize, blocks: u64) {
        self.suspects[suspect].cleared |= blocks;
    }

    /// Returns the blocks that do not fit, with the wrong cell where it can be told.
    #[must_use]
    pub fn misfits(&self) -> Vec<Misfit> {
        let accused = |suspect: &Suspect| self.blocks & !suspect.cleared;
        let misfit = |wrong, blocks| Misfit {
            blocks,
            wrong,
            equation: self.equations[0],
            first_data: self.first_data,
        };
        let mut untold = self.blocks;
        let mut misfits = Vec::new();
        for (at, suspect) in self.suspects.iter().enumerate() {
            let others = self.suspects.iter().enumerate().filter(|(other, _)| *other != at);
            let others = others.fold(0, |all, (_, other)| all | accused(other));
            let alone = accused(suspect) & !others;
            if alone != 0 {
                misfits.push(misfit(Some(suspect.cell), alone));
                untold &= !alone;
            }
        }
        if untold != 0 {
            misfits.push(misfit(None, untold));
        }
        misfits
    }
}

/// Returns what equations, by number, that differ in these blocks may mean. Equations that have no
/// cells in common, not even by others, are doubted apart.
#[must_use]
pub fn doubts(code: &StripeCode, differs: &[u64]) -> Vec<Doubt> {
    let mut blocks: BTreeMap<Vec<usize>, u64> = BTreeMap::new();
    if differs.iter().any(|&differs| differs != 0) {
        for group in groups(code) {
            for block in 0..u64::BITS {
                let misfits = |&number: &usize| differs[number] >> block & 1 == 1;
                let together: Vec<usize> = group.iter().copied().filter(misfits).collect();
                if !together.is_empty() {
                    *blocks.entry(together).or_default() |= 1 << block;
                }
            }
        }
    }
    let doubt = |(equations, blocks): (Vec<usize>, u64)| {
        let parities = equations.iter().map(|&number| code.equations()[number].parity);
        let first_data = parities.map(|cell| code.first_data(cell)).min().unwrap_or(0);
        let suspects = suspects(code, &equations);
        let suspects = suspects.map(|cell| Suspect { cell, cleared: 0 }).collect();
        Doubt { equations, blocks, first_data, suspects }
    };
    blocks.into_iter().map(doubt).collect()
}

/// The cells that are part of just these equations.
fn suspects<'a>(code: &'a StripeCode, differing: &'a [usize]) -> impl Iterator<Item = Cell> + 'a {
    // Whoever it is, it is part of the first of them.
    let first = differing.first().map(|&number| &code.equations()[number]);
    let cells = first.into_iter().flat_map(Equation::cells);
    cells.filter(move |&cell| code.involved(cell) == differing)
}

/// The equations of a code, those together that have cells in common.
fn groups(code: &StripeCode) -> Vec<Vec<usize>> {
    let mut group: Vec<usize> = (0..code.equations().len()).collect();
    for &cell in code.data() {
        let involved = code.involved(cell);
        let Some(into) = involved.iter().map(|&number| group[number]).min() else { continue };
        for from in involved.iter().map(|&number| group[number]).collect::<Vec<_>>() {
            group.iter_mut().filter(|group| **group == from).for_each(|group| *group = into);
        }
    }
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (number, group) in group.into_iter().enumerate() {
        groups.entry(group).or_default().push(number);
    }
    groups.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::levels::stripe_code;
    use crate::level::{Layout, Level};

    fn md(level: Level, nodes: u32) -> StripeCode {
        stripe_code(level, Layout::default_for(level), nodes, 0).expect("a code")
    }

    /// The doubts when only this cell is wrong, in the second block.
    fn about(code: &StripeCode, cell: Cell) -> Vec<Doubt> {
        let differs = |number| if code.involved(cell).contains(&number) { 2 } else { 0 };
        doubts(code, &(0..code.equations().len()).map(differs).collect::<Vec<u64>>())
    }

    fn wrong(doubt: &Doubt) -> Vec<(Option<Cell>, u64)> {
        doubt.misfits().iter().map(|misfit| (misfit.wrong, misfit.blocks)).collect()
    }

    #[test]
    fn of_two_parities_of_the_same_blocks_only_what_they_say_tells_a_block() {
        let code = md(Level::Raid6, 6);
        for cell in code.cells() {
            let mut all = about(&code, cell);
            let suspects = all[0].to_compare();
            if suspects.is_empty() {
                assert_eq!(wrong(&all[0]), [(Some(cell), 2)]);
                continue;
            }
            assert_eq!((suspects.len(), wrong(&all[0])), (4, vec![(None, 2)]));
            for (number, _) in suspects.iter().enumerate().filter(|(_, s)| **s != cell) {
                all[0].clear(number, 2);
            }
            assert_eq!(wrong(&all[0]), [(Some(cell), 2)]);
        }
    }

    #[test]
    fn one_sum_of_a_block_tells_nothing_of_it() {
        for code in [md(Level::Raid5, 4), md(Level::Raid1, 2)] {
            for cell in code.cells() {
                let all = about(&code, cell);
                assert_eq!(all[0].to_compare(), []);
                let misfits = all[0].misfits();
                assert_eq!((misfits[0].wrong, misfits[0].first_data), (None, 0));
            }
        }
    }

    #[test]
    fn copies_of_different_blocks_are_doubted_apart() {
        let code = md(Level::Raid10, 4);
        let all = doubts(&code, &[1, 3]);
        let found: Vec<_> = all.iter().flat_map(Doubt::misfits).collect();
        let found: Vec<_> = found.iter().map(|misfit| (misfit.first_data, misfit.blocks)).collect();
        assert_eq!(found, [(0, 1), (1, 3)]);
    }

    #[test]
    fn where_nothing_differs_there_is_no_doubt() {
        assert!(doubts(&md(Level::Raid6, 6), &[0, 0]).is_empty());
    }
}
