//! RAID over storage nodes, as data: the places of the blocks of a stripe, the recovery of lost
//! ones, and the transfers between nodes while a stripe is written. No file, socket, clock, thread
//! or random source: an executor carries out the actions.
//!
//! A [`StripeCode`] defines the cells of a stripe that hold data, and the sums in the other cells:
//! the 2-D XOR code of [`Xor2d`] or a level of md's. A [`Schedule`] is one tree of transfers for
//! each parity, and a [`Program`] is the part of one node in it.
//!
//! [`StripeCode`]: braid_array::code::StripeCode
//!
//! ```
//! use braid_array::Role;
//! use braid_array::code::Recovery;
//! use braid_cluster::{Planner, Xor2d};
//!
//! let xor2d = Xor2d::new(5).expect("4 to 34 nodes");
//! // Any two nodes may be lost.
//! assert!(Recovery::plan(xor2d.code(), &[Role(1), Role(4)]).is_some());
//! // Every data block is sent once by the client; nodes exchange R(n-1) = 16 blocks.
//! let encoder = Planner::Encoder { node: Role(0) };
//! let schedule = xor2d.schedule(encoder).expect("node 0 is one of 5");
//! assert_eq!(schedule.client_egress(), 12);
//! assert_eq!(schedule.node_transfers(), 16);
//! assert_eq!(schedule.verify(xor2d.code()), Ok(()));
//! ```
#![forbid(unsafe_code)]

pub mod assemble;
pub mod client;
pub mod create;
mod digest;
pub mod failover;
pub mod family;
pub mod grow;
pub mod ids;
pub mod journal;
mod member;
pub mod moving;
pub mod node;
pub mod pair;
pub mod pipeline;
pub mod policy;
pub mod program;
pub mod schedule;
pub mod set;
pub mod view;
pub mod wire;
pub mod xor2d;

pub use client::{Client, ClientConfig, ClientMember};
pub use failover::FailoverClient;
pub use family::Family;
pub use member::VolumeAddress;
pub use moving::MovingClient;
pub use node::Node;
pub use pipeline::Pipeline;
pub use program::Program;
pub use schedule::{Planner, Schedule};
pub use set::{Imm, Roles, Set, Touched, WriteStrategy};
pub use xor2d::Xor2d;
