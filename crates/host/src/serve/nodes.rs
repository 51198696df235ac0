//! The nodes of an array that is served: how they are talked to, and whether all are there.

use braid_array::status::{ArrayState, Status};
use braid_array::{MemberId, Refusal};
use braid_cluster::ClientConfig;

use crate::control::News;
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
    pub(super) fn connected(self, door: &Door, news: &News) -> Result<(), Refusal> {
        // The machine takes requests once it knows of every node.
        let flushed = door.call(|done| Message::Flush { done });
        let status = door.status();
        if flushed == Some(Ok(())) && status.as_ref().is_some_and(|status| self.complete(status)) {
            return Ok(());
        }
        let known = |(member, why): (MemberId, Refusal)| {
            let known = status?.members.into_iter().find(|known| known.member == member)?;
            Some((known.device, why))
        };
        Err(match news.first_failed().and_then(known) {
            Some((device, Refusal { reason, next })) => {
                Refusal::new(format!("{device}: {reason}"), next.or("see the log of the node"))
            }
            None => Refusal::new(
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
