//! Messages from other threads to one that waits on its ring.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender, SyncSender};
use std::time::Duration;

use crate::driver;

/// Called once, on the receiving thread, with the answer; must not block.
pub type Done<T> = Box<dyn FnOnce(T) + Send>;

/// The sending side of a queue: a message is put in, and the eventfd that the receiving thread
/// watches in its ring is signalled.
pub(crate) struct Mailbox<T> {
    sender: Sender<T>,
    wake: Arc<OwnedFd>,
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), wake: Arc::clone(&self.wake) }
    }
}

/// The receiving thread has ended, or takes no more messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiverGone;

impl<T> Mailbox<T> {
    pub(crate) const fn new(sender: Sender<T>, wake: Arc<OwnedFd>) -> Self {
        Self { sender, wake }
    }

    /// Puts a message in.
    ///
    /// # Errors
    /// [`ReceiverGone`].
    pub(crate) fn send(&self, message: T) -> Result<(), ReceiverGone> {
        self.sender.send(message).map_err(|_| ReceiverGone)?;
        driver::signal(&self.wake);
        Ok(())
    }

    /// Sends the message that `make` builds around the channel of the answer, and waits for that.
    ///
    /// # Errors
    /// [`ReceiverGone`], also when there is no answer within `limit`.
    pub(crate) fn ask<A>(
        &self,
        limit: Duration,
        make: impl FnOnce(SyncSender<A>) -> T,
    ) -> Result<A, ReceiverGone> {
        let (done, answer) = mpsc::sync_channel(1);
        self.send(make(done))?;
        answer.recv_timeout(limit).map_err(|_| ReceiverGone)
    }

    /// Does the same for a message that has a function called with the answer.
    ///
    /// # Errors
    /// [`ReceiverGone`], also when there is no answer within `limit`.
    pub(crate) fn call<A: Send + 'static>(
        &self,
        limit: Duration,
        make: impl FnOnce(Done<A>) -> T,
    ) -> Result<A, ReceiverGone> {
        self.ask(limit, |answer| {
            make(Box::new(move |value| {
                // Nobody waits any longer when this fails.
                let _ = answer.send(value);
            }))
        })
    }
}
