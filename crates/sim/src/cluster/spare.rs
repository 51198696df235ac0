//! A node that is a spare until the client gives it the role of a member: of an absent member, or
//! of a serving member, which is copied to it.
//!
//! Nodes that have left the array, replaced or given up, keep running, and the client makes them
//! drop their state for a takeover. In the end nothing of the array is open there, its ring is
//! given back, and its volume can be deleted.

use braid_array::Role;
use braid_array::action::{Command, CommandId};
use braid_array::format::BadBlocks;
use braid_array::format::{DevRole, Superblock};
use braid_array::status::{MemberState, MemberStatus};
use braid_cluster::client::ClientMember;

use super::content::{self, VOLUME};
use super::recovery_target::RecoveryTarget;
use super::session::Session;

/// The command that adds one.
pub(super) const SPARE: CommandId = CommandId(4);
/// The command that has it take the place of a member.
const REPLACE: CommandId = CommandId(5);
/// Reasons for leaving of the old member: the running client, or the client whose array is taken
/// over, replaced it.
pub(super) const REPLACED: [&str; 2] = ["was replaced", "has missed writes"];

impl Session {
    /// Commands the client to add a node, which carries no superblock of a spare yet.
    pub fn offer_spare(&mut self) {
        self.spare = Some(self.cluster.offer_as(self.client, SPARE));
    }

    /// Handles the answer to the command, and writes the superblock of the spare, as its issuer
    /// would.
    pub(super) fn spare_added(&mut self, ok: bool) {
        let Some(spare) = self.spare else { return };
        let status = self.cluster.status_of(self.client);
        let device = format!("node://n{}/{VOLUME}", spare.id);
        let member = status.members.iter().find(|member| member.device == device);
        let number = member.filter(|member| ok && member.state == MemberState::Spare);
        let Some(number) = number.map(|member| member.number) else {
            // It was given a role at once, or refused.
            self.recovery_target = self.spare.take();
            return self.added();
        };
        let mut superblock = status.superblock;
        superblock
            .roles
            .resize(superblock.roles.len().max(usize::from(number) + 1), DevRole::Spare);
        superblock.roles[usize::from(number)] = DevRole::Spare;
        superblock.dev_number = number.into();
        superblock.device_uuid = [0x80 | spare.id as u8; 16];
        let volume = self.cluster.world.processes[spare.process].volume_mut(VOLUME);
        volume.disk.put(superblock.super_offset, &superblock.encode());
    }

    /// Checks whether the spare has been given a role.
    pub(super) fn look_at_spare(&mut self) {
        let Some(spare) = self.spare else { return };
        if let Some(role) = self.cluster.role_on(spare.process) {
            self.spare = None;
            self.has_role(spare, role);
        }
    }

    /// Stops the spare, if it is not in use.
    pub fn drop_spare(&mut self) {
        self.look_at_spare();
        if let Some(spare) = self.spare.take() {
            self.cluster.world.kill(spare.process);
        }
    }

    /// Returns the spares added before, for a client.
    pub(super) fn spares(&mut self) -> Vec<ClientMember> {
        self.look_at_spare();
        let Some(spare) = self.spare else { return Vec::new() };
        let disk = self.cluster.disk_of(spare.process);
        let is_spare = |superblock: &Superblock| superblock.role() == DevRole::Spare;
        let superblock = content::superblock(disk).ok().filter(is_spare);
        let address = format!("n{}", spare.id);
        let volume = VOLUME.to_owned();
        superblock
            .map(|superblock| {
                let bad_blocks = BadBlocks::default();
                ClientMember { address, volume, superblock, bad_blocks }
            })
            .into_iter()
            .collect()
    }

    /// Replaces a member by the spare at times, if there is one. At other times the spare is
    /// restarted, or cut off from a member.
    pub fn sometimes_replace(&mut self) {
        if !self.cluster.scenario.replaces || self.spare.is_none() {
            return;
        }
        if self.cluster.rng.percent(1) {
            self.replace_one();
        } else if self.cluster.rng.below(3000) < 1 {
            self.restart_spare();
        } else if self.cluster.rng.below(3000) < 1 {
            self.cut_spare_off();
        }
    }

    /// Returns whether a member is being copied, or the new member is incomplete.
    pub fn is_replacing(&mut self) -> bool {
        if !self.cluster.scenario.replaces || self.promises.failed {
            return false;
        }
        let status = self.cluster.status_of(self.client);
        let copied = status.members.iter().any(|member| member.want_replacement);
        copied || self.promises.mild && !self.promises.dropped.is_empty()
    }

    /// Replaces a member, unless a loss to come would then lose content that the new member lacks.
    fn replace_one(&mut self) {
        let role =
            Role(self.cluster.rng.below(u64::from(self.cluster.scenario.params.nodes)) as u16);
        let lost = [self.promises.missing_with(&self.planned), vec![role]].concat();
        if self.is_replacing() && self.cluster.rng.percent(80) {
            return;
        }
        let status = self.cluster.status_of(self.client);
        let serves = |member: &&MemberStatus| {
            member.role == Some(role) && member.state == MemberState::InSync
        };
        let member = status.members.iter().find(serves).map(|member| member.member);
        let Some(member) = member else { return };
        if !self.cluster.scenario.survives(&lost) {
            return;
        }
        self.cluster.note(&[58, role.0.into()], || format!("REPLACE role {role}"));
        self.cluster.world.command(self.client, REPLACE, Command::Replace(member));
    }

    /// Cuts the power of the spare, and restarts it at once.
    fn restart_spare(&mut self) {
        self.look_at_spare();
        let Some(RecoveryTarget { id, process, .. }) = self.spare else { return };
        self.cluster.note(&[59, id], || format!("RESTART spare {id}"));
        let (process, incarnation) = self.cluster.cut_and_restart(id, process);
        self.spare = Some(RecoveryTarget { id, process, incarnation });
    }

    fn cut_spare_off(&mut self) {
        let Some(RecoveryTarget { id, process, .. }) = self.spare else { return };
        let role =
            Role(self.cluster.rng.below(u64::from(self.cluster.scenario.params.nodes)) as u16);
        self.cluster.note(&[60, id, role.0.into()], || format!("CUT spare {id} off from {role}"));
        let node = self.cluster.node(role);
        self.cluster.world.disconnect(node, process);
    }
}
