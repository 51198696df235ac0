//! Findings, as the report's folder holds them.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use braid_array::refusal::Refusal;
use serde::{Deserialize, Serialize};

/// All runs of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Runs in the order in which they were made.
    pub runs: Vec<Run>,
    /// Gaps: what could not be measured.
    pub gaps: Vec<Gap>,
    /// The report's folder.
    pub folder: PathBuf,
}

/// One run of a job on a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Name of the case.
    pub case: String,
    /// Name of the job.
    pub job: String,
    /// Number of the round, from 0.
    pub round: u16,
    /// Commands as they were typed.
    pub commands: Vec<String>,
    /// Paths from the report's folder.
    pub files: Vec<String>,
    /// Time that it took.
    pub seconds: f64,
    /// CPU time of the process that served the case, meanwhile.
    pub server_cpu_s: Option<f64>,
}

/// Something that could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Where: the case, or `None` for all.
    pub case: Option<String>,
    /// And the job, or `None` for all.
    pub job: Option<String>,
    /// Reason.
    pub reason: String,
    /// Next step.
    pub next: String,
}

impl Gap {
    /// Makes the gap that a failure leaves.
    pub fn of(case: Option<&str>, job: Option<&str>, object: &str, why: &Refusal) -> Self {
        Self {
            case: case.map(str::to_owned),
            job: job.map(str::to_owned),
            // A failure of the case itself need not name it again.
            reason: if case == Some(object) {
                why.reason.clone()
            } else {
                format!("{object}: {}", why.reason)
            },
            next: why.next.advice.to_string(),
        }
    }
}

/// A number of a case and a job, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Spread of all rounds.
    pub spread: Spread,
    /// One for each round.
    pub runs: usize,
    /// Paths from the report's folder.
    pub raw: Vec<String>,
}

impl Found {
    /// The runs of a job on a case.
    pub fn runs<'a>(&'a self, case: &'a str, job: &'a str) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.case == case && run.job == job)
    }

    /// Reads a file of a run; the name is the one it was noted under.
    pub fn text(&self, run: &Run, name: &str) -> Option<String> {
        let file = run.file(name)?;
        std::fs::read_to_string(self.folder.join(file)).ok()
    }
}

impl Run {
    /// A run that took a second and has left nothing.
    pub fn new(case: impl Display, job: impl Display, round: u16) -> Self {
        Self {
            case: case.to_string(),
            job: job.to_string(),
            round,
            commands: Vec::new(),
            files: Vec::new(),
            seconds: 1.0,
            server_cpu_s: None,
        }
    }

    /// The path of a file, by the name it was noted under.
    pub fn file(&self, name: &str) -> Option<&str> {
        let is_it = |path: &&String| {
            let last = Path::new(path).file_name().and_then(|last| last.to_str());
            last.is_some_and(|last| last == name || last.ends_with(&format!(".{name}")))
        };
        self.files.iter().find(is_it).map(String::as_str)
    }
}

/// Runs that lie further apart than this share of their median mark a figure as noisy.
pub const NOISY: f64 = 0.25;

/// Median, least and most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The number in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// `None` for no numbers.
    pub fn of(numbers: &[f64]) -> Option<Self> {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let min = *sorted.first()?;
        let max = *sorted.last()?;
        let half = sorted.len() / 2;
        let lower = sorted[(sorted.len() - 1) / 2];
        Some(Self { median: f64::midpoint(lower, sorted[half]), min, max })
    }

    /// The runs lie so far apart that the median says little.
    pub fn is_noisy(&self) -> bool {
        self.max - self.min > NOISY * self.median.abs()
    }

    /// The same in another unit.
    pub fn times(self, factor: f64) -> Self {
        Self { median: self.median * factor, min: self.min * factor, max: self.max * factor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle() {
        let spread = |numbers: &[f64]| Spread::of(numbers).expect("numbers");
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(spread(&[4.0, 1.0]).median, 2.5);
        assert_eq!(spread(&[7.0]).median, 7.0);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn noise_is_a_share_of_the_median() {
        let noisy = |numbers: &[f64]| Spread::of(numbers).expect("numbers").is_noisy();
        assert!(noisy(&[80.0, 100.0, 106.0]) && !noisy(&[90.0, 100.0, 110.0]) && !noisy(&[0.0]));
    }
}
