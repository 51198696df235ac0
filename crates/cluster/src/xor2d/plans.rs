//! Schedules of the 2-D XOR code: chains and static ones with shared first hops.

use braid_array::Role;
use std::collections::{BTreeMap, BTreeSet};

use super::{Xor2d, diagonals::is_prime};
use crate::schedule::{Planner, Schedule, ScheduleError, Tree, from_trees};

mod share;
mod spine;

/// The static schedule over 5 nodes, proven to have the smallest bottleneck: parents by row, then
/// by diagonal in the order of the last node's rows.
const STATIC_5: [&[(u16, u16)]; 8] = [
    &[(0, 3), (1, 3), (2, 1)],
    &[(0, 2), (1, 2), (3, 2)],
    &[(0, 1), (2, 3), (3, 1)],
    &[(1, 4), (2, 4), (3, 0), (4, 0)],
    &[(1, 4), (2, 4), (3, 2)],
    &[(0, 3), (2, 4), (3, 4)],
    &[(0, 4), (1, 0), (3, 0)],
    &[(0, 1), (1, 4), (2, 1)],
];

impl Xor2d {
    /// The schedule of a stripe. Over 5 nodes the chain is the published path, transfer for
    /// transfer.
    ///
    /// # Errors
    /// A static schedule is known where the order of the square is a prime; encoders are nodes of
    /// the stripe.
    pub fn schedule(&self, planner: Planner) -> Result<Schedule, ScheduleError> {
        match planner {
            Planner::Client | Planner::Encoder { .. } => Schedule::plan(self.code(), planner),
            Planner::Chain => Ok(from_trees(self.code(), &self.chain())),
            Planner::Static if self.nodes() == 5 => {
                let trees = STATIC_5.map(|arcs| {
                    arcs.iter().map(|&(from, to)| (Role(from), Role(to))).collect::<Tree>()
                });
                Ok(from_trees(self.code(), &trees))
            }
            Planner::Static if is_prime(self.m) => Ok(spine::best(self)),
            Planner::Static => Err(ScheduleError::NoStatic(self.nodes())),
        }
    }

    /// Each parity along a chain through the nodes with its data, in ascending order. The first hop
    /// of every row is also the first of a diagonal. Over an even number of nodes, the one that has
    /// only data hangs on the chains as a second leaf that a row and a diagonal share.
    fn chain(&self) -> Vec<Tree> {
        let mut first: BTreeMap<usize, (Role, Role)> = BTreeMap::new();
        for (row, &(from, to)) in (0..).zip(&share::first_hops(self)) {
            first.insert(self.row_equation(row), (from, to));
            first.insert(self.diagonal_equation(self.diagonal(row, from.0)), (from, to));
        }
        let leaves = self.second_leaves(&first);
        let tree = |number: usize| {
            let equation = &self.code().equations()[number];
            let root = equation.parity.node;
            let mut holders: BTreeSet<Role> =
                equation.terms.iter().map(|term| term.cell.node).collect();
            let mut tree = Tree::new();
            if let Some(&to) = leaves.get(&number) {
                holders.remove(&Role(self.m - 1));
                tree.insert(Role(self.m - 1), to);
            }
            let mut path = Vec::new();
            if let Some(&(from, to)) = first.get(&number) {
                holders.remove(&from);
                if to == root {
                    tree.insert(from, root);
                } else {
                    holders.remove(&to);
                    path.extend([from, to]);
                }
            }
            path.extend(holders);
            path.push(root);
            tree.extend(path.windows(2).map(|arc| (arc[0], arc[1])));
            tree
        };
        (0..self.code().equations().len()).map(tree).collect()
    }

    /// To which node of both its row and its diagonal the node with data only sends each block.
    fn second_leaves(&self, first: &BTreeMap<usize, (Role, Role)>) -> BTreeMap<usize, Role> {
        let mut leaves = BTreeMap::new();
        if self.nodes() % 2 == 1 || self.m == 3 {
            return leaves;
        }
        let leaf = Role(self.m - 1);
        let mut used = vec![0; usize::from(self.nodes())];
        for row in 0..self.rows() {
            let diagonal = self.diagonal_equation(self.diagonal(row, leaf.0));
            let row = self.row_equation(row);
            let senders = [first.get(&row), first.get(&diagonal)];
            let sends = |node| senders.iter().flatten().any(|&&(from, _)| from == node);
            let in_row: Vec<Role> =
                self.code().equations()[row].cells().map(|cell| cell.node).collect();
            let in_both = self.code().equations()[diagonal].terms.iter().map(|t| t.cell.node);
            let fit = in_both.filter(|&n| in_row.contains(&n) && n != leaf && !sends(n));
            if let Some(to) = fit.min_by_key(|&node| (used[node.index()], node)) {
                used[to.index()] += 1;
                leaves.insert(row, to);
                leaves.insert(diagonal, to);
            }
        }
        leaves
    }
}
