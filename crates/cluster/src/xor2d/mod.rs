//! The 2-D XOR code: any two of n nodes may be lost, all sums are xor, every data block is in two.
//!
//! Figure 3 of Otsuji and Tatebe's cluster-wide RAID is this code over 5 nodes; for other numbers
//! the diagonals are numbered by a column-Hamiltonian Latin square instead of addition modulo n.
//! With m = n for odd n and n - 1 for even n, a stripe has m - 1 rows; the parity of row r lies on
//! node m-2-r, the last node holds the parities of the diagonals, all else is data. Over an even
//! number of nodes, node n-2 has data only; without it, this is the code over one node less.

mod diagonals;
mod fewest;
mod plans;

use braid_array::Role;
use braid_array::refusal::{Advised, Next};

use braid_array::code::{BlockKind, Cell, Equation, StripeCode, Term};

/// The fewest nodes with room for data and two parities of each row.
pub const MIN_NODES: u16 = 4;
/// The most nodes for which the diagonals are numbered.
pub const MAX_NODES: u16 = 34;

/// A number of nodes that the code does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("xor2d cannot run over {0} nodes")]
pub struct NodesError(pub u32);

impl Advised for NodesError {
    fn next(&self) -> Next {
        format!("use {MIN_NODES} to {MAX_NODES}").into()
    }
}

/// The code over one number of nodes.
#[derive(Clone, Debug)]
pub struct Xor2d {
    code: StripeCode,
    /// Order of the square.
    m: u16,
    /// Diagonals of the rows of each column.
    square: diagonals::Square,
}

impl Xor2d {
    /// The code over `nodes` nodes.
    ///
    /// # Errors
    /// There is none below 4, and none here above 34.
    pub fn new(nodes: u32) -> Result<Self, NodesError> {
        let fits = |&n: &u16| (MIN_NODES..=MAX_NODES).contains(&n);
        let n = u16::try_from(nodes).ok().filter(fits).ok_or(NodesError(nodes))?;
        let m = if n % 2 == 1 { n } else { n - 1 };
        let square = diagonals::square(m).ok_or(NodesError(nodes))?;
        Ok(Self { code: code(n, m, &square), m, square })
    }

    /// Cells and equations.
    #[must_use]
    pub const fn code(&self) -> &StripeCode {
        &self.code
    }

    const fn nodes(&self) -> u16 {
        self.code.nodes()
    }

    const fn rows(&self) -> u16 {
        self.code.rows()
    }

    /// The node of all diagonal parities.
    const fn q_node(&self) -> Role {
        Role(self.nodes() - 1)
    }

    /// The node of a row's parity.
    const fn p_node(&self, row: u16) -> Role {
        Role(self.m - 2 - row)
    }

    /// The diagonal of a cell that is not on the last node. The imaginary row m-1 has one too.
    fn diagonal(&self, row: u16, column: u16) -> u16 {
        self.square[usize::from(column)][usize::from(row)]
    }

    /// The row of the last node in which the parity of a diagonal lies.
    const fn q_row(&self, diagonal: u16) -> u16 {
        (diagonal + 1) % self.m
    }

    /// The number of a row's equation.
    fn row_equation(&self, row: u16) -> usize {
        usize::from(row)
    }

    /// The number of a diagonal's equation.
    fn diagonal_equation(&self, diagonal: u16) -> usize {
        usize::from(self.rows() + self.q_row(diagonal))
    }
}

/// First the equations of the rows, then those of the diagonals by row of the last node.
fn code(n: u16, m: u16, square: &diagonals::Square) -> StripeCode {
    let rows = m - 1;
    let q_node = n - 1;
    let equation = |parity, kind| Equation { parity, kind, terms: Vec::new() };
    let row_parity = |row| equation(Cell { row, node: Role(m - 2 - row) }, BlockKind::Parity);
    let diagonal_parity = |row| equation(Cell { row, node: Role(q_node) }, BlockKind::Diagonal);
    let mut equations: Vec<Equation> =
        (0..rows).map(row_parity).chain((0..rows).map(diagonal_parity)).collect();
    let mut data = Vec::new();
    for row in 0..rows {
        for node in (0..q_node).filter(|&node| node != m - 2 - row) {
            let term = Term { cell: Cell { row, node: Role(node) }, coef: 1 };
            let q_row = (square[usize::from(node)][usize::from(row)] + 1) % m;
            equations[usize::from(row)].terms.push(term);
            equations[usize::from(rows + q_row)].terms.push(term);
            data.push(term.cell);
        }
    }
    StripeCode::new(n, rows, data, equations)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figure 3, data blocks by letter.
    const FIGURE_3: [&str; 4] = [
        "A      B      C      A+B+C  F+H+J",
        "D      E      D+E+F  F      A+I+K",
        "G      G+H+I  H      I      B+D+L",
        "J+K+L  J      K      L      C+E+G",
    ];

    #[test]
    fn five_nodes_are_figure_3() {
        let xor2d = Xor2d::new(5).expect("5 nodes");
        let letter = |(index, coef)| {
            assert_eq!(coef, 1);
            char::from(b'A' + index as u8).to_string()
        };
        for (row, line) in (0..).zip(FIGURE_3) {
            for (node, expected) in (0..).map(Role).zip(line.split_whitespace()) {
                let terms = xor2d.code().terms(Cell { row, node });
                let found: Vec<String> = terms.iter().map(letter).collect();
                assert_eq!(found.join("+"), expected, "row {row}, node {node}");
            }
        }
    }

    #[test]
    fn every_sum_has_n_minus_2_blocks_and_every_block_is_in_two() {
        for n in MIN_NODES..=MAX_NODES {
            let xor2d = Xor2d::new(u32::from(n)).expect("4 to 34 nodes");
            let code = xor2d.code();
            assert_eq!(code.data().len(), usize::from(xor2d.rows() * (n - 2)));
            assert_eq!(code.equations().len(), usize::from(2 * xor2d.rows()));
            for equation in code.equations() {
                assert_eq!(equation.terms.len(), usize::from(n - 2));
            }
            for &cell in code.data() {
                let row = xor2d.row_equation(cell.row);
                let diagonal = xor2d.diagonal_equation(xor2d.diagonal(cell.row, cell.node.0));
                assert_eq!(code.involved(cell), [row, diagonal]);
            }
        }
    }

    #[test]
    fn an_even_number_of_nodes_is_the_odd_one_below_and_a_node_of_data() {
        for odd in (5..34).step_by(2) {
            let less = Xor2d::new(odd).expect("odd");
            let more = Xor2d::new(odd + 1).expect("even");
            let q = Role(odd as u16 - 1);
            for (a, b) in less.code().equations().iter().zip(more.code().equations()) {
                let moved = |cell: Cell| match cell.node {
                    node if node == q => Cell { node: Role(q.0 + 1), ..cell },
                    _ => cell,
                };
                assert_eq!(moved(a.parity), b.parity);
                let kept = b.cells().filter(|cell| cell.node != q);
                assert!(a.cells().map(moved).eq(kept), "{odd} nodes");
            }
        }
    }

    #[test]
    fn other_numbers_of_nodes_are_refused() {
        for nodes in [0, 3, 35, 1 << 16, u32::MAX] {
            assert_eq!(Xor2d::new(nodes).err(), Some(NodesError(nodes)));
        }
        let error = braid_array::Refusal::from(NodesError(3)).to_string();
        assert_eq!(error, "xor2d cannot run over 3 nodes; use 4 to 34");
    }
}
