//! A member that is copied to a spare, which takes its place.

use braid_array::action::{Command, CommandId};
use braid_array::status::MemberState;

use super::newcomer::Newcomer;
use super::session::{Session, VOLUME};

/// The command that begins it.
const REPLACE: CommandId = CommandId(5);
/// Why the old one goes, or is gone since a client did that whose array is being taken over.
pub(super) const REPLACED: [&str; 2] = ["was replaced", "has missed writes"];

impl Session {
    /// At times a member is to be replaced by the spare, if there is one; and at times, whatever it
    /// is at, the spare dies and is back at once, or is cut off from a member.
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

    /// Is a member being copied, or the new one not whole yet?
    pub fn is_replacing(&mut self) -> bool {
        if !self.cluster.scenario.replaces || self.promises.failed {
            return false;
        }
        let status = self.cluster.status_of(self.client);
        let copied = status.members.iter().any(|member| member.want_replacement);
        copied || self.promises.mild && !self.promises.dropped.is_empty()
    }

    /// While the new one lacks something nobody else may be missed whose loss is to come.
    fn replace_one(&mut self) {
        let role = self.cluster.rng.below(u64::from(self.cluster.scenario.params.nodes)) as u16;
        let lost = [self.promises.missing_with(&self.planned), vec![role]].concat();
        if self.is_replacing() && self.cluster.rng.percent(80) {
            return;
        }
        let status = self.cluster.status_of(self.client);
        let serves = |member: &&braid_array::status::MemberStatus| {
            member.role == Some(role) && member.state == MemberState::InSync
        };
        let member = status.members.iter().find(serves).map(|member| member.member);
        let Some(member) = member else { return };
        if !self.cluster.scenario.survives(&lost) {
            return;
        }
        self.cluster.note(&[58, role.into()], || format!("REPLACE role {role}"));
        self.cluster.world.command(self.client, REPLACE, Command::Replace(member));
    }

    /// It dies of a power cut, and is back at once.
    fn restart_spare(&mut self) {
        self.look_at_spare();
        let Some(Newcomer { id, process, .. }) = self.spare else { return };
        self.cluster.note(&[59, id], || format!("RESTART spare {id}"));
        self.cluster.world.kill(process);
        let mut disk = self.cluster.world.processes[process].volumes[VOLUME].disk.clone();
        disk.power_cut(&mut self.cluster.rng);
        let (process, incarnation) = self.cluster.start_node_as(id, disk, Some(process));
        self.spare = Some(Newcomer { id, process, incarnation });
    }

    fn cut_spare_off(&mut self) {
        let Some(Newcomer { id, process, .. }) = self.spare else { return };
        let role = self.cluster.rng.below(u64::from(self.cluster.scenario.params.nodes)) as u16;
        self.cluster.note(&[60, id, role.into()], || format!("CUT spare {id} off from {role}"));
        let node = self.cluster.node(role);
        self.cluster.world.disconnect(node, process);
    }
}
