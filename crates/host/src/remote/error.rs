//! Errors of requests to a node.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use braid_array::refusal::{Next, Refusal};

use crate::system::describe;

/// Error of a request to a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct RemoteError {
    /// Cause; continues a sentence that begins with the node's name.
    pub why: Refusal,
    /// Kind of the error, for an array whose member this is.
    pub kind: RemoteErrorKind,
}

/// Kind of a [`RemoteError`], as far as it matters to an array that has a member there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteErrorKind {
    /// No node answers.
    Unreachable,
    /// The node answers, and cannot do it: it has no such volume, or cannot read it.
    Refused,
    /// Another client has the volume, and may give it back.
    Busy,
    /// Not about the node's volume: a fault of this machine, or of the protocol.
    Other,
}

impl RemoteError {
    pub(super) fn new(reason: impl Into<String>, next: impl Into<Next>) -> Self {
        Self { why: Refusal::new(reason, next), kind: RemoteErrorKind::Other }
    }

    pub(super) fn unreachable(reason: impl Into<String>, next: impl Into<Next>) -> Self {
        Self { kind: RemoteErrorKind::Unreachable, ..Self::new(reason, next) }
    }

    pub(super) fn of_system(error: &io::Error, patience: Duration) -> Self {
        if error.kind() == io::ErrorKind::TimedOut {
            let reason = format!("gives no answer for {} seconds", patience.as_secs());
            return Self::unreachable(reason, "see whether the node is overloaded, and try again");
        }
        Self::new(format!("cannot be talked to: {}", describe(error)), "try again")
    }

    pub(super) fn nonsense(error: impl Display) -> Self {
        let reason = format!("gives an answer that means nothing ({error})");
        Self::new(reason, "check that it is a braid node of this version")
    }
}
