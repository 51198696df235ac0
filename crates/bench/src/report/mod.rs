//! The report: `report.html`, `report.md`, `results.json`, `results.csv`, made of chapters.

use std::path::Path;

use crate::failure::Failure;
use crate::machine::Machine;
use crate::model::Chapter;

/// What scripts read.
pub const RESULTS: &str = "results.json";

/// Writes the files of the report into its folder, beside `raw/`.
pub fn write(_folder: &Path, _machine: &Machine, _chapters: &[Chapter]) -> Result<(), Failure> {
    Ok(())
}

/// The chapters for a terminal.
#[must_use]
pub fn text(_chapters: &[Chapter]) -> String {
    String::new()
}
