//! The one data model of all comparisons: what is set up (a case), what is run on it (a job), how
//! often (rounds, in which the cases take turns), and what came out (a spread).
//!
//! A run writes what the tools say into the report's folder and nothing else; tables, plots and
//! sentences are made from that folder alone, by [`Comparison::chapter`]. So a run that was
//! interrupted goes on where it was, and every number can be made again from what it came from.

pub mod chapter;
pub mod found;
pub mod plan;

pub use chapter::{Axis, Cell, Chapter, Plot, Point, Published, Rule, Scale, Series, Style, Table};
pub use found::{Found, Gap, Measured, Run, Spread};
pub use plan::{Comparison, Group, Job, Standing};

pub use crate::tool::Note;
