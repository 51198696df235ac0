//! The trees of any code. The 2-D XOR code has better chains of its own.

use super::build::{self, Tree, from_trees};
use super::{Schedule, ScheduleError};
use braid_array::code::{Equation, StripeCode};

/// Who builds the parities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Planner {
    /// The client, which sends them as it sends data.
    Client,
    /// The nodes, each parity along a chain through the nodes that hold its data.
    Chain,
    /// One node, which gets the data from the others. Meant to be another for every stripe: then
    /// nothing moves fewer blocks, and all nodes receive the same.
    Encoder {
        /// Which one.
        node: u16,
    },
    /// The nodes, with as many shared transfers as are known, for pipelines that cannot rotate.
    Static,
}

impl Planner {
    /// As users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Chain => "chain",
            Self::Encoder { .. } => "encoder",
            Self::Static => "static",
        }
    }
}

impl Schedule {
    /// The schedule of any code; for the 2-D XOR code ask [`Xor2d`](crate::Xor2d::schedule).
    ///
    /// # Errors
    /// There is no static one, and encoders are nodes of the stripe.
    pub fn plan(code: &StripeCode, planner: Planner) -> Result<Self, ScheduleError> {
        let nodes = code.nodes();
        let trees: Vec<Tree> = match planner {
            Planner::Client => return Ok(build::from_client_only(code)),
            Planner::Static => return Err(ScheduleError::NoStatic(nodes)),
            Planner::Chain => (0..code.equations().len()).map(|e| chain(code, e)).collect(),
            Planner::Encoder { node } if node < nodes => {
                code.equations().iter().map(|equation| encoder(equation, node)).collect()
            }
            Planner::Encoder { node } => {
                return Err(ScheduleError::NoSuchEncoder { node, nodes });
            }
        };
        Ok(from_trees(code, &trees))
    }
}

/// Through the nodes with data, in array order; a copy through the copies before it.
fn chain(code: &StripeCode, number: usize) -> Tree {
    let equation = &code.equations()[number];
    let mut path: Vec<u16> = equation.terms.iter().map(|term| term.cell.node).collect();
    if let [only] = &equation.terms[..] {
        let before = code.involved(only.cell).iter().take_while(|&&other| other < number);
        path.extend(before.map(|&other| code.equations()[other].parity.node));
    }
    path.push(equation.parity.node);
    path.windows(2).map(|arc| (arc[0], arc[1])).collect()
}

/// All to the encoder, the sum from there. A copy needs no encoder.
fn encoder(equation: &Equation, node: u16) -> Tree {
    let root = equation.parity.node;
    let holders = equation.terms.iter().map(|term| term.cell.node);
    if equation.terms.len() == 1 {
        return holders.map(|holder| (holder, root)).collect();
    }
    let mut tree: Tree =
        holders.filter(|&holder| holder != node).map(|holder| (holder, node)).collect();
    if root != node {
        tree.insert(node, root);
    }
    tree
}
