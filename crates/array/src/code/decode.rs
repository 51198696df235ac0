//! Recovery of lost blocks: a list of sums, each of blocks that are there or came back before.
//!
//! Equations with one unknown are peeled off first; where that gets stuck, as P+Q with two lost
//! data blocks does, the rest is solved by elimination.

#[cfg(test)]
mod tests;

use crate::Role;
use std::collections::{BTreeSet, VecDeque};

use braid_parity::gf;

use super::stripe::{Cell, StripeCode, Term};

/// One block coming back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeStep {
    /// The lost block.
    pub cell: Cell,
    /// Blocks whose sum the lost block is.
    pub inputs: Vec<Term>,
}

impl DecodeStep {
    /// A cell from one equation it is part of, by the number of that.
    #[must_use]
    pub fn by_equation(code: &StripeCode, cell: Cell, number: usize) -> Self {
        let equation = &code.equations()[number];
        let own = equation.coef(cell);
        let others = equation.all_terms().filter(|term| term.cell != cell);
        let inputs = others.map(|Term { cell, coef }| Term { cell, coef: gf::div(coef, own) });
        Self { cell, inputs: inputs.collect() }
    }
}

/// Sums that give every lost block back when they are formed in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    steps: Vec<DecodeStep>,
}

/// Cells as sums of the same cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Cells that are added up, by [number](StripeCode::number), ascending.
    pub inputs: Vec<usize>,
    /// Row-major: for each cell one coefficient for each input.
    pub coefs: Vec<u8>,
}

impl Recovery {
    /// Finds how the blocks of the `lost` nodes come back; `None` when the code cannot bring them
    /// back.
    ///
    /// # Panics
    /// On a node outside the stripe.
    #[must_use]
    pub fn plan(code: &StripeCode, lost: &[Role]) -> Option<Self> {
        let rows = 0..code.rows();
        let cells = lost.iter().flat_map(|&node| rows.clone().map(move |row| Cell { row, node }));
        let cells: Vec<Cell> = cells.collect();
        Self::of(code, &cells, &cells)
    }

    /// Finds how the `wanted` cells, all of them lost, come back without any of the `lost` ones;
    /// `None` when they cannot.
    ///
    /// # Panics
    /// On a cell outside the stripe.
    #[must_use]
    pub fn of(code: &StripeCode, lost: &[Cell], wanted: &[Cell]) -> Option<Self> {
        let mut unknown = vec![false; usize::from(code.rows()) * usize::from(code.nodes())];
        for &cell in lost {
            unknown[code.slot(cell)] = true;
        }
        let mut steps = peel(code, &mut unknown);
        let still = |cell: &Cell| unknown[code.slot(*cell)];
        if wanted.iter().any(still) {
            steps.extend(eliminate(code, &unknown));
            let comes = |cell: &Cell| steps.iter().any(|step| step.cell == *cell);
            if !wanted.iter().all(comes) {
                return None;
            }
        }
        Some(Self { steps })
    }

    /// Returns these cells, which come back, as sums of cells that are there.
    #[must_use]
    pub fn direct(&self, code: &StripeCode, cells: &[Cell]) -> Sums {
        let width = usize::from(code.rows()) * usize::from(code.nodes());
        let mut known: Vec<(Cell, Vec<u8>)> = Vec::new();
        for step in self.only(cells, |_| false).steps {
            let mut sum = vec![0; width];
            for Term { cell, coef } in step.inputs {
                match known.iter().find(|(known, _)| *known == cell) {
                    Some((_, terms)) => {
                        let adds = |(sum, &term): (&mut u8, &u8)| *sum ^= gf::mul(coef, term);
                        sum.iter_mut().zip(terms).for_each(adds);
                    }
                    None => sum[code.number(cell)] ^= coef,
                }
            }
            known.push((step.cell, sum));
        }
        let sum = |cell: &Cell| known.iter().find(|(known, _)| known == cell).map(|(_, sum)| sum);
        let sums: Vec<&Vec<u8>> = cells.iter().filter_map(sum).collect();
        let used = |number: &usize| sums.iter().any(|sum| sum[*number] != 0);
        let inputs: Vec<usize> = (0..width).filter(used).collect();
        let coefs = sums.iter().flat_map(|sum| inputs.iter().map(|&number| sum[number])).collect();
        Sums { inputs, coefs }
    }

