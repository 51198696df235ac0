//! All numbers that the runs of a comparison gave, by case, job, metric and round, each with the
//! files that say so; and those of one case by those of another in the same round.

use crate::model::{Cell, Found, Measured, Run, Spread};

/// A number that the files of a run say.
pub(super) struct Reading {
    job: String,
    metric: String,
    unit: &'static str,
    value: f64,
}

/// A reading, where there is a number.
pub(super) fn reading(
    job: impl Into<String>,
    metric: impl Into<String>,
    unit: &'static str,
    value: Option<f64>,
) -> Option<Reading> {
    Some(Reading { job: job.into(), metric: metric.into(), unit, value: value? })
}

struct Number {
    case: String,
    round: u16,
    raw: Vec<String>,
    reading: Reading,
}

/// The numbers of all runs, in the order in which these were made.
#[derive(Default)]
pub(super) struct Numbers(Vec<Number>);

impl Numbers {
    /// Reads the files of these names of each run that has all of them.
    pub(super) fn read<const N: usize>(
        found: &Found,
        files: [&str; N],
        read: impl Fn(&Run, [&str; N]) -> Vec<Option<Reading>>,
    ) -> Self {
        let mut all = Vec::new();
        for run in &found.runs {
            let texts = files.map(|name| found.text(run, name));
            if texts.iter().any(Option::is_none) {
                continue;
            }
            let readings = read(run, texts.each_ref().map(|text| text.as_deref().unwrap_or("")));
            let raw: Vec<String> =
                files.iter().filter_map(|name| run.file(name)).map(str::to_owned).collect();
            all.extend(readings.into_iter().flatten().map(|reading| {
                let raw = raw.clone();
                Number { case: run.case.clone(), round: run.round, raw, reading }
            }));
        }
        Self(all)
    }

    /// Numbers of one round: case, job, metric and value.
    #[cfg(test)]
    pub(super) fn made<'a>(
        all: impl IntoIterator<Item = (&'a str, &'a str, &'a str, f64)>,
    ) -> Self {
        let number = |(case, job, metric, value): (&str, &str, &str, f64)| {
            let reading = reading(job, metric, "", Some(value)).expect("a number");
            Number { case: case.to_owned(), round: 0, raw: Vec::new(), reading }
        };
        Self(all.into_iter().map(number).collect())
    }

    /// Joins these numbers and others.
    pub(super) fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    fn of<'a>(
        &'a self,
        case: &'a str,
        job: &'a str,
        metric: &'a str,
    ) -> impl Iterator<Item = &'a Number> {
        self.0.iter().filter(move |number| {
            let Reading { job: of, metric: what, .. } = &number.reading;
            number.case == case && of == job && what == metric
        })
    }

    /// Returns whether something was measured on a case.
    pub(super) fn has(&self, case: &str) -> bool {
        self.0.iter().any(|number| number.case == case)
    }

    /// The names of the jobs, in the order in which they were first found.
    pub(super) fn jobs(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for number in &self.0 {
            if !names.contains(&number.reading.job.as_str()) {
                names.push(&number.reading.job);
            }
        }
        names
    }

    /// A number of each round.
    pub(super) fn measured(&self, case: &str, job: &str, metric: &str) -> Option<Measured> {
        let numbers: Vec<f64> = self.of(case, job, metric).map(|one| one.reading.value).collect();
        let raw = self.of(case, job, metric).flat_map(|one| one.raw.clone()).collect();
        Some(Measured { spread: Spread::of(&numbers)?, runs: numbers.len(), raw })
    }

    /// All rounds.
    pub(super) fn spread(&self, case: &str, job: &str, metric: &str) -> Option<Spread> {
        let numbers: Vec<f64> = self.of(case, job, metric).map(|one| one.reading.value).collect();
        Spread::of(&numbers)
    }

    /// The round in the middle.
    pub(super) fn median(&self, case: &str, job: &str, metric: &str) -> Option<f64> {
        self.spread(case, job, metric).map(|spread| spread.median)
    }

    /// A number of one case by that of another in the same round.
    pub(super) fn ratio(&self, case: &str, to: &str, job: &str, metric: &str) -> Option<Measured> {
        let mut ratios = Vec::new();
        let mut raw = Vec::new();
        for one in self.of(case, job, metric) {
            let other = self.of(to, job, metric).find(|other| other.round == one.round);
            let Some(other) = other.filter(|other| other.reading.value > 0.0) else { continue };
            ratios.push(one.reading.value / other.reading.value);
            raw.extend(one.raw.iter().chain(&other.raw).cloned());
        }
        Some(Measured { spread: Spread::of(&ratios)?, runs: ratios.len(), raw })
    }

    /// The cell of a number.
    pub(super) fn cell(&self, case: &str, job: &str, metric: &str) -> Option<Cell> {
        let unit = self.of(case, job, metric).next()?.reading.unit;
        Some(Cell::new(case, job, metric, unit, self.measured(case, job, metric)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_the_same_round() {
        let number = |(case, round, value): (&str, u16, f64)| {
            let reading = reading("read", "iops", "1/s", Some(value)).expect("a number");
            Number { case: case.to_owned(), round, raw: vec![format!("{case}.{round}")], reading }
        };
        let all =
            [("a", 0, 50.0), ("b", 0, 100.0), ("b", 1, 400.0), ("a", 1, 200.0), ("a", 2, 9.0)];
        let numbers = Numbers(all.map(number).into());
        let ratio = numbers.ratio("a", "b", "read", "iops").expect("two rounds");
        assert_eq!((ratio.spread.median, ratio.spread.max, ratio.runs), (0.5, 0.5, 2));
        assert_eq!(ratio.raw, ["a.0", "b.0", "a.1", "b.1"]);
        let cell = numbers.cell("a", "read", "iops").expect("a cell");
        assert_eq!((cell.spread.median, cell.unit.as_str(), cell.runs), (50.0, "1/s", 3));
        assert!(numbers.ratio("a", "c", "read", "iops").is_none() && !numbers.has("c"));
    }
}
