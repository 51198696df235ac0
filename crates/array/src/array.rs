//! The machine.

use crate::action::Event;
use crate::assemble::Config;
use crate::request::{Full, Request};
use crate::status::Status;
use crate::{Action, Buf, Instant, Machine, MemberId};

/// A running array.
#[derive(Debug)]
pub struct Array;

/// The part of the arena that belongs to a machine, for strips it computes and metadata it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// First byte in the arena; a multiple of 4096.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Array {
    /// How much scratch an array of this shape works well with.
    #[must_use]
    pub fn scratch_bytes(_config: &Config) -> u64 {
        todo!()
    }

    /// Starts the machine: nothing has been written when this returns; the first `poll` may.
    ///
    /// # Errors
    /// When the configuration cannot be run: the reason, for people.
    pub fn new(_now: Instant, _config: Config, _scratch: Scratch) -> Result<Self, String> {
        todo!()
    }
}

impl Machine for Array {
    fn submit(&mut self, _now: Instant, _request: Request) -> Result<(), Full> {
        todo!()
    }
    fn handle(&mut self, _now: Instant, _event: Event) {
        todo!()
    }
    fn poll(&mut self) -> Option<Action> {
        todo!()
    }
    fn deadline(&self) -> Option<Instant> {
        todo!()
    }
    fn status(&self) -> Status {
        todo!()
    }
    fn array_sectors(&self) -> u64 {
        todo!()
    }
    fn block_bytes(&self) -> u32 {
        todo!()
    }
    fn read_only(&self) -> bool {
        todo!()
    }
    fn free_member(&self) -> Option<MemberId> {
        todo!()
    }
    fn idle(&self) -> bool {
        todo!()
    }
}

const _: fn(Buf) = |_| ();
