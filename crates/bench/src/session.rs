//! One call of `braid bench`: the room, the run, the report.

use std::fs;
use std::path::{Path, PathBuf};

use braid_host::member;
use clap::{Args, ValueHint};
use indicatif::ProgressBar;
use rustix::fs::statfs;

use crate::failure::{About, Failure};
use crate::folder::Folder;
use crate::machine::Machine;
use crate::model::Comparison;
use crate::report;
use crate::rig::leftovers::{self, Guard};
use crate::rig::{self, Room};
use crate::runner::{self, Runner};
use crate::tool::Tool;

const MEMORY: &str = "/dev/shm";
/// Short comparisons fit into it.
const MEMORY_BYTES: u64 = 4 << 30;
/// Programs, and the option with which each tells its version.
const TOOLS: [(&str, &str); 11] = [
    ("fio", "--version"),
    ("dd", "--version"),
    ("bonnie++", "-version"),
    ("mkfs.ext4", "-V"),
    ("mkfs.xfs", "-V"),
    ("losetup", "--version"),
    ("qemu-img", "--version"),
    ("nbdkit", "--version"),
    ("qemu-storage-daemon", "--version"),
    ("btrfs", "--version"),
    ("mdadm", "--version"),
];

/// Arguments common to all comparisons.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Short and small: everything in it, at sizes that take minutes at most
    #[arg(long)]
    pub quick: bool,
    /// Where files of members go [default: memory with --quick but for engine and policies, which
    /// have members of both, else where temporary files go]
    #[arg(long, alias = "store", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Where the report goes, with what the tools said in raw/ [default: braid-bench; with --json
    /// nothing is kept]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub report: Option<PathBuf>,
    /// Print results.json
    #[arg(long)]
    pub json: bool,
    /// Go on where an earlier run into the same report ended
    #[arg(long)]
    pub resume: bool,
    /// Use these disks or files as members, one case after the other; they lose what they hold.
    /// A number, with levels: so many members for every level that can do with so many
    #[arg(long, value_name = "PATH", value_delimiter = ',', num_args = 1..)]
    #[arg(value_hint = ValueHint::AnyPath)]
    pub members: Vec<PathBuf>,
    /// Use members that hold something
    #[arg(long, requires = "members")]
    pub force: bool,
}

/// Outcome of a run.
#[derive(Clone, Debug)]
pub struct Reported {
    /// Text for a terminal.
    pub text: String,
    /// `results.json`.
    pub json: String,
}

/// Measures in this order, and writes the report, also when the run ends early. When a signal has
/// ended it, `when_interrupted` is done after the report of what there is.
pub fn run(
    comparisons: Vec<Box<dyn Comparison>>,
    args: &RunArgs,
    bar: ProgressBar,
    when_interrupted: impl FnOnce() + Send + 'static,
) -> Result<Reported, Failure> {
    leftovers::take_away_of_the_dead();
    args.members.iter().try_for_each(|path| check_member(path, args.force))?;
    let dir = args.dir.clone().unwrap_or_else(|| default_dir(args.quick));
    let (scratch, _guard) = leftovers::scratch_directory(&dir)?;
    let path = args.report.clone().unwrap_or_else(|| scratch.join("report"));
    let folder = Folder::open(&path)?;
    let at_the_end = folder.clone();
    leftovers::watch_signals(move || {
        // There may be nothing to write yet.
        let _ = write(&at_the_end);
        when_interrupted();
    })?;
    let memory = memory_directory()?;
    let mut room = Room::new(scratch, args.members.clone(), Tool::of_braid()?);
    if let Some((scratch, _)) = &memory {
        room = room.with_memory(scratch.clone());
    }
    let comparisons: Vec<Box<dyn Comparison>> =
        comparisons.into_iter().map(|one| fitted(one, &room, &folder, args.resume)).collect();
    folder.keep_machine(&machine(&dir, &room.members))?;
    let ended = Runner::new(&folder, &room, bar).run(&comparisons, args.resume);
    let reported = write(&folder);
    // What ended the run comes before what its report lacks.
    ended.and(reported)
}

/// Makes a comparison as large as there is room for; a resumed one, as large as it was.
fn fitted(
    mut comparison: Box<dyn Comparison>,
    room: &Room,
    folder: &Folder,
    resume: bool,
) -> Box<dyn Comparison> {
    let before = if resume { folder.options(comparison.name()) } else { None };
    let fits = |one: &dyn Comparison| match &before {
        Some(options) => one.options() == *options,
        None => {
            let in_files = !room.members.is_empty() || one.needs_bytes() <= room.free_bytes();
            in_files && one.needs_memory_bytes() <= room.free_memory_bytes()
        }
    };
    let mut wanted = Some(());
    while wanted.is_some() && !fits(comparison.as_ref()) {
        wanted = comparison.smaller().map(|smaller| comparison = smaller);
    }
    comparison
}

/// Writes the report of a folder again.
pub fn write(folder: &Folder) -> Result<Reported, Failure> {
    let chapters = runner::chapters(folder)?;
    report::write(folder.path(), &folder.machine(), &chapters)?;
    let json = fs::read_to_string(folder.path().join(report::RESULTS));
    Ok(Reported { text: report::text(&chapters), json: json.unwrap_or_default() })
}

/// Refuses members that hold something.
fn check_member(path: &Path, force: bool) -> Result<(), Failure> {
    let file = member::peek(path)
        .map_err(|why| Failure::usage(path.display(), why, "name another member"))?;
    let held = member::signature(&file).about(path.display(), "name another member")?;
    match held {
        Some(held) if !force => {
            let reason = format!("it holds {}", held.what);
            Err(Failure::usage(path.display(), reason, "name another, or give --force to lose it"))
        }
        _ => Ok(()),
    }
}

/// A directory of this process's own in memory, where there is a file system for that.
fn memory_directory() -> Result<Option<(PathBuf, Guard)>, Failure> {
    let memory = Path::new(MEMORY);
    if file_system(memory) != "tmpfs" {
        return Ok(None);
    }
    leftovers::scratch_directory(memory).map(Some)
}

fn default_dir(small: bool) -> PathBuf {
    let memory = Path::new(MEMORY);
    let roomy = rig::memory_available_bytes() >= MEMORY_BYTES;
    if small && roomy && memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

fn machine(dir: &Path, members: &[PathBuf]) -> Machine {
    let version = |(name, word): &(&str, &str)| {
        let said = Tool::find(name, "").ok()?.version(word)?;
        Some(if said.contains(name) { said } else { format!("{name} {said}") })
    };
    let storage = match members {
        [] => format!("files in {} ({})", dir.display(), file_system(dir)),
        named => format!("{} members that were named", named.len()),
    };
    Machine { tools: TOOLS.iter().filter_map(version).collect(), storage, ..Machine::this() }
}

/// The type of the file system that a directory is on.
fn file_system(dir: &Path) -> String {
    let Ok(found) = statfs(dir) else { return "unknown".to_owned() };
    match found.f_type {
        0x0102_1994 => "tmpfs".to_owned(),
        0xef53 => "ext4".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683e => "btrfs".to_owned(),
        other => format!("type {other:#x}"),
    }
}
