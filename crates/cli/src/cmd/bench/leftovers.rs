//! What a measurement leaves on the machine until it is taken away: labs, directories, mounts.
//! Each is taken away when its guard goes, or when a signal ends the command early. Processes need
//! no guard: they are started so that they end with the command.

use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::lab;
use crate::failure::{Failure, system_error};

/// Something to take away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Leftover {
    /// The namespaces of the lab with this name, and what runs in them.
    Lab(String),
    /// A directory with all that is in it.
    Directory(PathBuf),
}

impl Leftover {
    fn take_away(&self) {
        match self {
            Self::Lab(name) => lab::take_down(name),
            // What cannot be removed now is in the system's directory for such things.
            Self::Directory(path) => drop(std::fs::remove_dir_all(path)),
        }
    }
}

static LEFTOVERS: Mutex<Vec<Leftover>> = Mutex::new(Vec::new());

fn leftovers() -> MutexGuard<'static, Vec<Leftover>> {
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a leftover away when it goes.
#[derive(Debug)]
pub(super) struct Guard(Leftover);

impl Guard {
    pub(super) fn new(leftover: Leftover) -> Self {
        leftovers().push(leftover.clone());
        Self(leftover)
    }

    /// Leaves it there for good.
    pub(super) fn keep(self) {
        leftovers().retain(|leftover| *leftover != self.0);
        std::mem::forget(self);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.take_away();
        leftovers().retain(|leftover| *leftover != self.0);
    }
}

/// A new directory of this process's below `parent`, gone when the guard goes.
pub(super) fn scratch_directory(parent: Option<&Path>) -> Result<(PathBuf, Guard), Failure> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
    let path = parent.join(format!("braid-bench.{}", process::id()));
    let guard = Guard::new(Leftover::Directory(path.clone()));
    std::fs::create_dir_all(&path).map_err(|error| {
        let next = "name a directory with room: --store DIR";
        Failure::refused("bench", path.display(), system_error(&error), next)
    })?;
    Ok((path, guard))
}

/// From here on SIGINT, SIGTERM and SIGHUP take everything away and end the process.
pub(super) fn watch_signals() -> Result<(), Failure> {
    let refused = |error: std::io::Error| {
        Failure::refused("bench", "signals", system_error(&error), "check the system's limits")
    };
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(refused)?;
    let watch = move || {
        if let Some(signal) = signals.forever().next() {
            // Held to the end: nothing new may be left meanwhile.
            let leftovers = leftovers();
            leftovers.iter().rev().for_each(Leftover::take_away);
            process::exit(128 + signal);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(watch).map_err(refused)?;
    Ok(())
}
