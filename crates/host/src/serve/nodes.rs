//! The nodes of an array that is served: how they are talked to, and whether all are there.

use braid_array::status::{ArrayState, Status};
use braid_cluster::ClientConfig;

use super::{News, ServeError};
use crate::door::{Door, Message};
use crate::fabric::frame::Kind;

/// The nodes of an array.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nodes {
    fabric: Kind,
    /// How many the array starts without.
    missing: usize,
    read_only: bool,
}

impl Nodes {
    pub(super) fn of(config: &ClientConfig, fabric: Kind) -> Self {
        let missing = config.members.iter().filter(|member| member.is_none()).count();
        Self { fabric, missing, read_only: config.read_only }
    }

    pub(super) const fn fabric(self) -> Kind {
        self.fabric
    }

    /// Waits until all that should be there are connected.
    pub(super) fn connected(self, door: &Door, news: &News) -> Result<(), ServeError> {
        // The machine takes requests once it knows of every node.
        let flushed = door.call(|done| Message::Flush { done });
        let status = door.status();
        if flushed == Some(Ok(())) && status.as_ref().is_some_and(|status| self.complete(status)) {
            return Ok(());
        }
        let known = |(member, reason)| {
            let known = status?.members.into_iter().find(|known| known.member == member)?;
            Some((known.device, reason))
        };
        Err(match news.first_failed().and_then(known) {
            Some((device, reason)) => {
                let look = "see the log of the node";
                let (reason, next) = reason.split_once("; ").unwrap_or((reason, look));
                ServeError::new(format!("{device}: {reason}"), next)
            }
            None => ServeError::new(
                "its nodes cannot connect to each other",
                "check that every node can reach the addresses of the others",
            ),
        })
    }

    fn complete(self, status: &Status) -> bool {
        let reads_only = status.state == ArrayState::ReadOnly && !self.read_only;
        usize::from(status.degraded) <= self.missing && !reads_only
    }
}
