//! Transfers between nodes that give one role its blocks back.

use braid_array::Role;
use std::collections::BTreeMap;

use super::{Endpoint, Input, Schedule, Transfer};
use braid_array::code::{Cell, Recovery, StripeCode, Terms};

/// One transfer of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainLink {
    /// The row of the role that the chain brings back.
    pub row: u16,
    /// The transfer with the sum of the nodes that come before in the chain.
    pub before: Option<usize>,
    /// Sender.
    pub from: Role,
    /// Receiver.
    pub to: Role,
    /// Rows of the sender, ascending, and their coefficients in the sum.
    pub own: Vec<(u16, u8)>,
}

/// The transfers that give a role all its blocks of a stripe back. Each block is a sum of blocks of
/// other nodes. The sum goes along a chain of those nodes: each adds its own blocks and sends the
/// sum on, the last one to the role. So the role receives every block once, and no node sends or
/// receives more blocks than come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chains {
    role: Role,
    links: Vec<ChainLink>,
}

impl Chains {
    /// Creates the chains of a recovery that gives all blocks of the role back. The beginning of
    /// chains differs from `turn` to `turn`, and from row to row.
    #[must_use]
    pub fn new(code: &StripeCode, recovery: &Recovery, role: Role, turn: u16) -> Self {
        let mut links: Vec<ChainLink> = Vec::new();
        for row in 0..code.rows() {
            let sum = recovery.direct(code, &[Cell { row, node: role }]);
            let mut own: BTreeMap<Role, Vec<(u16, u8)>> = BTreeMap::new();
            for (&number, &coef) in sum.inputs.iter().zip(&sum.coefs) {
                let cell = code.cell(number);
                own.entry(cell.node).or_default().push((cell.row, coef));
            }
            own.values_mut().for_each(|rows| rows.sort_unstable());
            let mut nodes: Vec<(Role, Vec<(u16, u8)>)> = own.into_iter().collect();
            let first = (usize::from(row) + usize::from(turn)) % nodes.len().max(1);
            nodes.rotate_left(first);
            let next: Vec<Role> =
                nodes.iter().skip(1).map(|(node, _)| *node).chain([role]).collect();
            let mut before = None;
            for ((from, own), to) in nodes.into_iter().zip(next) {
                links.push(ChainLink { row, before, from, to, own });
                before = Some(links.len() - 1);
            }
        }
        Self { role, links }
    }

    /// Returns the role whose blocks come back.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Returns the transfers; each comes after those that it needs.
    #[must_use]
    pub fn links(&self) -> &[ChainLink] {
        &self.links
    }

    /// Returns the chains as transfers between nodes. A node's own blocks are not among the inputs.
    pub(crate) fn schedule(&self, code: &StripeCode) -> Schedule {
        let mut transfers: Vec<Transfer> = Vec::new();
        for link in &self.links {
            let before = link.before.map(|transfer| &transfers[transfer]);
            let stage = before.map_or(0, |before| before.stage) + 1;
            let mut terms = before.map_or_else(Terms::default, |before| before.terms.clone());
            for &(row, coef) in &link.own {
                terms.add(coef, &code.terms(Cell { row, node: link.from }));
            }
            let inputs = link.before.map(|transfer| Input { transfer, coef: 1 });
            let from = Endpoint::Node(link.from);
            let inputs = inputs.into_iter().collect();
            transfers.push(Transfer { stage, from, to: link.to, inputs, terms });
        }
        Schedule { nodes: code.nodes(), transfers, sums: Vec::new() }
    }
}
