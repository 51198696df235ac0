//! One RAID array as a pure state machine: geometry, planning, member states, background work and
//! the on-disk format. No file, socket, thread, clock or random source: the executor (`braid-host`
//! with io_uring, `braid-sim` with a seed) feeds events in and carries actions out.
//!
//! The contract is four calls: [`Array::submit`], [`Array::handle`], [`Array::poll`] and
//! [`Array::deadline`].
#![forbid(unsafe_code)]

pub mod action;
pub mod array;
pub mod assemble;
pub mod buffer;
pub mod code;
pub mod condition;
pub mod create;
pub mod events;
pub mod fabric;
pub mod figures;
pub mod format;
pub mod geometry;
pub mod grow;
pub mod integrity;
pub mod keeper;
pub mod level;
pub mod log;
pub mod machine;
mod mutant;
pub mod name;
mod options;
pub mod outline;
pub mod plan;
pub mod policy;
pub mod refusal;
mod regions;
pub mod request;
pub mod stack;
pub mod status;
pub mod units;
pub mod verified;

pub use action::{Action, Checked, Compute, IoError, IoErrorKind, IoOp, Outcome};
pub use array::Array;
pub use buffer::Buf;
pub use condition::Condition;
pub use machine::{AnyMachine, BlockMachine, Machine};
pub use mutant::broken;
pub use refusal::Refusal;
pub use request::{Op, Request, RequestError, RequestId};
pub use units::{Instant, IoId, MemberId, Role, SECTOR_BYTES};
