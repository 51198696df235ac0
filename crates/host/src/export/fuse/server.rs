//! The FUSE export: takes requests of the kernel from the engine's ring, and answers them there.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use braid_array::{Instant, Request, RequestError};
use rustix::io::Errno;

use super::connection::{Connection, MAX_MOUNTS, READER, READERS, WATCH};
use super::jobs::{Asker, Came, Finished, Jobs};
use super::proto::Answer;
use super::tree::{Ask, Outcome, Tree};
use crate::driver::{Completion, Op, Outgoing};
use crate::engine::core::Core;
use crate::engine::export::Export;
use crate::token::{ExportId, ExportToken, JobRef, Token};

/// What a token is of, beside those of connections: an answer that has all in itself, and one whose
/// data lie in the memory of a job.
const ANSWER: u8 = 2;
const REPLY: u8 = 3;

/// Jobs under way, before no more requests are taken.
const MAX_JOBS: usize = 512;
/// Empty messages that are kept.
const MAX_SPARES: usize = 64;

/// A mount that the engine is to serve.
#[derive(Debug)]
pub(crate) struct Mounted {
    /// The other end of what is mounted.
    pub(super) device: OwnedFd,
    /// What it shows.
    pub(super) tree: Tree,
}

/// The mounts of an array. Order of calls: [`add`](Self::add) for each of them; then the engine
/// calls it as an [`Export`], from `start` to `close`. The devices close with this.
#[derive(Debug)]
pub(crate) struct Server {
    id: ExportId,
    block_bytes: u32,
    /// Until the start.
    added: Vec<Mounted>,
    mounts: Vec<Connection>,
    /// From the start on.
    jobs: Option<Jobs>,
    /// Empty messages, to be reused.
    #[expect(clippy::vec_box, reason = "a message keeps its box from answer to answer")]
    spares: Vec<Box<Outgoing>>,
    closing: bool,
}

impl Server {
    /// For an array that takes blocks of so many bytes.
    pub(crate) const fn new(block_bytes: u32) -> Self {
        Self {
            id: ExportId(0),
            block_bytes,
            added: Vec::new(),
            mounts: Vec::new(),
            jobs: None,
            spares: Vec::new(),
            closing: false,
        }
    }

    /// Whether there may be one more mount.
    pub(crate) const fn has_room(&self) -> bool {
        self.added.len() < MAX_MOUNTS
    }

    /// Adds a mount. There must be [room](Self::has_room).
    pub(crate) fn add(&mut self, mounted: Mounted) {
        self.added.push(mounted);
    }

    /// A request has come.
    fn take(&mut self, core: &mut Core, mount: usize, number: usize, result: Result<u32, Errno>) {
        let connection = &mut self.mounts[mount];
        let Some((message, landing)) = connection.took(core, number, result) else { return };
        let outcome = connection.tree.take(&message);
        let writes = matches!(outcome, Outcome::Ask { ask: Ask::Write { .. }, .. });
        if self.closing || !writes {
            connection.give_back(core, landing);
        }
        let asker = Asker { mount, unique: message.unique };
        match outcome {
            Outcome::Nothing => {}
            Outcome::Answer(answer) => self.answer(core, asker, &answer),
            Outcome::Ask { .. } if self.closing => {
                self.answer(core, asker, &Answer::Error(Errno::IO));
            }
            Outcome::Ask { ask, .. } => {
                let landing = if writes { Some(landing) } else { None };
                self.jobs.as_mut().expect("it has started").begin(core, asker, ask, landing);
            }
        }
    }

    /// Answers what needed nothing but that.
    fn answer(&mut self, core: &mut Core, asker: Asker, answer: &Answer) {
        let message = self.message(asker, answer);
        let token = ExportToken { kind: ANSWER, index: asker.mount };
        self.give(core, asker.mount, token, message);
    }

    /// Answers what a job came to. A read's data are sent from where they were read to.
    fn answer_job(&mut self, core: &mut Core, finished: Finished) {
        let Finished { job, asker, landing, result } = finished;
        if let Some(landing) = landing {
            self.mounts[asker.mount].give_back(core, landing);
        }
        let mut data = Vec::new();
        let answer = match result {
            Err(error) => Answer::Error(errno(error)),
            Ok(Came::Nothing) => Answer::Done,
            Ok(Came::Written { len }) => Answer::Written { len },
            Ok(Came::Data(bufs)) => {
                data = bufs;
                Answer::Data { len: data.iter().map(|buf| buf.len).sum() }
            }
        };
        let mut message = self.message(asker, &answer);
        data.into_iter().for_each(|buf| message.push(buf));
        self.give(core, asker.mount, ExportToken { kind: REPLY, index: job }, message);
    }

    fn message(&mut self, asker: Asker, answer: &Answer) -> Box<Outgoing> {
        let mut message = self.spares.pop().unwrap_or_default();
        answer.encode(asker.unique, &mut message.bytes);
        message
    }

    fn give(&self, core: &mut Core, mount: usize, token: ExportToken, message: Box<Outgoing>) {
        let device = Arc::clone(&self.mounts[mount].device);
        core.driver.start(Token::Export(self.id, token), Op::Give { device, message });
    }

    /// An answer was given. Nobody hears it when the kernel wanted none any more.
    fn given(&mut self, message: Option<Box<Outgoing>>) {
        let Some(mut message) = message else { return };
        message.clear();
        if self.spares.len() < MAX_SPARES {
            self.spares.push(message);
        }
    }
}

impl Export for Server {
    fn start(&mut self, core: &mut Core, id: ExportId) {
        self.id = id;
        let none = "an arena has room for the first two clients";
        let heads = core.arena.allocate_input().expect(none);
        let holders = [(); 2].map(|()| core.arena.admit().expect(none));
        self.jobs = Some(Jobs::new(id, self.block_bytes, holders));
        for (index, Mounted { device, tree }) in
            std::mem::take(&mut self.added).into_iter().enumerate()
        {
            let mut connection = Connection::new((id, index), device, tree, heads);
            connection.start(core);
            self.mounts.push(connection);
        }
    }

    fn take_in(&mut self, core: &mut Core, completion: Completion<ExportToken>) {
        let Completion { token: ExportToken { kind, index }, result, message, .. } = completion;
        match kind {
            WATCH => self.mounts[index / READERS].readable(core),
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
        self.jobs.as_mut().expect("it has started").completed(core, job.job, &request, result);
    }

    fn work(&mut self, core: &mut Core) {
        let Some(jobs) = &mut self.jobs else { return };
        jobs.work(core);
        while let Some(finished) = self.jobs.as_mut().and_then(Jobs::next_finished) {
            self.answer_job(core, finished);
        }
    }

    /// Takes more, after the answers.
    fn flush(&mut self, core: &mut Core) {
        let under_way = self.jobs.as_ref().map_or(0, Jobs::len);
        if under_way < MAX_JOBS {
            self.mounts.iter_mut().for_each(|mount| mount.arm(core, under_way));
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.mounts.iter().filter_map(Connection::deadline).min()
    }

    fn tick(&mut self, core: &mut Core) {
        self.mounts.iter_mut().for_each(|mount| mount.tick(core));
    }

    fn close(&mut self, core: &mut Core) {
        self.closing = true;
        self.mounts.iter_mut().for_each(|mount| mount.close(core));
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
