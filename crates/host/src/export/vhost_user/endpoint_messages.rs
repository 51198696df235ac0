//! Messages to the engine from the thread of a front end.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use super::memory::MappedGuest;
use super::ring::VirtioRing;
use crate::mailbox::Mailbox;
use crate::users::User;

/// A ring that may be served.
#[derive(Debug)]
pub(super) struct OpenedRing {
    pub(super) ring: VirtioRing,
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
pub(super) enum EndpointMessage {
    /// A front end is there.
    Here(User),
    /// Requests that come lie in this memory.
    Memory(Arc<MappedGuest>),
    Start {
        ring: usize,
        opened: Box<OpenedRing>,
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
pub(super) type EndpointMailbox = Mailbox<EndpointMessage>;
