//! What a load made of a case in each round: requests, latencies and CPU time, beside those of
//! another case in the same round.

use serde::{Deserialize, Serialize};

use crate::model::{Cell, Found, Measured, Run, Spread};
use crate::tool::fio;

/// What stands in a table where nothing was measured.
pub(super) const NOTHING: &str = "-";

/// What came of one load on one case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Requests that were answered.
    pub(super) requests: f64,
    /// So many in a second.
    pub(super) iops: f64,
    /// CPU time of who served them meanwhile, by the kernel's accounts.
    pub(super) cpu_s: Option<f64>,
    /// Latencies: of so many in a hundred no request took longer. Of reads and writes, those of
    /// writes.
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    pub(super) p999_us: Option<f64>,
}

/// A number of each load.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) read: fn(&Figures) -> Option<f64>,
}

/// The rate.
pub(super) const RATE: Column = Column { name: "iops", unit: "1/s", read: |of| Some(of.iops) };
/// CPU time of the server.
pub(super) const CPU: Column = Column {
    name: "CPU per request",
    unit: "us",
    read: |of| Some(of.cpu_s? * 1e6 / of.requests.max(1.0)),
};
/// All of them, in the order of a table.
pub(super) const COLUMNS: [Column; 5] = [
    RATE,
    CPU,
    Column { name: "p50", unit: "us", read: |of| of.p50_us },
    Column { name: "p99", unit: "us", read: |of| of.p99_us },
    Column { name: "p99.9", unit: "us", read: |of| of.p999_us },
];

/// What fio said of a run.
pub(super) fn of_fio(found: &Found, run: &Run) -> Option<(String, Figures)> {
    let jobs = fio::parse(&found.text(run, fio::OUTPUT)?);
    let [job] = jobs.as_slice() else { return None };
    let latencies = if job.write.requests > 0.0 { &job.write } else { &job.read };
    let us = |seconds: Option<f64>| seconds.map(|seconds| seconds * 1e6);
    let figures = Figures {
        requests: job.read.requests + job.write.requests,
        iops: job.read.iops + job.write.iops,
        cpu_s: run.server_cpu_s,
        p50_us: us(latencies.p50_s),
        p99_us: us(latencies.p99_s),
        p999_us: us(latencies.p999_s),
    };
    Some((run.file(fio::OUTPUT)?.to_owned(), figures))
}

/// The figures of all runs.
pub(super) struct Numbers(Vec<OneRun>);

struct OneRun {
    case: String,
    job: String,
    round: u16,
    raw: String,
    figures: Figures,
}

impl Numbers {
    /// Of each run that `read` finds figures for, with the file that these are from.
    pub(super) fn of(
        found: &Found,
        read: impl Fn(&Found, &Run) -> Option<(String, Figures)>,
    ) -> Self {
        let one = |run: &Run| {
            let (raw, figures) = read(found, run)?;
            let Run { case, job, round, .. } = run.clone();
            Some(OneRun { case, job, round, raw, figures })
        };
        Self(found.runs.iter().filter_map(one).collect())
    }

