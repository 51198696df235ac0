//! The array behind a control socket, and the ways to ask it.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_array::action::Command;
use braid_array::refusal::{Invocation, Next};
use braid_array::status::{ArrayState, MemberState, MemberStatus, Status};
use braid_array::{MemberId, Refusal};

use super::news::News;
use crate::disk::Disks;
use crate::fabric::Network;
use crate::limits::LimitKeeper;
use crate::member::{MemberFile, MemberName};
use crate::submission::{Message, SubmissionQueue};

/// The array behind a control socket.
#[derive(Debug)]
pub struct Served {
    /// Name of the array.
    pub name: String,
    /// The way to it.
    pub submissions: SubmissionQueue,
    /// Requests must be multiples of this.
    pub block_bytes: u32,
    /// Network by which its members are reached, when they are nodes.
    pub network: Option<Network>,
    /// Its exports, for people.
    pub exports: Shown,
    /// Directory of its control socket and those of other arrays.
    pub run_dir: PathBuf,
    /// Time at which it began: seconds since 1970.
    pub started_unix_s: u64,
    /// Speed limits of its background work.
    pub limits: LimitKeeper,
    /// Channel of requests to stop it.
    pub stop: Sender<StopRequest>,
    /// Events that it reported.
    pub news: Arc<News>,
    /// Hardware of its members.
    pub disks: Disks,
    /// Directory of overlays for its members, if changes go there.
    pub overlay: Option<PathBuf>,
}

/// List of an array's exports by name, for people. Exports come and go.
#[derive(Clone, Debug, Default)]
pub struct Shown(Arc<Mutex<Vec<String>>>);

impl Shown {
    fn names(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the present exports.
    #[must_use]
    pub fn get(&self) -> Vec<String> {
        self.names().clone()
    }

    /// Replaces the list after a change.
    pub fn set(&self, names: Vec<String>) {
        *self.names() = names;
    }
}

/// Change of an export, which is named as for `assemble --export`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportChange {
    /// Serve the array so, too.
    Add {
        /// The export.
        export: String,
    },
    /// Serve it so no more.
    Remove {
        /// The export.
        export: String,
        /// Even while programs use it.
        force: bool,
    },
}

/// Told how a stop went: after the members are free, or why not.
pub type StopAnswer = Box<dyn FnOnce(Result<(), Refusal>) + Send>;

/// Program that is to serve the array, and the connection that asked for it.
#[derive(Debug)]
pub struct NextProgram {
    /// Its path.
    pub program: PathBuf,
    /// The newest version of a hand-over that it takes.
    pub takes: u32,
    /// Clients that neither take their data nor send the rest of it are hung up on.
    pub force: bool,
    /// Members to name besides those that the array has.
    pub more: Vec<String>,
    /// The control connection, on which that program answers; without it, it is only asked whether
    /// that can be done.
    pub asker: Option<OwnedFd>,
}

/// Reason for which the array should stop.
pub enum StopRequest {
    /// A client asked for it over the control socket, and waits.
    Asked {
        /// Even while programs use it.
        force: bool,
        /// Answer to it.
        told: StopAnswer,
    },
    /// A signal came.
    Signal,
    /// The engine has ended.
    EngineEnded,
    /// Another client has the array over nodes now.
    TakenOver,
    /// No reason to stop: a client asks for a change of exports, and waits.
    Exports {
        /// The change.
        change: ExportChange,
        /// Answer to it.
        told: StopAnswer,
    },
    /// Another program is to serve it in this process; a client waits for that.
    Upgrade {
        /// The program.
        wanted: NextProgram,
        /// Answer to it, if the program is not replaced.
        told: StopAnswer,
    },
    /// No reason to stop, but to look: the set-up of the array is over.
    SetUp,
}

impl Served {
    /// The state of the array.
    pub(super) fn status(&self) -> Result<Status, Refusal> {
        self.submissions.status().ok_or_else(|| self.ended())
    }

    /// Returns the refusal of a device that is this member already. `that_is` is the beginning of
    /// the reason.
    pub(super) fn already_a_member(
        &self,
        that_is: String,
        member: &MemberStatus,
        status: &Status,
    ) -> Refusal {
        let reason = format!("{that_is} already a member of {}", self.name);
        let array = Some(self.name.clone());
        if status.state != ArrayState::Failed && member.state == MemberState::Faulty {
            let remove = Invocation::Remove { array, device: member.device.clone() };
            let next = Next::by("remove it first", remove);
            return Refusal::new(format!("{reason}, a faulty one"), next);
        }
        if status.state != ArrayState::Failed {
            return Refusal::new(reason, "fail and remove it first, to add it anew");
        }
        let stop = Invocation::Stop { array, force: false };
        let next = Next::by("stop it, bring the members back and assemble it again", stop);
        Refusal::new(format!("{reason}, which has lost too many members"), next)
    }

    pub(super) fn command(&self, command: Command) -> Result<(), Refusal> {
        self.command_with(command, None)
    }

    /// Sends a command in, with the device that belongs to it, and waits for the answer.
    pub(super) fn command_with(
        &self,
        command: Command,
        device: Option<MemberFile>,
    ) -> Result<(), Refusal> {
        let answer = self.submissions.call(|done| Message::Command { command, device, done });
        answer.ok_or_else(|| self.ended())?.map_err(|refusal| refusal.about(&self.name))
    }

    /// Asks for an export to be added or removed, and waits until it is.
    pub(super) fn change_exports(&self, change: ExportChange) -> Result<(), Refusal> {
        let (answer, answered) = mpsc::sync_channel(1);
        let told = Box::new(move |result| {
            // Somebody waits: just below.
            let _ = answer.send(result);
        });
        // Where nobody hears it any more, nobody answers either.
        let _ = self.stop.send(StopRequest::Exports { change, told });
        answered.recv().unwrap_or_else(|_| Err(self.ended()))
    }

    pub(super) fn ended(&self) -> Refusal {
        Refusal::new(format!("{} has stopped", self.name), "assemble it again")
    }

    /// The member behind a path.
    pub(super) fn member(&self, path: &str) -> Result<MemberId, Refusal> {
        let status = self.status()?;
        if let Some((array, _)) = status.child_called(path) {
            return Ok(array);
        }
        find_member(&status, Path::new(path)).map(|member| member.member).ok_or_else(|| {
            let detail = Invocation::Detail { array: Some(self.name.clone()) };
            Refusal::new(
                format!("{path} is no member of {}", self.name),
                Next::by("see its members", detail),
            )
        })
    }
}

/// The member whose device is `path`, under whatever name, in the array or one of its arrays.
pub(super) fn find_member<'a>(status: &'a Status, path: &Path) -> Option<&'a MemberStatus> {
    let real = |path: &Path| MemberName::of(path).real();
    let wanted = real(path);
    // A member on a node may be called by its node alone.
    let on_node = |device: &Path| path.starts_with("node:") && device.starts_with(path);
    let named = |device: &Path| on_node(device) || device == path || real(device) == wanted;
    let mut arrays = std::iter::once(status).chain(&status.children);
    arrays.find_map(|array| array.members.iter().find(|m| named(Path::new(&m.device))))
}
