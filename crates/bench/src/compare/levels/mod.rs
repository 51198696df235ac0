//! `levels`: one job file of fio's over RAID levels on ext4, with and without a page cache below.

mod case;
mod chapter;
mod job_file;
mod level;
mod numbers;
mod published;
mod sentences;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::case::{Cache, LevelCase};
pub use self::job_file::JobFile;
pub use self::level::Level;
use super::{Plan, Rival, Wishes, kept, named};
use crate::failure::Failure;
use crate::model::{Chapter, Comparison, Found, Group, Job, Standing};
use crate::rig::{Room, drop_caches};
use crate::tool::{Tool, fio};

/// Name of fio's published job file.
const PUBLISHED_JOB: &str = "cdm";

/// What stores on this machine; over nodes is another comparison.
const RIVALS: [Rival; 4] = [Rival::Btrfs, Rival::Md, Rival::File, Rival::Nbdkit];
const MOST_MEMBERS: u16 = 32;
const LEAST_BYTES: u64 = 4 << 20;
const MOST_BYTES: u64 = 1 << 40;

/// The options of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelOptions {
    /// Levels, in this order.
    pub levels: Vec<Level>,
    /// Members of each level that can do with so many; `None`: as published.
    pub members: Option<u16>,
    /// Size of the file that is read and written.
    pub size_bytes: u64,
    /// Number of times that a job goes through it.
    pub loops: u32,
    /// After which a job ends in any case.
    pub runtime_ms: u64,
    /// Number of rounds.
    pub runs: u16,
    /// Rivals that are measured, too.
    pub against: Vec<Rival>,
    /// Replacement of the published job file, with its own length of jobs.
    pub job: Option<JobFile>,
}

impl LevelOptions {
    fn job_name(&self) -> &str {
        self.job.as_ref().map_or(PUBLISHED_JOB, |job| &job.name)
    }

    fn job_takes(&self) -> Duration {
        match &self.job {
            Some(job) => job.takes(),
            None => job_file::takes(self.size_bytes, self.loops, self.runtime_ms),
        }
    }

    /// The same, if they make sense.
    pub fn checked(self) -> Result<Self, Failure> {
        let refused =
            |reason: String, next: &'static str| Err(Failure::usage("levels", reason, next));
        if self.against.contains(&Rival::Gluster) {
            return refused("gluster stores over nodes".to_owned(), "compare it with cluster");
        }
        let most = self.levels.iter().map(|level| self.members(*level)).max();
        if most.is_some_and(|most| most > MOST_MEMBERS) {
            let reason = format!("more than {MOST_MEMBERS} members are not compared");
            return refused(reason, "name fewer");
        }
        if !(LEAST_BYTES..=MOST_BYTES).contains(&self.size_bytes) {
            return refused("no size from 4M to 1T".to_owned(), "name another --size");
        }
        Ok(self)
    }
}

impl Plan for LevelOptions {
    const NAME: &'static str = "levels";

    fn of(wishes: &Wishes) -> Self {
        let published = Self {
            levels: Level::ALL.to_vec(),
            members: None,
            size_bytes: published::SIZE_BYTES,
            loops: published::LOOPS,
            runtime_ms: published::RUNTIME_MS,
            runs: wishes.runs(),
            against: wishes.rivals(&RIVALS),
            job: None,
        };
        if wishes.quick {
            // More loops than fit into the time: the time ends each job.
            Self { size_bytes: 16 << 20, loops: 1000, runtime_ms: 120, ..published }
        } else {
            published
        }
    }
}

impl Comparison for LevelOptions {
    kept!();

    fn groups(&self) -> Vec<Group> {
        let group = |cache: Cache| Group {
            title: format!("levels, {cache} cache"),
            cases: self.cases(cache).iter().map(LevelCase::to_string).collect(),
            jobs: vec![Job::new(self.job_name(), self.job_takes())],
            rounds: self.runs,
            set_up: Duration::from_millis(700),
        };
        Cache::ALL.map(group).to_vec()
    }

    fn needs_bytes(&self) -> u64 {
        // Mirrors hold everything twice, and file systems want room of their own.
        let of_a_case = 2 * self.size_bytes + (256 << 20);
        let cases = Cache::ALL.map(|cache| self.cases(cache).len() as u64);
        cases.into_iter().max().unwrap_or(0) * of_a_case
    }

    fn smaller(&self) -> Option<Box<dyn Comparison>> {
        let size_bytes = self.size_bytes / 2;
        let published = self.job.is_none() && size_bytes >= LEAST_BYTES;
        published.then(|| Box::new(Self { size_bytes, ..self.clone() }) as _)
    }

    fn set_up(&self, case: &str, room: &Room) -> Result<Standing, Failure> {
        let case = named(self.all_cases(), case)?;
        let tool = Tool::find("fio", "fio")?;
        let stack = case.stack(self, room);
        let stack = if case.is_of_others() { stack.map_err(Failure::forgiven)? } else { stack? };
        let directory = stack.top.word();
        let published = || published::job_file(self.size_bytes, self.loops, self.runtime_ms);
        let text = self.job.as_ref().map_or_else(published, |job| job.text.clone());
        let text = job_file::in_directory(&text, &directory);
        let mut stands = Standing::on(stack, move |_, _, note| {
            // What others have left to be written would be written meanwhile.
            match case.cache {
                Cache::Cold => drop_caches()?,
                Cache::Warm => rustix::fs::sync(),
            }
            fio::run(&tool, &text, note)
                .map_err(|failure| Failure { object: format!("fio in {directory}"), ..failure })
        });
        stands.forgiven = case.is_of_others();
        Ok(stands)
    }

    fn chapter(&self, found: &Found) -> Chapter {
        chapter::chapter(self, found)
    }
}
