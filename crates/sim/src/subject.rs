//! The machine in a world: an array, or an array of arrays.

use std::fmt::Debug;

use braid_array::array::Scratch;
use braid_array::assemble::Config;
use braid_array::{Array, BlockMachine, Instant};

use crate::assembly::{self, How, Refusal};
use crate::attached::Attached;
use crate::disk::Disk;
use crate::part::Parts;
use crate::rng::Rng;

/// When a machine starts.
pub const START: Instant = Instant(1);

/// A machine that can be started from devices.
pub trait Subject: BlockMachine + Debug + Sized {
    /// Starts it. Returns the machine, and the device of each member.
    fn start(
        disks: &mut Vec<Disk>,
        parts: &Parts,
        how: How<'_>,
        memory: &mut Memory<'_>,
    ) -> Result<(Self, Attached), Refusal>;
}

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

impl Subject for Array {
    fn start(
        disks: &mut Vec<Disk>,
        parts: &Parts,
        how: How<'_>,
        memory: &mut Memory<'_>,
    ) -> Result<(Self, Attached), Refusal> {
        let (config, attached) = assembly::assemble(disks, parts.devices[0].set_uuid, how)?;
        Ok((memory.start(config)?, attached))
    }
}
