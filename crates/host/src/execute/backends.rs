//! Members that are read through a backend, which may wait for another machine or unpack data. Each
//! has a thread of its own, which wakes the engine up after each read.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use rustix::io::Errno;

use crate::mailbox::Mailbox;
use crate::member::Backend;

/// A read to be done for a flight.
#[derive(Debug)]
pub(super) struct WantedRead {
    pub(super) index: usize,
    /// Offset in bytes.
    pub(super) offset: u64,
    pub(super) len: u32,
}

/// Result of a `WantedRead` read.
#[derive(Debug)]
pub(super) struct Brought {
    pub(super) index: usize,
    pub(super) bytes: Result<Vec<u8>, Errno>,
}

/// The reading threads, and the results that they have brought.
#[derive(Debug)]
pub(super) struct Backends {
    brought: Receiver<Brought>,
    mailbox: Mailbox<Brought>,
}

impl Backends {
    /// `wake` is signalled when something was brought.
    pub(super) fn new(wake: Arc<OwnedFd>) -> Self {
        let (sender, brought) = mpsc::channel();
        Self { brought, mailbox: Mailbox::new(sender, wake) }
    }

    /// Starts a thread that reads a member, and returns the channel of its reads. The thread ends
    /// when all copies of that are dropped.
    pub(super) fn reader(&self, backend: Arc<dyn Backend>) -> Sender<WantedRead> {
        let (sender, receiver) = mpsc::channel();
        let mailbox = self.mailbox.clone();
        let read = move || read(&*backend, &receiver, &mailbox);
        // Without a thread nothing takes what is wanted, and that is noticed when it is sent.
        let _ = std::thread::Builder::new().name("member".into()).spawn(read);
        sender
    }

    /// The next that was brought.
    pub(super) fn take(&self) -> Option<Brought> {
        self.brought.try_recv().ok()
    }
}

fn read(backend: &dyn Backend, wanted: &Receiver<WantedRead>, brought: &Mailbox<Brought>) {
    for WantedRead { index, offset, len } in wanted {
        let mut bytes = vec![0; len as usize];
        let result = backend.read_exact_at(&mut bytes, offset);
        let bytes = result.map(|()| bytes).map_err(|error| errno_of(&error));
        // An engine that has ended hears of nothing.
        let _ = brought.send(Brought { index, bytes });
    }
}

/// Returns the errno that the kernel would report of a device in this state.
fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(match error.kind() {
        // The place of it in an image.
        io::ErrorKind::InvalidData => Errno::IO,
        _ => Errno::NODEV,
    })
}
