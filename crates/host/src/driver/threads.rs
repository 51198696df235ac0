//! The driver for systems that do not let us have an io_uring (many containers).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::socket::{give, receive, send, take};
use crate::arena::Memory;
use crate::driver::{self, Completion, Op, file};
use slab::Slab;

/// I/O of one array that proceeds at the same time.
const WORKERS: usize = 16;

/// Operations under way, where there is no io_uring: threads do file I/O with pread and pwrite,
/// each one operation at a time, and the engine's own thread serves the sockets with poll. `T`
/// names an operation. Order of calls: [`start`](Self::start) for each operation, then
/// [`wait`](Self::wait), which serves ready sockets and returns completions. The threads end when
/// this is dropped and their work is done.
#[derive(Debug)]
pub(crate) struct Threads<T> {
    memory: Arc<Memory>,
    /// Tokens of file operations.
    files: Slab<T>,
    /// Operations that wait for a descriptor to be ready.
    sockets: Slab<Waiting<T>>,
    /// Operations that wait no longer.
    canceled: Vec<T>,
    work: Sender<(usize, Op)>,
    todo: Arc<Mutex<Receiver<(usize, Op)>>>,
    finished: Sender<(usize, Result<u32, Errno>)>,
    done: Receiver<(usize, Result<u32, Errno>)>,
    /// Signalled after each message in `done`.
    wake: Arc<OwnedFd>,
}

#[derive(Debug)]
struct Waiting<T> {
    token: T,
    op: Op,
    /// Bytes sent so far.
    sent: u64,
}

impl<T: Copy + PartialEq> Threads<T> {
    /// Starts the threads; they end when this is dropped and their work is done.
    ///
    /// # Errors
    /// When a thread or descriptor cannot be had.
    pub(crate) fn new(memory: Arc<Memory>) -> io::Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let wake = Arc::new(wake);
        let (work, todo) = mpsc::channel::<(usize, Op)>();
        let (finished, done) = mpsc::channel();
        let todo = Arc::new(Mutex::new(todo));
        let files = Slab::default();
        let sockets = Slab::default();
        let canceled = Vec::new();
        let mut threads =
            Self { memory, files, sockets, canceled, work, todo, finished, done, wake };
        for _ in 0..WORKERS {
            threads.add_worker()?;
        }
        Ok(threads)
    }

    /// One more file operation may proceed at the same time.
    ///
    /// # Errors
    /// When the thread cannot be had.
    pub(crate) fn add_worker(&mut self) -> io::Result<()> {
        let memory = Arc::clone(&self.memory);
        let todo = Arc::clone(&self.todo);
        let finished = self.finished.clone();
        let wake = Arc::clone(&self.wake);
        let work = move || {
            loop {
                let next = todo.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok((index, op)) = next else { return };
                let result = file::carry_out(&memory, &op);
                // The file closes before the engine hears of the end.
                drop(op);
                if finished.send((index, result)).is_err() {
                    return;
                }
                driver::signal(&wake);
            }
        };
        std::thread::Builder::new().name("braid-io".to_owned()).spawn(work).map(drop)
    }

    /// The arena.
    pub(crate) const fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The names of operations that have not completed.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &T> {
        let files = self.files.iter().map(|(_, token)| token);
        let sockets = self.sockets.iter().map(|(_, waiting)| &waiting.token);
        files.chain(sockets).chain(&self.canceled)
    }

    /// Operations that have not completed.
    pub(crate) fn in_flight(&self) -> usize {
        self.files.len() + self.sockets.len() + self.canceled.len()
    }

    /// Ends operations that wait for a descriptor.
    pub(crate) fn cancel(&mut self, token: T) {
        let named = self.sockets.iter().filter(|(_, waiting)| waiting.token == token);
        let named: Vec<usize> = named.map(|(index, _)| index).collect();
        for index in named {
            self.canceled.push(self.sockets.remove(index).token);
        }
    }

    /// Starts an operation.
    pub(crate) fn start(&mut self, token: T, op: Op) {
        if let Op::Accept { socket } = &op {
            // So that a client that gave up between poll and accept does not block the engine.
            let _ = rustix::io::ioctl_fionbio(socket, true);
        }
        if op.file().is_some() {
            let index = self.files.insert(token);
            self.work.send((index, op)).expect("the workers wait for work");
        } else {
            let sent = if let Op::Send { sent, .. } = op { sent } else { 0 };
            self.sockets.insert(Waiting { token, op, sent });
        }
    }

    /// Waits for a completion or the timeout, and appends all completions there are.
    ///
    /// # Errors
    /// When poll fails.
    pub(crate) fn wait(
        &mut self,
        timeout: Option<Duration>,
        out: &mut Vec<Completion<T>>,
    ) -> io::Result<()> {
        let mut fds = vec![PollFd::new(&self.wake, PollFlags::IN)];
        fds.extend(self.sockets.iter().map(|(_, waiting)| waiting.op.poll_fd()));
        let timeout = if self.canceled.is_empty() { timeout } else { Some(Duration::ZERO) };
        let limit = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match rustix::event::poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<(usize, PollFlags)> = self
            .sockets
            .iter()
            .zip(&fds[1..])
            .map(|((index, _), fd)| (index, fd.revents()))
            .filter(|(_, events)| !events.is_empty())
            .collect();
        let _ = rustix::io::read(self.wake.as_fd(), &mut [0; 8]);
        for token in self.canceled.drain(..) {
            let result = Err(Errno::CANCELED);
            out.push(Completion { token, result, message: None, accepted: None });
        }
        while let Ok((index, result)) = self.done.try_recv() {
            let token = self.files.remove(index);
            out.push(Completion { token, result, message: None, accepted: None });
        }
        for (index, events) in ready {
            let mut accepted = None;
            let waiting = &mut self.sockets[index];
            let result = match waiting.attempt(&self.memory, &mut accepted) {
                Some(result) => result,
                // A listener that was shut down would say "try again" for ever.
                None if waiting.is_accept() && events.contains(PollFlags::HUP) => Err(Errno::INVAL),
                None => continue,
            };
            let Waiting { token, op, .. } = self.sockets.remove(index);
            let message = match op {
                Op::Send { message, .. } | Op::Give { message, .. } => Some(message),
                _ => None,
            };
            out.push(Completion { token, result, message, accepted });
        }
        Ok(())
    }
}

