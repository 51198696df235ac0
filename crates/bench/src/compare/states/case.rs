//! Cases and jobs, and their names.

use std::fmt;

use crate::compare::words::names;

names! {
    /// State of the last member, and the mark of it.
    pub(super) enum State {
        InSync = "U",
        Degraded = "_",
        Recovering = "I",
    }

    /// Direction of data.
    pub(super) enum Flow {
        Write = "write",
        Read = "read",
    }
}

/// An array that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateLevel {
    pub(super) number: u8,
    pub(super) members: usize,
    /// Members' worth of data.
    pub(super) data: usize,
}

pub(super) const LEVELS: [StateLevel; 3] = [
    StateLevel { number: 1, members: 2, data: 1 },
    StateLevel { number: 5, members: 3, data: 2 },
    StateLevel { number: 6, members: 4, data: 2 },
];
pub(super) const MIRROR: StateLevel = LEVELS[0];

/// Case that is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateCase {
    /// An array that stays in a state.
    Array(StateLevel, State),
    /// A member of a mirror, mounted without the array.
    Alone,
    /// An array that goes from state to state.
    Trace(StateLevel),
    /// A mirror that recovers under [`LIMITS`].
    Limited,
}

impl fmt::Display for StateCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array(level, state) => {
                write!(f, "RAID {} {}{state}", level.number, "U".repeat(level.members - 1))
            }
            Self::Alone => f.write_str("no RAID"),
            Self::Trace(level) => write!(f, "RAID {}", level.number),
            Self::Limited => f.write_str("RAID 1 under limits"),
        }
    }
}

/// The states of an array, as cases.
pub(super) fn states(level: StateLevel) -> [StateCase; 3] {
    State::ALL.map(|state| StateCase::Array(level, state))
}

/// All cases whose state stays, of all levels.
pub(super) fn all_states() -> impl Iterator<Item = StateCase> {
    LEVELS.into_iter().flat_map(states).chain([StateCase::Alone])
}

/// The cases of the first sweep, as published, and their names there.
pub(super) fn mirror() -> [(StateCase, &'static str); 4] {
    let [in_sync, degraded, recovering] = states(MIRROR);
    [(in_sync, "UU"), (degraded, "U_"), (recovering, "UI"), (StateCase::Alone, "no RAID")]
}

/// Words for `braid sync`: `--min` and `--max`. The first ones hold unless others are set.
pub(super) const LIMITS: [(&str, &str); 5] =
    [("10M", "none"), ("1M", "none"), ("20M", "none"), ("40M", "none"), ("1M", "5M")];

/// Task on a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// So many 10^6 bytes: each write on the disk before the next, each read of a file system that
    /// was just mounted.
    Sized(Flow, u64),
    /// Written: so many, left to the page cache.
    Cached(u64),
    /// The halves of a file, at once.
    TwoReaders,
    /// Use all the time, from state to state.
    Trace(Flow),
    /// A recovery that is held to one of [`LIMITS`].
    Limits(usize),
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sized(flow, mb) => write!(f, "{flow}-{mb}"),
            Self::Cached(mb) => write!(f, "cached-{mb}"),
            Self::TwoReaders => f.write_str("two-readers"),
            Self::Trace(flow) => write!(f, "trace-{flow}"),
            Self::Limits(index) => write!(f, "min-{}-max-{}", LIMITS[*index].0, LIMITS[*index].1),
        }
    }
}

impl Task {
    /// All tasks that move so many MB, and those that move what they do.
    pub(super) fn all(sizes_mb: &[u64]) -> impl Iterator<Item = Self> {
        let sized =
            |&mb| [Self::Sized(Flow::Write, mb), Self::Cached(mb), Self::Sized(Flow::Read, mb)];
        let sized = sizes_mb.iter().flat_map(sized);
        let limits = (0..LIMITS.len()).map(Self::Limits);
        sized.chain([Self::TwoReaders]).chain(Flow::ALL.map(Self::Trace)).chain(limits)
    }
}
