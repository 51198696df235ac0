//! The two arrays, and requests to them: what all other files of the machine use.

use std::ops::Range;

use braid_array::action::CommandId;
use braid_array::events::{ArrayEvent, SyncAction};
use braid_array::request::Full;
use braid_array::status::SyncStatus;
use braid_array::{Action, BlockMachine, Instant, Refusal, Request, RequestError};

use super::stage::Step;
use super::{MovingClient, Side};
use crate::failover::FailoverClient;

impl MovingClient {
    pub(super) const fn array(&self, side: Side) -> &FailoverClient {
        &self.arrays[side as usize]
    }

    pub(super) const fn array_mut(&mut self, side: Side) -> &mut FailoverClient {
        &mut self.arrays[side as usize]
    }

    /// The array that stands for both: the one that is left, or else the new one, which has all
    /// nodes.
    pub(super) const fn main(&self) -> Side {
        match self.step {
            Step::Over(side) => side,
            _ => Side::New,
        }
    }

    /// The arrays that have data.
    pub(super) fn sides(&self) -> &'static [Side] {
        match self.step {
            Step::Over(Side::Old) => &[Side::Old],
            Step::Over(Side::New) => &[Side::New],
            Step::Leaving if self.back => &[Side::Old],
            Step::Leaving => &[Side::New],
            _ => &Side::BOTH,
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        matches!(self.step, Step::Over(_))
    }

    pub(super) const fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    /// Returns whether an administrator holds it.
    pub(super) fn is_held(&self) -> bool {
        self.limits.held()
    }

    pub(super) fn restart_speed(&mut self) {
        self.since = (self.now, self.front);
        self.not_before = self.now;
    }

    /// Gives both clients what they have not taken yet. Returns whether they took any.
    pub(super) fn feed(&mut self) -> bool {
        let mut any = false;
        for side in Side::BOTH {
            while let Some(&request) = self.split.queue(side).front() {
                let now = self.now;
                if self.array_mut(side).submit(now, request) == Err(Full) {
                    break;
                }
                self.split.queue(side).pop_front();
                any = true;
            }
        }
        any
    }

    /// Takes a request that nothing stands against.
    pub(super) fn admit(&mut self, request: &Request) {
        if request.op == braid_array::Op::Flush {
            self.split.flush(request.id, self.sides());
        } else {
            self.split.cut(request, self.front);
        }
    }

    /// Returns whether a write has to wait for the end of the window.
    pub(super) fn waits(&self, request: &Request) -> bool {
        let end = request.sector.saturating_add(request.sectors);
        let touches = |window: &Range<u64>| {
            request.sector < window.end && window.start < end && !braid_array::broken("move-window")
        };
        request.op.changes_data() && self.window().is_some_and(touches)
    }

    /// The window is over: what waited for that goes on.
    pub(super) fn release(&mut self) {
        for (request, _) in std::mem::take(&mut self.held) {
            self.admit(&request);
        }
    }

    /// Fails writes that have waited for nodes for too long, or for an array that is stopped.
    pub(super) fn fail_held(&mut self, all: bool) {
        let away = all || Side::BOTH.iter().any(|&side| self.array(side).is_waiting());
        let limit = |since: Instant| all || since.plus_millis(self.fail_timeout_ms) <= self.now;
        while let Some((request, _)) = self.held.front().filter(|(_, since)| away && limit(*since))
        {
            let result = Err(RequestError::Failed);
            self.actions.push_back(Action::Complete { id: request.id, result });
            self.held.pop_front();
        }
    }

    /// The window that is open.
    pub(super) const fn window(&self) -> Option<&Range<u64>> {
        match &self.step {
            Step::Draining(window)
            | Step::Copying(window)
            | Step::Flushing(window)
            | Step::Telling(window) => Some(window),
            _ => None,
        }
    }

    pub(super) fn notify(&mut self, event: ArrayEvent) {
        self.actions.push_back(Action::Notify(event));
    }

    /// Answers a command.
    pub(super) fn reply(&mut self, id: CommandId, result: Result<(), Refusal>) {
        self.actions.push_back(Action::Reply { id, result });
    }

    pub(super) fn sync_status(&self) -> SyncStatus {
        let front = self.front.min(self.total);
        let done = if self.back { self.total - front } else { front };
        let elapsed_ms = ((self.now.0 - self.since.0.0) / 1_000_000).max(1000);
        let moved = front.abs_diff(self.since.1) * braid_array::SECTOR_BYTES;
        let bytes_per_s = if self.is_held() { 0 } else { moved * 1000 / elapsed_ms };
        let left = self.total.saturating_sub(done) * braid_array::SECTOR_BYTES;
        SyncStatus {
            action: SyncAction::Reshape,
            done_sectors: done,
            total_sectors: self.total,
            bytes_per_s,
            finish_s: left.checked_div(bytes_per_s),
            ..self.limits
        }
    }
}
