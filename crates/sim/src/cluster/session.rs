//! A run of clients and nodes, [`Session`]: what is known of both.

use braid_array::Role;
use braid_array::events::{ArrayEvent, SyncAction};
use braid_cluster::pipeline::Params;

use super::guest::Guest;
use super::nodes::Cluster;
use super::promises::{Happened, Promises};
use super::recovery_target::RecoveryTarget;
use super::scenario::ClusterScenario;
use super::suspects::{ClusterSuspects, Map};
use crate::judge::Judge;
use crate::oracle::Range;
use crate::rng::Rng;
use crate::trace::Trace;
use crate::workload::Kind;

/// Phase of the client's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No request taken yet.
    Starting,
    /// Given up: another client has changed the metadata it was started from.
    Outdated,
    /// A request was taken.
    Serving,
    /// The command to stop was answered.
    Stopped,
}

/// A fenced client: another client has taken its array over, or is about to. Writes answered before
/// the takeover are kept; later ones must not land. [`Session::leave_running`] fences the running
/// client. The fenced client may write once more: after its successor serves, that write must not
/// succeed. The fenced client must notice the takeover.
#[derive(Debug)]
pub(super) struct FencedClient {
    pub(super) process: usize,
    /// Set while a write is under way that must not land.
    pub(super) strays: bool,
    /// Set after the client has noticed the takeover.
    pub(super) told: bool,
}

/// A seed's clients on its [`Cluster`]: the running client, its requests and their judgement
/// (`judge`, `suspects`), and the exceptions after troubles (`promises`). At any time at most one
/// client is *the* client; clients that were taken over are kept as fenced ones. Nodes are named by
/// role here.
///
/// Order of calls: [`new`](Self::new). For each life `start_client`; then
/// [`submit`](Self::submit) while there is room, and [`step`](Self::step) until nothing is due. A
/// step judges each answer, and fails where an answer is wrong, a machine breaks a rule, or
/// nothing moves though a request is in flight. A life ends by [`ask_to_stop`](Self::ask_to_stop),
/// [`crash`](Self::crash), a takeover ([`leave_running`](Self::leave_running)) or a power cut,
/// after which the cluster brings the nodes back. `run` has the lives of a seed one by one.
pub struct Session {
    /// The nodes.
    pub cluster: Cluster,
    /// Content that may be read, and the requests in flight.
    pub judge: Judge,
    /// Where parities may not fit.
    pub suspects: ClusterSuspects,
    /// Promises of the protocol.
    pub promises: Promises,
    /// A node that the client shall add.
    pub recovery_target: Option<RecoveryTarget>,
    /// A node that is a spare, or shall become one.
    pub spare: Option<RecoveryTarget>,
    /// Processes of nodes whose members were replaced by the client that runs.
    pub(super) departed: Vec<usize>,
    /// Roles of nodes to be lost in this life.
    pub planned: Vec<Role>,
    /// Set if no operator declares missing nodes to be off.
    pub(super) unforced: bool,
    /// The process of the client.
    pub client: usize,
    /// Phase of its life.
    pub(super) phase: Phase,
    /// Roles missing at its start, and whether that start was unforced.
    pub(super) begun: (Vec<Role>, bool),
    /// Another array's client on the same nodes.
    pub guest: Option<Guest>,
    /// Events of checks and repairs.
    pub scrubs: Vec<ArrayEvent>,
    /// Clients that were taken over and still run.
    pub(super) fenced: Vec<FencedClient>,
    pub(super) waiting: Option<(Kind, Range)>,
}

impl Session {
    /// Creates a session on nodes without troubles.
    pub fn calm(params: Params) -> Self {
        Self::new(Cluster::new(ClusterScenario::calm(params), Rng::new(1), Trace::new(false)))
    }

    /// On nodes with fresh volumes, without a client yet.
    pub fn new(cluster: Cluster) -> Self {
        let Cluster { scenario, layout, .. } = &cluster;
        let params = scenario.params;
        let mut judge = Judge::new(layout.sectors());
        let mut suspects = ClusterSuspects::new(Map::new(&params, layout.data_blocks()));
        if scenario.dirty {
            suspects.all(params.stripes);
            if !params.family.has_parities() {
                // Whichever copy is left is what the others are made like.
                (0..layout.sectors()).for_each(|sector| judge.oracle.exempt(sector));
            }
        }
        Self {
            cluster,
            judge,
            suspects,
            promises: Promises::default(),
            recovery_target: None,
            spare: None,
            departed: Vec::new(),
            planned: Vec::new(),
            unforced: false,
            client: usize::MAX,
            begun: (Vec::new(), false),
            guest: None,
            phase: Phase::Starting,
            scrubs: Vec::new(),
            fenced: Vec::new(),
            waiting: None,
        }
    }

    /// Returns whether background work is running.
    pub fn syncing(&mut self) -> bool {
        let status = self.cluster.status_of(self.client);
        status.sync.action != SyncAction::Idle
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.judge.in_flight(self.client)
    }

    /// The other array is given up: its nodes are.
    pub fn drop_guest(&mut self) {
        if let Some(guest) = self.guest.take() {
            self.promises.heard(Happened::ClientGone);
            self.cluster.world.kill(guest.process);
        }
    }
}
