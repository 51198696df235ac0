//! `levels`: one job file of fio's over RAID levels on ext4, with and without a page cache below.

mod bound;
mod case;
mod chapter;
mod job_file;
mod level;
mod numbers;
mod published;
mod says;
mod standing;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::case::Cache;
pub use self::job_file::JobFile;
pub use self::level::Level;
use super::rivals::Rival;
use crate::failure::Failure;
use crate::model::{Chapter, Comparison, Found, Group, Job, Standing};
use crate::rig::Room;

/// What fio's published job file is called.
const PUBLISHED_JOB: &str = "cdm";

const MOST_MEMBERS: u16 = 32;
const LEAST_BYTES: u64 = 4 << 20;
const MOST_BYTES: u64 = 1 << 40;

/// What else file systems can lie on.
pub const RIVALS: [Rival; 4] = [Rival::Btrfs, Rival::Md, Rival::File, Rival::Nbdkit];

/// What decides about the findings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Which, in this order.
    pub levels: Vec<Level>,
    /// How many members each level has that can do with so many; `None`: as published.
    pub members: Option<u16>,
    /// Of the file that is read and written.
    pub size_bytes: u64,
    /// How often a job goes through it.
    pub loops: u32,
    /// After which a job ends in any case.
    pub runtime_ms: u64,
    /// How often the cases take turns.
    pub runs: u16,
    /// What else is measured.
    pub against: Vec<Rival>,
    /// Instead of the published job file. It says itself how long its jobs are.
    pub job: Option<JobFile>,
}

impl Options {
    /// All cases once, each job for a moment.
    #[must_use]
    pub fn quick() -> Self {
        // More loops than fit into the time: the time ends each job.
        Self { size_bytes: 16 << 20, loops: 1000, runtime_ms: 120, runs: 1, ..Self::full() }
    }

    /// As published.
    #[must_use]
    pub fn full() -> Self {
        Self {
            levels: Level::ALL.to_vec(),
            members: None,
            size_bytes: published::SIZE_BYTES,
            loops: published::LOOPS,
            runtime_ms: published::RUNTIME_MS,
            runs: 3,
            against: Vec::new(),
            job: None,
        }
    }

    fn job_name(&self) -> &str {
        self.job.as_ref().map_or(PUBLISHED_JOB, |job| &job.name)
    }

    fn job_takes(&self) -> Duration {
        match &self.job {
            Some(job) => job.takes(),
            None => job_file::takes(self.size_bytes, self.loops, self.runtime_ms),
        }
    }
}

/// The comparison `levels`, with its options: they decide about cases, jobs and how often these
/// run.
#[derive(Clone, Debug, PartialEq)]
pub struct Levels(pub Options);

impl Levels {
    /// With options that somebody chose.
    pub fn of(options: Options) -> Result<Self, Failure> {
        let refused =
            |reason: String, next: &'static str| Err(Failure::usage("levels", reason, next));
        if options.against.contains(&Rival::Gluster) {
            return refused("gluster stores over nodes".to_owned(), "compare it with cluster");
        }
        let most = options.levels.iter().map(|level| options.members(*level)).max();
        if most.is_some_and(|most| most > MOST_MEMBERS) {
            let reason = format!("more than {MOST_MEMBERS} members are not compared");
            return refused(reason, "name fewer");
        }
        if !(LEAST_BYTES..=MOST_BYTES).contains(&options.size_bytes) {
            return refused("no size from 4M to 1T".to_owned(), "name another --size");
        }
        Ok(Self(options))
    }
}

impl Comparison for Levels {
    fn name(&self) -> &'static str {
        "levels"
    }

    fn options(&self) -> Value {
        serde_json::to_value(&self.0).unwrap_or_default()
    }

    fn groups(&self) -> Vec<Group> {
        let group = |cache: Cache| Group {
            title: format!("levels, {} cache", cache.name()),
            cases: self.0.cases(cache).into_iter().map(case::Case::name).collect(),
            jobs: vec![Job { name: self.0.job_name().to_owned(), takes: self.0.job_takes() }],
            rounds: self.0.runs,
            set_up: Duration::from_millis(700),
        };
        Cache::ALL.map(group).to_vec()
    }

    fn needs_bytes(&self) -> u64 {
        // Mirrors hold everything twice, and file systems want room of their own.
        let of_a_case = 2 * self.0.size_bytes + (256 << 20);
        let cases = Cache::ALL.map(|cache| self.0.cases(cache).len() as u64);
        cases.into_iter().max().unwrap_or(0) * of_a_case
    }

    fn smaller(&self) -> Option<Box<dyn Comparison>> {
        let size_bytes = self.0.size_bytes / 2;
        let published = self.0.job.is_none() && size_bytes >= LEAST_BYTES;
        published.then(|| Box::new(Self(Options { size_bytes, ..self.0.clone() })) as _)
    }

    fn set_up(&self, case: &str, room: &Room) -> Result<Box<dyn Standing>, Failure> {
        let Some(case) = self.0.case(case) else {
            return Err(Failure::usage(case, "no case has this name", "see the names of levels"));
        };
        Ok(Box::new(standing::set_up(&self.0, case, room)?))
    }

    fn chapter(&self, found: &Found) -> Chapter {
        chapter::chapter(&self.0, found)
    }
}
