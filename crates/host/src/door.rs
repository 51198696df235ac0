//! Submission queue: the thread-safe way into the engine for parts outside its ring, such as the
//! control socket and readers of an array that is not served. The engine drains the channel when
//! the eventfd in its ring fires.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

use braid_array::action::Command;
use braid_array::status::Status;
use braid_array::{Refusal, RequestError};

use crate::fabric::Protection;
use crate::member::MemberFile;
use crate::users::User;
use braid_array::figures::Figures;

/// Called once, on the engine's thread, with the answer; must not block.
pub type Done<T> = Box<dyn FnOnce(T) + Send>;

/// A message to the engine. A machine that serves no requests answers only `Command`, `Clients` and
/// `Figures`; `done` of another is dropped. Offsets and lengths are bytes and multiples of the
/// array's block size, of any length: the engine splits them.
pub enum Message {
    /// Read.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes to read.
        len: u32,
        /// Gets the bytes.
        done: Done<Result<Vec<u8>, RequestError>>,
    },
    /// Write.
    Write {
        /// First byte.
        offset: u64,
        /// Data; the engine copies them into its arena.
        data: Vec<u8>,
        /// Durable before it is answered.
        fua: bool,
        /// Told when it is done.
        done: Done<Result<(), RequestError>>,
    },
    /// Make a range read as zeroes.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Bytes of the range.
        len: u64,
        /// Members may give the space back.
        unmap: bool,
        /// Told when it is done.
        done: Done<Result<(), RequestError>>,
    },
    /// Contents no longer needed.
    Discard {
        /// First byte.
        offset: u64,
        /// Bytes of the range.
        len: u64,
        /// Told when it is done.
        done: Done<Result<(), RequestError>>,
    },
    /// All that was answered so far is durable when this is answered.
    Flush {
        /// Told when it is done.
        done: Done<Result<(), RequestError>>,
    },
    /// An administrator's command. With `Command::Add` comes the opened device; the engine puts it
    /// into its table and fills in the member id before the machine sees the command.
    Command {
        /// The command.
        command: Command,
        /// The device that goes with `Add`.
        device: Option<MemberFile>,
        /// Told when it is done.
        done: Done<Result<(), Refusal>>,
    },
    /// A copy of the state.
    Status {
        /// Gets it.
        done: Done<Status>,
    },
    /// Report the protection of the connections to nodes; not answered where there are none.
    Protection {
        /// Gets it.
        done: Done<Protection>,
    },
    /// The clients of the exports that the engine serves itself.
    Clients {
        /// Gets the users.
        done: Done<Vec<User>>,
    },
    /// Report the counters of requests to the array and its members so far.
    Figures {
        /// Gets it.
        done: Done<Figures>,
    },
}

/// A handle to the engine; clone it freely.
#[derive(Clone, Debug)]
pub struct Door {
    sender: Sender<Message>,
    wake: Arc<OwnedFd>,
}

impl Door {
    /// Creates the sending side: messages go into `sender`, and `wake`, an eventfd, is then
    /// signalled.
    #[must_use]
    pub const fn new(sender: Sender<Message>, wake: Arc<OwnedFd>) -> Self {
        Self { sender, wake }
    }

    /// Sends a message in. False when the engine has ended.
    pub fn send(&self, message: Message) -> bool {
        if self.sender.send(message).is_err() {
            return false;
        }
        #[expect(clippy::host_endian_bytes, reason = "an eventfd counts in the host's byte order")]
        let one = 1u64.to_ne_bytes();
        // An eventfd write fails only when its counter is full, and then the engine wakes anyway.
        let _ = rustix::io::write(self.wake.as_fd(), &one);
        true
    }

    /// Sends the message that `make` builds around a `done` and waits for the answer. `None` when
    /// the engine has ended or ends first. Never call this on the engine's thread.
    pub fn call<T: Send + 'static>(&self, make: impl FnOnce(Done<T>) -> Message) -> Option<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        let done = Box::new(move |value| {
            // Nobody waits any longer when this fails.
            let _ = answer.send(value);
        });
        if !self.send(make(done)) {
            return None;
        }
        answered.recv().ok()
    }

    /// A copy of the state. `None` when the engine has ended.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.call(|done| Message::Status { done })
    }

    /// Returns the counters of requests to the array and its members so far. `None` when the engine
    /// has ended.
    #[must_use]
    pub fn figures(&self) -> Option<Figures> {
        self.call(|done| Message::Figures { done })
    }

    /// Returns the protection of the connections to nodes. `None` where there are none.
    #[must_use]
    pub fn protection(&self) -> Option<Protection> {
        self.call(|done| Message::Protection { done })
    }
}
