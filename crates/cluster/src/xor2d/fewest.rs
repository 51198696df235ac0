//! Rebuilding one node from the fewest blocks.
//!
//! A lost data block comes back by its row or by its diagonal. A row and a diagonal that are used
//! mostly cross in a surviving block, which is then read once; half rows and half diagonals cross
//! most often. Only where the crossing would lie in the column that an odd number of nodes does
//! not have is nothing saved, and one such pair cannot be avoided.

use super::Xor2d;
use braid_array::Role;
use braid_array::code::Cell;
use braid_array::code::Recovery;

impl Xor2d {
    /// Returns the recovery of one lost node with the fewest reads: 3R²/4 blocks over an even
    /// number of nodes, 3R²/4 - R + 1 over an odd one, all data for the last node.
    ///
    /// # Panics On a node outside the stripe.
    #[must_use]
    pub fn fewest_reads(&self, lost: Role) -> Recovery {
        assert!(lost.0 < self.nodes(), "node {lost} outside the stripe");
        let by_row = self.rows_to_use(lost);
        let choose = |row: u16| {
            let cell = Cell { row, node: lost };
            let number = if lost == self.q_node() {
                usize::from(self.rows() + row)
            } else if by_row[usize::from(row)] {
                self.row_equation(row)
            } else {
                self.diagonal_equation(self.diagonal(row, lost.0))
            };
            (cell, number)
        };
        let cells: Vec<(Cell, usize)> = (0..self.rows()).map(choose).collect();
        Recovery::by_equations(self.code(), &cells)
    }

    /// Returns the rows of the lost node that come back by their row: half of them, side by side on
    /// the path that its column and the last one trace through the rows, its row parity among them.
    fn rows_to_use(&self, lost: Role) -> Vec<bool> {
        let rows = usize::from(self.rows());
        let mut by_row = vec![false; rows];
        if lost.0 >= self.m - 1 {
            by_row[..rows / 2].fill(true);
            return by_row;
        }
        let mut path = Vec::with_capacity(rows);
        let mut row = self.rows();
        for _ in 0..rows {
            // Where the last column has the diagonal that the lost one has here.
            row = (self.diagonal(row, lost.0) + 1) % self.m;
            path.push(row);
        }
        let parity = path.iter().position(|&row| self.p_node_is(row, lost)).unwrap_or(0);
        let start = parity.saturating_sub(rows / 4).min(rows - rows / 2);
        for &row in &path[start..start + rows / 2] {
            by_row[usize::from(row)] = true;
        }
        by_row
    }

    fn p_node_is(&self, row: u16, node: Role) -> bool {
        row < self.rows() && self.p_node(row) == node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_as_few_as_the_formula_says() {
        for n in super::super::MIN_NODES..=super::super::MAX_NODES {
            let xor2d = Xor2d::new(u32::from(n)).expect("4 to 34 nodes");
            let rows = usize::from(xor2d.rows());
            let fewest = 3 * rows * rows / 4 - if n % 2 == 0 { 0 } else { rows - 1 };
            for lost in Role::all(n - 1) {
                let reads = xor2d.fewest_reads(lost).reads();
                assert_eq!(reads.len(), fewest, "{n} nodes, node {lost} lost");
                assert!(reads.iter().all(|cell| cell.node != lost));
            }
            let reads = xor2d.fewest_reads(Role(n - 1)).reads();
            assert!(reads.iter().eq(xor2d.code().data()), "{n} nodes, the last lost");
        }
    }
}
