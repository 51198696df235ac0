//! A node's store goes back to a copy of itself: a snapshot of its machine is put back, or a backup
//! restored. The copy is intact, but old. The array was never idle meanwhile, so that only its
//! checkpoints show the difference.

use braid_array::Role;
use std::collections::BTreeMap;

use super::Away;
use crate::cluster::content::VOLUME;
use crate::cluster::nodes::Cluster;
use crate::disk::Disk;
use crate::report::Failure;

/// After so long a checkpoint has begun and is over.
const CHECKPOINT_MS: u64 = 36_000;
/// Requests come at least as often: superblocks never say clean.
const NEVER_IDLE_MS: u64 = 150;
/// By then a client has noticed that a node is gone.
const NOTICED_MS: u64 = 500;
/// Time for nodes to store the sets that they prepared.
const STORED_MS: u64 = 1_000;

/// Data on the disk of a node's machine.
struct Copy {
    disk: Disk,
    notes: BTreeMap<String, Vec<u8>>,
}

/// Event at which the old copy is put back.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// The client goes on: it has lost the node meanwhile.
    GoesOn,
    /// The client dies with the node, and another one comes.
    Another,
    /// The array is stopped, and started anew.
    StartedAnew,
}

/// Puts a node's store back to an old copy, repeatedly, and judges the content each time.
pub(super) fn run(away: &mut Away<'_>) -> Result<(), Failure> {
    for _ in 0..2 {
        away.be_whole()?;
        let before = away.cluster.rng.between(1, 30);
        away.work(before)?;
        away.go_back()?;
        // What is answered is on its way to the volumes for a while.
        away.wait(NOTICED_MS)?;
        away.be_whole()?;
        away.wait(STORED_MS)?;
        away.judge_volumes()?;
    }
    away.work(30)
}

impl Away<'_> {
    fn go_back(&mut self) -> Result<(), Failure> {
        let Cluster { rng, scenario, .. } = &mut self.cluster;
        let role = Role(rng.below(scenario.params.nodes.into()) as u16);
        let millis = rng.pick(&[500, 6_000, 12_000, CHECKPOINT_MS]);
        let mut then = rng.pick(&[Then::GoesOn, Then::Another, Then::StartedAnew]);
        // What was recorded since the last checkpoint nobody but the copy's journal lacks.
        if scenario.journal_bytes > 0 && millis < CHECKPOINT_MS && matches!(then, Then::Another) {
            then = Then::GoesOn;
        }
        let copy = self.copy_of(role);
        self.never_idle(millis)?;
        self.cluster.note(&[80, role.0.into()], || format!("PAST {role}, then {then:?}"));
        match then {
            Then::GoesOn => self.put_back(role, copy),
            Then::Another => {
                self.cluster.world.kill(self.client);
                self.judge.client_ends(self.client);
                self.put_back(role, copy);
                self.begin_another()?;
            }
            Then::StartedAnew => {
                self.finish()?;
                self.put_back(role, copy);
                self.stopped = false;
                self.begin_another()?;
            }
        }
        Ok(())
    }

    fn copy_of(&mut self, role: Role) -> Copy {
        let node = self.cluster.node(role);
        let notes = self.cluster.world.processes[node].notes.clone();
        let mut disk = self.cluster.disk(role).clone();
        disk.power_cut(&mut self.cluster.rng);
        Copy { disk, notes }
    }

    /// Kills the node, and starts it on the old copy.
    fn put_back(&mut self, role: Role, copy: Copy) {
        let node = self.cluster.node(role);
        self.cluster.world.kill(node);
        let process = &mut self.cluster.world.processes[node];
        process.notes = copy.notes;
        process.keep(VOLUME, copy.disk);
        self.cluster.reboot(role);
    }

    /// Requests for so long, one soon after the other.
    fn never_idle(&mut self, millis: u64) -> Result<(), Failure> {
        let end = self.cluster.world.now().plus_millis(millis);
        while self.cluster.world.now() < end {
            self.submit();
            let pause = self.cluster.rng.between(NEVER_IDLE_MS / 10, NEVER_IDLE_MS);
            self.wait(pause)?;
        }
        Ok(())
    }

    fn wait(&mut self, millis: u64) -> Result<(), Failure> {
        self.cluster.world.begin();
        let until = self.cluster.world.now().plus_millis(millis);
        self.cluster.world.wake_at(until);
        while self.cluster.world.now() < until && self.step()? {}
        Ok(())
    }
}
