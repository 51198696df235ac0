//! What fio said of all runs, and what is computed of it.

use super::Options;
use super::bound::{self, Shape};
use super::case::{Built, Cache, Case};
use super::published;
use crate::compare::rivals::Rival;
use crate::model::{Found, Measured, Spread};
use crate::tool::fio;

/// All runs of the job file.
pub(super) struct Numbers<'a> {
    pub(super) options: &'a Options,
    runs: Vec<OneRun>,
}

struct OneRun {
    case: String,
    round: u16,
    raw: String,
    jobs: Vec<fio::Figures>,
    cores: Option<f64>,
}

/// As the published table has it: units of 1000 KiB a second.
pub(super) fn rate(job: &fio::Figures) -> Option<f64> {
    Some(job.side().bytes_s / 1_024_000.0)
}

impl<'a> Numbers<'a> {
    pub(super) fn of(options: &'a Options, found: &Found) -> Self {
        let of_job = found.runs.iter().filter(|run| run.job == options.job_name());
        let runs = of_job.filter_map(|run| {
            Some(OneRun {
                case: run.case.clone(),
                round: run.round,
                raw: run.file(fio::OUTPUT)?.to_owned(),
                jobs: fio::parse(&found.text(run, fio::OUTPUT)?),
                cores: run.server_cpu_s.map(|cpu_s| cpu_s / run.seconds),
            })
        });
        Self { options, runs: runs.collect() }
    }

    fn of_case(&self, case: Case) -> impl Iterator<Item = &OneRun> {
        let name = case.name();
        self.runs.iter().filter(move |run| run.case == name)
    }

    /// Something was measured on it.
    pub(super) fn has(&self, case: Case) -> bool {
        self.of_case(case).any(|run| !run.jobs.is_empty())
    }

    /// The names of the jobs, as the job file has them.
    pub(super) fn jobs(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for job in self.runs.iter().flat_map(|run| &run.jobs) {
            if !names.contains(&job.name.as_str()) {
                names.push(&job.name);
            }
        }
        names
    }

    /// A number of each round.
    pub(super) fn measured(
        &self,
        case: Case,
        job: &str,
        read: impl Fn(&fio::Figures) -> Option<f64>,
    ) -> Option<Measured> {
        let mut numbers = Vec::new();
        let mut raw = Vec::new();
        for run in self.of_case(case) {
            let job = run.jobs.iter().find(|other| other.name == job);
            if let Some(number) = job.and_then(&read) {
                numbers.push(number);
                raw.push(run.raw.clone());
            }
        }
        Some(Measured { spread: Spread::of(&numbers)?, runs: numbers.len(), raw })
    }

    /// The rate of one case by that of another in the same round.
    pub(super) fn ratio(&self, case: Case, to: Case, job: &str) -> Option<Measured> {
        let mut numbers = Vec::new();
        let mut raw = Vec::new();
        for run in self.of_case(case) {
            let Some(other) = self.of_case(to).find(|other| other.round == run.round) else {
                continue;
            };
            let rate = |run: &OneRun| rate(run.jobs.iter().find(|one| one.name == job)?);
            let Some((over, under)) = rate(run).zip(rate(other)) else { continue };
            if under > 0.0 {
                numbers.push(over / under);
                raw.extend([run.raw.clone(), other.raw.clone()]);
            }
        }
        Some(Measured { spread: Spread::of(&numbers)?, runs: numbers.len(), raw })
    }

    /// To the rate without RAID and with the same cache.
    pub(super) fn to_plain(&self, case: Case, job: &str) -> Option<Spread> {
        let plain = Case { built: Built::Plain, ..case };
        (case != plain).then(|| self.ratio(case, plain, job))?.map(|ratio| ratio.spread)
    }

    /// What was published, which is not about anybody else's job file.
    pub(super) fn published(&self, case: Case, job: &str) -> Option<(f64, f64)> {
        self.options.job.is_none().then(|| published::figures(case.built, job))?
    }

    /// The same to the rate without RAID.
    pub(super) fn published_ratio(&self, case: Case, job: &str) -> Option<f64> {
        let wanted = self.options.job.is_none() && case.built != Built::Plain;
        wanted.then(|| published::ratio(case.built, job))?
    }

    /// To the rate without RAID at best, where all members share one medium.
    pub(super) fn bound(&self, case: Case, job: &str) -> Option<f64> {
        let level = case.built.level()?;
        let plain = Case { built: Built::Plain, ..case };
        let requests = |name: &str| {
            let measured = self.measured(plain, name, |job| Some(job.side().iops))?;
            Some(measured.spread.median).filter(|median| *median > 0.0)
        };
        let first = self.of_case(plain).next()?;
        let shape = Shape::of(first.jobs.iter().find(|one| one.name == job)?)?;
        let reading = shape.reading();
        let reads = first.jobs.iter().find(|one| Shape::of(one).as_ref() == Some(&reading));
        let writes = requests(job)?;
        let reads = reads.and_then(|job| requests(&job.name)).unwrap_or(writes);
        Some(bound::ratio(level, self.options.members(level), &shape, reads, writes))
    }

    /// CPU seconds a second of the process that serves a case, over the whole job file.
    pub(super) fn cores(&self, case: Case) -> Option<f64> {
        let all: Vec<f64> = self.of_case(case).filter_map(|run| run.cores).collect();
        Some(Spread::of(&all)?.median)
    }

    /// Each case of Braid's with what stands against it.
    pub(super) fn pairs(&self, rival: Rival, cache: Cache) -> Vec<(Case, Case)> {
        let mut pairs = Vec::new();
        for level in &self.options.levels {
            let built = match rival {
                Rival::Md => Built::Md(*level),
                Rival::Btrfs => Built::Btrfs(*level),
                Rival::File => Built::Bare,
                Rival::Nbdkit => Built::Nbdkit,
                Rival::Gluster => continue,
            };
            let pair = (Case { built: Built::Braid(*level), cache }, Case { built, cache });
            if self.has(pair.0) && self.has(pair.1) {
                pairs.push(pair);
            }
        }
        pairs
    }
}

/// Three digits, or as many as there are before the point.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
