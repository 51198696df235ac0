//! `states`: the cost of an array's states: in sync, degraded, recovering, and a member on its own;
//! and what a recovery and those who use the array take from each other.

mod case;
mod chapter;
mod course;
mod numbers;
mod plots;
mod published;
mod sentences;
mod sweep;
mod tables;
mod trace;

use std::collections::HashSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::case::{
    Flow, LEVELS, LIMITS, MIRROR, State, StateCase, StateLevel, Task, all_states, states,
};
use self::sweep::StateSweep;
use self::trace::Tracing;
use super::{Plan, Wishes, kept, named};
use crate::failure::Failure;
use crate::model::{Chapter, Comparison, Found, Group, Job, Note, Standing};
use crate::rig::Room;

/// Time before and after a measurement: commands to the array, mounting.
const ABOUT_IT: Duration = Duration::from_millis(100);
/// Time to set up and take down an array with a file system.
const SET_UP: Duration = Duration::from_millis(700);

/// Options of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateOptions {
    /// Sizes that are written and read at once, in 10^6 bytes, ascending.
    pub sizes_mb: Vec<u64>,
    /// Number of rounds.
    pub runs: u16,
    /// The levels that are measured with every size, state by state.
    pub swept_levels: Vec<u8>,
    /// Size of each member there.
    pub swept_member_bytes: u64,
    /// The levels that go from state to state while they are used.
    pub traced_levels: Vec<u8>,
    /// Size of each member there.
    pub traced_member_bytes: u64,
    /// Least length of a state there.
    pub phase_s: f64,
    /// Most that a member gives. Members that were named are taken as they are.
    pub member_bytes_per_s: u64,
    /// Bytes that may wait in memory to be written, where nobody asks for `oflag=sync`.
    pub dirty_bytes: u64,
}

impl StateOptions {
    fn largest_mb(&self) -> u64 {
        self.sizes_mb.iter().copied().max().unwrap_or(0)
    }

    fn member_takes(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.member_bytes_per_s.max(1) as f64)
    }

    /// A group of these jobs, each with its length.
    fn group(
        &self,
        title: String,
        cases: impl IntoIterator<Item = StateCase>,
        jobs: impl IntoIterator<Item = (Task, Duration)>,
        set_up: Duration,
    ) -> Group {
        let job = |(task, takes): (Task, Duration)| Job::new(task.to_string(), takes + ABOUT_IT);
        Group {
            title,
            cases: cases.into_iter().map(|case| case.to_string()).collect(),
            jobs: jobs.into_iter().map(job).collect(),
            rounds: self.runs,
            set_up: set_up + SET_UP,
        }
    }

    fn sweep(&self, level: StateLevel) -> Group {
        let is_mirror = level == MIRROR;
        // Nothing was written with the smallest size that was read.
        let written = || self.sizes_mb.iter().copied().filter(|&mb| mb > 2);
        let cached: Vec<u64> = if is_mirror { written().collect() } else { Vec::new() };
        // What a member gives: arrays are a little faster or slower.
        let takes = |(task, mb)| (task, self.member_takes(mb * 1_000_000));
        let jobs = written()
            .map(|mb| (Task::Sized(Flow::Write, mb), mb))
            .chain(cached.into_iter().map(|mb| (Task::Cached(mb), mb)))
            .chain(self.sizes_mb.iter().map(|&mb| (Task::Sized(Flow::Read, mb), mb)))
            .chain([(Task::TwoReaders, self.largest_mb())]);
        let cases = states(level).into_iter().chain(is_mirror.then_some(StateCase::Alone));
        let title = format!("RAID {} in its states", level.number);
        self.group(title, cases, jobs.map(takes), self.member_takes(self.largest_mb() * 1_000_000))
    }

    fn traces(&self, level: StateLevel) -> Group {
        let recovery = self.member_takes(self.traced_member_bytes);
        let takes = Duration::from_secs_f64(self.phase_s) * 4 + recovery;
        let jobs = Flow::ALL.map(|flow| (Task::Trace(flow), takes));
        let title = format!("RAID {} from state to state", level.number);
        self.group(title, [StateCase::Trace(level)], jobs, SET_UP)
    }

    fn limits(&self) -> Group {
        let takes = Duration::from_secs_f64(self.phase_s * 2.0);
        let jobs = (0..LIMITS.len()).map(|index| (Task::Limits(index), takes));
        self.group("A recovery under limits".to_owned(), [StateCase::Limited], jobs, SET_UP)
    }
}

