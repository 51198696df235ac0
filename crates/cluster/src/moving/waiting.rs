//! Writes that wait for the end of a window, [`HeldWrites`].

use std::collections::VecDeque;

use braid_array::{Instant, Request, RequestId};

/// Writes to what is being copied, and since when each of them waits.
#[derive(Debug)]
pub(super) struct HeldWrites {
    held: VecDeque<(Request, Instant)>,
    fail_timeout_ms: u64,
}

impl HeldWrites {
    /// They fail after this long, where nodes are away.
    pub(super) const fn new(fail_timeout_ms: u64) -> Self {
        Self { held: VecDeque::new(), fail_timeout_ms }
    }

    pub(super) fn hold(&mut self, now: Instant, request: Request) {
        self.held.push_back((request, now));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns all of them: they go on.
    pub(super) fn release(&mut self) -> impl Iterator<Item = Request> + use<> {
        std::mem::take(&mut self.held).into_iter().map(|(request, _)| request)
    }

    /// Returns those that have waited for nodes for too long.
    pub(super) fn late(&mut self, now: Instant) -> Vec<RequestId> {
        let is_late =
            |(_, since): &(Request, Instant)| since.plus_millis(self.fail_timeout_ms) <= now;
        let late = self.held.iter().take_while(|held| is_late(held)).count();
        self.held.drain(..late).map(|(request, _)| request.id).collect()
    }

    /// The time at which the next one is late.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let (_, since) = self.held.front()?;
        Some(since.plus_millis(self.fail_timeout_ms)).filter(|at| *at > now)
    }
}
