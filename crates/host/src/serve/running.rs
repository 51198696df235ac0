//! An array that is served, until there is a reason to stop.
//!
//! Users keep it: a requested stop is refused while the array is in use, and a signal waits for its
//! users, for a time. A forced stop, and one after that time, first has the file systems above
//! written out, as far as they can be found.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use braid_array::action::Command;
use braid_array::refusal::{Invocation, Next, Refusal};

use super::ExportSpec;
use super::contents;
use super::open_exports::OpenExports;
use crate::control::{ExportChange, NextProgram, StopAnswer, StopRequest};
use crate::engine::exports::ExportQueue;
use crate::handover::Handover;
use crate::notify::{self, Watched};
use crate::submission::{Message, SubmissionQueue};
use crate::system::describe;
use crate::users::{User, listed};

/// Time for which a signal waits for users of the array. With the steps that follow, it stays below
/// the 90 s after which systemd kills.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Interval of checks whether they have gone.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Users that are gone after this time do not count: programs that look at each new device (udev),
/// and clients that have just disconnected.
const MOMENT: Duration = Duration::from_secs(1);
/// Limit on the time in which file systems above write out their data.
const WRITE_OUT: Duration = Duration::from_secs(10);

/// Reason for which the program is the same as before.
pub(super) enum NotReplaced {
    /// A replacement would be possible.
    Possible,
    /// Nothing has changed.
    Refused(Refusal),
    /// The array has stopped, and is no longer served.
    Stopped(Refusal),
}

/// Parts of a served array that have to end.
pub(super) struct Running {
    pub(super) name: String,
    pub(super) submissions: SubmissionQueue,
    pub(super) open_exports: OpenExports,
    pub(super) exports: ExportQueue,
    /// Result of the engine's end. Its thread may stay for longer: the kernel ends no thread that
    /// has I/O in flight on a device that does not answer.
    pub(super) engine: Option<Receiver<io::Result<()>>>,
    /// The service manager is told that this takes its time.
    pub(super) stopping: Option<Watched>,
}

impl Running {
    pub(super) const fn new(
        name: String,
        submissions: SubmissionQueue,
        open_exports: OpenExports,
        exports: ExportQueue,
        engine: Receiver<io::Result<()>>,
    ) -> Self {
        Self { name, submissions, open_exports, exports, engine: Some(engine), stopping: None }
    }

    /// Waits for a reason to stop, and stops. A signal waits up to `patience`; `replace` puts
    /// another program in the place of this one.
    pub(super) fn supervise(
        &mut self,
        stops: &Receiver<StopRequest>,
        patience: Duration,
        replace: impl Fn(&mut Self, NextProgram) -> NotReplaced,
    ) -> Result<Option<StopAnswer>, Refusal> {
        // Set by the first signal; further ones change nothing.
        let mut deadline = None;
        loop {
            match next(stops, deadline.is_some()) {
                Some(StopRequest::Asked { force, told }) => match self.stop(force) {
                    Ok(()) => return self.join().map(|()| Some(told)),
                    Err(refusal) => told(Err(refusal)),
                },
                Some(StopRequest::EngineEnded) => {
                    // A block device stays, for the array's next process.
                    let _ = self.open_exports.unmount(true);
                    self.join()?;
                    let reason = "the engine has ended by itself";
                    return Err(Refusal::new(reason, "assemble the array again"));
                }
                Some(StopRequest::TakenOver) => {
                    self.end_at_once()?;
                    let reason = "another client has taken the array over";
                    return Err(Refusal::new(reason, "use that one"));
                }
                Some(StopRequest::SetUp) => {}
                Some(StopRequest::Exports { change, told }) => told(self.change_exports(&change)),
                Some(StopRequest::Upgrade { wanted, told }) => match replace(self, wanted) {
                    NotReplaced::Possible => told(Ok(())),
                    NotReplaced::Refused(refusal) => told(Err(refusal)),
                    NotReplaced::Stopped(refusal) => return Err(refusal),
                },
                Some(StopRequest::Signal) if deadline.is_some() => {}
                Some(StopRequest::Signal) => match self.stop(false) {
                    Ok(()) => return self.join().map(|()| None),
                    Err(refusal) => {
                        self.say_that_it_stops();
                        self.say_who_is_waited_for(&refusal, patience);
                        deadline = Some(Instant::now() + patience);
                    }
                },
                None => {
                    let insist = deadline.take_if(|at| *at <= Instant::now()).is_some();
                    match self.stop(insist) {
                        Ok(()) => return self.join().map(|()| None),
                        Err(refusal) if insist => {
                            tracing::error!(array = self.name, "cannot stop: {refusal}");
                        }
                        Err(_) => {}
                    }
                }
            }
        }
    }

    /// A manager that does not hear it has patience of its own.
    fn say_that_it_stops(&mut self) {
        if self.stopping.is_none() {
            self.stopping = notify::stopping().unwrap_or(None);
        }
    }

    fn say_who_is_waited_for(&self, refusal: &Refusal, patience: Duration) {
        let reason = &refusal.reason;
        let seconds = patience.as_secs();
        tracing::warn!(
            array = self.name,
            "told by a signal to stop, but {reason}; stops when that is over, in {seconds} s anyway"
        );
    }

    /// Takes mounts and devices away and stops the array, if it is not in use or with `force`. Its
    /// members are free after that.
    pub(super) fn stop(&mut self, force: bool) -> Result<(), Refusal> {
        if force {
            self.write_out(self.users());
        } else {
            let insist = Invocation::Stop { array: Some(self.name.clone()), force: true };
            let next = Next::by("unmount, detach or disconnect that first, or insist", insist);
            refuse_users(|| self.users(), next)?;
        }
        self.say_that_it_stops();
        self.open_exports.close(force)?;
        let stop = |done| Message::Command { command: Command::Stop, device: None, done };
        // No answer means that the engine has ended already; `join` knows why.
        self.submissions.call(stop).unwrap_or(Ok(()))
    }

