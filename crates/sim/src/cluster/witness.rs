//! Witnesses: nodes that vote in a seed's array and hold nothing of it. Purpose: after the loss of
//! the client and of members, the next client continues with the others, without a declaration by
//! an operator. The client is refused if the present members have missed writes.

use std::num::NonZeroU64;

use braid_array::Role;
use braid_array::array::Scratch;
use braid_array::status::ArrayState;
use braid_cluster::client::NODE_TIMEOUT_MS;
use braid_cluster::ids::{Epoch, NodeId};
use braid_cluster::node::Node;
use braid_cluster::view::{View, Vote, Witness, majority};

use super::content::ARRAY;
use super::nodes::Cluster;
use super::promises::Happened;
use super::session::Session;
use crate::oracle::Range;
use crate::report::Failure;
use crate::workload::Kind;
use crate::world::process::Process;
use crate::world::votes::note_of;

/// Witnesses' numbers begin here.
const FIRST: u64 = 200;
/// Size of the arena; witnesses need no more.
const ARENA_BYTES: u64 = 1 << 16;

impl Cluster {
    /// Starts the witnesses, and has all voters record the first view of the array.
    pub(super) fn start_witnesses(&mut self) {
        let count = u64::from(self.scenario.witnesses);
        if count == 0 {
            return;
        }
        for id in FIRST..FIRST + count {
            let witness = self.start_witness(id);
            self.witnesses.push(witness);
        }
        self.epoch = Epoch(1);
        let at = |id| Witness { node: NodeId(id), address: format!("n{id}") };
        let view = View {
            epoch: Epoch(1),
            count: 1,
            torn: self.scenario.dirty,
            members: self.incarnations.iter().copied().map(NonZeroU64::new).collect(),
            voters: self.ids.iter().copied().chain(FIRST..FIRST + count).map(NodeId).collect(),
            voted: Vec::new(),
            witnesses: (FIRST..FIRST + count).map(at).collect(),
        };
        let note = Vote { granted: Epoch(1), to: 1, view: Some(view) }.encode(&ARRAY, 0);
        for &voter in self.nodes.iter().chain(&self.witnesses) {
            self.world.processes[voter].note(&note_of(&ARRAY), 0, &note);
        }
    }

    fn start_witness(&mut self, id: u64) -> usize {
        let incarnation = 1 + self.rng.below(u64::MAX - 1);
        let node = Node::new(Scratch { offset: 0, bytes: ARENA_BYTES }, NodeId(id), incarnation);
        self.world.start(Process::of_node(id, node.as_witness(), ARENA_BYTES))
    }

    /// Restarts a witness with its notes.
    pub(super) fn restart_witness(&mut self, number: usize) {
        let before = self.witnesses[number];
        self.world.kill(before);
        let notes = std::mem::take(&mut self.world.processes[before].notes);
        let witness = self.start_witness(FIRST + number as u64);
        self.world.processes[witness].notes = notes;
        self.witnesses[number] = witness;
    }

    /// The witnesses that run.
    pub(super) fn witnesses_there(&self) -> usize {
        self.witnesses.iter().filter(|&&witness| self.world.processes[witness].alive).count()
    }

    /// Returns whether enough voters are left to record a loss of `nodes` nodes and one witness.
    pub(super) fn can_lose_a_witness(&self, nodes: usize) -> bool {
        let all = usize::from(self.scenario.params.nodes) + self.witnesses.len();
        let there = all - self.witnesses.len() - nodes + self.witnesses_there();
        !self.witnesses.is_empty() && there > all + 1 - majority(all)
    }

    /// A witness dies, for good or for a moment, stands still, or only its connections die.
    pub(super) fn lose_witness(&mut self, client: usize, number: usize) {
        let witness = self.witnesses[number];
        match self.rng.below(4) {
            0 => self.world.kill(witness),
            1 => self.restart_witness(number),
            2 => self.pause(witness),
            _ => {
                self.world.disconnect(witness, client);
            }
        }
    }

    /// Where a node is lost, others may be slow.
    pub(super) fn freeze_a_witness(&mut self) {
        if !self.witnesses.is_empty() && self.rng.percent(30) {
            let number = self.rng.below(self.witnesses.len() as u64) as usize;
            self.pause(self.witnesses[number]);
        }
    }

    /// Freezes a process for a while, too short to be noticed.
    pub(super) fn pause(&mut self, process: usize) {
        let nanos = self.rng.between(1, 1000 * NODE_TIMEOUT_MS) * 900;
        self.world.freeze(process, nanos);
    }