    /// Each lost cell by an equation, in this order.
    pub fn by_equations(code: &StripeCode, cells: &[(Cell, usize)]) -> Self {
        let steps = cells
            .iter()
            .map(|&(cell, number)| DecodeStep::by_equation(code, cell, number))
            .collect();
        Self { steps }
    }

    /// The sums, in order.
    #[must_use]
    pub fn steps(&self) -> &[DecodeStep] {
        &self.steps
    }

    /// The surviving blocks that are read.
    #[must_use]
    pub fn reads(&self) -> BTreeSet<Cell> {
        let lost: BTreeSet<Cell> = self.steps.iter().map(|step| step.cell).collect();
        let inputs = self.steps.iter().flat_map(|step| &step.inputs).map(|term| term.cell);
        inputs.filter(|cell| !lost.contains(cell)).collect()
    }

    /// Only the steps that are needed to get these cells back, when some are known.
    #[must_use]
    pub fn only<'a>(
        &self,
        cells: impl IntoIterator<Item = &'a Cell>,
        known: impl Fn(&Cell) -> bool,
    ) -> Self {
        let mut wanted: BTreeSet<Cell> = cells.into_iter().copied().collect();
        let mut steps = Vec::new();
        for step in self.steps.iter().rev() {
            if wanted.contains(&step.cell) && !known(&step.cell) {
                wanted.extend(step.inputs.iter().map(|term| term.cell));
                steps.push(step.clone());
            }
        }
        steps.reverse();
        Self { steps }
    }
}

/// Breadth first: chains that do not depend on each other come back side by side.
fn peel(code: &StripeCode, unknown: &mut [bool]) -> Vec<DecodeStep> {
    let equations = code.equations();
    let unknowns = |unknown: &[bool], number: usize| {
        equations[number].cells().filter(|&cell| unknown[code.slot(cell)]).count()
    };
    let mut left: Vec<usize> = (0..equations.len()).map(|e| unknowns(unknown, e)).collect();
    let mut ready: VecDeque<usize> = (0..equations.len()).filter(|&e| left[e] == 1).collect();
    let mut steps = Vec::new();
    while let Some(number) = ready.pop_front() {
        let Some(cell) = equations[number].cells().find(|&cell| unknown[code.slot(cell)]) else {
            continue;
        };
        unknown[code.slot(cell)] = false;
        steps.push(DecodeStep::by_equation(code, cell, number));
        for &other in code.involved(cell) {
            left[other] -= 1;
            if left[other] == 1 {
                ready.push_back(other);
            }
        }
    }
    steps
}

/// Gauss and Jordan over the equations with unknowns; what becomes the only unknown of one comes
/// back.
fn eliminate(code: &StripeCode, unknown: &[bool]) -> Vec<DecodeStep> {
    let cells: Vec<Cell> = code.cells().collect();
    let columns: Vec<usize> = (0..cells.len()).filter(|&slot| unknown[slot]).collect();
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for equation in code.equations() {
        if equation.cells().any(|cell| unknown[code.slot(cell)]) {
            let mut line = vec![0; cells.len()];
            for Term { cell, coef } in equation.all_terms() {
                line[code.slot(cell)] = coef;
            }
            lines.push(line);
        }
    }
    let mut pivots = Vec::new();
    for &column in &columns {
        let done = pivots.len();
        let Some(pivot) = (done..lines.len()).find(|&line| lines[line][column] != 0) else {
            continue;
        };
        pivots.push(column);
        lines.swap(done, pivot);
        let factor = gf::inv(lines[done][column]);
        lines[done].iter_mut().for_each(|coef| *coef = gf::mul(*coef, factor));
        let pivot = lines[done].clone();
        for (_, line) in lines.iter_mut().enumerate().filter(|(number, _)| *number != done) {
            let factor = line[column];
            for (coef, &add) in line.iter_mut().zip(&pivot) {
                *coef ^= gf::mul(factor, add);
            }
        }
    }
    let alone = |(line, column): &(&Vec<u8>, usize)| {
        columns.iter().all(|other| other == column || line[*other] == 0)
    };
    let step = |(line, column): (&Vec<u8>, usize)| {
        let term = |(&coef, &cell): (&u8, &Cell)| Term { cell, coef };
        let others = line.iter().zip(&cells);
        let others = others.filter(|(coef, cell)| **coef != 0 && **cell != cells[column]);
        DecodeStep { cell: cells[column], inputs: others.map(term).collect() }
    };
    lines.iter().zip(pivots).filter(alone).map(step).collect()
}
