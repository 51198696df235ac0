//! Schedules: the transfers between client and nodes while a stripe is written.
//!
//! A schedule is one in-tree for each parity, rooted at the parity's node and spanning the nodes
//! that hold its data. Every node sends its parent the sum of its own block and of the blocks from
//! its children. A node without children sends its block as it is. When two trees want the same
//! block over the same arc, it is sent once.

mod build;
mod plans;
mod restore;
mod verify;

pub(crate) use build::{Tree, from_trees};
pub use plans::Planner;
pub use restore::{ChainLink, Chains};
pub use verify::Fault;

use braid_array::Role;
use braid_array::refusal::{Advised, Next};

use braid_array::code::StripeCode;
use braid_array::code::Terms;

/// Where a transfer starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// The writer of the stripe.
    Client,
    /// A node.
    Node(Role),
}

/// A block that a node received, and its coefficient in a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// The number of the transfer with which it came.
    pub transfer: usize,
    /// In GF(2^8), never 0.
    pub coef: u8,
}

/// One block on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// 0: from the client; otherwise one more than the latest of its inputs.
    pub stage: u16,
    /// Sender.
    pub from: Endpoint,
    /// The node that receives.
    pub to: Role,
    /// Inputs that the sender adds up; empty for the client.
    pub inputs: Vec<Input>,
    /// Content of the block.
    pub terms: Terms,
}

/// Reason why there is no such schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// No static schedule is known.
    #[error("no static schedule over {0} nodes is known")]
    NoStatic(u16),
    /// An encoder that the stripe does not have.
    #[error("node {node} cannot encode for {nodes} nodes")]
    NoSuchEncoder {
        /// The encoder that was asked for.
        node: Role,
        /// Number of nodes.
        nodes: u16,
    },
}

impl Advised for ScheduleError {
    fn next(&self) -> Next {
        match self {
            Self::NoStatic(_) => "use encoder or chain".into(),
            Self::NoSuchEncoder { nodes, .. } => format!("use 0 to {}", nodes - 1).into(),
        }
    }
}

/// The transfers of one stripe, and their use.
#[derive(Clone, Debug)]
pub struct Schedule {
    nodes: u16,
    /// First those of the data blocks from the client, by data index; inputs precede their use.
    transfers: Vec<Transfer>,
    /// By equation: the inputs that the parity's node adds up in the end.
    sums: Vec<Vec<Input>>,
}

impl Schedule {
    /// Returns every transfer; a transfer's number is its place here. Transfer `i` below the number
    /// of data blocks brings data block `i` from the client to its node.
    #[must_use]
    pub fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    /// Returns, for each equation of the code, the inputs that the node of its parity adds up.
    #[must_use]
    pub fn sums(&self) -> &[Vec<Input>] {
        &self.sums
    }

    /// Nodes of the stripe.
    #[must_use]
    pub const fn nodes(&self) -> u16 {
        self.nodes
    }

    /// Blocks that nodes send each other.
    #[must_use]
    pub fn node_transfers(&self) -> usize {
        self.transfers.iter().filter(|transfer| transfer.from != Endpoint::Client).count()
    }

    /// Blocks that the client sends.
    #[must_use]
    pub fn client_egress(&self) -> u32 {
        self.count(|transfer| transfer.from == Endpoint::Client)
    }

    /// Blocks that each node receives, the client's included.
    #[must_use]
    pub fn ingress(&self) -> Vec<u32> {
        Role::all(self.nodes).map(|node| self.count(|transfer| transfer.to == node)).collect()
    }

    /// Blocks that each node sends.
    #[must_use]
    pub fn egress(&self) -> Vec<u32> {
        let sent = |node| self.count(|transfer| transfer.from == Endpoint::Node(node));
        Role::all(self.nodes).map(sent).collect()
    }

    /// Hops from the client to the last parity.
    #[must_use]
    pub fn hops(&self) -> u16 {
        self.transfers.iter().map(|transfer| transfer.stage + 1).max().unwrap_or(0)
    }

    /// Carries the schedule out with symbols, and checks three things. Every node sends only sums
    /// of blocks that it has received by then, every data block reaches its node, and every parity
    /// comes out exactly.
    ///
    /// # Errors
    /// The first transfer or sum that is wrong.
    pub fn verify(&self, code: &StripeCode) -> Result<(), Fault> {
        verify::verify(self, code)
    }

    fn count(&self, which: impl Fn(&Transfer) -> bool) -> u32 {
        self.transfers.iter().filter(|transfer| which(transfer)).count() as u32
    }
}
