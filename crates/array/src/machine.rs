//! The contract between a machine and the executor that drives it.

use crate::action::Event;
use crate::request::{Full, Request};
use crate::status::Status;
use crate::{Action, Instant, MemberId};

/// A state machine that serves block requests. The executor calls `poll` until `None` after each
/// `submit` and `handle`, and `handle(now, Event::Tick)` no later than `deadline`.
pub trait Machine {
    /// Takes a request in.
    ///
    /// # Errors
    /// [`Full`]: try again after the next completion. The request was not taken.
    fn submit(&mut self, now: Instant, request: Request) -> Result<(), Full>;

    /// Takes an answer, a command or the passing of the deadline in.
    fn handle(&mut self, now: Instant, event: Event);

    /// The next thing to do, if there is one.
    fn poll(&mut self) -> Option<Action>;

    /// When to call `handle(Tick)` at the latest.
    fn deadline(&self) -> Option<Instant>;

    /// A copy of the state, for people.
    fn status(&self) -> Status;

    /// Size of the array.
    fn array_sectors(&self) -> u64;

    /// Requests must be multiples of this.
    fn block_bytes(&self) -> u32;

    /// Refuses writes.
    fn read_only(&self) -> bool;

    /// An id under which a device may be added.
    fn free_member(&self) -> Option<MemberId>;

    /// Nothing is in flight: no request, no I/O, no computation, no metadata update due. And what
    /// is in the scratch is of no use any more: the executor may fill it with zeroes again.
    fn idle(&self) -> bool;
}
