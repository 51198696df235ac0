//! Leftovers of a measurement on the machine. Each is taken away when its guard is dropped, or when
//! a signal ends the command early. Leftovers of a killed process are recorded in the run
//! directory: the next process takes them away. Processes need no guard: they are started so that
//! they end with the command.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use braid_host::run_dir;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::spaces;
use crate::failure::{About, Failure};

/// Next step where a directory cannot be used.
const ANOTHER_DIRECTORY: &str = "name a directory with room: --dir DIR";

/// Something to take away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leftover {
    /// A mount.
    Mount(PathBuf),
    /// A loop device, and the file that it is of, if the kernel says so: its number may be
    /// another's by now.
    Loop(PathBuf, Option<PathBuf>),
    /// An array of the kernel's, and the members that it is of.
    Md(PathBuf, Vec<PathBuf>),
    /// The namespaces of the lab with this name, and what runs in them.
    Lab(String),
    /// A directory with all that is in it.
    Directory(PathBuf),
    /// A directory that was made to mount something on.
    EmptyDirectory(PathBuf),
    /// A setting of the kernel's: its file, and what it was before.
    Setting(PathBuf, String),
}

impl Leftover {
    /// Takes the leftover away. After a failure, the next run tries again.
    fn take_away(&self) -> bool {
        match self {
            Self::Mount(path) => unmount(path),
            Self::Loop(device, file) => {
                backing_file(device) != *file || run("losetup", &["--detach"], device)
            }
            Self::Md(device, members) => {
                !is_of(device, members) || run("mdadm", &["--stop", "--quiet"], device)
            }
            Self::Lab(name) => spaces::take_down(name),
            Self::Directory(path) => gone(path, fs::remove_dir_all(path)),
            Self::EmptyDirectory(path) => gone(path, fs::remove_dir(path)),
            Self::Setting(file, before) => gone(file, fs::write(file, before)),
        }
    }
}

/// File that a loop device is of, as the kernel names it; none when the device is free.
pub fn backing_file(device: &Path) -> Option<PathBuf> {
    let entry = Path::new("/sys/block").join(device.file_name()?).join("loop/backing_file");
    Some(PathBuf::from(fs::read_to_string(entry).ok()?.trim_end_matches('\n')))
}

/// Tells whether an array of the kernel's has members, and none but these.
fn is_of(device: &Path, members: &[PathBuf]) -> bool {
    let entry = Path::new("/sys/block").join(device.file_name().unwrap_or_default());
    let slaves = fs::read_dir(entry.join("slaves")).into_iter().flatten().flatten();
    let names: Vec<_> = slaves.map(|slave| slave.file_name()).collect();
    let known: Vec<_> = members.iter().filter_map(|member| member.canonicalize().ok()).collect();
    let ours = |name: &OsString| known.iter().any(|member| member.file_name() == Some(name));
    !names.is_empty() && names.iter().all(ours)
}

fn gone(path: &Path, removed: std::io::Result<()>) -> bool {
    removed.is_ok() || matches!(path.try_exists(), Ok(false))
}

/// Unmounts it; what is busy for a moment (a program that is just ending), as soon as it is not.
fn unmount(path: &Path) -> bool {
    if !is_mounted(path) {
        return true;
    }
    let calm = run("umount", &[], path);
    calm || run("umount", &["--lazy"], path) || run("fusermount3", &["-u", "-z"], path)
}

fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let wanted = path.display().to_string().replace(' ', "\\040");
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(wanted.as_str()))
}

fn run(program: &str, words: &[&str], path: &Path) -> bool {
    let mut command = Command::new(program);
    command.args(words).arg(path).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

static LEFTOVERS: Mutex<Vec<Leftover>> = Mutex::new(Vec::new());

fn leftovers() -> MutexGuard<'static, Vec<Leftover>> {
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a leftover away when it goes.
#[derive(Debug)]
pub struct Guard(Leftover);

impl Guard {
    /// Creates a guard. Call this before the thing is made: it may be left half made.
    #[must_use]
    pub fn new(leftover: Leftover) -> Self {
        let mut all = leftovers();
        all.push(leftover.clone());
        write_down(&all);
        Self(leftover)
    }

    /// Makes a directory, which goes with all that is in it.
    pub fn directory(path: &Path) -> Result<Self, Failure> {
        let guard = Self::new(Leftover::Directory(path.to_owned()));
        fs::create_dir_all(path).about(path.display(), ANOTHER_DIRECTORY)?;
        Ok(guard)
    }

    /// Leaves it there for good.
    pub fn keep(self) {
        forget(&self.0);
        std::mem::forget(self);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.take_away();
        forget(&self.0);
    }
}

fn forget(leftover: &Leftover) {
    let mut all = leftovers();
    all.retain(|other| other != leftover);
    write_down(&all);
}

/// Directory in which processes write down what they would leave.
fn registry() -> PathBuf {
    run_dir::run_dir(None).join("bench")
}

/// Best effort: without a run directory only a kill that cannot be caught leaves things.
fn write_down(all: &[Leftover]) {
    let file = registry().join(format!("{}.json", process::id()));
    if all.is_empty() {
        let _ = fs::remove_file(file);
        return;
    }
    let write = || {
        run_dir::make_run_dir(&run_dir::run_dir(None))?;
        fs::create_dir_all(registry())?;
        let new = file.with_extension("new");
        fs::File::create(&new)?.write_all(&serde_json::to_vec(all)?)?;
        fs::rename(new, &file)
    };
    let _ = write();
}

/// Takes away what processes have left that are gone: a signal they could not catch ended them.
pub fn take_away_of_the_dead() {
    for entry in fs::read_dir(registry()).into_iter().flatten().flatten() {
        let path = entry.path();
        let pid = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u32>().ok());
        if pid.is_none_or(|pid| Path::new("/proc").join(pid.to_string()).exists()) {
            continue;
        }
        let text = fs::read(&path).unwrap_or_default();
        let all: Vec<Leftover> = serde_json::from_slice(&text).unwrap_or_default();
        let taken = all.iter().rev().filter(|leftover| leftover.take_away()).count();
        if taken == all.len() {
            let _ = fs::remove_file(path);
        }
    }
}

/// A new directory of this process's below another one, gone when the guard goes.
pub fn scratch_directory(below: &Path) -> Result<(PathBuf, Guard), Failure> {
    // The kernel lists mounts by their full names, and another process looks for what was left.
    let parent = fs::create_dir_all(below).and_then(|()| below.canonicalize());
    let parent = parent.about(below.display(), ANOTHER_DIRECTORY)?;
    let path = parent.join(format!("braid-bench.{}", process::id()));
    let guard = Guard::directory(&path)?;
    Ok((path, guard))
}

/// Installs handlers for SIGINT, SIGTERM and SIGHUP: they take all leftovers away, call
/// `at_the_end` (which writes the report so far), and end the process.
pub fn watch_signals(at_the_end: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let refused = |error| Failure::system("signals", &error, "check the system's limits");
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(refused)?;
    let watch = move || {
        if let Some(signal) = signals.forever().next() {
            // Held to the end: nothing new may be left meanwhile.
            let mut leftovers = leftovers();
            for leftover in leftovers.iter().rev() {
                leftover.take_away();
            }
            leftovers.clear();
            write_down(&leftovers);
            at_the_end();
            process::exit(128 + signal);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(watch).map_err(refused)?;
    Ok(())
}
