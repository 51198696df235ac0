//! Nodes that get back what they are to hold, or are new: the others send it to them, along chains
//! that end there. The client sees to it that nobody writes to the slice meanwhile, and carries no
//! block of it.

use braid_array::keeper::Done;

use super::write::PendingSet;
use super::{Client, Key, MemberId, Planner, Redundancy, SyncSpace, WriteStrategy};
use crate::set::{Roles, Set, Touched};

impl Client {
    /// The roles of members to be given what they lack of a slice, if the others can do that: what
    /// those hold of it fits, or each of it is all there is to know.
    pub(super) fn restorable(&self, key: Key, targets: &[MemberId]) -> Option<Roles> {
        let (start, end) = self.space.range(key);
        let copies = self.space.redundancy() == Redundancy::Copies;
        let fits = copies || self.forced || self.keeper.in_step(start, end);
        let links = (0..).zip(&self.links);
        let wanted = links.filter(|(_, link)| link.id.is_some_and(|id| targets.contains(&id)));
        fits.then(|| wanted.map(|(role, _)| role).collect())
            .filter(|roles: &Roles| !roles.is_empty())
    }

    /// Opens the first job, which gives this role its blocks, if there is a position. False when
    /// it has to wait.
    pub(super) fn open_restore(&mut self, kind: usize, of: usize, role: u16) -> bool {
        let mut missing: Roles = self.lost().into_iter().collect();
        missing.remove(role);
        if !self.alive(role) {
            // It is lost again: nothing of the slice is wrong.
            let Some(job) = self.jobs[kind].pop_front() else { return false };
            self.task_over(job.key, Done::Failed);
            self.area_free(job.key);
            return true;
        }
        let at = self.free[of].iter().copied().position(self.usable());
        let Some(position) = at.and_then(|at| self.free[of].remove(at)) else { return false };
        let Some(job) = self.jobs[kind].pop_front() else { return false };
        self.version += 1;
        let generation = self.generations[usize::from(position)];
        self.generations[usize::from(position)] = generation.wrapping_add(1);
        let set = Set {
            position,
            generation,
            version: self.version,
            stripe: job.key.0,
            offset: job.range.offset,
            len: job.range.len,
            strategy: WriteStrategy::Restore(role),
            planner: Planner::Chain,
            fua: false,
            touched: Touched::none(self.pipeline.data_blocks()),
            missing,
            log: false,
        };
        self.open_set(job, set, Vec::new());
        true
    }
}

impl PendingSet {
    /// This role has its blocks; has another one to get its?
    pub(super) fn goes_on_after(&mut self, strategy: WriteStrategy) -> bool {
        if let WriteStrategy::Restore(role) = strategy {
            self.restores.remove(role);
        }
        !self.restores.is_empty()
    }
}
