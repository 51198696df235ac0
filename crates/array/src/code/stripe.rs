//! A stripe as cells and equations, whatever the level.

use super::terms::Terms;

/// One block of a stripe: a row of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// Row of the stripe.
    pub row: u16,
    /// Node, by its number in the array.
    pub node: u16,
}

/// A cell in a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term {
    /// Where the block lies.
    pub cell: Cell,
    /// What it is multiplied with, in GF(2^8): 1 for xor, never 0.
    pub coef: u8,
}

/// What a cell holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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
    pub kind: Kind,
    /// What is added up, by data index.
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
        self.terms.iter().map(|term| term.cell).chain([self.parity])
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

/// Which cells of a stripe hold data and which sums of data the others hold. Every cell of the
/// `rows * nodes` holds the one or the other.
#[derive(Clone, Debug)]
pub struct StripeCode {
    nodes: u16,
    rows: u16,
    data: Vec<Cell>,
    equations: Vec<Equation>,
    contents: Vec<Content>,
    /// By cell: the equations it is part of.
    involved: Vec<Vec<usize>>,
}

impl StripeCode {
    /// `data` by index. The caller, in this crate, keeps what [`Equation`] and [`StripeCode`] say.
    pub fn new(nodes: u16, rows: u16, data: Vec<Cell>, equations: Vec<Equation>) -> Self {
        let cells = usize::from(nodes) * usize::from(rows);
        assert_eq!(data.len() + equations.len(), cells, "every cell holds data or a sum");
        let mut code = Self {
            nodes,
            rows,
            data,
            equations,
            contents: vec![Content::Data(0); cells],
            involved: vec![Vec::new(); cells],
        };
        for (index, &cell) in code.data.iter().enumerate() {
            let slot = slot(nodes, cell);
            code.contents[slot] = Content::Data(index as u32);
        }
        for (number, equation) in code.equations.iter().enumerate() {
            code.contents[slot(nodes, equation.parity)] = Content::Sum(number);
            for cell in equation.cells() {
                code.involved[slot(nodes, cell)].push(number);
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

    /// One equation for every cell that holds no data.
    #[must_use]
    pub fn equations(&self) -> &[Equation] {
        &self.equations
    }

    /// Every cell, by row and node.
    pub fn cells(&self) -> impl Iterator<Item = Cell> {
        let nodes = self.nodes;
        (0..self.rows).flat_map(move |row| (0..nodes).map(move |node| Cell { row, node }))
    }

    /// What a cell holds.
    ///
    /// # Panics
    /// On a cell outside the stripe.
    #[must_use]
    pub fn content(&self, cell: Cell) -> Content {
        self.contents[self.slot(cell)]
    }

    /// What sort of block a cell holds.
    #[must_use]
    pub fn kind(&self, cell: Cell) -> Kind {
        match self.content(cell) {
            Content::Data(_) => Kind::Data,
            Content::Sum(number) => self.equations[number].kind,
        }
    }

    /// The numbers of the equations a cell is part of, its own and those it is a term of.
    #[must_use]
    pub fn involved(&self, cell: Cell) -> &[usize] {
        &self.involved[self.slot(cell)]
    }

    /// What a cell holds, as a sum of data blocks.
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
        assert!(cell.row < self.rows && cell.node < self.nodes, "{cell:?} outside the stripe");
        slot(self.nodes, cell)
    }
}

fn slot(nodes: u16, cell: Cell) -> usize {
    usize::from(cell.row) * usize::from(nodes) + usize::from(cell.node)
}
