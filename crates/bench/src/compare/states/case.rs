//! Cases and jobs, and their names.

/// An array that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateLevel {
    pub(super) number: u8,
    pub(super) members: usize,
    /// Members' worth of data.
    pub(super) data: usize,
}

impl StateLevel {
    pub(super) const ALL: [Self; 3] = [
        Self { number: 1, members: 2, data: 1 },
        Self { number: 5, members: 3, data: 2 },
        Self { number: 6, members: 4, data: 2 },
    ];
}

/// State of the last member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    InSync,
    Degraded,
    Recovering,
}

impl State {
    pub(super) const ALL: [Self; 3] = [Self::InSync, Self::Degraded, Self::Recovering];

    const fn mark(self) -> char {
        match self {
            Self::InSync => 'U',
            Self::Degraded => '_',
            Self::Recovering => 'I',
        }
    }
}

/// Case that is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateCase {
    /// An array that stays in a state.
    Array { level: StateLevel, state: State },
    /// A member of a mirror, mounted without the array.
    Alone,
    /// An array that goes from state to state.
    Trace { level: StateLevel },
    /// A mirror that recovers under [`LIMITS`].
    Limited,
}

impl StateCase {
    /// Name with its members' marks, `I` for the one that is being made right.
    pub(super) fn name(self) -> String {
        match self {
            Self::Array { level, state } => {
                let others = "U".repeat(level.members - 1);
                format!("RAID {} {others}{}", level.number, state.mark())
            }
            Self::Alone => "no RAID".to_owned(),
            Self::Trace { level } => format!("RAID {}", level.number),
            Self::Limited => "RAID 1 under limits".to_owned(),
        }
    }

    /// Returns all cases: levels in each state, levels that go from state to state, and the others.
    pub(super) fn all() -> Vec<Self> {
        let states = |level| State::ALL.map(|state| Self::Array { level, state });
        let arrays = StateLevel::ALL.into_iter().flat_map(states);
        let traces = StateLevel::ALL.into_iter().map(|level| Self::Trace { level });
        arrays.chain(traces).chain([Self::Alone, Self::Limited]).collect()
    }
}

/// The states of an array, as cases.
pub(super) fn states(level: StateLevel) -> [StateCase; 3] {
    State::ALL.map(|state| StateCase::Array { level, state })
}

/// The cases of the first sweep, as published, and their names there.
pub(super) fn mirror() -> [(StateCase, &'static str); 4] {
    let [in_sync, degraded, recovering] = states(StateLevel::ALL[0]);
    [(in_sync, "UU"), (degraded, "U_"), (recovering, "UI"), (StateCase::Alone, "no RAID")]
}

/// Direction of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Write,
    Read,
}

impl Flow {
    pub(super) const ALL: [Self; 2] = [Self::Write, Self::Read];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// Words for `braid sync`: `--min` and `--max`. The first ones hold unless others are set.
pub(super) const LIMITS: [(&str, &str); 5] =
    [("10M", "none"), ("1M", "none"), ("20M", "none"), ("40M", "none"), ("1M", "5M")];

/// Task on a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Written: so many 10^6 bytes, each on the disk before the next.
    Write(u64),
    /// Written: so many, left to the page cache.
    Cached(u64),
    /// Read: so many, of a file system that was just mounted.
    Read(u64),
    /// The halves of a file, at once.
    TwoReaders,
    /// Use all the time, from state to state.
    Trace(Flow),
    /// A recovery that is held to one of [`LIMITS`].
    Limits(usize),
}

impl Task {
    pub(super) fn name(self) -> String {
        match self {
            Self::Write(mb) => format!("write-{mb}"),
            Self::Cached(mb) => format!("cached-{mb}"),
            Self::Read(mb) => format!("read-{mb}"),
            Self::TwoReaders => "two-readers".to_owned(),
            Self::Trace(flow) => format!("trace-{}", flow.name()),
            Self::Limits(index) => {
                let (min, max) = LIMITS[index];
                format!("min-{min}-max-{max}")
            }
        }
    }

    /// All tasks that move so many MB, and those that move what they do.
    pub(super) fn all(sizes_mb: &[u64]) -> Vec<Self> {
        let sized = |&mb: &u64| [Self::Write(mb), Self::Cached(mb), Self::Read(mb)];
        let sized = sizes_mb.iter().flat_map(sized);
        let limits = (0..LIMITS.len()).map(Self::Limits);
        sized.chain([Self::TwoReaders]).chain(Flow::ALL.map(Self::Trace)).chain(limits).collect()
    }

    /// The task that moves so much.
    pub(super) const fn sized(flow: Flow, mb: u64) -> Self {
        match flow {
            Flow::Write => Self::Write(mb),
            Flow::Read => Self::Read(mb),
        }
    }

    /// Returns how much is written or read, where the name says so.
    pub(super) const fn mb(self) -> Option<u64> {
        match self {
            Self::Write(mb) | Self::Cached(mb) | Self::Read(mb) => Some(mb),
            _ => None,
        }
    }
}
