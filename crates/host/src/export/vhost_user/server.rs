//! The vhost-user export in the engine's ring: its events, and the endpoints that they are for.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use braid_array::{Request, RequestError};
use rustix::event::EventfdFlags;
use slab::Slab;

use super::device::{ExportedDevice, MAX_RINGS};
use super::endpoint::{VhostEndpoint, Watch};
use super::endpoint_messages::{EndpointMailbox, EndpointMessage};
use super::front_end_thread::FrontEndThread;
use crate::driver::{Completion, Op};
use crate::engine::core::Core;
use crate::engine::export::Export;
use crate::token::{ExportId, ExportToken, JobRef, Token};
use crate::users::User;

/// Kinds of tokens: a message of an endpoint's thread, or a kick of a guest.
const MESSAGE: u8 = 0;
const KICK: u8 = 1;

/// A socket, and the thread behind it.
#[derive(Debug)]
struct ServedSocket {
    front_ends: Arc<FrontEndThread>,
    messages: Receiver<EndpointMessage>,
    wake: Arc<OwnedFd>,
    /// Index of the watched kick, by ring.
    watched: Vec<Option<usize>>,
}

impl Drop for ServedSocket {
    fn drop(&mut self) {
        self.front_ends.close();
    }
}

/// Ring that a watch is for. An abandoned watch stays until the driver has reported its end.
#[derive(Clone, Copy, Debug)]
struct Kick {
    endpoint: usize,
    ring: usize,
}

/// The vhost-user sockets of an array. Order of calls: [`listen`](Self::listen) for each of them;
/// then the engine calls it as an [`Export`], from `start` to `close`.
#[derive(Debug)]
pub(crate) struct VhostServer {
    id: ExportId,
    device: Arc<ExportedDevice>,
    sockets: Vec<ServedSocket>,
    /// One endpoint for each socket, from the start on.
    endpoints: Vec<VhostEndpoint>,
    kicks: Slab<Kick>,
    closing: bool,
}

impl VhostServer {
    pub(crate) fn new(device: ExportedDevice) -> Self {
        let device = Arc::new(device);
        let sockets = Vec::new();
        let endpoints = Vec::new();
        let kicks = Slab::new();
        Self { id: ExportId(0), device, sockets, endpoints, kicks, closing: false }
    }

    /// Accepts front ends from now on; their requests wait for the engine.
    ///
    /// # Errors
    /// When the system is out of descriptors or threads.
    pub(crate) fn listen(&mut self, listener: UnixListener) -> io::Result<()> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags)?);
        let (sender, messages) = mpsc::channel();
        listener.set_nonblocking(false)?;
        let front_ends = Arc::new(FrontEndThread::new(listener));
        let to_us = EndpointMailbox::new(sender, Arc::clone(&wake));
        Arc::clone(&front_ends).run(Arc::clone(&self.device), to_us)?;
        self.sockets.push(ServedSocket {
            front_ends,
            messages,
            wake,
            watched: vec![None; MAX_RINGS],
        });
        Ok(())
    }

    fn await_message(&self, core: &mut Core, index: usize) {
        let token = Token::Export(self.id, ExportToken { kind: MESSAGE, index });
        core.driver.start(token, Op::Readable { file: Arc::clone(&self.sockets[index].wake) });
    }

    fn hear(&mut self, core: &mut Core, index: usize) {
        let _ = rustix::io::read(self.sockets[index].wake.as_fd(), &mut [0; 8]);
        self.await_message(core, index);
        while let Ok(message) = self.sockets[index].messages.try_recv() {
            let mut watches = Vec::new();
            self.endpoints[index].hear(core, message, &mut watches);
            for watch in watches {
                match watch {
                    Watch::Begin { ring, kick } => self.watch(core, index, ring, kick),
                    Watch::End { ring } => self.unwatch(core, index, ring),
                }
            }
        }
    }

    fn watch(&mut self, core: &mut Core, endpoint: usize, ring: usize, file: Arc<OwnedFd>) {
        let index = self.kicks.insert(Kick { endpoint, ring });
        self.sockets[endpoint].watched[ring] = Some(index);
        let token = Token::Export(self.id, ExportToken { kind: KICK, index });
        core.driver.start(token, Op::Readable { file });
    }

    fn unwatch(&mut self, core: &mut Core, endpoint: usize, ring: usize) {
        if let Some(index) = self.sockets[endpoint].watched[ring].take() {
            core.driver.cancel(Token::Export(self.id, ExportToken { kind: KICK, index }));
        }
    }

    fn kicked(&mut self, core: &mut Core, index: usize) {
        let Kick { endpoint, ring } = self.kicks.remove(index);
        let watched = &mut self.sockets[endpoint].watched[ring];
        if *watched != Some(index) {
            return;
        }
        *watched = None;
        if let Some(kick) = self.endpoints[endpoint].kicked(ring) {
            self.watch(core, endpoint, ring, kick);
        }
    }
}

