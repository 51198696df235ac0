//! The contract between a machine and the executor that drives it.

use crate::action::Event;
use crate::figures::MemberFigures;
use crate::request::{Full, Request};
use crate::status::Status;
use crate::{Action, Buf, Instant, MemberId};

/// A state machine. All of it happens inside these calls, one after the other: a machine has no
/// thread and no clock, and says what it wants done as actions.
///
/// The executor calls `poll` until it is empty before it waits for anything: when it has just made
/// the machine, and after every `handle` and, where there is one, `submit`; several of these may
/// come first, and what they bring shares what is to be done. Empty means that there is nothing to
/// do until the next `handle` or `submit`, and no earlier than that: the executor has carried out
/// or begun all it was told, and only an answer, a command, a request or the deadline changes
/// anything. The deadline is asked for again after each time `poll` got empty.
///
/// `now` is the clock of the executor, which does not run backwards.
pub trait Machine {
    /// Takes an answer, a command or the passing of the deadline in. Every action that names an
    /// `IoId` is answered once, in any order, maybe before the next `poll`; only one that was
    /// abandoned may stay without an answer.
    fn handle(&mut self, now: Instant, event: Event);

    /// The next thing to do, if there is one. Carried out or begun in this order.
    fn poll(&mut self) -> Option<Action>;

    /// Returns when to call `handle(Tick)` at the latest. Earlier is allowed and does no harm.
    fn deadline(&self) -> Option<Instant>;

    /// Nothing is in flight: no request, no I/O, no computation, no metadata update due. Memory may
    /// be held all the same: [`each_unused`](Self::each_unused) tells of the rest.
    fn idle(&self) -> bool;

    /// Names each part of its memory that has no holder, at a moment at which the machine is
    /// [idle](Self::idle): the executor may fill it with zeroes. A part that is not named keeps
    /// its content. The parts do not overlap.
    fn each_unused(&self, _found: &mut dyn FnMut(Buf)) {}

    /// Checks the machine's invariants, when `poll` has got empty. Tests and the simulator call
    /// this.
    ///
    /// # Errors
    /// The first broken invariant, for people.
    fn invariants(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A machine that serves block requests.
pub trait BlockMachine: Machine {
    /// Takes a request in. The machine answers with one `Action::Complete`; until then the buffer
    /// is the machine's.
    ///
    /// # Errors
    /// [`Full`]: try again after the next completion. The request was not taken.
    fn submit(&mut self, now: Instant, request: Request) -> Result<(), Full>;

    /// Tells whether another write is on its way to the executor, of which a part has come. A
    /// machine may wait a little for data that it can write together with it. Call this before
    /// `poll`: once no such write is expected any more, `poll` has more to do.
    fn expect_writes(&mut self, _more: bool) {}

    /// A copy of the state, for people.
    fn status(&self) -> Status;

    /// Returns the figures of members, of those that the machine counts: its executor counts the
    /// I/O on devices itself.
    fn figures(&self) -> Vec<MemberFigures> {
        Vec::new()
    }

    /// Size of the array.
    fn array_sectors(&self) -> u64;

    /// Requests must be multiples of this.
    fn block_bytes(&self) -> u32;

    /// Refuses writes.
    fn read_only(&self) -> bool;

    /// An id under which a device may be added.
    fn free_member(&self) -> Option<MemberId>;

    /// The same in this array within.
    fn free_member_within(&self, _array: MemberId) -> Option<MemberId> {
        None
    }
}

/// A machine, as an executor has it that drives both kinds.
pub enum AnyMachine {
    /// Serves requests.
    Block(Box<dyn BlockMachine + Send>),
    /// Serves none: what it does comes from elsewhere.
    Plain(Box<dyn Machine + Send>),
}

impl AnyMachine {
    /// Returns it as a machine that serves requests, if it does.
    pub fn block(&mut self) -> Option<&mut (dyn BlockMachine + Send)> {
        match self {
            Self::Block(machine) => Some(machine.as_mut()),
            Self::Plain(_) => None,
        }
    }

    fn plain(&self) -> &(dyn Machine + Send) {
        match self {
            Self::Block(machine) => machine.as_ref(),
            Self::Plain(machine) => machine.as_ref(),
        }
    }

    fn plain_mut(&mut self) -> &mut (dyn Machine + Send) {
        match self {
            Self::Block(machine) => machine.as_mut(),
            Self::Plain(machine) => machine.as_mut(),
        }
    }
}

impl Machine for AnyMachine {
    fn handle(&mut self, now: Instant, event: Event) {
        self.plain_mut().handle(now, event);
    }

    fn poll(&mut self) -> Option<Action> {
        self.plain_mut().poll()
    }

    fn deadline(&self) -> Option<Instant> {
        self.plain().deadline()
    }

    fn idle(&self) -> bool {
        self.plain().idle()
    }

    fn each_unused(&self, found: &mut dyn FnMut(Buf)) {
        self.plain().each_unused(found);
    }

    fn invariants(&self) -> Result<(), String> {
        self.plain().invariants()
    }
}
