//! The comparisons that people make of arrays, rerun: what is measured, on what, and the report.

mod failure;
pub mod machine;
pub mod model;
pub mod report;
pub mod rig;
pub mod tool;

pub use failure::{Ends, Failure};