impl Export for VhostServer {
    fn start(&mut self, core: &mut Core, id: ExportId) {
        self.id = id;
        for index in 0..self.sockets.len() {
            self.endpoints.push(VhostEndpoint::new(id, index, Arc::clone(&self.device)));
            self.await_message(core, index);
        }
    }

    fn take_in(&mut self, core: &mut Core, completion: Completion<ExportToken>) {
        let Completion { token: ExportToken { kind, index }, .. } = completion;
        match kind {
            MESSAGE if self.closing => {}
            MESSAGE => self.hear(core, index),
            _ => self.kicked(core, index),
        }
    }

    fn completed(
        &mut self,
        core: &mut Core,
        job: JobRef,
        request: Request,
        result: Result<(), RequestError>,
    ) {
        self.endpoints[job.client].completed(core, job.job, &request, result);
    }

    fn work(&mut self, core: &mut Core) {
        self.endpoints.iter_mut().for_each(|endpoint| endpoint.work(core));
    }

    fn resized(&mut self, _core: &mut Core, _bytes: u64) {
        self.sockets.iter().for_each(|socket| socket.front_ends.tell_of_change());
    }

    fn flush(&mut self, _core: &mut Core) {
        self.endpoints.iter_mut().for_each(VhostEndpoint::flush);
    }

    fn clients(&self) -> Vec<User> {
        self.endpoints.iter().filter_map(VhostEndpoint::user).cloned().collect()
    }

    fn client_count(&self) -> Option<(&'static str, usize)> {
        Some(("vhost-user", self.endpoints.iter().filter_map(VhostEndpoint::user).count()))
    }

    fn hold(&mut self, _core: &mut Core) {
        self.endpoints.iter_mut().for_each(|endpoint| endpoint.hold(true));
    }

    fn go_on(&mut self, _core: &mut Core) {
        self.endpoints.iter_mut().for_each(|endpoint| endpoint.hold(false));
    }

    fn is_held(&self, _core: &Core) -> bool {
        self.is_over()
    }

    /// Leaves the sockets to the next process, where front ends connect again. Their in-flight
    /// memory tells which requests were answered: the crate that follows the protocol cannot begin
    /// in the middle of it.
    fn leave(&mut self) {
        self.sockets.iter().for_each(|socket| socket.front_ends.leave());
    }

    fn close(&mut self, core: &mut Core) {
        self.closing = true;
        for index in 0..self.sockets.len() {
            self.sockets[index].front_ends.close();
            core.driver.cancel(Token::Export(self.id, ExportToken { kind: MESSAGE, index }));
            self.endpoints[index].close();
            (0..MAX_RINGS).for_each(|ring| self.unwatch(core, index, ring));
        }
    }

    /// All that was asked has been answered.
    fn disconnect(&mut self, _core: &mut Core) {}

    fn is_over(&self) -> bool {
        self.endpoints.iter().all(VhostEndpoint::is_over)
    }

    fn end(&mut self, core: &mut Core) {
        self.endpoints.iter_mut().for_each(|endpoint| endpoint.end(core));
    }
}