    /// Ends an array that another client has taken over, even while it is in use: nothing can be
    /// written out.
    fn end_at_once(&mut self) -> Result<(), Refusal> {
        let _ = self.open_exports.close(true);
        let stop = |done| Message::Command { command: Command::Stop, device: None, done };
        // No answer means that the engine has ended already; `join` knows why.
        self.submissions.call(stop).unwrap_or(Ok(()))?;
        self.join()
    }

    /// Ends this program's part in an array that the previous program serves again: clients, mounts
    /// and sockets are left as they are.
    pub(super) fn let_go(&mut self) {
        if let Ok(nothing) = Handover::begin(&(), &[]) {
            let _ = self.exports.hand_over(nothing);
        }
        let stop = |done| Message::Command { command: Command::Stop, device: None, done };
        // An engine that has ended has stopped.
        let stopped = self.submissions.call(stop).unwrap_or(Ok(())).and_then(|()| self.join());
        if let Err(refusal) = stopped {
            tracing::error!(array = self.name, "goes back without a clean stop: {refusal}");
        }
    }

    /// Opens the exports to programs, with the parts on the array.
    pub(super) fn start_exports(&mut self) -> Result<(), Refusal> {
        self.open_exports.start()?;
        self.look_at_contents();
        Ok(())
    }

    /// Searches the array for parts, at the first export that shows them, and serves them too.
    fn look_at_contents(&mut self) {
        if !self.open_exports.need_no_look() {
            let array = self.open_exports.exported();
            let parts = contents::look(&self.name, &self.submissions, array);
            self.open_exports.set_parts(parts);
        }
    }

    /// Returns the present users of the array.
    fn users(&self) -> Vec<User> {
        let clients = self.submissions.call(|done| Message::Clients { done });
        let mut users = clients.unwrap_or_default();
        users.extend(self.open_exports.users());
        users
    }

    /// Adds or removes an export, as it was asked for.
    fn change_exports(&mut self, change: &ExportChange) -> Result<(), Refusal> {
        match change {
            ExportChange::Add { export } => {
                let spec: ExportSpec = export.parse()?;
                let Self { open_exports, exports, .. } = self;
                let ended = || Refusal::new("the engine has ended", "assemble the array again");
                open_exports.open(&spec, &mut |export| exports.add(export).ok_or_else(ended))?;
                self.look_at_contents();
                tracing::info!(array = self.name, "export {export} added");
            }
            ExportChange::Remove { export, force } => {
                let spec: ExportSpec = export.parse()?;
                let at = self.open_exports.find(&spec)?;
                if *force {
                    self.write_out(self.open_exports.users_of(at, &self.exports));
                } else {
                    let next = "unmount, detach or disconnect that first, or insist with --force";
                    refuse_users(|| self.open_exports.users_of(at, &self.exports), next.into())?;
                }
                self.open_exports.remove(at, *force, &self.exports)?;
                tracing::info!(array = self.name, "export {export} removed");
            }
        }
        Ok(())
    }

    /// Makes the file systems above write out their data, while the array still takes it.
    fn write_out(&self, users: Vec<User>) {
        if users.is_empty() {
            return;
        }
        tracing::warn!(array = self.name, "taken away although in use by {}", listed(&users));
        let (done, all_done) = mpsc::channel();
        let write_out = move || {
            users.iter().flat_map(User::mounts).for_each(write_out);
            // Nobody may wait any longer.
            let _ = done.send(());
        };
        // It may hang as the file system does; the end of the process ends it.
        if thread::Builder::new().name("write-out".into()).spawn(write_out).is_ok() {
            let _ = all_done.recv_timeout(WRITE_OUT);
        }
    }

    pub(super) fn join(&mut self) -> Result<(), Refusal> {
        let Some(engine) = self.engine.take() else { return Ok(()) };
        let next = "look at the superblocks of its members, then assemble it again";
        match engine.recv() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                Err(Refusal::new(format!("the engine failed: {}", describe(&error)), next))
            }
            Err(_) => Err(Refusal::new("the engine panicked", next)),
        }
    }
}

/// Refuses when there are users for longer than a moment.
fn refuse_users(users: impl Fn() -> Vec<User>, next: Next) -> Result<(), Refusal> {
    let begun = Instant::now();
    loop {
        let users = users();
        if users.is_empty() {
            return Ok(());
        }
        if begun.elapsed() >= MOMENT {
            return Err(Refusal::new(format!("in use by {}", listed(&users)), next));
        }
        thread::sleep(MOMENT / 20);
    }
}

/// The next reason to stop. `None` when it is time to look again.
fn next(stops: &Receiver<StopRequest>, look_again: bool) -> Option<StopRequest> {
    if !look_again {
        return Some(stops.recv().unwrap_or(StopRequest::EngineEnded));
    }
    match stops.recv_timeout(LOOK_AGAIN) {
        Ok(request) => Some(request),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(StopRequest::EngineEnded),
    }
}

fn write_out(mountpoint: &Path) {
    let synced = File::open(mountpoint).and_then(|file| Ok(rustix::fs::syncfs(file)?));
    if let Err(error) = synced {
        let mountpoint = mountpoint.display();
        tracing::error!("{mountpoint}: not written out: {}", describe(&error));
    }
}
