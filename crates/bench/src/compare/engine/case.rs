//! Cases: a level within the process, a level over an export, or something without RAID.

use std::fmt;
use std::path::PathBuf;

use braid_array::level::Level;

use super::EngineOptions;
use crate::compare::member_bytes;
use crate::compare::words::names;
use crate::failure::Failure;
use crate::rig::{ArraySpec, Program, Room, Stack};

/// All levels there are, as they are typed.
pub(super) const LEVELS: [&str; 5] = ["0", "1", "5", "6", "10"];
pub(super) const CHUNK_BYTES: u64 = 512 << 10;

/// Something without RAID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Baseline {
    pub(super) name: &'static str,
    /// Name of what it is compared with itself.
    to: &'static str,
    /// Its file is in memory; otherwise where members are files.
    in_memory: bool,
    /// A loop device over the file is measured.
    device: bool,
    pub(super) program: Option<Program>,
}

const fn bare(name: &'static str, in_memory: bool, device: bool) -> Baseline {
    Baseline { name, to: name, in_memory, device, program: None }
}

const fn served(name: &'static str, to: &'static str, program: Program) -> Baseline {
    Baseline { name, to, in_memory: true, device: false, program: Some(program) }
}

const MEMORY_FILE: Baseline = bare("bare file in memory", true, false);
const MEMORY_LOOP: Baseline =
    Baseline { to: MEMORY_FILE.name, ..bare("bare loop device in memory", true, true) };
const FILE: Baseline = bare("bare file", false, false);
const LOOP: Baseline = bare("bare loop device", false, true);
const NBDKIT: Baseline = served("nbdkit memory", MEMORY_FILE.name, Program::NbdkitMemory(0));
const DAEMON_NBD: Baseline =
    served("qemu-storage-daemon over NBD", NBDKIT.name, Program::DaemonNbd);
const DAEMON_FUSE: Baseline =
    served("qemu-storage-daemon over FUSE", MEMORY_FILE.name, Program::DaemonFuse);
const DAEMON_VHOST_USER: Baseline = served(
    "qemu-storage-daemon over vhost-user",
    "qemu-storage-daemon over vhost-user",
    Program::DaemonVhostUser,
);

/// A way to an array for other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Export {
    pub(super) name: &'static str,
    /// Servers of others, without RAID; arrays are compared with the first one.
    beside: &'static [Baseline],
}

const VHOST_USER: Export = Export { name: "vhost-user", beside: &[DAEMON_VHOST_USER] };
const FUSE_LOOP: Export = Export { name: "FUSE and loop", beside: &[MEMORY_LOOP] };
const NBD: Export = Export { name: "NBD", beside: &[NBDKIT, DAEMON_NBD] };
pub(super) const EXPORTS: [Export; 4] =
    [NBD, Export { name: "FUSE", beside: &[DAEMON_FUSE] }, FUSE_LOOP, VHOST_USER];

