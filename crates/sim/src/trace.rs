//! Trace of events, as a hash for comparing runs and as lines for people.

use std::fmt::Display;

use braid_array::Instant;

/// Trace of the events.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    events: u64,
    verbose: bool,
}

impl Trace {
    /// Prints each event when `verbose`.
    pub const fn new(verbose: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, events: 0, verbose }
    }

    /// Something happened: numbers for the hash, and words for people, made only when wanted.
    pub fn note<D: Display>(&mut self, now: Instant, numbers: &[u64], words: impl FnOnce() -> D) {
        self.events += 1;
        for &number in [now.0].iter().chain(numbers) {
            self.hash = (self.hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.hash ^= self.hash >> 29;
        }
        if self.verbose {
            println!("{:>12.3} ms  {}", now.0 as f64 / 1e6, words());
        }
    }

    /// Equal for equal runs.
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// Number of events.
    pub const fn events(&self) -> u64 {
        self.events
    }
}
