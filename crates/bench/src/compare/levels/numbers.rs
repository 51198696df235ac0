//! Numbers of all runs, as fio said them, and what is computed of them.

use std::collections::BTreeMap;

use super::case::{Built, Cache, LevelCase};
use super::level::Level;
use super::{LevelOptions, published};
use crate::compare::Rival;
use crate::compare::numbers::{Numbers, reading};
use crate::model::{Found, Measured};
use crate::tool::fio;

/// Rate in units of 1000 KiB a second, as the published table has it.
pub(super) const RATE: &str = "bandwidth";
pub(super) const IOPS: &str = "iops";
pub(super) const P99: &str = "latency p99";
pub(super) const CPU: &str = "cpu";
/// Metrics of cells.
pub(super) const METRICS: [&str; 5] = [RATE, IOPS, "latency p50", P99, CPU];

/// All runs of the job file.
pub(super) struct Levels<'a> {
    pub(super) options: &'a LevelOptions,
    pub(super) numbers: Numbers,
    /// The jobs of the first run of each case.
    pub(super) jobs: BTreeMap<String, Vec<fio::FioFigures>>,
}

impl<'a> Levels<'a> {
    pub(super) fn of(options: &'a LevelOptions, found: &Found) -> Self {
        let of_job = |run: &&crate::model::Run| run.job == options.job_name();
        let mut jobs = BTreeMap::new();
        for run in found.runs.iter().filter(of_job).rev() {
            let said = found.text(run, fio::OUTPUT).map(|text| fio::parse(&text));
            jobs.extend(said.map(|said| (run.case.clone(), said)));
        }
        let numbers = Numbers::of(found).read(found, [fio::OUTPUT], |run, [text]| {
            let readings = |job: fio::FioFigures| {
                let side = job.side();
                let [p50_ms, p99_ms, _] = side.latency_s.map(|s| s.map(|s| s * 1e3));
                let cpu = job.user_cpu_percent + job.system_cpu_percent;
                [
                    reading(&job.name, RATE, "1000 KiB/s", Some(side.bytes_s / 1_024_000.0)),
                    reading(&job.name, IOPS, "1/s", Some(side.iops)),
                    reading(&job.name, METRICS[2], "ms", p50_ms),
                    reading(&job.name, P99, "ms", p99_ms),
                    reading(&job.name, CPU, "%", Some(cpu)),
                ]
            };
            let said = if of_job(&run) { fio::parse(text) } else { Vec::new() };
            said.into_iter().flat_map(readings).collect()
        });
        Self { options, numbers, jobs }
    }

    /// The names of the jobs, as the job file has them.
    pub(super) fn jobs(&self) -> Vec<&str> {
        self.numbers.jobs()
    }

    /// The rate of one case by that of another in the same round.
    pub(super) fn ratio(&self, case: LevelCase, to: LevelCase, job: &str) -> Option<Measured> {
        self.numbers.ratio((case, job, RATE), to)
    }

    /// Rate by that without RAID and with the same cache.
    pub(super) fn to_plain(&self, case: LevelCase, job: &str) -> Option<Measured> {
        if case == case.plain() { None } else { self.ratio(case, case.plain(), job) }
    }

    /// The same, of the round in the middle.
    pub(super) fn kept(&self, case: LevelCase, job: &str) -> Option<f64> {
        Some(self.to_plain(case, job)?.spread.median)
    }

    /// Published figures, which are not about anybody else's job file.
    pub(super) fn published(&self, case: LevelCase, job: &str) -> Option<(f64, f64)> {
        let asked = self.options.job.is_none();
        if asked { published::figures(case.built, job) } else { None }
    }

    /// The same to the rate without RAID.
    pub(super) fn published_ratio(&self, case: LevelCase, job: &str) -> Option<f64> {
        let wanted = self.options.job.is_none() && case.built != Built::Plain;
        if wanted { published::ratio(case.built, job) } else { None }
    }

    /// Bound of the rate by that without RAID, where all members share one medium.
    pub(super) fn bound(&self, case: LevelCase, job: &str) -> Option<f64> {
        let level = case.built.level()?;
        let requests =
            |name: &str| self.numbers.median((case.plain(), name, IOPS)).filter(|it| *it > 0.0);
        let jobs = self.jobs.get(&case.plain().to_string())?;
        let shape = Shape::of(jobs.iter().find(|one| one.name == job)?)?;
        let reading = shape.reading();
        let reads = jobs.iter().find(|one| Shape::of(one).as_ref() == Some(&reading));
        let writes = requests(job)?;
        let reads = reads.and_then(|job| requests(&job.name)).unwrap_or(writes);
        Some(bound_ratio(level, self.options.members(level), &shape, reads, writes))
    }

    /// CPU seconds a second of the process that serves a case.
    pub(super) fn cores(&self, case: LevelCase) -> Option<f64> {
        self.numbers.cores(case, self.options.job_name()).map(|cores| cores.median)
    }

