//! What is thrown at the decoders, and what must hold whatever is thrown: plain functions, for the
//! driver in `main`.
#![forbid(unsafe_code)]

mod backup;
mod foretell;
mod fuse;
mod guest;
mod hello;
mod image;
mod integrity;
mod logs;
mod messages;
pub mod mutate;
mod pair;
mod recover;
mod replay;
mod rescue;
mod start;
pub mod strangers;
mod targets;
mod ublk;

pub use targets::{TARGETS, Target};
