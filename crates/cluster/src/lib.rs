//! RAID over storage nodes, as data: where the blocks of a stripe lie and how lost ones come back.
//! No file, socket, clock, thread or random source: an executor carries out what is described here.
//!
//! A [`StripeCode`] says which cells of a stripe hold data and which sums the others are: the 2-D
//! XOR code of [`Xor2d`] or a level of md's. [`Recovery`] gets lost cells back.
//!
//! ```
//! use braid_cluster::{Recovery, Xor2d};
//!
//! let xor2d = Xor2d::new(5).expect("4 to 34 nodes");
//! // Any two nodes may be lost.
//! assert!(Recovery::plan(xor2d.code(), &[1, 4]).is_some());
//! ```
#![forbid(unsafe_code)]

pub mod decode;
pub mod levels;
pub mod stripe;
pub mod terms;
pub mod xor2d;

pub use decode::Recovery;
pub use stripe::{Cell, Equation, Kind, StripeCode, Term};
pub use terms::Terms;
pub use xor2d::Xor2d;
