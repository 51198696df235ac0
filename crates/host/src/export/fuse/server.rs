//! The FUSE export: takes requests of the kernel from the engine's ring, and answers them there.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use braid_array::{Buf, Instant, Request, RequestError};
use rustix::io::Errno;

use super::connection::{MAX_MOUNTS, MountConnection, READER, READERS, WATCH};
use super::jobs::{Asker, Came, FinishedJob, FuseJobs};
use super::mount_table::{MountCommand, MountTable};
use super::proto::{FuseAnswer, put_longer, put_stale};
use super::tree::{FIRST, FileOperation, FileOutcome};
use crate::driver::{Completion, Op, OutgoingBytes};
use crate::engine::array_size::ArraySize;
use crate::engine::core::Core;
use crate::engine::export::Export;
use crate::handover::Handover;
use crate::token::{ExportId, ExportToken, JobRef, Token};

/// Kinds of tokens beside those of connections: an answer that is complete in itself, and one whose
/// data lie in the memory of a job.
const ANSWER: u8 = 2;
const REPLY: u8 = 3;
/// Mounts come or go.
const SAID: u8 = 4;

/// Jobs under way, before no more requests are taken.
const MAX_JOBS: usize = 512;
/// Empty messages that are kept.
const MAX_SPARES: usize = 64;

/// The mounts of an array, changed by the [`MountTable`]. The engine calls it as an [`Export`],
/// from `start` to `close`. The devices close with this.
#[derive(Debug)]
pub(crate) struct FuseServer {
    id: ExportId,
    /// Size of the array, and of its blocks.
    size: ArraySize,
    block_bytes: u32,
    commands: Receiver<MountCommand>,
    wake: Arc<OwnedFd>,
    /// Mounts by number.
    mounts: Vec<Option<MountConnection>>,
    /// Mounts that go, each with the channel to report when it is gone.
    leaving: Vec<(usize, SyncSender<()>)>,
    /// Buffer for the heads of requests, and the jobs that these become, from the start on.
    heads: Buf,
    jobs: Option<FuseJobs>,
    /// Empty messages, to be reused.
    #[expect(clippy::vec_box, reason = "a message keeps its box from answer to answer")]
    spares: Vec<Box<OutgoingBytes>>,
    /// Set while no requests are taken.
    held: bool,
    closing: bool,
}

impl FuseServer {
    /// Creates the server for an array of this size with blocks of so many bytes, and the mount
    /// table by which it gets mounts.
    ///
    /// # Errors
    /// When the system is out of descriptors.
    pub(crate) fn new(size: ArraySize, block_bytes: u32) -> io::Result<(Self, MountTable)> {
        let (mount_table, commands, wake) = MountTable::new()?;
        let server = Self {
            id: ExportId(0),
            size,
            block_bytes,
            commands,
            wake,
            mounts: (0..MAX_MOUNTS).map(|_| None).collect(),
            leaving: Vec::new(),
            heads: Buf::default(),
            jobs: None,
            spares: Vec::new(),
            held: false,
            closing: false,
        };
        Ok((server, mount_table))
    }

    fn await_command(&self, core: &mut Core) {
        let token = Token::Export(self.id, ExportToken { kind: SAID, index: 0 });
        core.driver.start(token, Op::Readable { file: Arc::clone(&self.wake) });
    }

    /// Mounts come, or are to go.
    fn hear(&mut self, core: &mut Core) {
        let _ = rustix::io::read(self.wake.as_fd(), &mut [0; 8]);
        self.await_command(core);
        while let Ok(command) = self.commands.try_recv() {
            match command {
                MountCommand::Add { number, mounted } => {
                    let mut mount = MountConnection::new((self.id, number), mounted, self.heads);
                    mount.start(core);
                    self.mounts[number] = Some(mount);
                    // The process before this one may have told the kernel another size.
                    self.resize(core, number);
                }
                MountCommand::Show { number, parts, shown } => {
                    self.mounts[number].iter_mut().for_each(|m| m.tree.set_parts(parts.clone()));
                    // Nobody may wait any longer.
                    let _ = shown.send(());
                }
                MountCommand::Remove { number, gone } => {
                    self.mounts[number].iter_mut().for_each(|mount| mount.close(core));
                    self.leaving.push((number, gone));
                }
            }
        }
    }

