//! Who was under way at a moment, and is not over yet.

/// A count of what is under way in two generations: what began before the last
/// [`turn`](Self::turn), and what began since.
#[derive(Debug, Default)]
pub(super) struct Elders {
    generation: u64,
    older: usize,
    younger: usize,
}

/// The generation that something began in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Born(u64);

impl Elders {
    /// Something begins.
    pub(super) fn begin(&mut self) -> Born {
        self.younger += 1;
        Born(self.generation)
    }

    /// Something that began then is over.
    pub(super) fn end(&mut self, born: Born) {
        let count = if born.0 == self.generation { &mut self.younger } else { &mut self.older };
        *count -= 1;
    }

    /// All that is under way now is of the older generation.
    pub(super) fn turn(&mut self) {
        self.generation += 1;
        self.older += std::mem::take(&mut self.younger);
    }

    /// Returns whether all is over that began before the last turn.
    pub(super) const fn are_gone(&self) -> bool {
        self.older == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_before_a_turn_is_waited_for() {
        let mut elders = Elders::default();
        let old = [elders.begin(), elders.begin()];
        assert!(elders.are_gone());
        elders.turn();
        let young = elders.begin();
        elders.end(old[0]);
        elders.end(young);
        assert!(!elders.are_gone());
        elders.turn();
        elders.end(old[1]);
        assert!(elders.are_gone());
    }
}
