//! The report of measurements as files: `results.json`, `table.md` and a plot for everything that
//! was varied.

use std::fs;
use std::io;
use std::path::Path;

use super::results::Results;
use super::{plots, table};
use crate::failure::{Failure, system_error};

const RESULTS: &str = "results.json";

/// Writes the report, together with what it held before.
pub(super) fn write(directory: &Path, results: Results) -> Result<(), Failure> {
    let path = directory.join(RESULTS);
    let refused = |error: io::Error| {
        let next = "name another directory for --report";
        Failure::refused("bench", directory.display(), system_error(&error), next)
    };
    fs::create_dir_all(directory).map_err(refused)?;
    let results = match fs::read(&path) {
        Ok(bytes) => {
            let mut all: Results = serde_json::from_slice(&bytes).map_err(|error| {
                let reason = format!("holds no results of this version: {error}");
                Failure::refused("bench", path.display(), reason, "name another directory")
            })?;
            all.merge(results);
            all
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => results,
        Err(error) => return Err(refused(error)),
    };
    let json = serde_json::to_string_pretty(&results)
        .map_err(|error| Failure::refused("bench", RESULTS, error, "report this as a bug"))?;
    let markdown = format!("{}\n{}", table::table(&results), table::notes(&results));
    let mut files = vec![(RESULTS.to_owned(), json), ("table.md".to_owned(), markdown)];
    let charts = plots::charts(&results).into_iter();
    files.extend(charts.map(|(file, chart)| (file, chart.to_svg())));
    files.iter().try_for_each(|(name, text)| fs::write(directory.join(name), text)).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::super::results::Machine;
    use super::super::results::tests::entry;
    use super::*;

    #[test]
    fn a_report_keeps_what_it_held() {
        let directory = tempfile::tempdir().expect("a directory");
        let results = |nodes| Results::new(Machine::this(), vec![entry("encoder", nodes, 58e6)]);
        let report = directory.path().join("new/report");
        write(&report, results(5)).expect("a report");
        write(&report, results(6)).expect("a larger report");
        let json = fs::read(report.join(RESULTS)).expect("results");
        let all: Results = serde_json::from_slice(&json).expect("results");
        assert_eq!(all.results.len(), 2);
        let files = fs::read_dir(&report).expect("a directory").flatten();
        let is_plot = |path: &std::path::PathBuf| path.extension().is_some_and(|ext| ext == "svg");
        assert_eq!(files.map(|file| file.path()).filter(is_plot).count(), 1);
        fs::write(report.join(RESULTS), "{}").expect("a file");
        assert!(write(&report, results(5)).is_err());
    }
}
