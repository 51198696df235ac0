//! Load from within: requests that the engine's thread makes itself, so many at a time, to measure
//! an engine alone. Between them and the machine lies no socket, no other thread and no copy.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant as Clock};

use braid_array::{Buf, Op, Request, RequestError};

use crate::arena::Holder;
use crate::driver::{Completion, Op as DriverOp};
use crate::engine::core::Core;
use crate::engine::export::Export;
use crate::token::{ExportId, ExportToken, JobRef, Owner, Token};

/// A load to be made, and its duration.
pub struct Load {
    /// A read or a write.
    pub op: Op,
    /// Length of a request, in bytes: of whole blocks, and no longer than a request may be.
    pub bytes: u32,
    /// Requests at a time.
    pub depth: usize,
    /// New requests are made for so long.
    pub length: Duration,
    /// Returns the start of the request of this number, in bytes.
    pub place: Box<dyn FnMut(u64) -> u64 + Send>,
    /// Told of each request how long it took.
    pub took: Box<dyn FnMut(Duration) + Send>,
    /// Told when all is answered: how long that was, or why it ended.
    pub done: Sender<Result<Duration, LoadError>>,
}

/// Reason for which a load failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// A request failed so.
    Request(RequestError),
    /// Memory is missing for so many requests.
    Memory,
    /// Another one is under way.
    Busy,
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Request(error) => write!(f, "a request failed: {error}"),
            Self::Memory => f.write_str("there is no memory for so many requests at a time"),
            Self::Busy => f.write_str("another load is under way"),
        }
    }
}

/// A load under way.
struct RunningLoad {
    load: Load,
    begun: Clock,
    number: u64,
    /// Requests in flight: the memory of each, and the time at which it was made.
    requests: Vec<(Buf, Clock)>,
    in_flight: usize,
    failed: Option<RequestError>,
}

/// An export without clients: it [takes](Export::take_in) a load when its eventfd is readable, and
/// makes a request for each that is answered until the time is over.
pub(crate) struct Generator {
    id: ExportId,
    loads: Receiver<Load>,
    wake: Arc<OwnedFd>,
    holder: Option<Holder>,
    running: Option<RunningLoad>,
    closing: bool,
}

impl Generator {
    /// Loads come from `loads`, after which `wake` is signalled.
    pub(crate) fn new(loads: Receiver<Load>, wake: Arc<OwnedFd>) -> Self {
        Self { id: ExportId::default(), loads, wake, holder: None, running: None, closing: false }
    }

    fn watch(&self, core: &mut Core) {
        let token = Token::Export(self.id, ExportToken { kind: 0, index: 0 });
        core.driver.start(token, DriverOp::Readable { file: Arc::clone(&self.wake) });
    }

    fn begin(&mut self, core: &mut Core, load: Load) {
        let refused = match load.bytes {
            _ if self.running.is_some() => Some(LoadError::Busy),
            0 => Some(LoadError::Request(RequestError::Malformed)),
            bytes if bytes > Request::MAX_BYTES => {
                Some(LoadError::Request(RequestError::Malformed))
            }
            _ => None,
        };
        if let Some(error) = refused {
            // Nobody hears it who has gone.
            let _ = load.done.send(Err(error));
            return;
        }
        if self.holder.is_none() {
            self.holder = core.arena.admit();
        }
        let mut requests = Vec::new();
        let begun = Clock::now();
        for _ in 0..load.depth {
            let holder = self.holder.as_mut();
            let Some(buf) = holder.and_then(|holder| core.arena.allocate(holder, load.bytes))
            else {
                self.release(core, &requests);
                let _ = load.done.send(Err(LoadError::Memory));
                return;
            };
            // SAFETY: it was just allocated, and nobody else has it.
            unsafe { core.arena.memory().bytes_mut(buf) }.fill(0xb7);
            requests.push((buf, begun));
        }
        let in_flight = requests.len();
        self.running =
            Some(RunningLoad { load, begun, number: 0, requests, in_flight, failed: None });
        for job in 0..in_flight {
            self.ask(core, job, begun);
        }
    }

    fn ask(&mut self, core: &mut Core, job: usize, now: Clock) {
        let Some(running) = &mut self.running else { return };
        let (buf, made) = &mut running.requests[job];
        *made = now;
        let offset = (running.load.place)(running.number);
        running.number += 1;
        let owner = Owner::Export(self.id, JobRef { client: 0, job });
        core.request(running.load.op, offset, buf.len.into(), *buf, owner);
    }

    fn release(&mut self, core: &mut Core, requests: &[(Buf, Clock)]) {
        if let Some(holder) = &mut self.holder {
            requests.iter().for_each(|(buf, _)| core.arena.release(holder, *buf));
        }
    }

    fn end(&mut self, core: &mut Core) {
        let Some(RunningLoad { load, begun, requests, failed, .. }) = self.running.take() else {
            return;
        };
        self.release(core, &requests);
        let ended = failed.map_or_else(|| Ok(begun.elapsed()), |e| Err(LoadError::Request(e)));
        // Nobody hears it who has gone.
        let _ = load.done.send(ended);
    }
}

impl Export for Generator {
    fn start(&mut self, core: &mut Core, id: ExportId) {
        self.id = id;
        self.watch(core);
    }

    fn take_in(&mut self, core: &mut Core, completion: Completion<ExportToken>) {
        if self.closing || completion.result.is_err() {
            return;
        }
        let _ = rustix::io::read(self.wake.as_fd(), &mut [0; 8]);
        self.watch(core);
        while let Ok(load) = self.loads.try_recv() {
            self.begin(core, load);
        }
    }

    fn completed(
        &mut self,
        core: &mut Core,
        job: JobRef,
        request: Request,
        result: Result<(), RequestError>,
    ) {
        let Some(running) = &mut self.running else { return };
        let (buf, made) = &mut running.requests[job.job];
        // It may have been read to another place than was asked for.
        *buf = request.buf;
        // The clock takes as long as the rest of this, so it is read once.
        let now = Clock::now();
        (running.load.took)(now - *made);
        running.failed = running.failed.or(result.err());
        if running.failed.is_none() && now - running.begun < running.load.length {
            return self.ask(core, job.job, now);
        }
        running.in_flight -= 1;
        if running.in_flight == 0 {
            self.end(core);
        }
    }

    fn work(&mut self, _core: &mut Core) {}

    fn close(&mut self, core: &mut Core) {
        self.closing = true;
        core.driver.cancel(Token::Export(self.id, ExportToken { kind: 0, index: 0 }));
    }

    fn disconnect(&mut self, _core: &mut Core) {}
}
