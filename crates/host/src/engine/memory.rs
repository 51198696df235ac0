//! Memory of the machine, in use or not.

use std::ops::Range;
use std::sync::Arc;

use braid_array::Machine;

use super::EngineLoop;
use super::core::Core;
use crate::arena::ArenaPiece;
use crate::heap;

/// Memory that is not used for this long, and at most twice as long, is given back.
pub(super) const COOLING_MILLIS: u64 = 5000;

impl EngineLoop {
    /// Gives memory back to the system that was not used for a while.
    pub(super) fn cool(&mut self) {
        let Core { arena, driver, now, .. } = &mut self.core;
        let memory = Arc::clone(arena.memory());
        let mut give_back = |piece: ArenaPiece| {
            driver.release(piece);
            memory.give_back(piece);
        };
        let more = arena.cool(&mut give_back);
        // What was given up may still be at work on its memory.
        if self.machine.idle() && !arena.has_lent() && self.executor.given_up() == 0 {
            // Only what the machine names is given back: what anybody holds is not among that.
            let mut unused = vec![arena.beyond_machine()];
            self.machine.each_unused(&mut |buf| {
                unused.push(buf.offset..buf.offset + u64::from(buf.len));
            });
            ArenaPiece::covered(unused).for_each(give_back);
        }
        let again = std::mem::replace(&mut self.used, false);
        self.cool_at = (again || more).then(|| now.plus_millis(COOLING_MILLIS));
        if self.cool_at.is_none() {
            heap::trim();
        }
    }

    /// The machine will use these bytes.
    pub(super) fn memory_used(&mut self, range: Range<u64>) {
        self.core.arena.memory().warm(range.clone());
        ArenaPiece::inside(range).for_each(|piece| self.core.driver.may_keep(piece));
    }

    /// Gives bytes that the machine no longer uses back to the system.
    pub(super) fn memory_given_back(&mut self, range: Range<u64>) {
        // One of which a part stays would keep the other part there.
        ArenaPiece::touching(range.clone()).for_each(|piece| self.core.driver.bar(piece));
        self.core.arena.memory().cool(range);
    }
}
