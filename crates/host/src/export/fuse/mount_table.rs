//! The mount table: other threads add and remove mounts, before the engine runs and while it does.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use rustix::event::EventfdFlags;

use super::tree::{PartFiles, Tree};
use crate::mailbox::Mailbox;

/// Time in which requests of a mount that is removed have to be answered.
const PATIENCE: Duration = Duration::from_secs(10);

/// A mount that the engine is to serve.
#[derive(Debug)]
pub(crate) struct NewMount {
    /// Device of the mount.
    pub(super) device: OwnedFd,
    /// File system that it shows.
    pub(super) tree: Tree,
    /// Directory of the mount.
    pub(super) mountpoint: PathBuf,
}

/// A message to the server.
#[derive(Debug)]
pub(super) enum MountCommand {
    /// Serve a mount, under a number that no other has.
    Add { number: usize, mounted: NewMount },
    /// Show the parts of its file. `shown` is signalled once they are visible.
    Show { number: usize, parts: PartFiles, shown: SyncSender<()> },
    /// Stop serving it. `gone` is signalled when nothing of it is left.
    Remove { number: usize, gone: SyncSender<()> },
}

/// The sending side of the mount table, for other threads.
#[derive(Debug)]
pub(crate) struct MountTable {
    mailbox: Mailbox<MountCommand>,
}

impl MountTable {
    /// Creates both sides: messages sent here arrive at the receiver, and `wake` is signalled.
    ///
    /// # Errors
    /// When the system is out of descriptors.
    pub(super) fn new() -> io::Result<(Self, Receiver<MountCommand>, Arc<OwnedFd>)> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags)?);
        let (sender, commands) = mpsc::channel();
        Ok((Self { mailbox: Mailbox::new(sender, Arc::clone(&wake)) }, commands, wake))
    }

    /// Queues a mount to be served, under a number below [`MAX_MOUNTS`](super::MAX_MOUNTS) that no
    /// other has.
    pub(crate) fn add(&self, number: usize, mounted: NewMount) {
        // A server that is gone serves nothing.
        let _ = self.mailbox.send(MountCommand::Add { number, mounted });
    }

    /// Makes a mount show the parts of its file. The parts are visible when this returns, unless
    /// the engine does not answer.
    pub(crate) fn show(&self, number: usize, parts: PartFiles) {
        let _ = self.mailbox.ask(PATIENCE, |shown| MountCommand::Show { number, parts, shown });
    }

    /// Stops serving a mount; its remaining users get errors. The number is free when this returns
    /// true. Otherwise a member has not yet answered a request of the mount.
    pub(crate) fn remove(&self, number: usize) -> bool {
        self.mailbox.ask(PATIENCE, |gone| MountCommand::Remove { number, gone }).is_ok()
    }
}
