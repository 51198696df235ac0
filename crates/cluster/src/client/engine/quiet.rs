//! What is under way in the engine, or is not.

use braid_array::Instant;

use super::context::Shared;
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

    /// When a gathered write begins, or memory is returned; the latter only while it serves.
    pub(in crate::client) fn deadline(
        &self,
        shared: &Shared,
        now: Instant,
        returns_memory: bool,
    ) -> Option<Instant> {
        let idle = self.is_idle(shared);
        let rest = if returns_memory { self.lease.rest_due(idle) } else { None };
        shared.areas.deadline(now).into_iter().chain(rest).min()
    }
}
