//! What the files of the runs say, as numbers.

use super::Options;
use super::case::{Case, Flow, Level, State, Task};
use super::course::Course;
use super::published;
use crate::model::{Found, Measured, Spread};
use crate::tool::dd;

/// The options of a run and what it found, from which the methods read numbers: speeds in MB/s,
/// shares and ratios. `None` where nothing was found.
pub(super) struct Numbers<'a> {
    pub(super) options: &'a Options,
    pub(super) found: &'a Found,
}

impl Numbers<'_> {
    /// MB/s of all `dd`s of a job.
    pub(super) fn dd(&self, case: Case, task: Task) -> Option<Measured> {
        self.found.measured(&case.name(), &task.name(), "dd.txt", dd::at_once_mb_s)
    }

    /// How much of a core they used.
    pub(super) fn dd_cores(&self, case: Case, task: Task) -> Option<Spread> {
        let cores = self.found.measured(&case.name(), &task.name(), "dd.txt", dd::cores);
        cores.map(|cores| cores.spread)
    }

    /// Something of the traces of a job.
    pub(super) fn traced(
        &self,
        level: Level,
        task: Task,
        read: impl Fn(&Course) -> Option<f64>,
    ) -> Option<Measured> {
        self.read_trace(Case::Trace { level }, task, read)
    }

    /// Something of a mirror's recovery under one of the limits, while dd writes.
    pub(super) fn limited(
        &self,
        index: usize,
        read: impl Fn(&Course) -> Option<f64>,
    ) -> Option<Measured> {
        self.read_trace(Case::Limited, Task::Limits(index), read)
    }

    fn read_trace(
        &self,
        case: Case,
        task: Task,
        read: impl Fn(&Course) -> Option<f64>,
    ) -> Option<Measured> {
        let read = |text: &str| read(&Course::of(text));
        self.found.measured(&case.name(), &task.name(), "trace.txt", read)
    }

    /// The median over the rounds of something within a round.
    pub(super) fn share(
        &self,
        level: Level,
        task: Task,
        read: impl Fn(&Course) -> Option<f64>,
    ) -> Option<f64> {
        self.traced(level, task, read).map(|measured| measured.spread.median)
    }

    /// The first trace of a job.
    pub(super) fn course(&self, level: Level, task: Task) -> Option<Course> {
        let case = Case::Trace { level }.name();
        let job = task.name();
        let run = self.found.runs(&case, &job).next()?;
        Some(Course::of(&self.found.text(run, "trace.txt")?))
    }

    /// What a member gives at the most, in MB/s, if it was limited.
    pub(super) fn member_mb_s(&self) -> Option<f64> {
        let text = |run| self.found.text(run, "members.txt");
        let text = self.found.runs.iter().find_map(text)?;
        let bytes: f64 = text.split(' ').next()?.parse().ok()?;
        Some(bytes / 1e6)
    }

    /// What the members allow at the most, in MB/s of the array's content: of a write, each member
    /// takes its part; a read comes from all that can be read, also from what has been recovered.
    pub(super) fn bound_mb_s(&self, case: Case, flow: Flow) -> Option<f64> {
        let members = match (case, flow) {
            (Case::Alone | Case::Limited, _) => 1,
            (Case::Array { level, .. } | Case::Trace { level }, Flow::Write) => level.data,
            (Case::Array { level, state: State::Degraded }, Flow::Read) => level.members - 1,
            (Case::Array { level, .. } | Case::Trace { level }, Flow::Read) => level.members,
        };
        Some(self.member_mb_s()? * members as f64)
    }

    /// To a member on its own.
    pub(super) fn ratio(&self, case: Case, task: Task) -> Option<f64> {
        let alone = self.dd(Case::Alone, task)?.spread.median;
        Some(self.dd(case, task)?.spread.median / alone)
    }

    /// To a member on its own, of all sizes that were measured: here and as published.
    pub(super) fn mean_ratio(&self, case: Case, flow: Flow) -> Option<(f64, f64)> {
        let of = |&mb: &u64| {
            let ours = self.ratio(case, sized(flow, mb))?;
            Some((ours, published_ratio(case, flow, mb)?))
        };
        let all: Vec<(f64, f64)> = self.options.sizes_mb.iter().filter_map(of).collect();
        let (ours, theirs) = all.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let count = all.len() as f64;
        (count > 0.0).then(|| (ours / count, theirs / count))
    }

    /// The levels whose traces there are.
    pub(super) fn traced_levels(&self) -> Vec<Level> {
        let traced = |level: &Level| {
            let name = Case::Trace { level: *level }.name();
            self.found.runs.iter().any(|run| run.case == name)
        };
        Level::ALL.into_iter().filter(traced).collect()
    }
}

/// The job that moves so much.
pub(super) const fn sized(flow: Flow, mb: u64) -> Task {
    match flow {
        Flow::Write => Task::Write(mb),
        Flow::Read => Task::Read(mb),
    }
}

/// To a member on its own, as published.
pub(super) fn published_ratio(case: Case, flow: Flow, mb: u64) -> Option<f64> {
    Some(published::mb_s(case, flow, mb)? / published::mb_s(Case::Alone, flow, mb)?)
}

/// The states of an array, as cases.
pub(super) fn states(level: Level) -> [Case; 3] {
    State::ALL.map(|state| Case::Array { level, state })
}

/// For people: three figures, and a mark where the rounds lie far apart.
pub(super) fn text(spread: Option<Spread>) -> String {
    let Some(spread) = spread else { return "-".to_owned() };
    let mark = if spread.is_noisy() { "~" } else { "" };
    format!("{}{mark}", figure(Some(spread.median)))
}

/// The same without a spread.
pub(super) fn figure(number: Option<f64>) -> String {
    match number {
        None => "-".to_owned(),
        Some(number) if number >= 99.5 => format!("{number:.0}"),
        Some(number) if number >= 9.95 => format!("{number:.1}"),
        Some(number) => format!("{number:.2}"),
    }
}