    /// Gives the file of a mount the size of the array, and has the kernel ask for it again.
    fn resize(&mut self, core: &mut Core, number: usize) {
        let bytes = self.size.in_blocks(self.block_bytes);
        self.mount(number).tree.set_size(bytes);
        let mut message = self.spares.pop().unwrap_or_default();
        put_stale(&mut message.bytes, FIRST);
        self.give(core, number, ExportToken { kind: ANSWER, index: number }, message);
    }

    /// Lets mounts go of which nothing is left.
    fn part(&mut self, core: &Core) {
        let over = |of: &Self| of.leaving.iter().position(|(number, _)| of.is_over(core, *number));
        while let Some(at) = over(self) {
            let (number, gone) = self.leaving.swap_remove(at);
            self.mounts[number] = None;
            // Nobody may wait any longer.
            let _ = gone.send(());
        }
    }

    /// Returns whether nothing of a mount is in flight.
    fn is_over(&self, core: &Core, number: usize) -> bool {
        let idle = self.mounts[number].as_ref().is_none_or(MountConnection::is_idle);
        let asked = self.jobs.as_ref().is_some_and(|jobs| jobs.serve(number));
        let is_its = |token: &Token| match *token {
            Token::Export(id, ExportToken { kind, index }) if id == self.id => match kind {
                WATCH => index / READERS == number,
                ANSWER => index == number,
                _ => false,
            },
            _ => false,
        };
        idle && !asked && !core.driver.is_under_way(is_its)
    }

    fn mount(&mut self, number: usize) -> &mut MountConnection {
        self.mounts[number].as_mut().expect("a mount stays for what is under way")
    }

    /// A request has come.
    fn take(&mut self, core: &mut Core, mount: usize, number: usize, result: Result<u32, Errno>) {
        let closing = self.closing;
        let connection = self.mount(mount);
        let Some((message, landing)) = connection.took(core, number, result) else { return };
        let outcome = connection.tree.take(&message);
        let writes = matches!(outcome, FileOutcome::Ask { ask: FileOperation::Write { .. }, .. });
        if closing || !writes {
            connection.give_back(core, landing);
        }
        let asker = Asker { mount, unique: message.unique };
        match outcome {
            FileOutcome::Nothing => {}
            FileOutcome::Answer(answer) => self.answer(core, asker, &answer),
            FileOutcome::Ask { .. } if self.closing => {
                self.answer(core, asker, &FuseAnswer::Error(Errno::IO));
            }
            FileOutcome::Ask { ask, .. } => {
                let landing = if writes { Some(landing) } else { None };
                self.jobs.as_mut().expect("it has started").begin(core, asker, ask, landing);
            }
        }
    }

    /// Answers a request that needs no job.
    fn answer(&mut self, core: &mut Core, asker: Asker, answer: &FuseAnswer) {
        let message = self.message(asker, answer);
        let token = ExportToken { kind: ANSWER, index: asker.mount };
        self.give(core, asker.mount, token, message);
    }

    /// Answers with the result of a job. A read's data are sent from where they were read to.
    fn answer_job(&mut self, core: &mut Core, finished: FinishedJob) {
        let FinishedJob { job, asker, landing, result } = finished;
        if let Some(landing) = landing {
            self.mount(asker.mount).give_back(core, landing);
        }
        let mut data = Vec::new();
        let answer = match result {
            Err(error) => FuseAnswer::Error(errno(error)),
            Ok(Came::Nothing) => FuseAnswer::Done,
            Ok(Came::Written { len }) => FuseAnswer::Written { len },
            Ok(Came::Data(bufs)) => {
                data = bufs;
                FuseAnswer::Data { len: data.iter().map(|buf| buf.len).sum() }
            }
        };
        let mut message = self.message(asker, &answer);
        data.into_iter().for_each(|buf| message.push(buf));
        self.give(core, asker.mount, ExportToken { kind: REPLY, index: job }, message);
    }

    fn message(&mut self, asker: Asker, answer: &FuseAnswer) -> Box<OutgoingBytes> {
        let mut message = self.spares.pop().unwrap_or_default();
        answer.encode(asker.unique, &mut message.bytes);
        message
    }

    fn give(
        &mut self,
        core: &mut Core,
        mount: usize,
        token: ExportToken,
        message: Box<OutgoingBytes>,
    ) {
        let device = Arc::clone(&self.mount(mount).device);
        core.driver.start(Token::Export(self.id, token), Op::Give { device, message });
    }