impl<T> Waiting<T> {
    const fn is_accept(&self) -> bool {
        matches!(self.op, Op::Accept { .. })
    }

    /// Does the part of the operation that needs no waiting; `None` when a part is left.
    fn attempt(
        &mut self,
        memory: &Memory,
        accepted: &mut Option<OwnedFd>,
    ) -> Option<Result<u32, Errno>> {
        let result = match &mut self.op {
            Op::Accept { socket } => {
                rustix::net::accept_with(&*socket, SocketFlags::CLOEXEC).map(|connection| {
                    *accepted = Some(connection);
                    0
                })
            }
            Op::Receive { socket, bufs } => receive(memory, socket, bufs),
            Op::Send { socket, message, .. } => {
                let sent = send(memory, socket, message, self.sent);
                if let Ok(sent) = sent {
                    self.sent += u64::from(sent);
                    if self.sent < message.total_bytes() {
                        return None;
                    }
                }
                sent
            }
            Op::Take { device, bufs } => take(memory, device, bufs),
            Op::Give { device, message } => give(memory, device, message),
            Op::Command { .. } => Err(Errno::NOSYS),
            // It was ready, and that is all that was asked.
            _ => Ok(0),
        };
        match result {
            Err(Errno::AGAIN | Errno::INTR) => None,
            result => Some(result),
        }
    }
}

impl Op {
    /// Returns the event that an operation on a socket waits for.
    fn poll_fd(&self) -> PollFd<'_> {
        match self {
            Self::Accept { socket } | Self::Receive { socket, .. } => {
                PollFd::new(socket, PollFlags::IN)
            }
            Self::Send { socket, .. } => PollFd::new(socket, PollFlags::OUT),
            Self::Readable { file } | Self::Take { device: file, .. } => {
                PollFd::new(file, PollFlags::IN)
            }
            Self::Give { device, .. } => PollFd::new(device, PollFlags::OUT),
            Self::Read { file, .. }
            | Self::Write { file, .. }
            | Self::Sync { file }
            | Self::Allocate { file, .. } => PollFd::new(file, PollFlags::IN),
            // There is nothing to wait for.
            Self::Command { file, .. } => PollFd::new(file, PollFlags::OUT),
        }
    }
}
