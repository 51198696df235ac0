//! Storage nodes, as commands ask them.

use std::fmt::{self, Display};

use braid_array::Refusal;
use braid_host::fabric::Network;
use braid_host::fabric::frame::TransportKind;
use braid_host::remote::{Remote, RemoteError, RemoteErrorKind};

use super::key;
use crate::args::{NetworkArgs, NodeArg};
use crate::failure::Failure;
use crate::invocation::shell_word;

/// Connects to the node of a member.
pub(super) fn connect(
    operation: &str,
    node: &NodeArg,
    network: Network,
) -> Result<Remote, Failure> {
    Remote::connect(&node.address, network).map_err(|error| failed(operation, node, &error))
}

/// Advice for choosing a witness.
pub(super) const NO_MEMBER: &str = "name a node that has none";

/// Witnesses are on nodes of their own: a member's node votes anyway.
pub(super) fn check_witnesses(
    operation: &str,
    witnesses: &[String],
    members: &[NodeArg],
) -> Result<(), Failure> {
    for (index, address) in witnesses.iter().enumerate() {
        if members.iter().any(|member| member.address == *address) {
            let reason = "has a member of the array, and votes anyway";
            return Err(Failure::usage(operation, address, reason, NO_MEMBER));
        }
        if witnesses[..index].contains(address) {
            return Err(Failure::usage(operation, address, "was given twice", "name it once"));
        }
    }
    Ok(())
}

/// Returns the failure for an error of a node.
pub(super) fn failed(operation: &str, node: impl Display, error: &RemoteError) -> Failure {
    Failure::explained(operation, node, error.why.clone())
}

/// A member that an array may start without, and why it is not there.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    pub(super) node: NodeArg,
    pub(super) error: RemoteError,
}

/// Advice for a node that is up but has lost the volume. Creating the volume is wrong: other nodes
/// still hold the array.
pub(super) const STORE: &str = "bring its store back, or add another node in its place";

impl Missing {
    /// Creates the entry of a missing member, if the array may start without the member.
    ///
    /// # Errors
    /// Returns the error if it is no loss of the member, for example because another client uses
    /// the volume.
    pub(super) fn new(node: &NodeArg, error: RemoteError) -> Result<Self, RemoteError> {
        match error.kind {
            RemoteErrorKind::Unreachable | RemoteErrorKind::Refused => {
                Ok(Self { node: node.clone(), error })
            }
            RemoteErrorKind::Busy | RemoteErrorKind::Other => Err(error),
        }
    }

    /// Returns the reason, for an array with volumes on other nodes.
    pub(super) fn why(&self) -> Refusal {
        let Refusal { reason, next } = self.error.why.clone();
        match self.error.kind {
            RemoteErrorKind::Refused => Refusal::new(reason, STORE),
            _ => Refusal::new(reason, next),
        }
    }
}

impl Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let it = if self.error.kind == RemoteErrorKind::Unreachable { "it " } else { "" };
        write!(f, "{} is missing: {it}{}", self.node, self.why())
    }
}

/// Returns the connection options, as typed.
pub(super) fn network(operation: &str, typed: &NetworkArgs) -> Result<Network, Failure> {
    let kind = fabric(operation, typed.fabric.as_deref())?;
    Ok(Network { kind, key: key::find(&typed.key_file)?, encrypt: false })
}

/// Returns the connection options for another command.
pub(super) fn options(typed: &NetworkArgs) -> String {
    let fabric = typed.fabric.as_ref().map(|fabric| format!(" --fabric {}", shell_word(fabric)));
    let key = typed
        .key_file
        .key
        .as_ref()
        .map(|key| format!(" --key {}", shell_word(&key.to_string_lossy())));
    fabric.into_iter().chain(key).collect()
}

/// Parses the name of a fabric; TCP by default.
///
/// # Errors
/// Returns a usage error for an unknown fabric.
pub fn fabric(operation: &str, typed: Option<&str>) -> Result<TransportKind, Failure> {
    typed.unwrap_or("tcp").parse().map_err(|why: Refusal| {
        Failure::explained(operation, "--fabric", why).with_code(Failure::USAGE)
    })
}

/// The first connection that leads to the node of an earlier one, and that one. A node may be known
/// under several addresses; which it is, is told with a volume.
pub(super) fn same_node(remotes: &[Remote]) -> Option<(usize, usize)> {
    let earlier = |(index, remote): (usize, &Remote)| {
        let same = |other: &Remote| other.node().is_some() && other.node() == remote.node();
        Some((index, remotes[..index].iter().position(same)?))
    };
    remotes.iter().enumerate().find_map(earlier)
}
