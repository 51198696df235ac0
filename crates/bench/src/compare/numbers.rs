//! All numbers that the runs of a comparison gave, by case, job, metric and round, each with the
//! files that say so; and those of one case by those of another in the same round.

use std::fmt::Display;

use crate::model::{Cell, Found, Measured, Run, Spread};

/// Metric of the CPU seconds a second of the process that serves a case, which each run has.
const CORES: &str = "server cores";

/// A number that the files of a run say, where they do.
pub(super) struct Reading {
    job: String,
    metric: String,
    unit: &'static str,
    value: Option<f64>,
}

pub(super) fn reading(
    job: impl Display,
    metric: impl Display,
    unit: &'static str,
    value: Option<f64>,
) -> Reading {
    Reading { job: job.to_string(), metric: metric.to_string(), unit, value }
}

/// Address of a number: case, job and metric, by the names that they show.
pub(super) trait Key {
    fn names(&self) -> [String; 3];
}

impl<C: Display, J: Display, M: Display> Key for (C, J, M) {
    fn names(&self) -> [String; 3] {
        [self.0.to_string(), self.1.to_string(), self.2.to_string()]
    }
}

struct Number {
    case: String,
    job: String,
    metric: String,
    unit: &'static str,
    round: u16,
    value: f64,
    raw: Vec<String>,
}

/// The numbers of all runs, in the order in which these were made.
#[derive(Default)]
pub(super) struct Numbers(Vec<Number>);

impl Numbers {
    /// CPU time, which is noted of every run.
    pub(super) fn of(found: &Found) -> Self {
        let mut numbers = Self::default();
        for run in &found.runs {
            let cores = run.server_cpu_s.map(|cpu_s| cpu_s / run.seconds);
            numbers.add(run, [reading(&run.job, CORES, "cores", cores)], &[]);
        }
        numbers
    }

    /// Reads the files of these names, too, of each run that has all of them.
    pub(super) fn read<const N: usize>(
        mut self,
        found: &Found,
        files: [&str; N],
        read: impl Fn(&Run, [&str; N]) -> Vec<Reading>,
    ) -> Self {
        for run in &found.runs {
            let texts = files.map(|name| found.text(run, name));
            if texts.iter().all(Option::is_some) {
                let texts = texts.each_ref().map(|text| text.as_deref().unwrap_or_default());
                let raw: Vec<&str> = files.iter().filter_map(|name| run.file(name)).collect();
                self.add(run, read(run, texts), &raw);
            }
        }
        self
    }

    fn add(&mut self, run: &Run, readings: impl IntoIterator<Item = Reading>, raw: &[&str]) {
        self.0.extend(readings.into_iter().filter_map(|Reading { job, metric, unit, value }| {
            let raw = raw.iter().map(|&file| file.to_owned()).collect();
            let case = run.case.clone();
            Some(Number { case, job, metric, unit, round: run.round, value: value?, raw })
        }));
    }

    /// Adds numbers of one round: case, job, metric and value.
    #[cfg(test)]
    pub(super) fn with<C: Display, J: Display, M: Display>(
        mut self,
        all: impl IntoIterator<Item = (C, J, M, f64)>,
    ) -> Self {
        for (case, job, metric, value) in all {
            self.add(&Run::new(case, &job, 0), [reading(&job, metric, "", Some(value))], &[]);
        }
        self
    }

    fn of_case(&self, at: &impl Key) -> impl Iterator<Item = &Number> + Clone {
        let [case, job, metric] = at.names();
        self.0.iter().filter(move |number| {
            number.case == case && number.job == job && number.metric == metric
        })
    }

    /// Returns whether something was measured on a case.
    pub(super) fn has(&self, case: impl Display) -> bool {
        let case = case.to_string();
        self.0.iter().any(|number| number.case == case && number.metric != CORES)
    }

    /// The names of the jobs, in the order in which they were first found.
    pub(super) fn jobs(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for number in self.0.iter().filter(|number| number.metric != CORES) {
            if !names.contains(&number.job.as_str()) {
                names.push(&number.job);
            }
        }
        names
    }

    /// A number of each round.
    pub(super) fn measured(&self, at: impl Key) -> Option<Measured> {
        let all = self.of_case(&at);
        let values: Vec<f64> = all.clone().map(|one| one.value).collect();
        let raw = all.flat_map(|one| one.raw.clone()).collect();
        Some(Measured { spread: Spread::of(&values)?, runs: values.len(), raw })
    }

    /// All rounds.
    pub(super) fn spread(&self, at: impl Key) -> Option<Spread> {
        let values: Vec<f64> = self.of_case(&at).map(|one| one.value).collect();
        Spread::of(&values)
    }

    /// The round in the middle.
    pub(super) fn median(&self, at: impl Key) -> Option<f64> {
        self.spread(at).map(|spread| spread.median)
    }

    /// CPU seconds a second of the process that serves a case.
    pub(super) fn cores(&self, case: impl Display, job: impl Display) -> Option<Spread> {
        self.spread((case, job, CORES))
    }

    /// A number by that of another case in the same round.
    pub(super) fn ratio(&self, at: impl Key, to: impl Display) -> Option<Measured> {
        let [_, job, metric] = at.names();
        let to = (to, job, metric);
        let mut ratios = Vec::new();
        let mut raw = Vec::new();
        for one in self.of_case(&at) {
            let other = self.of_case(&to).find(|other| other.round == one.round);
            let Some(other) = other.filter(|other| other.value > 0.0) else { continue };
            ratios.push(one.value / other.value);
            raw.extend(one.raw.iter().chain(&other.raw).cloned());
        }
        Some(Measured { spread: Spread::of(&ratios)?, runs: ratios.len(), raw })
    }

    /// The round in the middle by that of another case.
    pub(super) fn by(&self, at: impl Key, to: impl Display) -> Option<f64> {
        let [_, job, metric] = at.names();
        Some(self.median(at)? / self.median((to, job, metric))?)
    }

    /// The cell of a number.
    pub(super) fn cell(&self, at: impl Key) -> Option<Cell> {
        let unit = self.of_case(&at).next()?.unit;
        let [case, job, metric] = at.names();
        Some(Cell::new(&case, &job, &metric, unit, self.measured(at)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_the_same_round() {
        let mut numbers = Numbers::default();
        for (case, round, value) in
            [("a", 0, 50.0), ("b", 0, 100.0), ("b", 1, 400.0), ("a", 1, 200.0), ("a", 2, 9.0)]
        {
            let run = Run::new(case, "read", round);
            let raw = format!("{case}.{round}");
            numbers.add(&run, [reading("read", "iops", "1/s", Some(value))], &[&raw]);
        }
        let ratio = numbers.ratio(("a", "read", "iops"), "b").expect("two rounds");
        assert_eq!((ratio.spread.median, ratio.spread.max, ratio.runs), (0.5, 0.5, 2));
        assert_eq!(ratio.raw, ["a.0", "b.0", "a.1", "b.1"]);
        let cell = numbers.cell(("a", "read", "iops")).expect("a cell");
        assert_eq!((cell.spread.median, cell.unit.as_str(), cell.runs), (50.0, "1/s", 3));
        assert!(numbers.ratio(("a", "read", "iops"), "c").is_none() && !numbers.has("c"));
    }
}
