//! The thread that accepts front ends, one at a time, and reads their messages. Its reads may wait;
//! the engine's may not.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use vhost::vhost_user::{BackendReqHandler, Error};

use super::back_channel;
use super::device::ExportedDevice;
use super::endpoint_messages::{EndpointMailbox, EndpointMessage};
use super::front_end::FrontEnd;
use crate::mailbox::ReceiverGone;
use crate::users::{Process, User};

/// Pause before the next accept when the system is out of descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A socket for front ends. The thread that [`run`](Self::run) starts ends after
/// [`close`](Self::close).
#[derive(Debug)]
pub(super) struct FrontEndThread {
    listener: UnixListener,
    /// The connected front end; `Err` when no more are accepted.
    connected: Mutex<Result<Option<UnixStream>, ReceiverGone>>,
    /// Connection on which it is told of changes, if it has given one.
    channel: Mutex<Option<OwnedFd>>,
}

impl FrontEndThread {
    pub(super) const fn new(listener: UnixListener) -> Self {
        Self { listener, connected: Mutex::new(Ok(None)), channel: Mutex::new(None) }
    }

    /// Takes front ends in from now on.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn run(
        self: Arc<Self>,
        device: Arc<ExportedDevice>,
        mailbox: EndpointMailbox,
    ) -> io::Result<()> {
        let run = move || while self.serve_next(&device, &mailbox).is_ok() {};
        thread::Builder::new().name("vhost-user".into()).spawn(run).map(drop)
    }

    /// Accepts no more front ends, and leaves the socket to the next process.
    pub(super) fn leave(&self) {
        *self.connected() = Err(ReceiverGone);
    }

    /// Accepts no more front ends, and disconnects the present one.
    pub(super) fn close(&self) {
        let mut connected = self.connected();
        if connected.is_err() {
            return;
        }
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Ok(Some(stream)) = &*connected {
            let _ = stream.shutdown(Shutdown::Both);
        }
        *connected = Err(ReceiverGone);
    }

    /// Tells the front end, without waiting, that the device has changed.
    pub(super) fn tell_of_change(&self) {
        self.channel().iter().for_each(back_channel::tell_of_change);
    }

    fn channel(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connected(&self) -> MutexGuard<'_, Result<Option<UnixStream>, ReceiverGone>> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve_next(
        &self,
        device: &Arc<ExportedDevice>,
        mailbox: &EndpointMailbox,
    ) -> Result<(), ReceiverGone> {
        let stream = self.accept()?;
        let user = Process::at_other_end(&stream).map_or(User::Unseen, User::Process);
        tracing::info!(array = device.name, "vhost-user: {user} has connected");
        mailbox.send(EndpointMessage::Here(user.clone()))?;
        let reason = self.serve(device, mailbox, stream);
        *self.channel() = None;
        if let Ok(stream) = &mut *self.connected() {
            *stream = None;
        }
        // The next one may have the same memory: nothing of this one may be under way then.
        mailbox.ask(Duration::MAX, |done| EndpointMessage::Gone { done })?;
        match reason {
            Error::Disconnected => {
                tracing::info!(array = device.name, "vhost-user: {user} has gone");
            }
            reason => {
                tracing::warn!(array = device.name, "vhost-user: hung up on {user}: {reason}");
            }
        }
        Ok(())
    }

    fn accept(&self) -> Result<UnixStream, ReceiverGone> {
        loop {
            let accepted = self.listener.accept().and_then(|(stream, _)| {
                let copy = stream.try_clone()?;
                Ok((stream, copy))
            });
            let mut connected = self.connected();
            let connected = connected.as_mut().map_err(|ended| *ended)?;
            match accepted {
                Ok((stream, copy)) => {
                    *connected = Some(copy);
                    return Ok(stream);
                }
                Err(_) => thread::sleep(ACCEPT_RETRY),
            }
        }
    }

    /// Handles messages of a front end until its connection ends; returns the reason.
    fn serve(
        &self,
        device: &Arc<ExportedDevice>,
        mailbox: &EndpointMailbox,
        stream: UnixStream,
    ) -> Error {
        let Ok(watched) = stream.try_clone() else { return Error::BackendInternalError };
        let front_end = FrontEnd::new(Arc::clone(device), mailbox.clone());
        let mut front_end = BackendReqHandler::from_stream(stream, Arc::new(Mutex::new(front_end)));
        loop {
            match self.wait(&watched) {
                Ok(true) => {}
                Ok(false) => {
                    // Two with one disk would ruin it.
                    if self.listener.accept().is_ok() {
                        let name = &device.name;
                        tracing::warn!(array = name, "vhost-user: hung up on a second front end");
                    }
                    continue;
                }
                Err(error) => return Error::SocketError(error),
            }
            let handled = match self.take_channel(&watched) {
                Ok(true) => Ok(()),
                Ok(false) => front_end.handle_request().map(drop),
                Err(error) => Err(Error::SocketError(error)),
            };
            if let Err(error) = handled {
                return error;
            }
        }
    }

    /// Takes the connection for changes, if the next message brings it.
    fn take_channel(&self, stream: &UnixStream) -> io::Result<bool> {
        let Some(given) = back_channel::take(stream)? else { return Ok(false) };
        *self.channel() = Some(given.channel);
        if given.asks {
            back_channel::acknowledge(stream)?;
        }
        Ok(true)
    }

    /// Waits for the front end, or for another one. True when it is this one.
    fn wait(&self, stream: &UnixStream) -> io::Result<bool> {
        let mut polled = [
            PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
        ];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, None))?;
        Ok(!polled[0].revents().is_empty())
    }
}
