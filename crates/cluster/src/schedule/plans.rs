//! The trees of any code. The 2-D XOR code has better chains of its own.

use super::build::{self, Tree, from_trees};
use super::{Schedule, ScheduleError};
use braid_array::Role;
use braid_array::code::{Cell, Equation, StripeCode};

/// Builder of the parities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Planner {
    /// The client, which sends them as it sends data.
    Client,
    /// The nodes, each parity along a chain through the nodes that hold its data.
    Chain,
    /// One node, which gets the data from the others. A rotation of the encoder from stripe to
    /// stripe is assumed: then no planner moves fewer blocks, and all nodes receive the same.
    Encoder {
        /// The encoder.
        node: Role,
    },
    /// The nodes, with as many shared transfers as are known, for pipelines that cannot rotate.
    Static,
}

impl Planner {
    /// Returns the name that users write.
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
    /// Returns the schedule of any code; for the 2-D XOR code use
    /// [`Xor2d`](crate::Xor2d::schedule).
    ///
    /// # Errors
    /// [`ScheduleError`] for a static schedule, and for an encoder outside the stripe.
    pub fn plan(code: &StripeCode, planner: Planner) -> Result<Self, ScheduleError> {
        let nodes = code.nodes();
        match planner {
            Planner::Client => Ok(build::from_client_only(code)),
            Planner::Static => Err(ScheduleError::NoStatic(nodes)),
            Planner::Chain => {
                let trees: Vec<Tree> =
                    (0..code.equations().len()).map(|number| chain(code, number)).collect();
                Ok(from_trees(code, &trees))
            }
            Planner::Encoder { node } => Self::encoded(code, node, |_| false),
        }
    }

    /// Returns the schedule with this encoder that leaves some nodes out. The client sends their
    /// data to the encoder, which adds it up, or sends it on to the holder of a copy. Their sums
    /// are not formed.
    ///
    /// # Errors [`ScheduleError`] for an encoder that is outside the stripe, or left out.
    pub(crate) fn encoded(
        code: &StripeCode,
        encoder: Role,
        missing: impl Fn(Role) -> bool,
    ) -> Result<Self, ScheduleError> {
        let nodes = code.nodes();
        if encoder.0 >= nodes || missing(encoder) {
            return Err(ScheduleError::NoSuchEncoder { node: encoder, nodes });
        }
        let home = |cell: &Cell| if missing(cell.node) { encoder } else { cell.node };
        let homes: Vec<Role> = code.data().iter().map(home).collect();
        let tree = |equation: &Equation| {
            let held = !missing(equation.parity.node);
            held.then(|| encoder_tree(code, equation, encoder, &homes))
        };
        let trees: Vec<Option<Tree>> = code.equations().iter().map(tree).collect();
        Ok(build::to_homes(code, &homes, trees.iter().map(Option::as_ref)))
    }
}

/// Returns the chain through the nodes with data, in array order; for a copy, through the copies
/// before it.
fn chain(code: &StripeCode, number: usize) -> Tree {
    let equation = &code.equations()[number];
    let mut path: Vec<Role> = equation.terms.iter().map(|term| term.cell.node).collect();
    if let [only] = &equation.terms[..] {
        let before = code.involved(only.cell).iter().take_while(|&&other| other < number);
        path.extend(before.map(|&other| code.equations()[other].parity.node));
    }
    path.push(equation.parity.node);
    path.windows(2).map(|arc| (arc[0], arc[1])).collect()
}

/// Returns the tree in which all nodes send to the encoder, and the sum goes on from there. A copy
/// needs no encoder.
fn encoder_tree(code: &StripeCode, equation: &Equation, node: Role, homes: &[Role]) -> Tree {
    let root = equation.parity.node;
    let holders = equation.terms.iter().map(|term| homes[code.number(term.cell)]);
    let to = if equation.terms.len() == 1 { root } else { node };
    let mut tree: Tree =
        holders.filter(|&holder| holder != to).map(|holder| (holder, to)).collect();
    if root != to {
        tree.insert(to, root);
    }
    tree
}
