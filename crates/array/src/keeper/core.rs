//! State that the parts of a keeper share: the time, the shape of the array, its members, its
//! metadata and the commands for the lane. No part sees another one.

use std::collections::VecDeque;

use super::members::{Member, Members};
use super::metadata::Metadata;
use super::spill::Spill;
use super::{LaneCommand, Redundancy, Rules, SyncSpace};
use crate::events::ArrayEvent;
use crate::{Instant, MemberId, Role};

/// The shared state. The keeper owns it, and every part gets it as an argument.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) now: Instant,
    pub(super) space: Box<dyn SyncSpace>,
    pub(super) rules: Rules,
    pub(super) service: Service,
    pub(crate) members: Members,
    pub(super) metadata: Metadata,
    pub(super) spill: Option<Spill>,
    pub(super) out: Out,
}

/// The service that the array gives: in full, for reads only, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    /// The level can do without a member.
    pub(super) redundant: bool,
    pub(super) read_only: bool,
    /// More members are gone than the level can do without.
    pub(super) failed: bool,
    /// A member is gone or does not do its part, and the array cannot go on changing without it.
    pub(super) writes_over: bool,
    /// A stop was commanded, and is carried out or done.
    pub(super) stopping: bool,
    pub(super) stopped: bool,
    /// The array that this one is a member of goes on without it.
    pub(super) dispensable: bool,
    /// The array is being given another shape: no request is under way for long.
    pub(super) growing: bool,
}

impl Service {
    /// No superblock, bitmap or log may be written.
    pub(super) const fn metadata_frozen(self) -> bool {
        let over = self.failed || self.writes_over || self.stopped;
        self.read_only || over || !self.redundant && !self.is_remade()
    }

    /// Returns whether members may come and go although nothing makes up for them.
    pub(super) const fn is_remade(self) -> bool {
        self.dispensable && !self.read_only && !self.redundant
    }
}

/// The commands for the lane, in their order.
#[derive(Debug, Default)]
pub(super) struct Out(pub(super) VecDeque<LaneCommand>);

impl Out {
    pub(super) fn push(&mut self, command: LaneCommand) {
        self.0.push_back(command);
    }

    pub(super) fn notify(&mut self, event: ArrayEvent) {
        self.push(LaneCommand::Notify(event));
    }
}

impl Core {
    /// A command makes a member faulty that has a role, or removes it.
    pub(super) fn note_faulty(&mut self, id: MemberId) {
        if let Some(member) = self.members.get(id)
            && member.state.role().is_some()
            && self.rules.faulty_stay_out
        {
            self.metadata.made_faulty.insert(member.superblock.dev_number);
        }
    }

    /// A device becomes a member.
    pub(super) fn attach(&mut self, id: MemberId, member: Member) {
        self.metadata.made_faulty.remove(&member.superblock.dev_number);
        self.members.attach(id, member);
    }

    /// Nothing is asked for, and no update is due.
    pub(super) fn is_idle(&self) -> bool {
        self.out.0.is_empty() && self.metadata.is_idle()
    }

    /// Returns whether the array can run on the roles that are in sync, leaving out these.
    pub(super) fn enough_without(&self, without: &[Role]) -> bool {
        let lost = |role: Role| without.contains(&role) || !self.members.in_sync(role);
        self.space.survives(&lost)
    }

    /// Returns whether any part of the array can be compared with something.
    pub(super) fn is_comparable(&self) -> bool {
        if let Redundancy::Parity(parities) = self.space.redundancy() {
            return u32::from(self.members.degraded()) < parities;
        }
        // What can be missed, another one holds as well.
        let mut roles = Role::all(self.space.roles()).filter(|role| self.members.in_sync(*role));
        roles.any(|role| self.enough_without(&[role]))
    }
}
