//! Where mounts come and go, from other threads, before the engine runs and while it does.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::time::Duration;

use rustix::event::EventfdFlags;

use super::tree::{Parts, Tree};
use crate::driver;

/// Time in which requests of a mount that is removed have to be answered.
const PATIENCE: Duration = Duration::from_secs(10);

/// A mount that the engine is to serve.
#[derive(Debug)]
pub(crate) struct Mounted {
    /// Device of the mount.
    pub(super) device: OwnedFd,
    /// File system that it shows.
    pub(super) tree: Tree,
    /// Where it is.
    pub(super) mountpoint: PathBuf,
}

/// A message to the server.
#[derive(Debug)]
pub(super) enum Say {
    /// Serve a mount, under a number that no other has.
    Add { number: usize, mounted: Mounted },
    /// Show the parts of its file. `shown` is signalled once they are visible.
    Show { number: usize, parts: Parts, shown: SyncSender<()> },
    /// Stop serving it. `gone` is signalled when nothing of it is left.
    Remove { number: usize, gone: SyncSender<()> },
}

/// The server's counter; drop it and nothing is heard any more.
#[derive(Debug)]
pub(crate) struct Desk {
    sender: Sender<Say>,
    wake: Arc<OwnedFd>,
}

impl Desk {
    /// Creates the queue: messages sent to it arrive at the receiver, and `wake` is signalled.
    ///
    /// # Errors
    /// When the system is out of descriptors.
    pub(super) fn new() -> io::Result<(Self, Receiver<Say>, Arc<OwnedFd>)> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags)?);
        let (sender, says) = mpsc::channel();
        Ok((Self { sender, wake: Arc::clone(&wake) }, says, wake))
    }

    fn say(&self, say: Say) {
        // A server that is gone answers nobody.
        if self.sender.send(say).is_ok() {
            driver::signal(&self.wake);
        }
    }

    /// Queues a mount to be served, under a number below [`MAX_MOUNTS`](super::MAX_MOUNTS) that no
    /// other has.
    pub(crate) fn add(&self, number: usize, mounted: Mounted) {
        self.say(Say::Add { number, mounted });
    }

    /// Makes a mount show the parts of its file. The parts are visible when this returns, unless
    /// the engine does not answer.
    pub(crate) fn show(&self, number: usize, parts: Parts) {
        let (shown, is_shown) = mpsc::sync_channel(1);
        self.say(Say::Show { number, parts, shown });
        let _ = is_shown.recv_timeout(PATIENCE);
    }

    /// Stops serving a mount; its remaining users get errors. The number is free when this returns
    /// true. Otherwise a member has not yet answered a request of the mount.
    pub(crate) fn remove(&self, number: usize) -> bool {
        let (gone, is_gone) = mpsc::sync_channel(1);
        self.say(Say::Remove { number, gone });
        is_gone.recv_timeout(PATIENCE).is_ok()
    }
}
