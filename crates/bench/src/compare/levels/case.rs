//! Cases: something that stores, below a file system, with or without the page cache.

use std::fmt;

use super::LevelOptions;
use super::level::{Facts, Level};
use crate::compare::Rival;
use crate::compare::words::names;
use crate::failure::Failure;
use crate::rig::{
    ArraySpec, FileSystemKind, LoopDevice, Program, Room, Stack, file_name, md_exists,
};
use crate::tool::Tool;

/// Bytes that a file system and the superblocks of members need on top.
const OVERHEAD_BYTES: u64 = 32 << 20;
/// Bytes that btrfs needs on top on each device: it takes space in large pieces.
const BTRFS_OVERHEAD_BYTES: u64 = 384 << 20;
const MEMBER_OVERHEAD_BYTES: u64 = 16 << 20;

/// Store below the file system.
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

names! {
    /// Page cache below what is built: all I/O goes to the members, or these are in the page cache
    /// of the host.
    pub(super) enum Cache {
        Cold = "cold",
        Warm = "warm",
    }
}

/// One column of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelCase {
    pub(super) built: Built,
    pub(super) cache: Cache,
}

impl fmt::Display for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bare => f.write_str("bare host"),
            Self::Plain => f.write_str("no RAID"),
            Self::Braid(level) => f.write_str(level.facts().name),
            Self::Md(level) => write!(f, "md {}", level.facts().name),
            Self::Btrfs(level) => write!(f, "btrfs {}", level.facts().name),
            Self::Nbdkit => f.write_str("nbdkit"),
        }
    }
}

impl Built {
    /// A rival's, at this level.
    pub(super) const fn of(rival: Rival, level: Level) -> Option<Self> {
        match rival {
            Rival::Md => Some(Self::Md(level)),
            Rival::Btrfs => Some(Self::Btrfs(level)),
            Rival::File => Some(Self::Bare),
            Rival::Nbdkit => Some(Self::Nbdkit),
            Rival::Gluster => None,
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
    const fn losetup(self) -> &'static [&'static str] {
        match self {
            Self::Cold => LoopDevice::DIRECT,
            Self::Warm => LoopDevice::CACHED,
        }
    }
}

impl fmt::Display for LevelCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.built, self.cache)
    }
}

impl LevelCase {
    /// Case that it is compared with.
    pub(super) const fn plain(self) -> Self {
        Self { built: Built::Plain, ..self }
    }

    pub(super) const fn is_of_others(self) -> bool {
        !matches!(self.built, Built::Plain | Built::Braid(_))
    }

    /// Sets it up, to the directory in which files are written.
    pub(super) fn stack(self, options: &LevelOptions, room: &Room) -> Result<Stack, Failure> {
        let stack = Stack::new(room, &self.to_string());
        let words = self.cache.losetup();
        let bytes = options.data_bytes();
        let stack = match self.built {
            Built::Bare => return stack.directory(),
            Built::Plain => stack.files(1, bytes)?.loops(words)?,
            Built::Nbdkit => {
                let served = stack.files(1, bytes)?.served(Program::Nbdkit)?;
                served.served(Program::NbdFuse)?.device()?
            }
            Built::Braid(level) => {
                let Facts { level: word, layout, .. } = level.facts();
                let mut stack = options.files(stack, level, 0)?;
                // Braid opens files past the page cache; over it they are devices that go
                // through it.
                if self.cache == Cache::Warm {
                    stack = stack.loops(words)?;
                }
                let level = (*word).to_owned();
                let layout = layout.map(str::to_owned);
                stack.array(ArraySpec { level, layout, ..ArraySpec::default() })?.device()?
            }
            Built::Md(level) => {
                md_exists()?;
                let Facts { level: word, layout, .. } = level.facts();
                options.files(stack, level, 0)?.loops(words)?.md(word, *layout)?
            }
            Built::Btrfs(level) => {
                let mkfs = Tool::find("mkfs.btrfs", "btrfs-progs")?;
                let stack = options.files(stack, level, BTRFS_OVERHEAD_BYTES)?.loops(words)?;
                return btrfs(stack, &mkfs, level.facts().profile.unwrap_or("single"));
            }
        };
        stack.file_system(FileSystemKind::Ext4, "")
    }
}

fn btrfs(stack: Stack, mkfs: &Tool, profile: &str) -> Result<Stack, Failure> {
    let names: Vec<String> = stack.members.iter().map(|path| path.display().to_string()).collect();
    let words = ["--quiet", "--force", "--data", profile, "--metadata", profile];
    mkfs.output(&[&words.map(str::to_owned), &names[..]].concat())?;
    let others = names.iter().skip(1).map(|name| format!("device={name}"));
    // Copies on write would be measured instead of the profile.
    let options: Vec<String> = std::iter::once("nodatacow".to_owned()).chain(others).collect();
    let name = file_name(&stack.name);
    stack.mounted(&name, &options.join(","))
}

impl LevelOptions {
    /// Returns what stands side by side, without RAID first.
    pub(super) fn cases(&self, cache: Cache) -> Vec<LevelCase> {
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
            all.extend(levels().filter(|one| one.facts().profile.is_some()).map(Built::Btrfs));
        }
        match cache {
            // Nothing of the page cache can lie below the host's own file system,
            Cache::Cold => all.insert(0, Built::Bare),
            // and nbdkit always goes through it.
            Cache::Warm if against(Rival::Nbdkit) => all.push(Built::Nbdkit),
            Cache::Warm => {}
        }
        all.into_iter().map(|built| LevelCase { built, cache }).collect()
    }

    /// Returns the cases with a cold cache, then those with a warm one.
    pub(super) fn all_cases(&self) -> Vec<LevelCase> {
        Cache::ALL.into_iter().flat_map(|cache| self.cases(cache)).collect()
    }

    /// Returns the number of members of a level. One that needs more than were asked for has as
    /// many as it needs.
    pub(super) fn members(&self, level: Level) -> u16 {
        let least = level.facts().members;
        self.members.map_or(least, |members| members.max(least))
    }

    /// The size of the file system that everything is measured on.
    fn data_bytes(&self) -> u64 {
        let size = self.size_bytes;
        (size + size / 8 + OVERHEAD_BYTES).next_multiple_of(1 << 20)
    }

    /// Files for the members of a level, so much larger than they need to be.
    fn files(&self, stack: Stack, level: Level, more_bytes: u64) -> Result<Stack, Failure> {
        let members = self.members(level);
        let stored = self.data_bytes() as f64 * level.stored(members);
        let share = (stored / f64::from(members)) as u64 + MEMBER_OVERHEAD_BYTES;
        stack.files(members.into(), share.next_multiple_of(1 << 20) + more_bytes)
    }
}
