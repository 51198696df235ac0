//! A node that cannot be reached when a client takes the array up, and is there later.

use braid_array::Role;
use braid_array::format::superblock::MAX_SECTOR;

use super::content::{self, VOLUME};
use super::nodes::Cluster;
use super::promises::Happened;
use super::session::Session;
use crate::fault::Mutation;
use crate::report::Failure;

/// Limit of waiting for an absent node: the client finds it sooner, and gives it the missed writes.
const PATIENCE_MILLIS: u64 = 60_000;

impl Cluster {
    /// Returns the addresses of unreachable nodes, for the client.
    pub(super) fn absent(&self, missing: &[Role], read_only: bool) -> Vec<(String, String)> {
        let forgets = self.scenario.profile.mutation == Some(Mutation::ForgetAbsent);
        if read_only || forgets {
            return Vec::new();
        }
        missing.iter().map(|&role| (self.address(role), VOLUME.to_owned())).collect()
    }

    /// Returns whether all superblocks record a clean stop.
    pub(super) fn is_clean(&self) -> bool {
        let superblocks = self.disks().into_iter().map(content::superblock);
        superblocks.into_iter().flatten().all(|found| found.resync_offset == MAX_SECTOR)
    }
}

impl Session {
    /// At times a node is not there yet when the next client begins; which, of those that the array
    /// can do without.
    pub(super) fn some_are_late(&mut self) -> Option<Role> {
        if !self.cluster.is_clean() || self.cluster.rng.percent(50) {
            return None;
        }
        let known = self.promises.lost.first().copied();
        let role = known.or_else(|| self.cluster.more_losses(&[]).first().copied())?;
        self.cluster.kill(role);
        self.promises.heard(Happened::NodesDie);
        if known.is_none() {
            self.promises.heard(Happened::Missing(role));
        }
        Some(role)
    }

    /// A node that the client has gone on without from the start begins to run, and becomes a
    /// member without anybody's command.
    pub(super) fn come_late(&mut self, role: Role) -> Result<(), Failure> {
        // Another one may have the role by now, while a third is replaced.
        let gone = self.promises.missing_with(&[role]);
        if !self.cluster.scenario.survives(&gone) {
            return Ok(());
        }
        self.cluster.note(&[55, role.0.into()], || format!("node {role} COMES LATE"));
        // Nothing relies on what it had.
        self.cluster.restart_recovery_target(role);
        let until = self.cluster.world.now().plus_millis(PATIENCE_MILLIS);
        while self.cluster.left_out().contains(&role) && !self.promises.failed {
            if !self.step()? || self.cluster.world.now() >= until {
                return Err(Failure(format!("node {role} does not come in")));
            }
        }
        Ok(())
    }
}
