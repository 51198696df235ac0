//! A node that is added while an array runs, in the place of one that was lost.

use braid_array::action::{Command, CommandId, NewMember};
use braid_array::format::superblock::feature;
use braid_array::{MemberId, Role};

use super::content::{self, ARRAY, VOLUME};
use super::nodes::Cluster;

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
        content::superblock(self.disk_of(process)).ok()?.role().active()
    }

    /// Returns whether the node of this role was added later.
    pub fn is_new(&self, role: Role) -> bool {
        self.ids[role.index()] >= FIRST
    }

    /// Cuts the power of a recovery target under recovery, and restarts it at once: its content is
    /// not needed.
    pub fn restart_recovery_target(&mut self, role: Role) {
        let at = role.index();
        (self.nodes[at], self.incarnations[at]) =
            self.cut_and_restart(self.ids[at], self.nodes[at]);
    }

    /// Roles of which superblocks or view say that their members have not all of them.
    pub(super) fn half_regained(&self) -> Vec<Role> {
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
