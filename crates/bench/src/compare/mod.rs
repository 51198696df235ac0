//! The comparisons, each in a file or folder of its own.

pub mod rivals;

use serde_json::Value;

use crate::failure::Failure;
use crate::model::Comparison;

/// Their names, in the order of the report.
pub const NAMES: [&str; 5] = ["levels", "states", "members", "cluster", "chunk"];

/// A comparison as a report's folder has it.
pub fn read(name: &str, options: Value) -> Result<Box<dyn Comparison>, Failure> {
    drop(options);
    Err(Failure::usage(name, "no comparison has this name", "try all"))
}

/// The short form of a comparison, or the one at the published sizes.
pub fn standard(name: &str, quick: bool) -> Result<Box<dyn Comparison>, Failure> {
    let _ = quick;
    Err(Failure::usage(name, "no comparison has this name", "try all"))
}
