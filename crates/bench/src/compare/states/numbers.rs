//! Numbers of all runs.

use super::StateOptions;
use super::case::{Flow, LIMITS, State, StateCase, StateLevel, Task};
use super::course::{Course, Phase};
use super::published;
use crate::compare::numbers::{Numbers, reading};
use crate::compare::words::{NOTHING, marked};
use crate::model::{Found, Spread};
use crate::tool::dd;

/// Speed of dd.
pub(super) const SPEED: &str = "bandwidth";
/// Share of a core that dd used.
pub(super) const DD_CORES: &str = "dd-cores";

/// Name of the speed of use in a phase.
pub(super) fn used(phase: Phase) -> String {
    format!("use {}", phase.name())
}

/// Name of the error of what the array said was left.
pub(super) fn finish_error(phase: Phase) -> String {
    format!("finish-error {}", phase.name())
}

/// The share of its speed that a metric keeps: dd of that in a degraded array, a recovery of that
/// alone.
pub(super) fn kept(metric: &str) -> String {
    format!("{metric}, kept")
}

/// The options of a run and what it found. Speeds are in MB/s; `None` where nothing was found.
pub(super) struct States<'a> {
    pub(super) options: &'a StateOptions,
    pub(super) numbers: Numbers,
    pub(super) found: &'a Found,
}

impl<'a> States<'a> {
    pub(super) fn of(options: &'a StateOptions, found: &'a Found) -> Self {
        let of_dd = Numbers::read(found, ["dd.txt"], |run, [text]| {
            vec![
                reading(&run.job, SPEED, "MB/s", dd::at_once_mb_s(text)),
                reading(&run.job, DD_CORES, "cores", dd::cores(text)),
            ]
        });
        let traced = Numbers::read(found, ["trace.txt"], |run, [text]| {
            let course = Course::of(text);
            let mut all = Vec::new();
            let mut speed = |name: String, value: Option<f64>, to: Option<f64>| {
                let share = value.zip(to).map(|(value, to)| value / to);
                all.push(reading(&run.job, kept(&name), "share", share));
                all.push(reading(&run.job, name, "MB/s", value));
            };
            for phase in Phase::ALL {
                speed(used(phase), course.use_mb_s(phase), course.use_mb_s(Phase::Degraded));
                let alone = course.recovery_mb_s(Phase::Alone);
                speed(phase.name().to_owned(), course.recovery_mb_s(phase), alone);
            }
            for phase in Phase::ALL {
                let error = course.estimate_error(phase);
                all.push(reading(&run.job, finish_error(phase), "share", error));
            }
            all
        });
        Self { options, numbers: of_dd.and(traced), found }
    }

    /// MB/s of all `dd`s of a job.
    pub(super) fn dd(&self, case: StateCase, task: Task) -> Option<Spread> {
        self.numbers.spread(&case.name(), &task.name(), SPEED)
    }

    /// A number of the traces of a level.
    pub(super) fn traced(&self, level: StateLevel, flow: Flow, metric: &str) -> Option<Spread> {
        self.numbers.spread(&StateCase::Trace { level }.name(), &Task::Trace(flow).name(), metric)
    }

    /// The same, of the round in the middle.
    pub(super) fn middle(&self, level: StateLevel, flow: Flow, metric: &str) -> Option<f64> {
        self.traced(level, flow, metric).map(|spread| spread.median)
    }

    /// A number of a mirror's recovery under limits, while dd writes.
    pub(super) fn limited(&self, index: usize, metric: &str) -> Option<Spread> {
        self.numbers.spread(&StateCase::Limited.name(), &Task::Limits(index).name(), metric)
    }

    /// The first trace of a level.
    pub(super) fn course(&self, level: StateLevel, flow: Flow) -> Option<Course> {
        let case = StateCase::Trace { level }.name();
        let job = Task::Trace(flow).name();
        let run = self.found.runs(&case, &job).next()?;
        Some(Course::of(&self.found.text(run, "trace.txt")?))
    }

    /// CPU seconds a second of the process that serves a case.
    pub(super) fn server_cores(&self, case: StateCase, task: Task) -> Option<Spread> {
        self.found.server_cores(&case.name(), &task.name())
    }

    /// Returns the limit of a member in MB/s, if members were limited.
    pub(super) fn member_mb_s(&self) -> Option<f64> {
        let text = |run| self.found.text(run, "members.txt");
        let text = self.found.runs.iter().find_map(text)?;
        let bytes: f64 = text.split(' ').next()?.parse().ok()?;
        Some(bytes / 1e6)
    }

    /// Most that the members allow, in MB/s of the array's content: of a write, each member takes
    /// its part; a read comes from all that can be read, also from what has been recovered.
    pub(super) fn bound_mb_s(&self, case: StateCase, flow: Flow) -> Option<f64> {
        let members = match (case, flow) {
            (StateCase::Alone | StateCase::Limited, _) => 1,
            (StateCase::Array { level, .. } | StateCase::Trace { level }, Flow::Write) => {
                level.data
            }
            (StateCase::Array { level, state: State::Degraded }, Flow::Read) => level.members - 1,
            (StateCase::Array { level, .. } | StateCase::Trace { level }, Flow::Read) => {
                level.members
            }
        };
        Some(self.member_mb_s()? * members as f64)
    }

    /// Ratio to a member on its own.
    pub(super) fn ratio(&self, case: StateCase, task: Task) -> Option<f64> {
        Some(self.dd(case, task)?.median / self.dd(StateCase::Alone, task)?.median)
    }

    /// Mean of the ratios to a member on its own, of all sizes that were measured: here and as
    /// published.
    pub(super) fn mean_ratio(&self, case: StateCase, flow: Flow) -> Option<(f64, f64)> {
        let of = |&mb: &u64| {
            let ours = self.ratio(case, Task::sized(flow, mb))?;
            Some((ours, published_ratio(case, flow, mb)?))
        };
        let all: Vec<(f64, f64)> = self.options.sizes_mb.iter().filter_map(of).collect();
        let (ours, theirs) = all.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let count = all.len() as f64;
        (count > 0.0).then(|| (ours / count, theirs / count))
    }

    /// The levels whose traces there are, each with both ways in which it is used.
    pub(super) fn traces(&self) -> Vec<(StateLevel, Flow)> {
        let has = |level: &StateLevel| {
            let name = StateCase::Trace { level: *level }.name();
            self.found.runs.iter().any(|run| run.case == name)
        };
        let levels = StateLevel::ALL.into_iter().filter(has);
        levels.flat_map(|level| Flow::ALL.map(|flow| (level, flow))).collect()
    }

    /// All limits that a recovery was held to.
    pub(super) fn limits() -> std::ops::Range<usize> {
        0..LIMITS.len()
    }
}

/// Published ratio to a member on its own.
pub(super) fn published_ratio(case: StateCase, flow: Flow, mb: u64) -> Option<f64> {
    Some(published::mb_s(case, flow, mb)? / published::mb_s(StateCase::Alone, flow, mb)?)
}

/// Writes a median for people: three figures, and a mark where the rounds lie far apart.
pub(super) fn text(spread: Option<Spread>) -> String {
    let word = |spread: Spread| marked(figure(Some(spread.median)), spread.is_noisy());
    spread.map_or_else(|| NOTHING.to_owned(), word)
}

/// The same without a spread.
pub(super) fn figure(number: Option<f64>) -> String {
    match number {
        None => NOTHING.to_owned(),
        Some(number) if number >= 99.5 => format!("{number:.0}"),
        Some(number) if number >= 9.95 => format!("{number:.1}"),
        Some(number) => format!("{number:.2}"),
    }
}
