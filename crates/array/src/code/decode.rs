//! How lost blocks come back: a list of sums, each of blocks that are there or came back before.
//!
//! Equations with one unknown are peeled off first; where that gets stuck, as P+Q with two lost
//! data blocks does, the rest is solved by elimination.

use std::collections::{BTreeSet, VecDeque};

use braid_parity::gf;

use super::stripe::{Cell, StripeCode, Term};

/// One block coming back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The lost block.
    pub cell: Cell,
    /// It is the sum of these.
    pub inputs: Vec<Term>,
}

/// Sums that give every lost block back when they are formed in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    steps: Vec<Step>,
}

impl Recovery {
    /// How the blocks of the `lost` nodes come back; `None` when the code cannot.
    ///
    /// # Panics
    /// On a node outside the stripe.
    #[must_use]
    pub fn plan(code: &StripeCode, lost: &[u16]) -> Option<Self> {
        let mut unknown = vec![false; usize::from(code.rows()) * usize::from(code.nodes())];
        for &node in lost {
            for row in 0..code.rows() {
                unknown[code.slot(Cell { row, node })] = true;
            }
        }
        let mut steps = peel(code, &mut unknown);
        if unknown.contains(&true) {
            steps.extend(eliminate(code, &unknown)?);
        }
        Some(Self { steps })
    }

    /// Each lost cell by an equation, in this order.
    pub fn by_equations(code: &StripeCode, cells: &[(Cell, usize)]) -> Self {
        let steps = cells.iter().map(|&(cell, number)| solve(code, number, cell)).collect();
        Self { steps }
    }

    /// The sums, in order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
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
fn peel(code: &StripeCode, unknown: &mut [bool]) -> Vec<Step> {
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
        steps.push(solve(code, number, cell));
        for &other in code.involved(cell) {
            left[other] -= 1;
            if left[other] == 1 {
                ready.push_back(other);
            }
        }
    }
    steps
}

/// `cell` from one equation it is part of.
fn solve(code: &StripeCode, number: usize, cell: Cell) -> Step {
    let equation = &code.equations()[number];
    let own = equation.coef(cell);
    let others = equation.cells().filter(|&other| other != cell);
    let term = |cell| Term { cell, coef: gf::div(equation.coef(cell), own) };
    Step { cell, inputs: others.map(term).collect() }
}

/// Gauss and Jordan over all equations; every unknown must become the only one of an equation.
fn eliminate(code: &StripeCode, unknown: &[bool]) -> Option<Vec<Step>> {
    let cells: Vec<Cell> = code.cells().collect();
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for equation in code.equations() {
        let mut line = vec![0; cells.len()];
        for cell in equation.cells() {
            line[code.slot(cell)] = equation.coef(cell);
        }
        lines.push(line);
    }
    let columns: Vec<usize> = (0..cells.len()).filter(|&slot| unknown[slot]).collect();
    for (done, &column) in columns.iter().enumerate() {
        let pivot = (done..lines.len()).find(|&line| lines[line][column] != 0)?;
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
    let step = |(line, &column): (&Vec<u8>, &usize)| {
        let term = |(&coef, &cell): (&u8, &Cell)| Term { cell, coef };
        let others =
            line.iter().zip(&cells).filter(|(coef, cell)| **coef != 0 && **cell != cells[column]);
        Step { cell: cells[column], inputs: others.map(term).collect() }
    };
    Some(lines.iter().zip(&columns).map(step).collect())
}
