//! A node that is added while an array runs, in the place of one that was lost.

use std::collections::BTreeSet;

use braid_array::action::{Command, CommandId, NewMember};
use braid_array::format::superblock::feature;
use braid_array::format::{DevRole, Superblock};
use braid_array::{Instant, MemberId, Role};

use super::content;
use super::nodes::Cluster;
use super::promises::Happened;
use super::session::{ARRAY, Session, VOLUME};

/// The command that adds one.
pub const ADD: CommandId = CommandId(3);

/// Recovery targets' numbers begin here.
const FIRST: u64 = 100;

/// A node that was offered to the client.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryTarget {
    pub(super) id: u64,
    pub(super) process: usize,
    pub(super) incarnation: u64,
}

impl Cluster {
    /// The role that the superblock on the volume of a process tells.
    pub(super) fn role_on(&self, process: usize) -> Option<Role> {
        match content::superblock(self.disk_of(process)).ok()?.role() {
            DevRole::Active(role) => Some(role),
            _ => None,
        }
    }

    /// Returns whether the node of this role was added later.
    pub fn is_new(&self, role: Role) -> bool {
        self.ids[role.index()] >= FIRST
    }

    /// Cuts the power of a recovery target under recovery, and restarts it at once: its content is
    /// not needed.
    pub fn restart_recovery_target(&mut self, role: Role) {
        let at = role.index();
        let before = self.nodes[at];
        self.world.kill(before);
        let mut disk = self.disk(role).clone();
        disk.power_cut(&mut self.rng);
        (self.nodes[at], self.incarnations[at]) =
            self.start_node_as(self.ids[at], disk, Some(before));
    }

    /// Roles of which superblocks or view say that their members have not all of them.
    fn half_regained(&self) -> Vec<Role> {
        let out = self.left_out();
        let half = |role: &Role| {
            let found = content::superblock(self.disk(*role));
            found.is_ok_and(|found| found.has(feature::RECOVERY_OFFSET)) || out.contains(role)
        };
        Role::all(self.scenario.params.nodes).filter(half).collect()
    }

    /// Commands the client to add a new node.
    pub(super) fn offer_as(&mut self, client: usize, command: CommandId) -> RecoveryTarget {
        let sectors = self.disk(Role(0)).sectors();
        let disk = content::blank(sectors, &self.scenario, &ARRAY);
        let device_sectors = disk.sectors();
        let id = FIRST + self.world.processes.len() as u64;
        self.world.note(&[46, id], || format!("ADD node {id}"));
        let (process, incarnation) = self.start_node_as(id, disk, None);
        let new = NewMember {
            member: MemberId(0),
            device: format!("node://n{id}/{VOLUME}"),
            device_sectors,
            superblock: None,
            bad_blocks: None,
            readd: false,
            device_uuid: [0x80 | id as u8; 16],
        };
        self.world.command(client, command, Command::Add(Box::new(new)));
        RecoveryTarget { id, process, incarnation }
    }

    /// The role of a member of the client.
    pub(super) fn role_of(&mut self, client: usize, member: MemberId) -> Option<Role> {
        let status = self.world.processes[client].client().status();
        let device = status.members.into_iter().find(|known| known.member == member)?.device;
        let id = device.strip_prefix("node://n")?.split('/').next()?.parse::<u64>().ok()?;
        self.ids.iter().position(|known| *known == id).map(Role::at)
    }
}

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

    /// Returns whether the client should finish the resync or recovery before its stop.
    pub(super) fn waits_for_sync(&mut self, until: Instant) -> bool {
        let rebuilt = !self.promises.failed && !self.rebuilding().is_empty();
        let goes_on = rebuilt || self.is_replacing();
        goes_on && self.cluster.world.now() < until || !self.promises.troubled && self.syncing()
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
