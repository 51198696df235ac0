//! What a client has left staged, for the one that comes next.

use super::{Live, Pipe, Stage};
use crate::node::out::{Flight, Out};
use crate::wire::Leftover;

impl Pipe {
    /// Slice-sets whose new content is here whole, whatever of it is stored.
    fn held(&self) -> impl Iterator<Item = &Live> {
        let running = self.positions.iter().filter_map(|position| position.running.as_ref());
        running.filter(|live| match live.stage {
            Stage::Running | Stage::Recording | Stage::Dropped => false,
            Stage::Staged => live.ok,
            Stage::Going => true,
        })
    }

    /// A client that comes next has to say what becomes of something.
    pub(in crate::node) fn holds(&self) -> bool {
        self.write && self.held().next().is_some()
    }

    /// What a client that comes next is told of.
    pub(in crate::node) fn leftovers(&self) -> Vec<Leftover> {
        let epoch = self.epoch();
        let stored = self.positions.iter().filter_map(|position| position.stored);
        let stored = stored.map(|(version, ok)| (version, None, ok));
        let staged = self.held().map(|live| (live.set.version, Some(live.set.clone()), true));
        let item = |(version, staged, ok)| Leftover { version: (epoch, version), staged, ok };
        staged.chain(stored).map(item).collect()
    }

    /// Stores what goes of what a client left; how many operations that takes.
    pub(in crate::node) fn store_left(&self, go: &[(u32, u64)], out: &mut Out) -> usize {
        let mut count = 0;
        for Live { set, part, .. } in self.held() {
            if !go.contains(&(self.epoch(), set.version)) {
                continue;
            }
            for task in &part.tasks {
                let Some(op) = self.store(set, &task.work, part, false) else { continue };
                out.io(Flight::Resolve { orphan: self.client }, self.member, op);
                count += 1;
            }
        }
        count
    }

    /// All that goes is stored, and the rest is dropped.
    pub(in crate::node) fn left_is_over(&mut self, go: &[(u32, u64)]) {
        let epoch = self.epoch();
        for position in &mut self.positions {
            if let Some(live) = position.running.take() {
                self.open -= 1;
                if go.contains(&(epoch, live.set.version)) {
                    position.stored = Some((live.set.version, true));
                }
            }
        }
    }
}
