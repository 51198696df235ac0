//! The client's side of the control socket.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use braid_array::name::check_name;
use braid_array::refusal::{Invocation, Next, Refusal};

use super::wire::{
    Answer, ControlRequest, ControlStatus, Reply, Response, VERSION, Verb, Versioned,
};
use super::{is_running, read_line, socket_path};
use crate::member::MemberName;
use crate::run_dir::{array_of_socket, connect};
use crate::served_array::ServedArray;
use crate::users::Process;

/// Limit on an answer of an array. Its state is answered at once, whatever its members do.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Beginning of the answer of a program to a verb that is newer than it.
const UNKNOWN_VERB: &str = "not a request: unknown variant";

/// Reason for which a running array was not reached, or its refusal.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No process serves it.
    #[error("no array of this name is running")]
    NotRunning,
    /// A process serves it, but cannot be reached.
    #[error("its process {} runs, but its control socket is gone", .0.pid())]
    Lost(ServedArray),
    /// The socket belongs to another user.
    #[error("permission denied")]
    Denied,
    /// The array refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Its process is stopped, and will not answer before it goes on.
    #[error("its process {0} is stopped")]
    Suspended(u32),
    /// Its process is there but does not answer in time.
    #[error("its process does not answer")]
    Silent,
    /// The array ended in the middle of the conversation: it was stopped.
    #[error("was stopped")]
    Stopped,
    /// The array's process ended in the middle of the conversation without being stopped.
    #[error("its process has died")]
    Died,
    /// Its process is of another version of Braid.
    #[error("its process speaks version {0} of the protocol, this command {VERSION}")]
    OtherVersion(u32),
    /// Its process is of an older version, which has the protocol and not the verb.
    #[error("its process is of an older version of Braid, which cannot do that")]
    UnknownVerb,
    /// The conversation broke off.
    #[error("the array's process does not answer: {0}")]
    Broken(#[source] io::Error),
}

impl ControlError {
    /// Returns whether the connection broke because another program took the place of the one that
    /// was asked. The command was not carried out, and that program answers on the same socket.
    #[must_use]
    pub fn is_of_another_program(&self) -> bool {
        let cut_off = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
        matches!(self, Self::Broken(error) if cut_off.contains(&error.kind()))
    }
}

impl From<ControlError> for Refusal {
    fn from(error: ControlError) -> Self {
        let next = match error {
            ControlError::NotRunning => {
                Next::by("see those that are", Invocation::Status { array: None })
            }
            ControlError::Lost(ref array) => array.how_to_stop(),
            ControlError::Denied => "use the user who started the array, or root".into(),
            ControlError::Refused(refusal) => return refusal,
            ControlError::Suspended(pid) => format!("let it go on: kill -CONT {pid}").into(),
            ControlError::OtherVersion(_) => {
                "use the braid command of the version that started the array".into()
            }
            ControlError::UnknownVerb => {
                "have this version serve it (braid upgrade), and try again".into()
            }
            ControlError::Silent => "see its log, and whether the machine is overloaded".into(),
            ControlError::Stopped => {
                Next::by("see the arrays that run", Invocation::Status { array: None })
            }
            ControlError::Died => "see its log, then assemble it again".into(),
            ControlError::Broken(_) => "see its log".into(),
        };
        Self { reason: error.to_string(), next }
    }
}

impl From<io::Error> for ControlError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Self::NotRunning,
            io::ErrorKind::PermissionDenied => Self::Denied,
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            _ => Self::Broken(error),
        }
    }
}

/// A connection to a running array.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    socket: PathBuf,
}

