//! Numbers of all runs.

use super::StateOptions;
use super::case::{Flow, LEVELS, State, StateCase, StateLevel, Task};
use super::course::{Course, Phase};
use super::published;
use crate::compare::numbers::{Numbers, reading};
use crate::model::{Found, Spread};
use crate::tool::dd;

pub(super) const SPEED: &str = "bandwidth";
pub(super) const DD_CORES: &str = "dd-cores";

/// Name of the speed of use in a phase.
pub(super) fn used(phase: Phase) -> String {
    format!("use {phase}")
}

/// Name of the error of what the array said was left.
pub(super) fn finish_error(phase: Phase) -> String {
    format!("finish-error {phase}")
}

/// The share of its speed that a metric keeps: dd of that in a degraded array, a recovery of that
/// alone.
pub(super) fn kept(metric: impl std::fmt::Display) -> String {
    format!("{metric}, kept")
}

/// A level whose array goes from state to state, and how it is used meanwhile.
pub(super) type Traced = (StateLevel, Flow);

/// The options of a run and what it found. Speeds are in MB/s; `None` where nothing was found.
pub(super) struct States<'a> {
    pub(super) options: &'a StateOptions,
    pub(super) numbers: Numbers,
    pub(super) found: &'a Found,
}

impl<'a> States<'a> {
    pub(super) fn of(options: &'a StateOptions, found: &'a Found) -> Self {
        let numbers = Numbers::of(found).read(found, ["dd.txt"], |run, [text]| {
            vec![
                reading(&run.job, SPEED, "MB/s", dd::at_once_mb_s(text)),
                reading(&run.job, DD_CORES, "cores", dd::cores(text)),
            ]
        });
        let numbers = numbers.read(found, ["trace.txt"], |run, [text]| {
            let course = Course::of(text);
            let mut all = Vec::new();
            for phase in Phase::ALL {
                for (name, of) in [
                    (used(phase), [phase, Phase::Degraded].map(|phase| course.use_mb_s(phase))),
                    (phase.to_string(), [phase, Phase::Alone].map(|it| course.recovery_mb_s(it))),
                ] {
                    let share = of[0].zip(of[1]).map(|(value, to)| value / to);
                    all.push(reading(&run.job, kept(&name), "share", share));
                    all.push(reading(&run.job, name, "MB/s", of[0]));
                }
                let error = course.estimate_error(phase);
                all.push(reading(&run.job, finish_error(phase), "share", error));
            }
            all
        });
        Self { options, numbers, found }
    }

    /// MB/s of all `dd`s of a job.
    pub(super) fn dd(&self, case: StateCase, task: Task) -> Option<Spread> {
        self.numbers.spread((case, task, SPEED))
    }

    /// A number of the traces of a level.
    pub(super) fn traced(
        &self,
        (level, flow): Traced,
        metric: impl std::fmt::Display,
    ) -> Option<Spread> {
        self.numbers.spread((StateCase::Trace(level), Task::Trace(flow), metric))
    }

    /// The same, of the round in the middle.
    pub(super) fn middle(&self, traced: Traced, metric: impl std::fmt::Display) -> Option<f64> {
        self.traced(traced, metric).map(|spread| spread.median)
    }

    /// A number of a mirror's recovery under limits, while dd writes.
    pub(super) fn limited(&self, index: usize, metric: &str) -> Option<Spread> {
        self.numbers.spread((StateCase::Limited, Task::Limits(index), metric))
    }

    pub(super) fn course(&self, (level, flow): Traced) -> Option<Course> {
        let case = StateCase::Trace(level).to_string();
        let job = Task::Trace(flow).to_string();
        let run = self.found.runs(&case, &job).next()?;
        Some(Course::of(&self.found.text(run, "trace.txt")?))
    }

    /// The first file of this name that any run left.
    pub(super) fn first(&self, file: &str) -> Option<String> {
        self.found.runs.iter().find_map(|run| self.found.text(run, file))
    }

    /// Returns the limit of a member in MB/s, if members were limited.
    pub(super) fn member_mb_s(&self) -> Option<f64> {
        let bytes: f64 = self.first("members.txt")?.split(' ').next()?.parse().ok()?;
        Some(bytes / 1e6)
    }

    /// Most that the members allow, in MB/s of the array's content: of a write, each member takes
    /// its part; a read comes from all that can be read, also from what has been recovered.
    pub(super) fn bound_mb_s(&self, case: StateCase, flow: Flow) -> Option<f64> {
        let members = match (case, flow) {
            (StateCase::Alone | StateCase::Limited, _) => 1,
            (StateCase::Array(level, _) | StateCase::Trace(level), Flow::Write) => level.data,
            (StateCase::Array(level, State::Degraded), Flow::Read) => level.members - 1,
            (StateCase::Array(level, _) | StateCase::Trace(level), Flow::Read) => level.members,
        };
        Some(self.member_mb_s()? * members as f64)
    }

    /// Ratio to a member on its own.
    pub(super) fn ratio(&self, case: StateCase, task: Task) -> Option<f64> {
        self.numbers.by((case, task, SPEED), StateCase::Alone)
    }

    /// Mean of the ratios to a member on its own, of all sizes that were measured: here and as
    /// published.
    pub(super) fn mean_ratio(&self, case: StateCase, flow: Flow) -> Option<[f64; 2]> {
        let of = |&mb: &u64| {
            let task = Task::Sized(flow, mb);
            Some([self.ratio(case, task)?, published::ratio(case, task)?])
        };
        let all: Vec<[f64; 2]> = self.options.sizes_mb.iter().filter_map(of).collect();
        let mean = |at: usize| all.iter().map(|one| one[at]).sum::<f64>() / all.len() as f64;
        (!all.is_empty()).then(|| [mean(0), mean(1)])
    }

    /// The levels whose traces there are, each with both ways in which it is used.
    pub(super) fn traces(&self) -> Vec<Traced> {
        let has = |level: &StateLevel| {
            let name = StateCase::Trace(*level).to_string();
            self.found.runs.iter().any(|run| run.case == name)
        };
        let levels = LEVELS.into_iter().filter(has);
        levels.flat_map(|level| Flow::ALL.map(|flow| (level, flow))).collect()
    }
}

/// Three figures.
pub(super) fn figure(number: f64) -> String {
    match number {
        number if number >= 99.5 => format!("{number:.0}"),
        number if number >= 9.95 => format!("{number:.1}"),
        number => format!("{number:.2}"),
    }
}
