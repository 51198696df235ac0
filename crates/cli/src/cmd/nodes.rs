//! Storage nodes, as commands ask them.

use std::fmt::Display;
use std::time::{SystemTime, UNIX_EPOCH};

use braid_host::fabric::frame::Kind;
use braid_host::remote::{Remote, RemoteError};

use crate::args::NodeArg;
use crate::failure::Failure;

/// Grows with every command: who writes later has the larger one.
pub(super) fn epoch() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(now.as_secs()).unwrap_or(u32::MAX)
}

/// Connects to the node of a member.
pub(super) fn connect(operation: &str, node: &NodeArg, fabric: Kind) -> Result<Remote, Failure> {
    Remote::connect(&node.address, fabric, epoch()).map_err(|error| failed(operation, node, &error))
}

/// What a node did not do.
pub(super) fn failed(operation: &str, node: impl Display, error: &RemoteError) -> Failure {
    Failure::refused(operation, node, &error.reason, &error.next)
}

/// How data travels, as it was typed.
pub(super) fn fabric(operation: &str, typed: Option<&str>) -> Result<Kind, Failure> {
    typed.unwrap_or("tcp").parse().map_err(|reason: String| {
        let (reason, next) = reason.split_once("; ").unwrap_or((&reason, "see --help"));
        Failure::usage(operation, "--fabric", reason, next)
    })
}
