//! What the parts of a local array share: the keeper, where bytes lie, I/O in flight, scratch, and
//! the actions for the executor. No part sees another one but those below it.

use std::collections::VecDeque;

use super::io::{Ios, Owner};
use super::map::Map;
use super::planning::Planner;
use super::scratch::Pool;
use crate::keeper::{Keeper, LaneReport};
use crate::{Action, Compute, IoOp, MemberId, SECTOR_BYTES};

/// It belongs to the array, and every part gets it as an argument.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) keeper: Keeper,
    pub(super) map: Map,
    pub(super) actions: VecDeque<Action>,
    pub(super) ios: Ios,
    pub(super) pool: Pool,
}

impl Lane {
    pub(super) const fn planner(&self) -> Planner<'_> {
        Planner { keeper: &self.keeper, map: &self.map }
    }

    /// Sends one I/O to a member.
    pub(super) fn issue(&mut self, member: MemberId, op: IoOp, owner: Owner) {
        let io = self.ios.insert(owner, Some((member, op)));
        self.keeper.hear(LaneReport::Asked(member));
        if let IoOp::Read { sector, buf } = op {
            let end = sector + u64::from(buf.len) / SECTOR_BYTES;
            self.keeper.hear(LaneReport::ReadUpTo(member, end));
        }
        self.actions.push_back(Action::Io { io, member, op });
    }

    /// Hands one computation to the executor.
    pub(super) fn issue_compute(&mut self, compute: Compute, job: usize) {
        let io = self.ios.insert(Owner::Job(job), None);
        self.actions.push_back(Action::Compute { io, compute });
    }
}
