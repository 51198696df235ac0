//! A run of clients and nodes, [`Session`]: requests in flight and their judgement.

use braid_array::action::{Command, CommandId};
use braid_array::events::{ArrayEvent, SyncAction, SyncEnd};
use braid_array::format::Superblock;
use braid_array::format::superblock::feature;
use braid_array::{Action, Refusal, Role};
use braid_cluster::pipeline::Params;

use super::content;
use super::fenced_client::FencedClient;
use super::guest::Guest;
use super::nodes::Cluster;
use super::promises::{Happened, Promises};
use super::recovery_target::{ADD, RecoveryTarget};
use super::scenario::Scenario;
use super::spare::{REPLACED, SPARE};
use super::suspects::{Map, Suspects};
use crate::judge::Judge;
use crate::oracle::Range;
use crate::report::Failure;
use crate::rng::Rng;
use crate::trace::Trace;
use crate::workload::Kind;

/// The array's id.
pub(super) const ARRAY: [u8; 16] = [7; 16];

/// The name of every node's volume.
pub const VOLUME: &str = "data";

const STOP: CommandId = CommandId(1);
const SCRUB: CommandId = CommandId(2);

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
    pub suspects: Suspects,
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
    pub(super) began_at_step: u64,
}

impl Session {
    /// Creates a session on nodes without troubles.
    pub fn calm(params: Params) -> Self {
        Self::new(Cluster::new(Scenario::calm(params), Rng::new(1), Trace::new(false)))
    }

    /// On nodes with fresh volumes, without a client yet.
    pub fn new(cluster: Cluster) -> Self {
        let Cluster { scenario, layout, .. } = &cluster;
        let params = scenario.params;
        let mut judge = Judge::new(layout.sectors());
        let mut suspects = Suspects::new(Map::new(&params, layout.data_blocks()));
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
            began_at_step: 0,
        }
    }

    /// Handles the next event, and judges the outputs. Returns false when nothing is due.
    pub fn step(&mut self) -> Result<bool, Failure> {
        let moved = self.cluster.world.step();
        self.outputs()?;
        self.look_at_spare();
        if let Some(guest) = &mut self.guest {
            guest.go_on(&mut self.cluster.world);
            self.outputs()?;
        }
        self.cluster.world.goes_on(moved, &self.judge, self.client, self.began_at_step)?;
        Ok(moved)
    }

    /// Steps until the condition holds; fails with `what` if it never does.
    pub(super) fn until(
        &mut self,
        what: &str,
        mut is: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Failure> {
        while !is(self) {
            if !self.step()? {
                return Err(Failure(what.to_owned()));
            }
        }
        Ok(())
    }

    /// Sees to everything that came out of the machines.
    pub fn outputs(&mut self) -> Result<(), Failure> {
        for (process, action) in std::mem::take(&mut self.cluster.world.outputs) {
            if let Some(guest) = self.guest.as_mut().filter(|guest| guest.process == process) {
                guest.hears(&action)?;
                continue;
            }
            if self.fenced_says(process, &action)? {
                continue;
            }
            match action {
                Action::Complete { id, result } if process == self.client => {
                    self.completed(id, result)?;
                }
                Action::Reply { id, result } if process == self.client => {
                    self.replied(id, result)?;
                }
                Action::Notify(event) => self.notified(process, &event),
                other
                    if process == self.client
                        || self.cluster.nodes.contains(&process)
                        || self.cluster.witnesses.contains(&process) =>
                {
                    return Err(Failure(format!("unexpected {other:?}")));
                }
                _ => {}
            }
        }
        if self.phase == Phase::Outdated {
            self.start_again()?;
        }
        self.cluster.world.faultless()
    }

    fn replied(&mut self, id: CommandId, result: Result<(), Refusal>) -> Result<(), Failure> {
        if id == STOP {
            self.phase = Phase::Stopped;
            return result.map_err(|error| Failure(format!("stop refused: {error}")));
        }
        let kind = match id {
            ADD => 47,
            SPARE => 56,
            _ => 44,
        };
        self.cluster.note(&[kind, u64::from(result.is_ok())], || format!("{result:?}"));
        match id {
            ADD => self.added(),
            SPARE => self.spare_added(result.is_ok()),
            _ => {}
        }
        Ok(())
    }

    fn notified(&mut self, process: usize, event: &ArrayEvent) {
        self.cluster.note(&[41, process as u64], || format!("EVENT {process} {event:?}"));
        if process != self.client || self.phase == Phase::Outdated {
            return;
        }
        match event {
            ArrayEvent::MembersChanged => self.phase = Phase::Outdated,
            ArrayEvent::SyncStarted(SyncAction::Resync)
                if self.promises.all_fits && !self.promises.troubled =>
            {
                let fault = "a resync after nothing was lost but a client".to_owned();
                self.cluster.world.faults.push(fault);
            }
            ArrayEvent::MemberFailed { member, reason, .. } => {
                if let Some(role) = self.cluster.role_of(self.client, *member) {
                    self.cluster.world.signs.lost += 1;
                    let replaced = self.cluster.scenario.replaces && REPLACED.contains(&&**reason);
                    let parities_fit = !self.suspects.any();
                    self.promises.heard(Happened::GoneWithout { role, replaced, parities_fit });
                }
            }
            ArrayEvent::MemberActive(member) => {
                if let Some(role) = self.cluster.role_of(self.client, *member) {
                    let disk = self.cluster.disk(role);
                    let readable = !disk.damaged();
                    let notes = |known: Superblock| known.has(feature::BAD_BLOCKS);
                    let knows_all = !content::superblock(disk).is_ok_and(notes);
                    self.promises.heard(Happened::HasAll { role, readable, knows_all });
                }
            }
            ArrayEvent::SyncFinished {
                action: SyncAction::Resync, end: SyncEnd::Complete, ..
            } => {
                self.promises.heard(Happened::Resynced);
                // What a lost node had alone is not brought back by that.
                if self.promises.lost.is_empty() {
                    self.suspects.resynced(self.judge.moment());
                }
            }
            ArrayEvent::DataLost { .. } => self.promises.heard(Happened::DataLost),
            ArrayEvent::Mismatch { .. }
            | ArrayEvent::SyncFinished { action: SyncAction::Check | SyncAction::Repair, .. } => {
                self.scrubs.push(event.clone());
            }
            _ => {}
        }
    }

    /// Returns whether background work is running.
    pub fn syncing(&mut self) -> bool {
        let status = self.cluster.status_of(self.client);
        status.sync.action != SyncAction::Idle
    }

    /// Asks the client for a check or repair.
    pub fn scrub(&mut self, repair: bool) {
        self.cluster.note(&[45, u64::from(repair)], || format!("SCRUB repair {repair}"));
        self.cluster.world.command(self.client, SCRUB, Command::Scrub { repair });
    }

    /// Asks the client to stop.
    pub fn ask_to_stop(&mut self) {
        self.cluster.note(&[43], || "STOP".to_owned());
        self.cluster.world.command(self.client, STOP, Command::Stop);
    }

    /// The client dies.
    pub fn crash(&mut self) {
        self.promises.heard(Happened::ClientGone);
        self.cluster.world.kill(self.client);
        self.added();
        self.look_at_spare();
        self.not_yet_regained();
        self.suspects.crash();
        self.judge.client_ends(self.client);
    }
}
