//! A node that is a spare, until the client has it take the place of a member that stays away.

use braid_array::action::CommandId;
use braid_array::format::{Role, Superblock};
use braid_array::status::MemberState;
use braid_cluster::client::ClientMember;

use super::content;
use super::session::{Session, VOLUME};
use crate::disk::Disk;

/// The command that adds one.
pub(super) const SPARE: CommandId = CommandId(4);

impl Session {
    /// Has the client told of a spare, which is none yet.
    pub fn offer_spare(&mut self) {
        self.spare = Some(self.cluster.offer_as(self.client, SPARE));
    }

    /// The command is answered: whoever gave it writes what the spare carries.
    pub(super) fn spare_added(&mut self, ok: bool) {
        let Some(spare) = self.spare else { return };
        let status = self.cluster.status_of(self.client);
        let device = format!("node://n{}/{VOLUME}", spare.id);
        let member = status.members.iter().find(|member| member.device == device);
        let number = member.filter(|member| ok && member.state == MemberState::Spare);
        let Some(number) = number.map(|member| member.number) else {
            // It was given a role at once, or refused.
            self.newcomer = self.spare.take();
            return self.added();
        };
        let mut superblock = status.superblock;
        superblock.roles.resize(superblock.roles.len().max(usize::from(number) + 1), Role::Spare);
        superblock.roles[usize::from(number)] = Role::Spare;
        superblock.dev_number = number.into();
        superblock.device_uuid = [0x80 | spare.id as u8; 16];
        let volume = self.cluster.world.processes[spare.process].volumes.get_mut(VOLUME);
        let Some(volume) = volume else { return };
        volume.disk.put(superblock.super_offset, &superblock.encode());
    }

    /// Has it been given a role?
    pub(super) fn look_at_spare(&mut self) {
        let Some(spare) = self.spare else { return };
        if let Some(role) = self.cluster.role_on(spare.process) {
            self.spare = None;
            self.has_role(spare, role);
        }
    }

    /// It is off, if nobody needs it.
    pub fn drop_spare(&mut self) {
        self.look_at_spare();
        if let Some(spare) = self.spare.take() {
            self.cluster.world.kill(spare.process);
        }
    }

    /// What a client is told of spares that were added before.
    pub(super) fn spares(&mut self) -> Vec<ClientMember> {
        self.look_at_spare();
        let Some(spare) = self.spare else { return Vec::new() };
        let disk: &Disk = &self.cluster.world.processes[spare.process].volumes[VOLUME].disk;
        let is_spare = |superblock: &Superblock| superblock.role() == Role::Spare;
        let superblock = content::superblock(disk).ok().filter(is_spare);
        let address = format!("n{}", spare.id);
        let volume = VOLUME.to_owned();
        superblock
            .map(|superblock| ClientMember { address, volume, superblock })
            .into_iter()
            .collect()
    }
}