    /// Ends an answer, and keeps its memory for the next. The kernel may have dropped the answer if
    /// its request was given up, or what it was told if it knows no such file.
    fn given(&mut self, message: Option<Box<OutgoingBytes>>) {
        let Some(mut message) = message else { return };
        message.clear();
        if self.spares.len() < MAX_SPARES {
            self.spares.push(message);
        }
    }
}

impl Export for FuseServer {
    fn start(&mut self, core: &mut Core, id: ExportId) {
        self.id = id;
        let none = "an arena has room for what mounts have";
        self.heads = core.arena.allocate_input().expect(none);
        let holders = [(); 2].map(|()| core.arena.admit().expect(none));
        self.jobs = Some(FuseJobs::new(id, self.block_bytes, holders));
        self.hear(core);
    }

    fn take_in(&mut self, core: &mut Core, completion: Completion<ExportToken>) {
        let Completion { token: ExportToken { kind, index }, result, message, .. } = completion;
        match kind {
            SAID if self.closing || self.held => {}
            SAID => self.hear(core),
            WATCH => self.mount(index / READERS).readable(core),
            READER => self.take(core, index / READERS, index % READERS, result),
            ANSWER => self.given(message),
            _ => {
                self.given(message);
                self.jobs.as_mut().expect("it has started").release(core, index);
            }
        }
    }

    fn completed(
        &mut self,
        core: &mut Core,
        job: JobRef,
        request: Request,
        result: Result<(), RequestError>,
    ) {
        let jobs = self.jobs.as_mut().expect("it has started");
        if let Some(finished) = jobs.completed(core, job.job, &request, result) {
            self.answer_job(core, finished);
        }
    }

    fn work(&mut self, core: &mut Core) {
        if let Some(jobs) = &mut self.jobs {
            jobs.work(core);
        }
    }

    fn resized(&mut self, core: &mut Core, _bytes: u64) {
        let bytes = self.size.in_blocks(self.block_bytes);
        for number in 0..MAX_MOUNTS {
            let Some(mount) = &self.mounts[number] else { continue };
            if bytes > mount.tree.size() {
                let mut message = self.spares.pop().unwrap_or_default();
                put_longer(&mut message.bytes, FIRST, bytes);
                self.give(core, number, ExportToken { kind: ANSWER, index: number }, message);
            }
            self.resize(core, number);
        }
    }

    /// Takes more, after the answers.
    fn flush(&mut self, core: &mut Core) {
        let under_way = self.jobs.as_ref().map_or(0, FuseJobs::len);
        if under_way < MAX_JOBS {
            self.mounts.iter_mut().flatten().for_each(|mount| mount.arm(core, under_way));
        }
        self.part(core);
    }

    fn deadline(&self) -> Option<Instant> {
        self.mounts.iter().flatten().filter_map(MountConnection::deadline).min()
    }

    fn tick(&mut self, core: &mut Core) {
        self.mounts.iter_mut().flatten().for_each(|mount| mount.tick(core));
    }

    fn hold(&mut self, core: &mut Core) {
        core.driver.cancel(Token::Export(self.id, ExportToken { kind: SAID, index: 0 }));
        self.held = true;
        self.mounts.iter_mut().flatten().for_each(|mount| mount.close(core));
    }

    fn go_on(&mut self, core: &mut Core) {
        self.held = false;
        self.mounts.iter_mut().flatten().for_each(|mount| mount.start(core));
        self.hear(core);
    }

    fn is_held(&self, core: &Core) -> bool {
        !core.serves(self.id) && self.jobs.as_ref().is_none_or(|jobs| jobs.len() == 0)
    }

    fn hand_over(&self, _core: &Core, to: &mut Handover) -> io::Result<()> {
        self.mounts.iter().flatten().try_for_each(|mount| mount.hand_over(to))
    }

    fn close(&mut self, core: &mut Core) {
        self.closing = true;
        core.driver.cancel(Token::Export(self.id, ExportToken { kind: SAID, index: 0 }));
        self.mounts.iter_mut().flatten().for_each(|mount| mount.close(core));
    }

    /// All that was asked has been answered.
    fn disconnect(&mut self, _core: &mut Core) {}
}

const fn errno(error: RequestError) -> Errno {
    match error {
        RequestError::OutOfRange | RequestError::NoSpace => Errno::NOSPC,
        RequestError::Malformed => Errno::INVAL,
        RequestError::ReadOnly => Errno::ROFS,
        RequestError::Failed | RequestError::Medium | RequestError::BufferHeld => Errno::IO,
    }
}