    fn of_case<'a>(&'a self, case: &'a str, job: &'a str) -> impl Iterator<Item = &'a OneRun> {
        self.0.iter().filter(move |run| run.case == case && run.job == job)
    }

    /// Something was measured on it.
    pub(super) fn has(&self, case: &str) -> bool {
        self.0.iter().any(|run| run.case == case)
    }

    /// A number of each round.
    pub(super) fn measured(&self, case: &str, job: &str, column: Column) -> Option<Measured> {
        let mut numbers = Vec::new();
        let mut raw = Vec::new();
        for run in self.of_case(case, job) {
            if let Some(number) = (column.read)(&run.figures) {
                numbers.push(number);
                raw.push(run.raw.clone());
            }
        }
        Some(Measured { spread: Spread::of(&numbers)?, runs: numbers.len(), raw })
    }

    /// A number of one case by that of another in the same round.
    pub(super) fn ratio(
        &self,
        case: &str,
        to: &str,
        job: &str,
        column: Column,
    ) -> Option<Measured> {
        let mut numbers = Vec::new();
        let mut raw = Vec::new();
        for run in self.of_case(case, job) {
            let Some(other) = self.of_case(to, job).find(|other| other.round == run.round) else {
                continue;
            };
            let both = (column.read)(&run.figures).zip((column.read)(&other.figures));
            if let Some((over, under)) = both
                && under > 0.0
            {
                numbers.push(over / under);
                raw.extend([run.raw.clone(), other.raw.clone()]);
            }
        }
        Some(Measured { spread: Spread::of(&numbers)?, runs: numbers.len(), raw })
    }

    /// The cells of a case and a job: a number for each column with its ratio to another case, and
    /// the ratio of the rates as a cell of its own, for its spread.
    pub(super) fn cells(&self, case: &str, to: &str, job: &str) -> Vec<Cell> {
        let cell = |column: Column| {
            let measured = self.measured(case, job, column)?;
            let ratio = self.ratio(case, to, job, column).map(|ratio| ratio.spread.median);
            let cell = Cell::new(case, job, column.name, column.unit, measured);
            Some(Cell { ratio, ..cell })
        };
        let mut cells: Vec<Cell> = COLUMNS.into_iter().filter_map(cell).collect();
        let ratio = self.ratio(case, to, job, RATE);
        let unit = format!("of {to}");
        cells.extend(ratio.map(|ratio| Cell::new(case, job, "iops ratio", &unit, ratio)));
        cells
    }

    /// The words of a row: a number for each column.
    pub(super) fn row(&self, case: &str, job: &str) -> Vec<String> {
        let word = |column: Column| words(self.measured(case, job, column).as_ref());
        COLUMNS.into_iter().map(word).collect()
    }
}

/// The heads of the columns.
pub(super) fn heads() -> impl Iterator<Item = String> {
    COLUMNS.iter().map(|column| format!("{}, {}", column.name, column.unit))
}

/// A median, marked where the rounds lie far apart.
pub(super) fn words(measured: Option<&Measured>) -> String {
    measured.map_or_else(
        || NOTHING.to_owned(),
        |measured| {
            let noisy = if measured.spread.is_noisy() { "~" } else { "" };
            format!("{}{noisy}", number(measured.spread.median))
        },
    )
}

/// A median with the least and the most of several rounds.
pub(super) fn spread_words(measured: Option<&Measured>) -> String {
    measured.map_or_else(
        || NOTHING.to_owned(),
        |Measured { spread, runs, .. }| {
            let median = number(spread.median);
            if *runs < 2 {
                return median;
            }
            format!("{median} ({}-{})", number(spread.min), number(spread.max))
        },
    )
}

/// Three digits, or as many as there are before the point.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(case: &str, round: u16, iops: f64) -> OneRun {
        let figures = Figures { iops, ..Figures::default() };
        let raw = format!("raw/{case}.{round}");
        OneRun { case: case.to_owned(), job: "read".to_owned(), round, raw, figures }
    }

    #[test]
    fn a_ratio_is_of_the_same_round() {
        let all = [("a", 0, 50.0), ("b", 0, 100.0), ("b", 1, 400.0), ("a", 1, 200.0)];
        let mut all: Vec<OneRun> = all.map(|(case, round, iops)| run(case, round, iops)).into();
        all.push(run("a", 2, 9.0));
        let numbers = Numbers(all);
        let ratio = numbers.ratio("a", "b", "read", RATE).expect("two rounds");
        assert_eq!((ratio.spread.median, ratio.spread.max, ratio.runs), (0.5, 0.5, 2));
        assert_eq!(spread_words(Some(&ratio)), "0.50 (0.50-0.50)");
        assert_eq!(ratio.raw.len(), 4);
        let cells = numbers.cells("a", "b", "read");
        assert_eq!((cells[0].spread.median, cells[0].ratio), (50.0, Some(0.5)));
        assert_eq!(cells.last().map(|cell| cell.unit.as_str()), Some("of b"));
        assert!(numbers.ratio("a", "c", "read", RATE).is_none() && !numbers.has("c"));
    }
}
