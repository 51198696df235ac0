//! Execution of commands from the control socket.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};

use braid_array::action::Command;
use braid_array::{Refusal, RequestError, SECTOR_BYTES};

use super::served::{ExportChange, Served};
use super::wire::{Answer, ControlStatus, Verb};
use crate::limits::{Limit, Limits};
use crate::submission::Message;

/// Result of a verb that succeeded.
pub(super) enum VerbOutcome<'a> {
    Answer(Answer),
    Data(Data<'a>),
    /// Asked for, not yet done.
    Stop {
        force: bool,
    },
    /// Asked for, not yet done.
    Upgrade {
        program: PathBuf,
        takes: u32,
        check: bool,
        force: bool,
        more: Vec<String>,
    },
}

impl Served {
    pub(super) fn carry_out(&self, verb: Verb) -> Result<VerbOutcome<'_>, Refusal> {
        let done = |()| VerbOutcome::Answer(Answer::Done);
        match verb {
            Verb::Status => {
                let status = Box::new(self.control_status()?);
                Ok(VerbOutcome::Answer(Answer::Status(status)))
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
            Verb::AddJournal { member, force } => {
                self.add_journal(Path::new(&member), force).map(done)
            }
            Verb::CheckAdd { member, sectors } => {
                self.check_add(Path::new(&member), sectors).map(done)
            }
            Verb::Spill { path, sectors } => self.spill(Path::new(&path), sectors).map(done),
            Verb::Rooms => Ok(VerbOutcome::Answer(Answer::Rooms(self.rooms()?))),
            Verb::Grow { grow, suspend_policy: true } => {
                self.command(Command::GrowSuspending(grow)).map(done)
            }
            Verb::Grow { grow, .. } => self.command(Command::Grow(grow)).map(done),
            Verb::ReAdd { member } => self.add(Path::new(&member), None, true, false).map(done),
            Verb::Check => self.command(Command::Scrub { repair: false }).map(done),
            Verb::Repair => self.command(Command::Scrub { repair: true }).map(done),
            Verb::StopScrub => self.command(Command::StopScrub).map(done),
            Verb::SyncLimits { min_bytes_s, max_bytes_s, min_windows, max_windows } => {
                let limit =
                    |usual: Option<u64>, windows| usual.map(|usual| Limit { usual, windows });
                let min = limit(min_bytes_s, min_windows);
                let max = limit(max_bytes_s, max_windows);
                let set = self.limits.set(Limits { min, max });
                set.unwrap_or_else(|| Err(self.ended())).map(done)
            }
            Verb::JournalMode(mode) => self.command(Command::JournalMode(mode)).map(done),
            Verb::Pause => self.command(Command::Pause(true)).map(done),
            Verb::Resume => self.command(Command::Pause(false)).map(done),
            Verb::AddExport { export } => {
                self.change_exports(ExportChange::Add { export }).map(done)
            }
            Verb::RemoveExport { export, force } => {
                self.change_exports(ExportChange::Remove { export, force }).map(done)
            }
            Verb::Stop { force } => Ok(VerbOutcome::Stop { force }),
            Verb::Upgrade { program, takes, check, force, more } => {
                Ok(VerbOutcome::Upgrade { program, takes, check, force, more })
            }
            Verb::Read { offset, length } => self.data(offset, length).map(VerbOutcome::Data),
        }
    }

    fn control_status(&self) -> Result<ControlStatus, Refusal> {
        let array = self.status()?;
        Ok(ControlStatus {
            name: self.name.clone(),
            pid: std::process::id(),
            started_unix_s: self.started_unix_s,
            exports: self.exports.get(),
            mismatches: self.news.mismatches(),
            last_scrub: self.news.last_scrub(),
            protection: self.submissions.protection(),
            limits: self.limits.get(),
            disks: self.disks.of(&array),
            figures: self.submissions.figures(),
            array,
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

/// A part of the array's content that is to be sent.
pub(super) struct Data<'a> {
    served: &'a Served,
    offset: u64,
    end: u64,
}

/// Length of a read, and number of reads in flight.
const PIECE_BYTES: u64 = 1 << 20;
const PIECES: usize = 4;

type AnswerPiece = Receiver<Result<Vec<u8>, RequestError>>;

impl Data<'_> {
    pub(super) const fn length(&self) -> u64 {
        self.end - self.offset
    }

    /// Sends it. An error ends the connection, which tells the client.
    pub(super) fn send(self, to: &mut impl Write) -> io::Result<()> {
        let block = u64::from(self.served.block_bytes);
        let stop = self.end.next_multiple_of(block);
        let mut next = self.offset - self.offset % block;
        let mut under_way: VecDeque<(u64, AnswerPiece)> = VecDeque::new();
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

    fn read(&self, offset: u64, len: u64) -> io::Result<AnswerPiece> {
        let (answer, piece) = mpsc::sync_channel(1);
        let done = Box::new(move |bytes| {
            // The client went away when this fails.
            let _ = answer.send(bytes);
        });
        let len = u32::try_from(len).map_err(io::Error::other)?;
        if self.served.submissions.send(Message::Read { offset, len, done }) {
            Ok(piece)
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
}
