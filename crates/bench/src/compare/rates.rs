//! Rates, latencies and CPU time of requests, beside those of another case in the same round.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

use super::numbers::{Numbers, Reading, reading};
use super::words::{median, with_range};
use crate::model::{Cell, Found, Run, Table};
use crate::tool::fio;

pub(super) const RATE: &str = "iops";
/// CPU time of the server.
pub(super) const CPU: &str = "CPU per request";
/// The reciprocal of the rate, whatever is under way at once.
pub(super) const TIME: &str = "time per request";
/// The numbers of a table, in its order, with their units.
pub(super) const COLUMNS: [(&str, &str); 5] =
    [(RATE, "1/s"), (CPU, "us"), ("p50", "us"), ("p99", "us"), ("p99.9", "us")];

/// Figures of one load on one case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Requests that were answered.
    pub(super) requests: f64,
    pub(super) iops: f64,
    /// CPU time of who served them meanwhile, by the kernel's accounts.
    pub(super) cpu_s: Option<f64>,
    /// Latency percentiles. In mixed loads, percentiles of the writes.
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    pub(super) p999_us: Option<f64>,
}

impl Figures {
    pub(super) fn readings(&self, run: &Run) -> Vec<Reading> {
        let cpu = self.cpu_s.map(|cpu_s| cpu_s * 1e6 / self.requests.max(1.0));
        let numbers = [Some(self.iops), cpu, self.p50_us, self.p99_us, self.p999_us];
        let columns = COLUMNS.into_iter().zip(numbers);
        let columns = columns.map(|((name, unit), value)| reading(&run.job, name, unit, value));
        columns.chain([reading(&run.job, TIME, "us", Some(1e6 / self.iops))]).collect()
    }
}

/// Reads what fio said of runs of one job each.
pub(super) fn of_fio(found: &Found) -> Numbers {
    Numbers::of(found).read(found, [fio::OUTPUT], |run, [text]| {
        let jobs = fio::parse(text);
        let [job] = jobs.as_slice() else { return Vec::new() };
        let latencies = if job.write.requests > 0.0 { &job.write } else { &job.read };
        let [p50_us, p99_us, p999_us] = latencies.latency_s.map(|s| s.map(|s| s * 1e6));
        let figures = Figures {
            requests: job.read.requests + job.write.requests,
            iops: job.read.iops + job.write.iops,
            cpu_s: run.server_cpu_s,
            p50_us,
            p99_us,
            p999_us,
        };
        figures.readings(run)
    })
}

/// A case under a load, and the case that it is compared with.
#[derive(Clone, Debug)]
pub(super) struct Compared {
    pub(super) case: String,
    pub(super) to: String,
    pub(super) load: String,
}

/// A number for each column with its ratio to another case, and the ratio of the rates as a cell of
/// its own, for its spread.
pub(super) fn cells(numbers: &Numbers, Compared { case, to, load }: &Compared) -> Vec<Cell> {
    let cell = |(metric, _): (&str, &str)| {
        let ratio = numbers.ratio((case, load, metric), to).map(|ratio| ratio.spread.median);
        Some(Cell { ratio, ..numbers.cell((case, load, metric))? })
    };
    let mut cells: Vec<Cell> = COLUMNS.into_iter().filter_map(cell).collect();
    let ratio = numbers.ratio((case, load, RATE), to);
    let unit = format!("of {to}");
    cells.extend(ratio.map(|ratio| Cell::new(case, load, "iops ratio", &unit, ratio)));
    cells
}

/// All numbers, a row for each case and load. The last columns are the ratio, and what it is to if
/// there is a head for that.
pub(super) fn every_number(
    numbers: &Numbers,
    (title, first, last): (&str, &str, &[&str]),
    rows: &[Compared],
    note: &str,
) -> Table {
    let heads = COLUMNS.into_iter().map(|(metric, unit)| (format!("{metric}, {unit}"), metric));
    let heads = heads.chain(last.iter().map(|&head| (head.to_owned(), head)));
    let word = |one: &&Compared, column: &&str| {
        let Compared { case, to, load } = one;
        if Some(column) == last.get(1) {
            return to.clone();
        }
        if Some(column) == last.first() {
            return with_range(numbers.ratio((case, load, RATE), to).as_ref());
        }
        median(numbers.spread((case, load, column)))
    };
    let rows = rows.iter().map(|one| (format!("{}, {}", one.case, one.load), one));
    Table::grid(title, first, heads, rows, word, note)
}

/// A ratio of the same round for each load and case to one case.
pub(super) fn ratios(
    numbers: &Numbers,
    (title, metric, baseline): (String, &str, &str),
    loads: impl IntoIterator<Item = impl Display>,
    cases: impl IntoIterator<Item = (String, String)>,
    note: &str,
) -> Table {
    let rows = loads.into_iter().map(|load| (load.to_string(), load.to_string()));
    let ratio = |load: &String, case: &String| {
        with_range(numbers.ratio((case, load, metric), baseline).as_ref())
    };
    Table::grid(title, "load", cases, rows, ratio, note)
}
