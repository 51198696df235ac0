//! Static schedules for prime orders: many blocks of a row are leaves of both their trees.
//!
//! With x = column + 1 and y = row + 1 modulo p, multiplying both by the same number maps the code
//! onto itself, so one row tells all. In row y the block at x = rho*y is named by rho, and its
//! place in its diagonal by f(rho) = rho / (1 + rho). A few blocks are the spine; every other goes
//! raw to a node that is on the spines of both its row and its diagonal, or to the row's parity.

use super::super::Xor2d;
use crate::schedule::{Schedule, Tree, from_trees};
use braid_array::Role;

struct Spine {
    /// In order of rho.
    nodes: Vec<u16>,
    /// Leaf and target, both as multipliers of y.
    leaves: Vec<(u16, u16)>,
}

/// Arithmetic modulo a prime.
struct PrimeField {
    p: u16,
    inverses: Vec<u16>,
}

impl PrimeField {
    fn new(p: u16) -> Self {
        let inverse = |a: u16| (1..p).find(|b| a * b % p == 1).unwrap_or(0);
        Self { p, inverses: (0..p).map(inverse).collect() }
    }

    /// Where column tau*y is in the diagonal of block rho of row y: tau / (1 + rho).
    fn place(&self, tau: u16, rho: u16) -> u16 {
        tau * self.inverses[usize::from(rho + 1)] % self.p
    }
}

/// The smallest spine, with as many of its partial sums entering the last node directly as gives
/// the smallest bottleneck, then the fewest transfers.
pub(super) fn best(xor2d: &Xor2d) -> Schedule {
    let field = PrimeField::new(xor2d.m);
    let spine = smallest(&field, xor2d.nodes().is_multiple_of(2));
    let plans = (1..=spine.nodes.len()).map(|direct| {
        let schedule = from_trees(xor2d.code(), &trees(xor2d, &field, &spine, direct));
        let bottleneck = schedule.ingress().into_iter().max();
        ((bottleneck, schedule.node_transfers()), schedule)
    });
    plans.min_by_key(|&(cost, _)| cost).expect("a spine is not empty").1
}

fn smallest(field: &PrimeField, even: bool) -> Spine {
    let p = field.p;
    let blocks: Vec<u16> = (u16::from(!even)..p - 1).collect();
    let candidates: Vec<u16> = (1..p - 1).collect();
    let found = (1..=candidates.len()).find_map(|size| {
        let mut nodes = Vec::with_capacity(size);
        extend(field, &blocks, &candidates, size, &mut nodes)
    });
    found.expect("all blocks together are a spine")
}

/// The first spine of this size, in lexicographic order.
fn extend(
    field: &PrimeField,
    blocks: &[u16],
    candidates: &[u16],
    size: usize,
    nodes: &mut Vec<u16>,
) -> Option<Spine> {
    if nodes.len() == size {
        let leaves = leaves(field, blocks, nodes)?;
        return Some(Spine { nodes: nodes.clone(), leaves });
    }
    for (i, &candidate) in candidates.iter().enumerate() {
        nodes.push(candidate);
        let found = extend(field, blocks, &candidates[i + 1..], size, nodes);
        if found.is_some() {
            return found;
        }
        nodes.pop();
    }
    None
}

/// A target for every block that is not on the spine; `None` when one has none.
fn leaves(field: &PrimeField, blocks: &[u16], spine: &[u16]) -> Option<Vec<(u16, u16)>> {
    let on_diagonal: Vec<u16> = spine.iter().map(|&rho| field.place(rho, rho)).collect();
    let target = |rho: u16| {
        let targets = spine.iter().copied().chain([field.p - 1]);
        targets.into_iter().find(|&tau| on_diagonal.contains(&field.place(tau, rho)))
    };
    let leaves = blocks.iter().copied().filter(|rho| !spine.contains(rho));
    leaves.map(|rho| Some((rho, target(rho)?))).collect()
}

/// Spine nodes send their part of a row straight to its parity. On a diagonal they form a chain, of
/// which the last `direct` send to the last node.
fn trees(xor2d: &Xor2d, field: &PrimeField, spine: &Spine, direct: usize) -> Vec<Tree> {
    let p = field.p;
    let mut trees = vec![Tree::new(); usize::from(2 * xor2d.rows())];
    for y in 1..p {
        let node = |multiplier: u16| Role((multiplier * y + p - 1) % p);
        let on_diagonal = |rho: u16, tau: u16| node(field.place(tau, rho));
        let root = xor2d.p_node(y - 1);
        let row = &mut trees[xor2d.row_equation(y - 1)];
        row.extend(spine.nodes.iter().map(|&rho| (node(rho), root)));
        row.extend(spine.leaves.iter().map(|&(rho, tau)| (node(rho), node(tau))));

        let diagonal = &mut trees[xor2d.diagonal_equation((y + p - 2) % p)];
        let chain: Vec<Role> = spine.nodes.iter().map(|&rho| on_diagonal(rho, rho)).collect();
        let (relays, last) = chain.split_at(chain.len() - direct);
        diagonal.extend(relays.iter().zip(&chain[1..]).map(|(&from, &to)| (from, to)));
        diagonal.extend(last.iter().map(|&from| (from, xor2d.q_node())));
        let leaf = |&(rho, tau): &(u16, u16)| (on_diagonal(rho, rho), on_diagonal(rho, tau));
        diagonal.extend(spine.leaves.iter().map(leaf));
    }
    trees
}
