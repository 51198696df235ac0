//! The nodes of an array that is served: how they are talked to, and whether all are there.

use std::sync::mpsc::{Receiver, RecvError, Sender};

use braid_array::status::{ArrayState, Status};
use braid_array::{MemberId, Refusal};
use braid_cluster::ClientConfig;

use crate::control::{News, StopAnswer, StopRequest};
use crate::fabric::Network;
use crate::submission::{Message, SubmissionQueue};

/// The nodes of an array.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nodes {
    network: Network,
    /// Number of members that the array starts without.
    missing: usize,
    read_only: bool,
}

/// Reason for which an array is not served.
pub(super) struct NotSetUp {
    pub(super) why: Refusal,
    /// Answer to a stop that was asked for meanwhile.
    pub(super) told: Option<StopAnswer>,
}

impl From<Refusal> for NotSetUp {
    fn from(why: Refusal) -> Self {
        Self { why, told: None }
    }
}

impl Nodes {
    pub(super) fn of(config: &ClientConfig, network: Network) -> Self {
        let missing = config.members.iter().filter(|member| member.is_none()).count();
        Self { network, missing, read_only: config.read_only }
    }

    /// The nodes of two arrays that are served as one.
    pub(super) fn and(self, other: Self) -> Self {
        let missing = self.missing.max(other.missing);
        Self { missing, read_only: self.read_only || other.read_only, ..self }
    }

    pub(super) const fn network(self) -> Network {
        self.network
    }

    /// Waits until all nodes are connected, or lost, or there is a reason to stop. Returns lines
    /// for the log about lost nodes.
    pub(super) fn connected(
        self,
        submissions: &SubmissionQueue,
        news: &News,
        stop: Sender<StopRequest>,
        stops: &Receiver<StopRequest>,
    ) -> Result<Vec<String>, NotSetUp> {
        // The machine takes requests once it knows of every node.
        let set_up = Box::new(move |_| {
            // Nobody waits any longer when this fails.
            let _ = stop.send(StopRequest::SetUp);
        });
        submissions.send(Message::Flush { done: set_up });
        match reason(stops) {
            Ok(StopRequest::Signal) => return Err(told_to_stop().into()),
            Ok(StopRequest::Asked { told, .. }) => {
                return Err(NotSetUp { why: told_to_stop(), told: Some(told) });
            }
            Ok(_) | Err(_) => {}
        }
        let status = submissions.status();
        let lost: Vec<String> =
            news.failed().iter().filter_map(|failed| said(failed, status.as_ref())).collect();
        if status.as_ref().is_some_and(|status| self.goes_on(status)) {
            return Ok(lost);
        }
        let failed = news.cause();
        let device = failed.as_ref().and_then(|(id, _)| device(*id, status.as_ref()));
        Err(match device.zip(failed) {
            Some((device, (_, Refusal { reason, next }))) => {
                Refusal::new(format!("{device}: {reason}"), next.or("see the log of the node"))
            }
            None if status.as_ref().is_some_and(moves) => Refusal::new(
                "the two arrays between which its data move are not what they were when they were \
                 looked at: another client may have had them meanwhile",
                "assemble it again",
            ),
            None => Refusal::new(
                "its nodes cannot connect to each other",
                "check that every node can reach the addresses of the others",
            ),
        }
        .into())
    }

    /// Returns whether the array may be served: it has not failed, and it is writable unless it was
    /// to be read-only or has lost a member since.
    fn goes_on(self, status: &Status) -> bool {
        let lost = usize::from(status.degraded) > self.missing;
        let reads_only = status.state == ArrayState::ReadOnly && !self.read_only;
        status.state != ArrayState::Failed && (lost || !reads_only)
    }
}

/// Returns whether two arrays are served, between which data move.
const fn moves(status: &Status) -> bool {
    status.superblock.reshape.delta_disks != 0
}

/// The first reason to go on or to stop. Neither exports nor programs change meanwhile.
fn reason(stops: &Receiver<StopRequest>) -> Result<StopRequest, RecvError> {
    loop {
        match stops.recv()? {
            StopRequest::Exports { told, .. } | StopRequest::Upgrade { told, .. } => {
                told(Err(Refusal::new(
                    "its nodes are not connected yet",
                    "try again when they are",
                )));
            }
            reason => return Ok(reason),
        }
    }
}

fn told_to_stop() -> Refusal {
    Refusal::new("was told to stop before its nodes were connected", "assemble it again")
}

fn device(id: MemberId, status: Option<&Status>) -> Option<String> {
    Some(status?.members.iter().find(|known| known.member == id)?.device.clone())
}

fn said((id, why): &(MemberId, Refusal), status: Option<&Status>) -> Option<String> {
    Some(format!("{} is missing: it {why}", device(*id, status)?))
}
