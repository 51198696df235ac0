//! Carrying out what came over the control socket.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use braid_array::action::Command;
use braid_array::refusal::{Invocation, Next};
use braid_array::status::{MemberStatus, Status};
use braid_array::{MemberId, Refusal, RequestError, SECTOR_BYTES};

use super::news::News;
use super::wire::{Answer, ControlStatus, Verb};
use crate::door::{Door, Message};
use crate::fabric::Network;
use crate::member::MemberFile;

/// What the control socket speaks for.
#[derive(Debug)]
pub struct Served {
    /// Name of the array.
    pub name: String,
    /// The way to it.
    pub door: Door,
    /// Requests must be multiples of this.
    pub block_bytes: u32,
    /// How its members are talked to, when they are nodes.
    pub network: Option<Network>,
    /// How it is served, for people.
    pub exports: Vec<String>,
    /// Where its control socket lies, and those of other arrays.
    pub run_dir: PathBuf,
    /// When it began: seconds since 1970.
    pub started_unix_s: u64,
    /// Who stops it.
    pub stop: Sender<StopRequest>,
    /// What it reported.
    pub news: Arc<News>,
}

/// Told how a stop went: after the members are free, or why not.
pub type Told = Box<dyn FnOnce(Result<(), Refusal>) + Send>;

/// Why the array should stop.
pub enum StopRequest {
    /// Somebody asked for it over the control socket, and waits.
    Asked {
        /// Even while programs use it.
        force: bool,
        /// Who waits.
        told: Told,
    },
    /// A signal came.
    Signal,
    /// The engine has ended.
    EngineEnded,
    /// Another client has the array over nodes now.
    TakenOver,
    /// No reason to stop, but to look: the set-up of the array is over.
    SetUp,
}

/// How a verb went when it went well.
pub(super) enum Outcome<'a> {
    Answer(Answer),
    Data(Data<'a>),
    /// Asked for, not yet done.
    Stop {
        force: bool,
    },
}

impl Served {
    pub(super) fn carry_out(&self, verb: Verb) -> Result<Outcome<'_>, Refusal> {
        let done = |()| Outcome::Answer(Answer::Done);
        match verb {
            Verb::Status => {
                let status = Box::new(self.control_status()?);
                Ok(Outcome::Answer(Answer::Status(status)))
            }
            Verb::Fail { member, force } => {
                let fail = if force { Command::ForceFail } else { Command::Fail };
                self.command(fail(self.member(&member)?)).map(done)
            }
            Verb::Remove { member } => {
                self.command(Command::Remove(self.member(&member)?)).map(done)
            }
            Verb::Replace { member, with } => self.replace(&member, with.as_deref()).map(done),
            Verb::Add { member, force, within } => {
                self.add(Path::new(&member), within.as_deref(), false, force).map(done)
            }
            Verb::ReAdd { member } => self.add(Path::new(&member), None, true, false).map(done),
            Verb::Check => self.command(Command::Scrub { repair: false }).map(done),
            Verb::Repair => self.command(Command::Scrub { repair: true }).map(done),
            Verb::StopScrub => self.command(Command::StopScrub).map(done),
            Verb::SyncLimits { min_bytes_s, max_bytes_s } => {
                self.command(Command::SpeedLimits { min_bytes_s, max_bytes_s }).map(done)
            }
            Verb::Pause => self.command(Command::Pause(true)).map(done),
            Verb::Resume => self.command(Command::Pause(false)).map(done),
            Verb::Stop { force } => Ok(Outcome::Stop { force }),
            Verb::Read { offset, length } => self.data(offset, length).map(Outcome::Data),
        }
    }

    /// The state of the array.
    pub(super) fn status(&self) -> Result<Status, Refusal> {
        self.door.status().ok_or_else(|| self.ended())
    }

    fn control_status(&self) -> Result<ControlStatus, Refusal> {
        Ok(ControlStatus {
            name: self.name.clone(),
            pid: std::process::id(),
            started_unix_s: self.started_unix_s,
            exports: self.exports.clone(),
            mismatches: self.news.mismatches(),
            protection: self.door.protection(),
            array: self.status()?,
        })
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
        let answer = self.door.call(|done| Message::Command { command, device, done });
        answer.ok_or_else(|| self.ended())?.map_err(|refusal| refusal.about(&self.name))
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

    fn data(&self, offset: u64, length: u64) -> Result<Data<'_>, Refusal> {
        let size = self.status()?.array_sectors * SECTOR_BYTES;
        if offset > size {
            return Err(Refusal::new(
                format!("offset {offset} is beyond the end of the array at {size}"),
                "give a smaller offset",
            ));
        }
        Ok(Data { served: self, offset, end: size.min(offset.saturating_add(length)) })
    }
}

/// The member whose device is `path`, under whatever name, in the array or one of its arrays.
pub(super) fn find_member<'a>(status: &'a Status, path: &Path) -> Option<&'a MemberStatus> {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let wanted = real(path);
    // A member on a node may be called by its node alone.
    let on_node = |device: &Path| path.starts_with("node:") && device.starts_with(path);
    let named = |device: &Path| {
        on_node(device) || device == path || (wanted.is_some() && real(device) == wanted)
    };
    let mut arrays = std::iter::once(status).chain(&status.children);
    arrays.find_map(|array| array.members.iter().find(|m| named(Path::new(&m.device))))
}

/// A part of the array's content that is to be sent.
pub(super) struct Data<'a> {
    served: &'a Served,
    offset: u64,
    end: u64,
}

/// How much is read at once, and how many such reads are under way.
const PIECE_BYTES: u64 = 1 << 20;
const PIECES: usize = 4;

type Piece = Receiver<Result<Vec<u8>, RequestError>>;

impl Data<'_> {
    pub(super) const fn length(&self) -> u64 {
        self.end - self.offset
    }

    /// Sends it. An error ends the connection, which tells the client.
    pub(super) fn send(self, to: &mut impl Write) -> io::Result<()> {
        let block = u64::from(self.served.block_bytes);
        let stop = self.end.next_multiple_of(block);
        let mut next = self.offset - self.offset % block;
        let mut under_way: VecDeque<(u64, Piece)> = VecDeque::new();
        while next < stop || !under_way.is_empty() {
            while next < stop && under_way.len() < PIECES {
                let len = PIECE_BYTES.min(stop - next);
                under_way.push_back((next, self.read(next, len)?));
                next += len;
            }
            let Some((start, piece)) = under_way.pop_front() else { break };
            let bytes = piece.recv().map_err(io::Error::other)?.map_err(io::Error::other)?;
            let from = usize::try_from(self.offset.saturating_sub(start)).unwrap_or(usize::MAX);
            let to_end = usize::try_from(self.end - start).unwrap_or(usize::MAX);
            let part = bytes.get(from..to_end.min(bytes.len())).unwrap_or_default();
            to.write_all(part)?;
        }
        Ok(())
    }

    fn read(&self, offset: u64, len: u64) -> io::Result<Piece> {
        let (answer, piece) = mpsc::sync_channel(1);
        let done = Box::new(move |bytes| {
            // The client went away when this fails.
            let _ = answer.send(bytes);
        });
        let len = u32::try_from(len).map_err(io::Error::other)?;
        if self.served.door.send(Message::Read { offset, len, done }) {
            Ok(piece)
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
}