    /// Each case of Braid's, job by job, with what stands against it.
    pub(super) fn against(&self, rival: Rival, cache: Cache) -> Vec<Against> {
        let mut all = Vec::new();
        for &level in &self.options.levels {
            let Some(built) = Built::of(rival, level) else { continue };
            let ours = LevelCase { built: Built::Braid(level), cache };
            let theirs = LevelCase { built, cache };
            all.extend(self.jobs().into_iter().filter_map(|job| {
                let ratio = self.ratio(ours, theirs, job)?;
                Some(Against { ours, theirs, job: job.to_owned(), ratio })
            }));
        }
        all
    }
}

/// A job on a case of Braid's and on what stands against it.
pub(super) struct Against {
    pub(super) ours: LevelCase,
    pub(super) theirs: LevelCase,
    pub(super) job: String,
    pub(super) ratio: Measured,
}

/// Chunk that md and mdadm take unless told otherwise, and Braid too.
const CHUNK_BYTES: f64 = 512.0 * 1024.0;

/// Requests of a job.
#[derive(Clone, Debug, PartialEq)]
struct Shape {
    direction: String,
    block_bytes: f64,
    /// Depth of all processes together.
    depth: f64,
}

impl Shape {
    /// `None` for a job that reads and writes, or that does not say.
    fn of(job: &fio::FioFigures) -> Option<Self> {
        let direction = job.options.get("rw").or_else(|| job.options.get("readwrite"))?;
        let known = ["read", "write", "randread", "randwrite"].contains(&direction.as_str());
        let number = |name: &str| job.number(name).unwrap_or(1.0);
        let shape = Self {
            direction: direction.clone(),
            block_bytes: job.number("bs")?,
            depth: number("iodepth") * number("numjobs"),
        };
        known.then_some(shape)
    }

    /// The same in the other direction.
    fn reading(&self) -> Self {
        let direction = self.direction.replace("write", "read");
        Self { direction, ..self.clone() }
    }
}

/// The rate by that without RAID, where that does `reads` requests a second of the same kind, and
/// `writes`.
fn bound_ratio(level: Level, members: u16, shape: &Shape, reads: f64, writes: f64) -> f64 {
    let data = f64::from(members.saturating_sub(level.facts().parities).max(1));
    match shape.direction.as_str() {
        "write" => 1.0 / level.stored(members),
        "randwrite" if level.facts().parities > 0 && shape.block_bytes < CHUNK_BYTES * data => {
            let parities = f64::from(level.facts().parities);
            // Either what is overwritten and its parities are read, or what stays as it is.
            let read = (1.0 + parities).min(data - 1.0);
            let written = 1.0 + parities;
            if shape.depth > 1.0 {
                // The medium is busy all the time: requests count.
                (1.0 / writes) / (read / reads + written / writes)
            } else {
                // It does all reads at once, and all writes at once after that.
                (1.0 / writes) / (read.min(1.0) / reads + 1.0 / writes)
            }
        }
        "randwrite" if shape.depth > 1.0 => 1.0 / level.stored(members),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(direction: &str, block_bytes: f64, depth: f64) -> Shape {
        Shape { direction: direction.to_owned(), block_bytes, depth }
    }

    #[test]
    fn what_was_published_lies_close_to_its_bound() {
        // Requests a second without RAID, as published.
        let deep = |level: Level, members| {
            bound_ratio(level, members, &shape("randwrite", 4096.0, 512.0), 312_312.0, 145_832.0)
        };
        assert!((deep(Level::Raid5, 3) - 0.405).abs() < 0.001);
        assert!((deep(Level::Raid6, 4) - 0.288).abs() < 0.001);
        let one = bound_ratio(Level::Raid5, 3, &shape("randwrite", 4096.0, 1.0), 39405.0, 31083.0);
        assert!((one - 0.559).abs() < 0.001);
    }

    #[test]
    fn long_writes_cost_what_is_stored_and_reads_nothing() {
        let write = shape("write", 131_072.0, 32.0);
        let bound = |level: Level| bound_ratio(level, level.facts().members, &write, 9.0, 5.0);
        assert_eq!(bound(Level::Raid5), 1.0 / 1.5);
        assert_eq!(bound(Level::Raid6), 0.5);
        assert_eq!(bound(Level::Raid0), 1.0);
        assert_eq!(bound_ratio(Level::Raid6, 4, &write.reading(), 9.0, 5.0), 1.0);
        // Whole stripes at random places are long writes, too.
        let stripes = shape("randwrite", 2.0 * CHUNK_BYTES, 8.0);
        assert_eq!(bound_ratio(Level::Raid5, 3, &stripes, 9.0, 5.0), 1.0 / 1.5);
    }

    #[test]
    fn a_wide_array_reads_what_it_overwrites() {
        let small = shape("randwrite", 4096.0, 32.0);
        assert_eq!(bound_ratio(Level::Raid5, 10, &small, 1.0, 1.0), 0.25);
        assert!((bound_ratio(Level::Raid6, 10, &small, 1.0, 1.0) - 1.0 / 6.0).abs() < 1e-12);
        assert_eq!(bound_ratio(Level::Raid1, 2, &small, 1.0, 1.0), 0.5);
    }
}
