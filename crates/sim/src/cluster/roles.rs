//! Roles of a session: which nodes take them, leave them, or lack some of their content.

use std::collections::BTreeSet;

use braid_array::Role;
use braid_array::format::{DevRole, Superblock};

use super::content;
use super::promises::Happened;
use super::recovery_target::{ADD, RecoveryTarget};
use super::session::{Phase, Session};

impl Session {
    /// Offers the client a new node in the place of one that it has gone on without.
    pub fn offer(&mut self) {
        self.recovery_target = Some(self.cluster.offer_as(self.client, ADD));
    }

    /// Finds out from its volume whether the recovery target was added, and in which role.
    pub(super) fn added(&mut self) {
        let Some(recovery_target) = self.recovery_target.take() else { return };
        match self.cluster.role_on(recovery_target.process) {
            Some(role) => self.has_role(recovery_target, role),
            None => self.cluster.world.kill(recovery_target.process),
        }
    }

    /// Makes a recovery target the node of this role, and retires the previous node.
    pub(super) fn has_role(&mut self, recovery_target: RecoveryTarget, role: Role) {
        let RecoveryTarget { id, process, incarnation } = recovery_target;
        self.cluster.note(&[57, id, role.0.into()], || format!("node {id} HAS ROLE {role}"));
        let at = role.index();
        let old = std::mem::replace(&mut self.cluster.nodes[at], process);
        self.departs(old);
        (self.cluster.ids[at], self.cluster.incarnations[at]) = (id, incarnation);
    }

    /// Retires a node whose role another node has taken. While the client that did this lives, the
    /// node keeps running, so that the client can inform it.
    fn departs(&mut self, process: usize) {
        let tells = self.cluster.world.processes[self.client].alive && self.phase != Phase::Stopped;
        if tells && self.cluster.world.processes[process].alive {
            self.departed.push(process)
        } else {
            self.cluster.world.kill(process)
        }
    }

    /// Stops the departed nodes.
    pub(super) fn drop_departed(&mut self) {
        for process in std::mem::take(&mut self.departed) {
            self.cluster.world.kill(process);
        }
    }

    /// Returns the roles whose node was added, runs, and lacks some of its content.
    pub fn rebuilding(&self) -> BTreeSet<Role> {
        let runs = |role: Role| self.cluster.world.processes[self.cluster.node(role)].alive;
        self.promises
            .dropped
            .iter()
            .copied()
            .filter(|&role| self.cluster.is_new(role) && runs(role))
            .collect()
    }

    /// The client is gone before superblocks and view said that a member has all of its role.
    pub fn not_yet_regained(&mut self) {
        for role in self.cluster.half_regained() {
            self.promises.heard(Happened::HasNotAll(role));
        }
    }

    /// Returns whether replaced members have the whole content of their roles.
    pub fn is_whole(&self) -> bool {
        self.promises.dropped.is_empty()
            && (!self.cluster.scenario.replaces || self.cluster.half_regained().is_empty())
    }

    /// Handles the end of the client before any superblock or view recorded the loss of a node: the
    /// next client may rely on that node.
    pub(super) fn not_yet_told(&mut self) {
        let out = self.cluster.left_out();
        let superblocks: Vec<Superblock> = self
            .cluster
            .disks()
            .into_iter()
            .filter_map(|disk| content::superblock(disk).ok())
            .collect();
        let told = |role: &Role| {
            let own = superblocks.iter().find(|own| own.role() == DevRole::Active(*role));
            let number = own.map_or(u32::MAX, |own| own.dev_number);
            let names = |other: &Superblock| other.role_of(number) == DevRole::Active(*role);
            out.contains(role) || !superblocks.iter().all(names)
        };
        let known: Vec<Role> = self.promises.dropped.iter().copied().filter(told).collect();
        self.promises.heard(Happened::OnlyKnown(&known));
    }
}
