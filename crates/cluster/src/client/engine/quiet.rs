//! Queries for activity in the engine.

use braid_array::Instant;

use super::context::{Cx, Shared};
use super::{Engine, lease};

impl Engine {
    /// Returns whether nothing lies in the nodes' rings, nor waits to.
    pub(super) fn is_idle(&self, shared: &Shared) -> bool {
        self.has_no_sets()
            && !lease::is_in_use(shared, &self.sets, true)
            && shared.reads.nothing_waits()
    }

    /// Returns whether no slice-set is open or waits.
    pub(in crate::client) fn has_no_sets(&self) -> bool {
        self.sets.is_empty() && self.queue.is_empty()
    }

    /// Returns whether nothing requested by the exports is under way.
    pub(in crate::client) fn is_quiet(&self, shared: &Shared) -> bool {
        shared.requests.is_empty() && self.has_no_sets() && self.flushes.is_empty()
    }

    /// Returns whether every request is answered.
    pub(in crate::client) fn has_no_requests(&self, shared: &Shared) -> bool {
        shared.requests.is_empty()
    }

    /// Returns whether nothing is left to do, except for background work and kept decodings.
    pub(in crate::client) fn holds_nothing(&self, shared: &Shared) -> bool {
        self.is_quiet(shared) && self.read_back.buffers() == 0
    }

    /// Returns whether commits may be held back: no slice-set, flush or background work waits for
    /// the stores, no node is lost, and writes go on. False also when positions become few: a lone
    /// block is best encoded by its home, which takes one of its own positions.
    pub(super) fn commits_may_wait(&self, cx: &Cx<'_>) -> bool {
        let busy = !self.queue.is_empty() || !self.flushes.is_empty() || self.work.len() > 0;
        let ends = cx.keeper.is_stopping() || cx.writes_over();
        let usable = self.lease.positions(cx);
        !busy && !ends && cx.lost().is_empty() && self.sets.len() <= usable.div_ceil(2)
    }

    /// Returns the time when a gathered write begins, nodes learn of commits, or memory is
    /// returned; the latter two only while the client serves.
    pub(in crate::client) fn deadline(
        &self,
        shared: &Shared,
        now: Instant,
        running: bool,
        returns_memory: bool,
    ) -> Option<Instant> {
        let idle = self.is_idle(shared);
        let rest = if returns_memory { self.lease.rest_due(idle) } else { None };
        let commits = if running { self.sets.commits_due() } else { None };
        let gathered = shared.areas.deadline(now, shared.requests.lone_at());
        gathered.into_iter().chain(rest).chain(commits).min()
    }
}
