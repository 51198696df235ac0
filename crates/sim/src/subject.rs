//! The memory of a local array's machines, and when they start.

use braid_array::array::Scratch;
use braid_array::assemble::Config;
use braid_array::{Array, Instant};

use crate::assembly::{self, Refusal};
use crate::rng::Rng;

/// When a machine starts.
pub const START: Instant = Instant(1);

/// The arena as it is given out: behind the buffers of requests is the scratch of each array.
#[derive(Debug)]
pub struct Memory<'a> {
    /// Bytes given out.
    pub end: u64,
    /// Draws how much each gets.
    pub rng: &'a mut Rng,
}

impl Memory<'_> {
    /// Scratch for one array, and the array in it.
    pub fn start(&mut self, config: Config) -> Result<Array, Refusal> {
        let scratch = assembly::scratch(&config, self.end, self.rng);
        let Scratch { offset, bytes } = scratch;
        self.end = offset + bytes;
        Array::new(START, config, scratch).map_err(|reason| Refusal::flat(&reason))
    }
}
