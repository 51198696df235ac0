//! Inspection of the engine by the client's tests.

use super::extent::{Extent, Range, WantedBlock};
use super::{Cx, Engine, Shared};
use crate::ids::Position;

impl Engine {
    pub(in crate::client) fn open_positions(&self) -> Vec<Position> {
        self.sets.positions().collect()
    }

    /// Returns whether no slice is compared and no background work is under way.
    pub(in crate::client) fn compares_nothing(&self) -> bool {
        self.compares.buffers() == 0 && self.work.len() == 0
    }

    pub(in crate::client) fn kept_decodings(&self) -> usize {
        self.decodes.kept()
    }

    pub(in crate::client) fn has_no_decodings(&self) -> bool {
        self.decodes.buffers() == 0 && self.decodes.kept() == 0
    }

    pub(in crate::client) fn forget_all_kept(&mut self, shared: &mut Shared) {
        self.decodes.forget_all_kept(shared);
    }

    pub(in crate::client) fn decode(
        &mut self,
        cx: &mut Cx<'_>,
        range: Range,
        wanted: Vec<WantedBlock>,
    ) {
        let (stripe, at, len) = range;
        self.decodes.decode(cx, Extent { stripe, index: 0, at, len }, wanted);
    }
}

impl Shared {
    /// Takes buffers until this many are left free.
    pub(in crate::client) fn leave_buffers(&mut self, count: usize) {
        let taken = self.staging.free() - count;
        self.staging.take(taken, 4096).expect("free buffers");
    }

    pub(in crate::client) fn free_buffers(&self) -> usize {
        self.staging.free()
    }
}
