//! Messages to the engine from the thread of a front end.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender, SyncSender};

use super::memory::Guest;
use super::ring::Ring;
use crate::driver;
use crate::users::User;

/// A ring that may be served.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) ring: Ring,
    /// Signalled by the guest when requests have come. Non-blocking.
    pub(super) kick: OwnedFd,
    /// We signal it when something was answered.
    pub(super) call: Option<File>,
    /// We signal it when the ring is broken.
    pub(super) error: Option<File>,
    pub(super) enabled: bool,
    /// The guest flushes, so writes need not be durable before.
    pub(super) flushes: bool,
}

/// A message to the engine.
#[derive(Debug)]
pub(super) enum Say {
    /// A front end is there.
    Here(User),
    /// Requests that come lie in this memory.
    Memory(Arc<Guest>),
    Start {
        ring: usize,
        opened: Box<Opened>,
    },
    Enable {
        ring: usize,
        on: bool,
    },
    Call {
        ring: usize,
        call: Option<File>,
    },
    /// Take no more from a ring; when all that was taken is answered, tell which is the next.
    Stop {
        ring: usize,
        done: SyncSender<u16>,
    },
    /// The front end has gone. When nothing of it is left, tell so.
    Gone {
        done: SyncSender<()>,
    },
}

/// The way to the engine.
#[derive(Clone, Debug)]
pub(super) struct Says {
    sender: Sender<Say>,
    wake: Arc<OwnedFd>,
}

/// The engine has ended, or takes nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended;

impl Says {
    /// `wake` is an eventfd that the engine watches.
    pub(super) const fn new(sender: Sender<Say>, wake: Arc<OwnedFd>) -> Self {
        Self { sender, wake }
    }

    /// # Errors
    /// [`Ended`]
    pub(super) fn say(&self, say: Say) -> Result<(), Ended> {
        self.sender.send(say).map_err(|_| Ended)?;
        driver::signal(&self.wake);
        Ok(())
    }

    /// Sends the message that `make` builds around the channel of the answer, and waits for that.
    ///
    /// # Errors
    /// [`Ended`].
    pub(super) fn ask<T>(&self, make: impl FnOnce(SyncSender<T>) -> Say) -> Result<T, Ended> {
        let (done, answer) = mpsc::sync_channel(1);
        self.say(make(done))?;
        answer.recv().map_err(|_| Ended)
    }
}