    /// Returns whether too few voters are alive.
    pub(super) fn lacks_votes(&self) -> bool {
        let nodes = self.nodes.iter().copied().zip(self.ids.iter().copied());
        let all = nodes.chain(self.witnesses.iter().copied().zip(FIRST..));
        let alive = all.filter(|&(process, _)| self.world.processes[process].alive);
        let alive = alive.map(|(_, id)| NodeId(id)).collect();
        self.newest_view().is_some_and(|view| view.lacks(&alive).is_some())
    }
}

impl Session {
    /// Returns whether the content of the array is known, so that the next client may continue with
    /// the present nodes.
    pub(super) fn may_go_on(&self) -> bool {
        !self.cluster.witnesses.is_empty()
            && !self.promises.failed
            && !self.promises.half_synced
            && !self.cluster.scenario.dirty
    }

    /// With the client that died as many nodes are gone as the array can do without, and the next
    /// client goes on.
    pub(super) fn go_on_with_witnesses(&mut self) -> Result<(), Failure> {
        for number in 0..self.cluster.witnesses.len() {
            if self.cluster.rng.percent(50) {
                self.cluster.restart_witness(number);
            }
        }
        let mut gone = self.promises.lost.clone();
        gone.extend(self.cluster.more_losses(&self.promises.lost));
        self.cluster.note(&[60], || format!("GOES ON without {gone:?}"));
        self.never_back(&gone);
        let kept = |view: &View| !view.torn && self.cluster.have_kept_enough(view, &gone);
        self.unforced =
            self.cluster.newest_view().as_ref().is_some_and(kept) && !self.cluster.lacks_votes();
        self.start_client(&gone, false)?;
        if self.promises.all_fits {
            self.suspects.resynced(self.judge.moment());
        }
        Ok(())
    }

    /// These nodes are dead, and the array goes on without them.
    pub(super) fn never_back(&mut self, gone: &[Role]) {
        for &role in gone {
            self.cluster.kill(role);
            self.promises.heard(Happened::NodesDie);
            self.promises.heard(Happened::Missing(role));
        }
    }

    /// Starts a client that finds only the left-out members and the witnesses. The client must not
    /// serve, unless too few of them were `told` of the left-out members: then no write was
    /// answered without them. Returns whether it serves.
    pub(super) fn those_behind_serve(&mut self, told: bool) -> Result<bool, Failure> {
        let behind = self.cluster.left_out();
        let roles = Role::all(self.cluster.scenario.params.nodes);
        let away: Vec<Role> = roles.filter(|role| !behind.contains(role)).collect();
        if behind.is_empty() || !self.cluster.scenario.survives(&away) {
            return Ok(false);
        }
        self.cluster.note(&[61], || format!("THOSE BEHIND, without {away:?}"));
        let mut restarted = false;
        for role in behind {
            let node = self.cluster.node(role);
            if !self.cluster.world.processes[node].alive || self.cluster.rng.percent(50) {
                self.cluster.restart_recovery_target(role);
                restarted = true;
            }
            self.cluster.world.thaw(node);
        }
        let before = self.promises.clone();
        self.promises.heard(Happened::OnlyKnown(&away));
        self.unforced = true;
        let began = self.start_client(&away, false);
        if began.is_err() {
            // Not even superblocks say that it has enough members.
            self.promises.heard(Happened::OnlyKnown(&before.dropped));
            return Ok(false);
        }
        if self.is_refused()? {
            self.cluster.world.kill(self.client);
            self.promises.heard(Happened::OnlyKnown(&before.dropped));
            return Ok(false);
        }
        if told {
            return Err(Failure("a client serves what others have gone on without".to_owned()));
        }
        if restarted {
            self.judge.oracle.power_cut();
            self.suspects.power_cut();
        }
        self.read_everything()?;
        Ok(true)
    }

    /// Waits until the client serves or is refused. Returns whether it is refused.
    pub(super) fn is_refused(&mut self) -> Result<bool, Failure> {
        let state = |session: &mut Self| session.cluster.status_of(session.client).state;
        while state(self) != ArrayState::Failed {
            if self.submit_one(Kind::Flush, Range::default()) {
                return Ok(false);
            }
            if !self.step()? {
                return Err(Failure("a client neither serves nor is refused".to_owned()));
            }
        }
        Ok(true)
    }
}
