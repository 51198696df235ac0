//! What is under way in the engine, or is not.

use braid_array::Instant;

use super::context::{Cx, Shared};
use super::{Engine, lease};

impl Engine {
    /// Does nothing lie in the nodes' rings, nor wait to?
    pub(super) fn is_idle(&self, shared: &Shared) -> bool {
        self.has_no_sets()
            && !lease::is_in_use(shared, &self.sets, true)
            && shared.reads.nothing_waits()
    }

    /// Is no slice-set open, and does none wait?
    pub(in crate::client) fn has_no_sets(&self) -> bool {
        self.sets.is_empty() && self.queue.is_empty()
    }

    /// Nothing that the exports asked for is under way.
    pub(in crate::client) fn is_quiet(&self, shared: &Shared) -> bool {
        shared.requests.is_empty() && self.has_no_sets() && self.flushes.is_empty()
    }

    /// Is every request answered?
    pub(in crate::client) fn has_no_requests(&self, shared: &Shared) -> bool {
        shared.requests.is_empty()
    }

    /// Is there nothing to do, background work and what is kept excepted?
    pub(in crate::client) fn holds_nothing(&self, shared: &Shared) -> bool {
        self.is_quiet(shared) && self.read_back.buffers() == 0
    }

    /// Do none but those who write wait for what is committed to be stored? Not when positions
    /// become few, either: a lone block is best encoded by its home, which takes one of its own.
    pub(super) fn commits_may_wait(&self, cx: &Cx<'_>) -> bool {
        let busy = !self.queue.is_empty() || !self.flushes.is_empty() || self.work.len() > 0;
        let ends = cx.keeper.is_stopping() || cx.writes_over();
        let usable = self.lease.positions(cx);
        !busy && !ends && cx.lost().is_empty() && self.sets.len() <= usable.div_ceil(2)
    }

    /// When a gathered write begins, nodes hear of what is committed, or memory is returned; the
    /// latter two only while it serves.
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