impl Plan for StateOptions {
    const NAME: &'static str = "states";

    fn of(wishes: &Wishes) -> Self {
        let short = Self {
            sizes_mb: vec![2, 4, 16, 64],
            runs: wishes.runs(),
            swept_levels: vec![1],
            swept_member_bytes: 256 << 20,
            traced_levels: vec![1, 5, 6],
            traced_member_bytes: 96 << 20,
            phase_s: 0.4,
            member_bytes_per_s: 80_000_000,
            dirty_bytes: 26_000_000,
        };
        if wishes.quick {
            return short;
        }
        Self {
            sizes_mb: published::SIZES_MB.to_vec(),
            swept_levels: vec![1, 5, 6],
            swept_member_bytes: 6 << 30,
            traced_member_bytes: 4 << 30,
            phase_s: 10.0,
            // 40 % of 2 GB in Linux of that time.
            dirty_bytes: 819_000_000,
            ..short
        }
    }
}

impl Comparison for StateOptions {
    kept!();

    fn groups(&self) -> Vec<Group> {
        let swept = LEVELS.into_iter().filter(|one| self.swept_levels.contains(&one.number));
        let traced = LEVELS.into_iter().filter(|one| self.traced_levels.contains(&one.number));
        let sweeps = swept.map(|one| self.sweep(one));
        sweeps.chain(traced.map(|one| self.traces(one))).chain([self.limits()]).collect()
    }

    fn set_up(&self, case: &str, room: &Room) -> Result<Standing, Failure> {
        // What a member gives at the most.
        let members = if room.members.is_empty() {
            format!("{} bytes/s each\n", self.member_bytes_per_s)
        } else {
            "as they are\n".to_owned()
        };
        let array = |level, name: &str, bytes| sweep::array(room, self, level, (name, bytes));
        let all = all_states().chain(LEVELS.map(StateCase::Trace)).chain([StateCase::Limited]);
        let case = named(all, case)?;
        let traced = self.traced_member_bytes;
        let stack = match case {
            StateCase::Array(level, state) => {
                let name = format!("raid{}{state:?}", level.number);
                array(level, &name, self.swept_member_bytes)?
            }
            StateCase::Alone => sweep::alone(room, self)?,
            StateCase::Trace(level) => array(level, &format!("raid{}", level.number), traced)?,
            StateCase::Limited => array(MIRROR, "limited", traced)?,
        };
        let state = if let StateCase::Array(_, state) = case { state } else { State::InSync };
        let changes = matches!(case, StateCase::Trace(_) | StateCase::Limited);
        sweep::fill(&stack, if changes { trace::PIECES_MB } else { self.largest_mb() })?;
        // The last member of one that is to recover waits to be added.
        let verbs = match (state, case) {
            (State::Degraded, _) => &["fail"][..],
            (State::Recovering, _) | (_, StateCase::Limited) => &["fail", "remove"],
            _ => &[],
        };
        verbs.iter().try_for_each(|verb| sweep::member(&stack, verb, &mut Note::default()))?;
        let sweep = StateSweep { state, options: self.clone() };
        let tracing = Tracing::of(self);
        Ok(Standing::on(stack, move |stack, job, note| {
            note.file("members.txt", members.as_str());
            let task = named(Task::all(&sweep.options.sizes_mb), job)?;
            let said = match task {
                Task::Sized(Flow::Write, mb) => sweep.write(stack, mb, &["oflag=sync"], note),
                Task::Cached(mb) => sweep.cached(stack, mb, note),
                Task::Sized(Flow::Read, mb) => sweep.read(stack, mb, note),
                Task::TwoReaders => sweep.two_readers(stack, note),
                Task::Trace(flow) => tracing.all_states(stack, flow, note),
                Task::Limits(index) => tracing.limited(stack, LIMITS[index], note),
            };
            note.file(if changes { "trace.txt" } else { "dd.txt" }, said?);
            let mut known = HashSet::new();
            note.commands.retain(|command| known.insert(command.clone()));
            Ok(())
        }))
    }

    fn chapter(&self, found: &Found) -> Chapter {
        chapter::chapter(self, found)
    }
}

#[cfg(test)]
mod tests;