impl Client {
    /// Connects to the array of this name.
    ///
    /// # Errors
    /// [`ControlError::NotRunning`] where there is none; [`ControlError::Lost`] where there is one
    /// all the same.
    pub fn connect(run_dir: &Path, name: &str) -> Result<Self, ControlError> {
        if check_name(name).is_err() {
            return Err(ControlError::NotRunning);
        }
        let socket = socket_path(run_dir, name);
        match connect(&socket, ANSWER_WITHIN).map_err(ControlError::from) {
            Ok(stream) => Ok(Self { stream: BufReader::new(stream), socket }),
            Err(ControlError::NotRunning) => {
                let mut lost = ServedArray::lost(run_dir).into_iter();
                let array = lost.find(|array| array.name() == name);
                Err(array.map_or(ControlError::NotRunning, ControlError::Lost))
            }
            Err(error) => Err(error),
        }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The array's refusal, or the error that ended the connection.
    pub fn call(&mut self, verb: Verb) -> Result<Answer, ControlError> {
        self.ask(verb)?;
        self.answer()
    }

    fn ask(&mut self, verb: Verb) -> Result<(), ControlError> {
        let request = ControlRequest { version: VERSION, verb };
        let mut line = serde_json::to_vec(&request).map_err(io::Error::from)?;
        line.push(b'\n');
        match self.stream.get_mut().write_all(&line) {
            // A server that turns a client away answers before it was asked, and hangs up.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(self.broken(error)),
            Ok(()) => Ok(()),
        }
    }

    fn answer(&mut self) -> Result<Answer, ControlError> {
        let line = match read_line(&mut self.stream) {
            Ok(Some(line)) => line,
            Ok(None) => return Err(self.broken(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => return Err(self.broken(error)),
        };
        let Versioned { version } = serde_json::from_slice(&line).map_err(io::Error::from)?;
        if version != VERSION {
            return Err(ControlError::OtherVersion(version));
        }
        let response: Response = serde_json::from_slice(&line).map_err(io::Error::from)?;
        match response.result {
            Reply::Ok(answer) => Ok(answer),
            Reply::Error(refusal) if refusal.reason.starts_with(UNKNOWN_VERB) => {
                Err(ControlError::UnknownVerb)
            }
            Reply::Error(refusal) => Err(refusal.into()),
        }
    }

    /// Returns the meaning of an error of the connection.
    fn broken(&self, error: io::Error) -> ControlError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                match Process::at_other_end(self.stream.get_ref()) {
                    Some(process) if process.is_stopped() => ControlError::Suspended(process.pid),
                    _ => ControlError::Silent,
                }
            }
            // Who stops takes its socket away first.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                match connect(&self.socket, ANSWER_WITHIN).map_err(|error| error.kind()) {
                    Err(io::ErrorKind::NotFound) => ControlError::Stopped,
                    Err(io::ErrorKind::ConnectionRefused) => ControlError::Died,
                    _ => ControlError::Broken(error),
                }
            }
            _ => ControlError::Broken(error),
        }
    }

    /// The state of the array and of its process.
    ///
    /// # Errors
    /// As for [`Self::call`].
    pub fn status(&mut self) -> Result<ControlStatus, ControlError> {
        self.ask_status()?;
        self.take_status(Instant::now() + ANSWER_WITHIN)
    }

    /// Asks for the state; [`Self::take_status`] has to come next. So many can be asked before the
    /// first answer is there.
    ///
    /// # Errors
    /// As for [`Self::call`].
    pub fn ask_status(&mut self) -> Result<(), ControlError> {
        self.ask(Verb::Status)
    }

    /// Waits for the state that was asked for.
    ///
    /// # Errors
    /// As for [`Self::call`].
    pub fn take_status(&mut self, deadline: Instant) -> Result<ControlStatus, ControlError> {
        // Nought would be for ever.
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.stream.get_ref().set_read_timeout(Some(left))?;
        let answer = self.answer();
        self.stream.get_ref().set_read_timeout(None)?;
        match answer? {
            Answer::Status(status) => Ok(*status),
            _ => Err(out_of_turn()),
        }
    }

    /// Copies a part of the array's content to `to`; less where the array ends. Returns how much.
    ///
    /// # Errors
    /// As for [`Self::call`]; `Broken` also when `to` fails, with that error.
    pub fn read(
        &mut self,
        offset: u64,
        length: u64,
        to: &mut impl Write,
    ) -> Result<u64, ControlError> {
        let Answer::Data { length } = self.call(Verb::Read { offset, length })? else {
            return Err(out_of_turn());
        };
        let copied =
            io::copy(&mut self.stream.by_ref().take(length), to).map_err(ControlError::Broken)?;
        if copied < length {
            let at = offset + copied;
            let message = format!("the array cannot be read at about {at}");
            return Err(ControlError::Broken(io::Error::other(message)));
        }
        Ok(copied)
    }

    /// Stops the array, with `force` even while programs use it. When this returns its members are
    /// free and its name is too.
    ///
    /// # Errors
    /// As for [`Self::call`].
    pub fn stop(mut self, force: bool) -> Result<(), ControlError> {
        self.call(Verb::Stop { force })?;
        // The connection is closed when all is done.
        let _ = self.stream.read_to_end(&mut Vec::new());
        Ok(())
    }
}

fn out_of_turn() -> ControlError {
    ControlError::Broken(io::Error::new(io::ErrorKind::InvalidData, "an answer out of turn"))
}

/// The names of the arrays that run, sorted, those that this user may not ask included. Sockets
/// that dead processes left are removed.
///
/// # Errors
/// When the directory cannot be read; one that does not exist is empty.
pub fn list(run_dir: &Path) -> io::Result<Vec<String>> {
    let mut names = sockets(run_dir)?;
    names.retain(|name| is_running(run_dir, name));
    Ok(names)
}

/// Returns the sorted names of the arrays that have a control socket, without checking that a
/// process listens there.
///
/// # Errors
/// As for [`list`].
pub fn sockets(run_dir: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(run_dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let file_name = entry?.file_name();
        names.extend(file_name.to_str().and_then(array_of_socket).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Returns the name of a member in a [`Verb`]: absolute, and by its real name where it exists.
#[must_use]
pub fn member_path(path: &Path) -> String {
    // Not in the file system.
    if ["node://", "mem:"].iter().any(|prefix| path.to_string_lossy().starts_with(prefix)) {
        return path.display().to_string();
    }
    let path = std::path::absolute(MemberName::of(path).real());
    path.unwrap_or_default().display().to_string()
}
