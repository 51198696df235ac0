//! Served arrays, found by the listening sockets of their processes, without asking them: a process
//! whose control socket is gone, or that is stopped, does not answer.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use braid_array::refusal::{Invocation, Next};

use crate::run_dir::{self, array_of_socket, connect, socket_path};
use crate::users::{self, Process};

/// Time for which an ending process may listen after it has taken its socket away.
const LAST_MOMENT: Duration = Duration::from_secs(1);
/// Connecting takes no time, unless a stopped process has too many connections already.
const MOMENT: Duration = Duration::from_millis(100);

/// An array that a process serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedArray {
    run_dir: PathBuf,
    name: String,
    pid: u32,
}

impl ServedArray {
    /// The array that this process serves: it listens in a run directory, whichever that is.
    /// `None` also where this user may not see it.
    #[must_use]
    pub fn of_process(pid: u32) -> Option<Self> {
        users::listening_at(pid).iter().find_map(|socket| Self::at(socket, pid))
    }

    /// Returns the arrays whose control sockets in this run directory are lost. Arrays of processes
    /// that this user may not see are left out.
    #[must_use]
    pub fn lost(run_dir: &Path) -> Vec<Self> {
        let begun = Instant::now();
        loop {
            let lost = Self::lost_now(run_dir);
            if lost.is_empty() || begun.elapsed() > LAST_MOMENT {
                return lost;
            }
            thread::sleep(LAST_MOMENT / 20);
        }
    }

    fn lost_now(run_dir: &Path) -> Vec<Self> {
        let sockets = users::listening(|socket| {
            socket.parent() == Some(run_dir) && name_of(socket).is_some()
        });
        let odd = |path: &Path| {
            !path.exists() || sockets.iter().filter(|(_, other)| other == path).count() > 1
        };
        let lost = sockets.iter().filter(|(_, path)| odd(path));
        let lost = lost.filter_map(|(inode, path)| {
            let pid = users::with_socket(inode)?.pid;
            Self::at(path, pid)
        });
        lost.filter(Self::is_lost).collect()
    }

    fn at(socket: &Path, pid: u32) -> Option<Self> {
        let name = name_of(socket)?.to_owned();
        let run_dir = socket.parent()?.to_owned();
        // Exports may listen anywhere. A directory that is gone tells nothing.
        let is_one = run_dir::is_one(&run_dir) || !run_dir.exists();
        is_one.then_some(Self { run_dir, name, pid })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process that serves it.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns whether its control socket is gone, or belongs to another process.
    fn is_lost(&self) -> bool {
        match connect(&socket_path(&self.run_dir, &self.name), MOMENT) {
            Ok(stream) => Process::at_other_end(&stream).is_some_and(|one| one.pid != self.pid),
            Err(error) => {
                matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
            }
        }
    }

    fn is_stopped(&self) -> bool {
        Process::of(self.pid).is_stopped()
    }

    /// Returns the next step to stop it; where its process is stopped, the step to let that go on.
    #[must_use]
    pub fn how_to_stop(&self) -> Next {
        if self.is_stopped() {
            return format!("let it go on: kill -CONT {}", self.pid).into();
        }
        if self.is_lost() {
            return format!("end it, which stops the array cleanly: kill {}", self.pid).into();
        }
        if self.run_dir == run_dir::run_dir(None) {
            let stop = Invocation::Stop { array: Some(self.name.clone()), force: false };
            return Next::by("stop it", stop);
        }
        format!("stop it, it runs with --run-dir {}", self.run_dir.display()).into()
    }
}

/// Writes `array home (process 7)`, and defects of it.
impl fmt::Display for ServedArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "array {} (process {}", self.name, self.pid)?;
        if self.is_stopped() {
            f.write_str(", stopped")?;
        }
        if self.is_lost() {
            f.write_str(", its control socket is gone")?;
        }
        f.write_str(")")
    }
}

fn name_of(socket: &Path) -> Option<&str> {
    array_of_socket(socket.file_name()?.to_str()?)
}
