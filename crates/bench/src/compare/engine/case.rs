//! What is set up: a level within the process, a level over an export, or a server without RAID.
//! Names stand in the journal of a report: those of cases are made here and nowhere else.

use braid_array::level::Level;

use super::Options;
use super::anchors::Anchor;
use super::exports::Export;

/// All levels there are, as they are typed.
const LEVELS: [(&str, Level); 5] = [
    ("0", Level::Raid0),
    ("1", Level::Raid1),
    ("5", Level::Raid5),
    ("6", Level::Raid6),
    ("10", Level::Raid10),
];
pub(super) const CHUNK_BYTES: u64 = 512 << 10;
/// What members keep for themselves.
const MEMBER_OWN_BYTES: u64 = 16 << 20;

/// Where members are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In memory.
    Memory,
    /// In files, or on the devices that were named.
    Files,
    /// On block devices: loop devices over such files.
    Blocks,
}

/// Something to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    /// A level, asked from within the process.
    Within(Level, Place),
    /// RAID 5 of five members of memory, of which 1M is a whole stripe, asked in the same way.
    Stripes,
    /// A level on members of memory, served by a process of its own and asked by fio.
    Over(Level, Export),
    /// What has no RAID, asked by fio.
    Beside(Anchor),
    /// Copies by one thread, within the process.
    Copies,
}

impl Place {
    pub(super) const ALL: [Self; 3] = [Self::Memory, Self::Files, Self::Blocks];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Files => "files",
            Self::Blocks => "block devices",
        }
    }

    /// What a member itself can do there.
    const fn anchor(self) -> Case {
        match self {
            Self::Memory => Case::Copies,
            Self::Files => Case::Beside(Anchor::File),
            Self::Blocks => Case::Beside(Anchor::Loop),
        }
    }

    /// What is asked from within the process.
    pub(super) fn within(self, options: &Options) -> impl Iterator<Item = Case> {
        let is_asked = self == Self::Memory && levels(options).any(|level| level == Level::Raid5);
        levels(options)
            .map(move |level| Case::Within(level, self))
            .chain(is_asked.then_some(Case::Stripes))
    }

    /// What takes turns on members of one kind.
    pub(super) fn cases(self, options: &Options) -> Vec<Case> {
        let mut cases = vec![self.anchor()];
        cases.extend(self.within(options));
        if self == Self::Memory {
            cases.push(Case::Beside(Anchor::MemoryFile));
            for export in Export::ALL {
                cases.extend(export.beside().iter().copied().map(Case::Beside));
                cases.extend(levels(options).map(|level| Case::Over(level, export)));
            }
        }
        cases
    }
}

impl Case {
    /// One that has this name.
    pub(super) fn named(options: &Options, name: &str) -> Option<Self> {
        let mut all = Place::ALL.into_iter().flat_map(|place| place.cases(options));
        all.find(|case| case.name() == name)
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Within(level, place) => format!("{} on {}", level.name(), place.name()),
            Self::Stripes => "raid5 of five with chunks of 256K on memory".to_owned(),
            Self::Over(level, export) => format!("{} over {}", level.name(), export.name()),
            Self::Beside(anchor) => anchor.name().to_owned(),
            Self::Copies => "copies by one thread".to_owned(),
        }
    }

    /// What it is compared with.
    pub(super) const fn anchor(self) -> Self {
        match self {
            Self::Within(_, place) => place.anchor(),
            Self::Stripes => Place::Memory.anchor(),
            Self::Over(_, export) => Self::Beside(export.anchor()),
            Self::Beside(anchor) => Self::Beside(anchor.anchor()),
            Self::Copies => Self::Copies,
        }
    }

    /// It is asked from within the process, without a program.
    pub(super) const fn is_within(self) -> bool {
        matches!(self, Self::Within(..) | Self::Stripes | Self::Copies)
    }
}

/// The levels that were asked for.
pub(super) fn levels(options: &Options) -> impl Iterator<Item = Level> {
    let asked = |word: &str| options.levels.iter().any(|level| level == word);
    LEVELS.into_iter().filter(move |(word, _)| asked(word)).map(|(_, level)| level)
}

/// As `braid create --level` takes it.
pub(super) fn word(level: Level) -> &'static str {
    LEVELS.iter().find(|(_, other)| *other == level).map_or("linear", |(word, _)| word)
}

/// A mirror of two, and otherwise as many as a small array has.
pub(super) const fn members(level: Level) -> usize {
    if matches!(level, Level::Raid1) { 2 } else { 4 }
}

/// How an array within the process is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) level: Level,
    pub(super) members: usize,
    pub(super) chunk_bytes: u64,
}

impl Shape {
    /// Four chunks of data are 1M.
    pub(super) const STRIPES: Self =
        Self { level: Level::Raid5, members: 5, chunk_bytes: CHUNK_BYTES / 2 };

    pub(super) const fn usual(level: Level) -> Self {
        Self { level, members: members(level), chunk_bytes: CHUNK_BYTES }
    }
}

/// As long as a member has to be for an array that holds so much.
pub(super) const fn member_bytes(level: Level, area_bytes: u64) -> u64 {
    let data = match level {
        Level::Raid0 => 4,
        Level::Raid5 => 3,
        Level::Raid6 | Level::Raid10 => 2,
        _ => 1,
    };
    area_bytes.div_ceil(data).next_multiple_of(CHUNK_BYTES) + MEMBER_OWN_BYTES
}
