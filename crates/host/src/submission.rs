//! Submission queue: the thread-safe way into the engine for parts outside its ring, such as the
//! control socket and readers of an array that is not served. The engine drains the channel when
//! the eventfd in its ring fires.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use braid_array::action::Command;
use braid_array::status::Status;
use braid_array::{Refusal, RequestError};

use crate::fabric::Protection;
pub use crate::mailbox::Done;
use crate::mailbox::Mailbox;
use crate::member::MemberFile;
use crate::users::User;
use braid_array::figures::Figures;

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
pub struct SubmissionQueue {
    mailbox: Mailbox<Message>,
}

impl SubmissionQueue {
    /// Creates the sending side: messages go into `sender`, and `wake`, an eventfd, is then
    /// signalled.
    #[must_use]
    pub const fn new(sender: Sender<Message>, wake: Arc<OwnedFd>) -> Self {
        Self { mailbox: Mailbox::new(sender, wake) }
    }

    /// Sends a message in. False when the engine has ended.
    pub fn send(&self, message: Message) -> bool {
        self.mailbox.send(message).is_ok()
    }

    /// Sends the message that `make` builds around a `done` and waits for the answer. `None` when
    /// the engine has ended or ends first. Never call this on the engine's thread.
    pub fn call<T: Send + 'static>(&self, make: impl FnOnce(Done<T>) -> Message) -> Option<T> {
        self.mailbox.call(Duration::MAX, make).ok()
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
