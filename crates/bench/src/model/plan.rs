//! Plans: what is to be measured.

use std::time::Duration;

use serde_json::Value;

use super::chapter::Chapter;
use super::found::Found;
use crate::failure::Failure;
use crate::rig::{Room, Stack};
use crate::tool::Note;

/// One comparison: what it measures and what it makes of the findings. Each is one file, or folder.
pub trait Comparison {
    /// `levels`, `states` ...: the name on the command line and of the folder of raw output.
    fn name(&self) -> &'static str;

    /// Returns what decides about the findings, so that the chapter can be made again from the
    /// folder.
    fn options(&self) -> Value;

    /// Everything that is measured, in the order in which it is.
    fn groups(&self) -> Vec<Group>;

    /// Returns the most that all cases need that stand at the same time; 0: little.
    fn needs_bytes(&self) -> u64 {
        0
    }

    /// Returns the most that members of memory need of all cases that stand at the same time; 0:
    /// little.
    fn needs_memory_bytes(&self) -> u64 {
        0
    }

    /// The comparison, half as large, where that makes sense. Its chapter says so.
    fn smaller(&self) -> Option<Box<dyn Comparison>> {
        None
    }

    /// Sets a case up.
    fn set_up(&self, case: &str, room: &Room) -> Result<Standing, Failure>;

    /// Tables, plots and sentences: a function of what was found and nothing else.
    fn chapter(&self, found: &Found) -> Chapter;
}

/// Cases that stand side by side and take turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Title for people who wait.
    pub title: String,
    /// Names, unique within the comparison.
    pub cases: Vec<String>,
    /// Jobs in their order.
    pub jobs: Vec<Job>,
    /// Number of runs of each job on each case: a round is job by job, case by case.
    pub rounds: u16,
    /// About how long it takes to set a case up and to take it down.
    pub set_up: Duration,
}

/// Something that is run on a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Unique within the comparison.
    pub name: String,
    /// About how long it takes.
    pub takes: Duration,
}

impl Job {
    /// A job of this name, which takes about so long.
    pub fn new(name: impl Into<String>, takes: Duration) -> Self {
        Self { name: name.into(), takes }
    }
}

impl Group {
    /// About how long all of it takes.
    pub fn takes(&self) -> Duration {
        let cases = u32::try_from(self.cases.len()).unwrap_or(u32::MAX);
        let round: Duration = self.jobs.iter().map(|job| job.takes).sum();
        (round * u32::from(self.rounds) + self.set_up) * cases
    }
}

/// Runs a job on the layers of a case, and notes what was run and what it said.
type RunJob = Box<dyn FnMut(&mut Stack, &str, &mut Note) -> Result<(), Failure>>;

/// A case that is set up. Dropped, it is taken down.
pub struct Standing {
    // What runs jobs goes before what they run on.
    run: RunJob,
    stack: Stack,
    /// Failures leave a gap, and the other cases go on: the program is somebody else's.
    pub(crate) forgiven: bool,
}

impl Standing {
    /// Layers, on which jobs are run so.
    pub fn on(
        stack: Stack,
        run: impl FnMut(&mut Stack, &str, &mut Note) -> Result<(), Failure> + 'static,
    ) -> Self {
        Self { run: Box::new(run), stack, forgiven: false }
    }

    /// Runs a job once.
    pub fn run(&mut self, job: &str, note: &mut Note) -> Result<(), Failure> {
        let ran = (self.run)(&mut self.stack, job, note);
        // How it was set up comes before what was run first.
        note.commands.splice(0..0, self.stack.commands.drain(..));
        if self.forgiven { ran.map_err(Failure::forgiven) } else { ran }
    }

    /// The process that serves it, whose CPU time counts.
    pub const fn server(&self) -> Option<u32> {
        self.stack.server
    }
}
