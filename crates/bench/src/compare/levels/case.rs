//! What is set up: something that stores, below a file system, with or without the page cache.

use super::Options;
use super::level::Level;
use crate::compare::rivals::Rival;

/// What stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Built {
    /// The file system that is there already: nothing is built.
    Bare,
    /// One file or disk.
    Plain,
    /// An array of Braid's.
    Braid(Level),
    /// One of the kernel's.
    Md(Level),
    /// btrfs over several devices.
    Btrfs(Level),
    /// One file, served in user space as an array of Braid's is.
    Nbdkit,
}

/// Whether the page cache lies below what is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cache {
    /// All I/O goes to the members.
    Cold,
    /// The members are in the page cache of the host.
    Warm,
}

/// One column of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) built: Built,
    pub(super) cache: Cache,
}

impl Built {
    /// For people.
    pub(super) fn name(self) -> String {
        match self {
            Self::Bare => "bare host".to_owned(),
            Self::Plain => "no RAID".to_owned(),
            Self::Braid(level) => level.name().to_owned(),
            Self::Md(level) => format!("md {}", level.name()),
            Self::Btrfs(level) => format!("btrfs {}", level.name()),
            Self::Nbdkit => "nbdkit".to_owned(),
        }
    }

    pub(super) const fn rival(self) -> Option<Rival> {
        match self {
            Self::Bare => Some(Rival::File),
            Self::Md(_) => Some(Rival::Md),
            Self::Btrfs(_) => Some(Rival::Btrfs),
            Self::Nbdkit => Some(Rival::Nbdkit),
            Self::Plain | Self::Braid(_) => None,
        }
    }

    pub(super) const fn level(self) -> Option<Level> {
        match self {
            Self::Braid(level) | Self::Md(level) | Self::Btrfs(level) => Some(level),
            Self::Bare | Self::Plain | Self::Nbdkit => None,
        }
    }
}

impl Cache {
    pub(super) const ALL: [Self; 2] = [Self::Cold, Self::Warm];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }
}

impl Case {
    /// Unique within the comparison.
    pub(super) fn name(self) -> String {
        format!("{}, {}", self.built.name(), self.cache.name())
    }
}

impl Options {
    /// What stands side by side, without RAID first.
    pub(super) fn cases(&self, cache: Cache) -> Vec<Case> {
        // Levels that were not published have nothing to be compared with in a cache.
        let compared =
            |level: &Level| cache == Cache::Cold || self.job.is_some() || level.is_published();
        let levels = || self.levels.iter().copied().filter(compared);
        let against = |rival| self.against.contains(&rival);
        let mut all = vec![Built::Plain];
        all.extend(levels().map(Built::Braid));
        if against(Rival::Md) {
            all.extend(levels().map(Built::Md));
        }
        if against(Rival::Btrfs) {
            all.extend(levels().filter(|level| level.profile().is_some()).map(Built::Btrfs));
        }
        match cache {
            // Nothing of the page cache can lie below the host's own file system,
            Cache::Cold => all.insert(0, Built::Bare),
            // and nbdkit always goes through it.
            Cache::Warm if against(Rival::Nbdkit) => all.push(Built::Nbdkit),
            Cache::Warm => {}
        }
        all.into_iter().map(|built| Case { built, cache }).collect()
    }

    /// The case of this name.
    pub(super) fn case(&self, name: &str) -> Option<Case> {
        let all = Cache::ALL.into_iter().flat_map(|cache| self.cases(cache));
        all.into_iter().find(|case| case.name() == name)
    }

    /// How many members a level has. One that needs more than were asked for has as many as it
    /// needs.
    pub(super) fn members(&self, level: Level) -> u16 {
        self.members.map_or(level.members(), |members| members.max(level.members()))
    }
}
