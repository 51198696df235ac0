//! The comparisons that people make of arrays, rerun: what is measured, on what, and the report.

pub mod compare;
mod failure;
pub mod folder;
pub mod machine;
pub mod model;
pub mod report;
pub mod rig;
pub mod runner;
pub mod session;
pub mod tool;

pub use failure::{Ends, Failure};
