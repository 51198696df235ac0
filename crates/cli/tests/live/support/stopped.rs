//! Processes of arrays, and one that hangs for a while.

use std::os::unix::net::UnixStream;

use rustix::process::{Pid, Signal, kill_process};

use super::{Lab, until};

/// The process that serves an array.
pub(crate) fn process_of(lab: &Lab, name: &str) -> Pid {
    let socket = lab.path("run").join(format!("{name}.sock"));
    let socket = UnixStream::connect(socket).expect("a running array");
    rustix::net::sockopt::socket_peercred(&socket).expect("its process").pid
}

/// A process that was stopped; it goes on when this is dropped.
pub(crate) struct Stopped(Pid);

impl Stopped {
    /// Stops a process, and returns when none of its threads runs any more: a signal is sent to one
    /// of them, and on a busy machine the others answer until that one has had its turn.
    pub(crate) fn new(pid: Pid) -> Self {
        kill_process(pid, Signal::STOP).expect("it is ours");
        let stopped = Self(pid);
        until("it is stopped", || stopped.threads().all(|stat| is_stopped(&stat)));
        stopped
    }

    pub(crate) fn serving(lab: &Lab, name: &str) -> Self {
        Self::new(process_of(lab, name))
    }

    fn threads(&self) -> impl Iterator<Item = String> {
        let tasks = format!("/proc/{}/task", self.0.as_raw_nonzero());
        let tasks = std::fs::read_dir(tasks).expect("a process");
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok())
    }
}

/// Returns whether a thread is stopped. The kernel's own, of a ring, never are.
fn is_stopped(stat: &str) -> bool {
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    stat.contains("(iou-") || state.is_some_and(|state| state.starts_with('T'))
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}