names! {
    /// Place of members: memory, files or the devices that were named, or loop devices over such
    /// files.
    pub(super) enum EnginePlace {
        Memory = "memory",
        Files = "files",
        Blocks = "block devices",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EngineCase {
    /// A level, asked from within the process.
    Within(Level, EnginePlace),
    /// RAID 5 of five members of memory, of which 1M is a whole stripe, asked in the same way.
    Stripes,
    /// A level on members of memory, served by a process of its own and asked by fio.
    Over(Level, Export),
    /// Something without RAID, asked by fio.
    Beside(Baseline),
    Copies,
}

impl EnginePlace {
    /// Returns the case of a member itself.
    const fn baseline(self) -> EngineCase {
        match self {
            Self::Memory => EngineCase::Copies,
            Self::Files => EngineCase::Beside(FILE),
            Self::Blocks => EngineCase::Beside(LOOP),
        }
    }

    /// Returns what is asked from within the process.
    pub(super) fn within(self, options: &EngineOptions) -> impl Iterator<Item = EngineCase> {
        let is_asked = self == Self::Memory && levels(options).any(|level| level == Level::Raid5);
        levels(options)
            .map(move |level| EngineCase::Within(level, self))
            .chain(is_asked.then_some(EngineCase::Stripes))
    }

    /// Returns what takes turns on members of one kind.
    pub(super) fn cases(self, options: &EngineOptions) -> Vec<EngineCase> {
        let mut cases = vec![self.baseline()];
        cases.extend(self.within(options));
        if self == Self::Memory {
            cases.push(EngineCase::Beside(MEMORY_FILE));
            for export in EXPORTS {
                cases.extend(export.beside.iter().copied().map(EngineCase::Beside));
                cases.extend(levels(options).map(|level| EngineCase::Over(level, export)));
            }
        }
        cases
    }
}

pub(super) fn all(options: &EngineOptions) -> Vec<EngineCase> {
    EnginePlace::ALL.into_iter().flat_map(|place| place.cases(options)).collect()
}

impl fmt::Display for EngineCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Within(level, place) => write!(f, "{} on {place}", level.name()),
            Self::Stripes => f.write_str("raid5 of five with chunks of 256K on memory"),
            Self::Over(level, export) => write!(f, "{} over {}", level.name(), export.name),
            Self::Beside(baseline) => f.write_str(baseline.name),
            Self::Copies => f.write_str("copies by one thread"),
        }
    }
}

impl EngineCase {
    /// The name of what it is compared with.
    pub(super) fn baseline(self) -> String {
        match self {
            Self::Within(_, place) => place.baseline().to_string(),
            Self::Stripes | Self::Copies => Self::Copies.to_string(),
            Self::Over(_, export) => export.beside[0].name.to_owned(),
            Self::Beside(baseline) => baseline.to.to_owned(),
        }
    }

    /// Returns whether it is asked from within the process, without a program.
    pub(super) const fn is_within(self) -> bool {
        matches!(self, Self::Within(..) | Self::Stripes | Self::Copies)
    }

    /// Serves so much for programs that ask.
    pub(super) fn serve(self, room: &Room, area_bytes: u64) -> Result<Stack, Failure> {
        match self {
            Self::Beside(baseline) => baseline.serve(room, area_bytes),
            Self::Over(level, export) => {
                let stack = Stack::new(&room.in_memory()?, &self.to_string());
                let bytes = member_bytes(level, members(level), area_bytes);
                let spec = ArraySpec {
                    level: word(level).to_owned(),
                    chunk_bytes: (level != Level::Raid1).then_some(CHUNK_BYTES),
                    // Memory of its own, as the servers beside it have.
                    members: vec![PathBuf::from(format!("mem:{bytes}")); members(level)],
                    nbd: export == NBD,
                    vhost_user: export == VHOST_USER,
                    ..ArraySpec::default()
                };
                let stack = stack.array(spec)?;
                if export == FUSE_LOOP { stack.device() } else { Ok(stack) }
            }
            _ => Ok(Stack::new(room, &self.to_string())),
        }
    }
}

impl Baseline {
    fn serve(self, room: &Room, area_bytes: u64) -> Result<Stack, Failure> {
        let room = if self.in_memory { room.in_memory()? } else { room.clone() };
        let stack = Stack::new(&room, self.name);
        if self == NBDKIT {
            return stack.served(Program::NbdkitMemory(area_bytes));
        }
        let stack = stack.files(1, area_bytes)?;
        match self.program {
            Some(program) => stack.served(program),
            None if self.device => stack.device(),
            None => Ok(stack),
        }
    }
}

pub(super) fn levels(options: &EngineOptions) -> impl Iterator<Item = Level> {
    let asked = |word: &&str| options.levels.iter().any(|level| level == word);
    LEVELS.into_iter().filter(asked).filter_map(|word| word.parse().ok())
}

/// Word for `braid create --level`.
pub(super) fn word(level: Level) -> &'static str {
    level.name().trim_start_matches("raid")
}

/// A mirror of two, and otherwise as many as a small array has.
pub(super) const fn members(level: Level) -> usize {
    if matches!(level, Level::Raid1) { 2 } else { 4 }
}
