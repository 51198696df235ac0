//! A stripe as cells and equations, whatever the level.

use super::terms::Terms;
use crate::Role;

/// One block of a stripe: a row of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// Row of the stripe.
    pub row: u16,
    /// Node, by its number in the array.
    pub node: Role,
}

/// A cell in a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term {
    /// The block.
    pub cell: Cell,
    /// Factor of the block, in GF(2^8): 1 for xor, never 0.
    pub coef: u8,
}

/// The kind of block that a cell holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Data.
    Data,
    /// A copy of a data block.
    Copy,
    /// Xor of the data of a row.
    Parity,
    /// Weighted sum of the data of a row.
    Q,
    /// Xor of the data of a diagonal.
    Diagonal,
}

/// `parity = sum of terms`; the terms are data cells, at most one on each node, none on the
/// parity's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equation {
    /// The cell that holds the sum.
    pub parity: Cell,
    /// Copy, parity, Q or diagonal.
    pub kind: BlockKind,
    /// Cells that are added up, by data index.
    pub terms: Vec<Term>,
}

impl Equation {
    /// The coefficient of a cell when the equation is read as `parity + terms = 0`.
    #[must_use]
    pub fn coef(&self, cell: Cell) -> u8 {
        let term = self.terms.iter().find(|term| term.cell == cell);
        term.map_or(u8::from(cell == self.parity), |term| term.coef)
    }

    /// Every cell of the equation, the parity last.
    pub fn cells(&self) -> impl Iterator<Item = Cell> {
        self.all_terms().map(|term| term.cell)
    }

    /// The terms that add up to zero: those of the sum, then the parity.
    pub fn all_terms(&self) -> impl Iterator<Item = Term> {
        self.terms.iter().copied().chain([Term { cell: self.parity, coef: 1 }])
    }
}

/// Content of a cell: a data index, or the number of an equation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Data block with this index in array order.
    Data(u32),
    /// Left side of the equation with this number.
    Sum(usize),
}

/// The cells of a stripe that hold data, and the sums of data that the others hold. Every cell of
/// the `rows * nodes` holds the one or the other.
///
/// Cells have numbers: data cells by index, then the others by equation.
#[derive(Clone, Debug)]
pub struct StripeCode {
    nodes: u16,
    rows: u16,
    data: Vec<Cell>,
    equations: Vec<Equation>,
    /// Numbers of the cells, by place.
    numbers: Vec<u32>,
    /// The equations each cell is part of: the list of a cell begins here, by place.
    starts: Vec<u32>,
    involved: Vec<usize>,
}

impl StripeCode {
    /// `data` by index. The caller keeps what [`Equation`] and [`StripeCode`] say.
    ///
    /// # Panics
    /// When there is not a number of cells as said, or one lies outside the stripe.
    #[must_use]
    pub fn new(nodes: u16, rows: u16, data: Vec<Cell>, equations: Vec<Equation>) -> Self {
        let cells = usize::from(nodes) * usize::from(rows);
        assert_eq!(data.len() + equations.len(), cells, "every cell holds data or a sum");
        let numbers = vec![0; cells];
        let starts = vec![0; cells + 1];
        let involved = Vec::new();
        let mut code = Self { nodes, rows, data, equations, numbers, starts, involved };
        let sums = code.equations.iter().map(|equation| equation.parity);
        for (number, cell) in (0..).zip(code.data.iter().copied().chain(sums)) {
            let slot = slot(nodes, cell);
            code.numbers[slot] = number;
        }
        for cell in code.equations.iter().flat_map(Equation::cells) {
            code.starts[slot(nodes, cell) + 1] += 1;
        }
        for at in 0..cells {
            code.starts[at + 1] += code.starts[at];
        }
        let mut next = code.starts.clone();
        code.involved = vec![0; code.starts[cells] as usize];
        for (number, equation) in code.equations.iter().enumerate() {
            for cell in equation.cells() {
                let next = &mut next[slot(nodes, cell)];
                code.involved[*next as usize] = number;
                *next += 1;
            }
        }
        code
    }

    /// Nodes.
    #[must_use]
    pub const fn nodes(&self) -> u16 {
        self.nodes
    }

    /// Blocks of the stripe on each node.
    #[must_use]
    pub const fn rows(&self) -> u16 {
        self.rows
    }

    /// The data cells, by index in array order.
    #[must_use]
    pub fn data(&self) -> &[Cell] {
        &self.data
    }

    /// Returns the equations, one for every cell that holds no data.
    #[must_use]
    pub fn equations(&self) -> &[Equation] {
        &self.equations
    }

    /// Every cell, by row and node.
    pub fn cells(&self) -> impl Iterator<Item = Cell> {
        let nodes = self.nodes;
        (0..self.rows).flat_map(move |row| Role::all(nodes).map(move |node| Cell { row, node }))
    }

    /// Returns what a cell holds.
    ///
    /// # Panics
    /// On a cell outside the stripe.
    #[must_use]
    pub fn content(&self, cell: Cell) -> Content {
        let number = self.number(cell);
        match number.checked_sub(self.data.len()) {
            Some(equation) => Content::Sum(equation),
            None => Content::Data(number as u32),
        }
    }

    /// The number of a cell.
    ///
    /// # Panics
    /// On a cell outside the stripe.
    #[must_use]
    pub fn number(&self, cell: Cell) -> usize {
        self.numbers[self.slot(cell)] as usize
    }

    /// The cell with a number.
    ///
    /// # Panics
    /// On a number that no cell has.
    #[must_use]
    pub fn cell(&self, number: usize) -> Cell {
        match number.checked_sub(self.data.len()) {
            Some(equation) => self.equations[equation].parity,
            None => self.data[number],
        }
    }

    /// Returns the kind of block that a cell holds.
    #[must_use]
    pub fn kind(&self, cell: Cell) -> BlockKind {
        match self.content(cell) {
            Content::Data(_) => BlockKind::Data,
            Content::Sum(number) => self.equations[number].kind,
        }
    }

    /// The numbers of the equations a cell is part of, its own and those it is a term of.
    #[must_use]
    pub fn involved(&self, cell: Cell) -> &[usize] {
        let slot = self.slot(cell);
        &self.involved[self.starts[slot] as usize..self.starts[slot + 1] as usize]
    }

    /// The lowest data block in what a cell holds, by index.
    #[must_use]
    pub fn first_data(&self, cell: Cell) -> u32 {
        match self.content(cell) {
            Content::Data(index) => index,
            Content::Sum(number) => {
                let terms = self.equations[number].terms.iter();
                terms.map(|term| self.first_data(term.cell)).min().unwrap_or(0)
            }
        }
    }

    /// Returns what a cell holds, as a sum of data blocks.
    #[must_use]
    pub fn terms(&self, cell: Cell) -> Terms {
        match self.content(cell) {
            Content::Data(index) => Terms::block(index),
            Content::Sum(number) => self.sum(&self.equations[number]),
        }
    }

    fn sum(&self, equation: &Equation) -> Terms {
        let mut sum = Terms::default();
        for term in &equation.terms {
            sum.add(term.coef, &self.terms(term.cell));
        }
        sum
    }

    /// The number of a cell in tables over all cells.
    pub fn slot(&self, cell: Cell) -> usize {
        assert!(cell.row < self.rows && cell.node.0 < self.nodes, "{cell:?} outside the stripe");
        slot(self.nodes, cell)
    }
}

fn slot(nodes: u16, cell: Cell) -> usize {
    usize::from(cell.row) * usize::from(nodes) + cell.node.index()
}
