//! All data of an array over nodes move to another array while they are served, [`MovingClient`].
//!
//! ```text
//! 0 ── new array ──► front ── old array; writes wait ──► window ── old array ──► end
//! ```
//! The other array has one more node, say. Data are copied window by window. A window is written
//! and flushed in the new array, then its superblocks say so ([`MoveNote`]), and then the front is
//! behind the window. What was moved stays in the old array until all has come, so nothing is ever
//! written over what a superblock still needs. Backwards the same happens from the front to the
//! begin, with the roles of both arrays changed.
//!
//! Before the front moves for the first time the old array's superblocks say that its data are
//! being moved, so nobody serves it alone. Whoever takes both over is granted the old one and the
//! new one before the first request: the front is what the new one says then. All members of both
//! are told that anew before it as well: the last client may have told only one, which may be away
//! the next time.

mod arrays;
mod commands;
mod orders;
mod pace;
mod pieces;
mod split;
mod stage;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::VecDeque;

use braid_array::action::{CommandId, Event};
use braid_array::array::Scratch;
use braid_array::figures::MemberFigures;
use braid_array::request::Full;
use braid_array::status::{ArrayState, Status};
use braid_array::{Action, BlockMachine, Buf, Instant, Machine, MemberId, Request};

pub use arrays::NEW_PEERS;

use crate::failover::FailoverClient;
use arrays::Arrays;
use commands::Stop;
use split::{PartEnd, Split, is_part};
use stage::{Move, MoveFacts, Step};
use waiting::HeldWrites;

/// Ids of this machine's own commands to the two clients; nobody else counts so far.
const NOTE: CommandId = CommandId(u64::MAX);
const STOP: [CommandId; 2] = [CommandId(u64::MAX - 1), CommandId(u64::MAX - 2)];
/// A command to the old array whose answer nobody waits for.
const BESIDE: CommandId = CommandId(u64::MAX - 3);

/// One of the two arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The array that data were in.
    Old,
    /// The array that they move to.
    New,
}

impl Side {
    const BOTH: [Self; 2] = [Self::Old, Self::New];

    const fn other(self) -> Self {
        match self {
            Self::Old => Self::New,
            Self::New => Self::Old,
        }
    }
}

/// Serves an array over nodes, all data of which move to another one meanwhile.
///
/// The client of each array is a [`FailoverClient`], so requests wait while nodes are away that
/// either array needs. A request is cut where the arrays meet. Writes to what is being copied wait
/// for the end of its window, some tenths of a second; reads do not. Once one array has everything
/// the other one is stopped, and the first is all that there is: its client gets requests as they
/// come.
///
/// Four machines that do not see each other are owned: the clients ([`Arrays`]), the parts that
/// requests are cut into ([`Split`]), writes that wait ([`HeldWrites`]), and the move ([`Move`]),
/// whose orders are carried out here.
///
/// Order of calls: [`scratch_bytes`](Self::scratch_bytes), [`new`](Self::new), then the calls of
/// [`Machine`] and [`BlockMachine`].
#[derive(Debug)]
pub struct MovingClient {
    arrays: Arrays,
    split: Split,
    held: HeldWrites,
    moving: Move,
    stop: Option<Stop>,
    now: Instant,
    actions: VecDeque<Action>,
}

impl MovingClient {
    /// Returns the arena bytes needed besides those of the two clients.
    #[must_use]
    pub const fn scratch_bytes() -> u64 {
        pieces::BYTES
    }

    /// Serves the two arrays. The new one's client must number its connections from [`NEW_PEERS`].
    /// Requests that wait for a window, or for the move to begin, fail once nodes were away for so
    /// long.
    #[must_use]
    pub fn new(
        old: FailoverClient,
        new: FailoverClient,
        scratch: Scratch,
        fail_timeout_ms: u64,
    ) -> Self {
        Self {
            arrays: Arrays::new(old, new),
            split: Split::default(),
            held: HeldWrites::new(fail_timeout_ms),
            moving: Move::new(scratch),
            stop: None,
            now: Instant::default(),
            actions: VecDeque::new(),
        }
    }

    /// The next action of a client that others are to carry out.
    fn poll_array(&mut self, side: Side) -> Option<Action> {
        while let Some(action) = self.arrays.poll(side) {
            match action {
                Action::Complete { id, result } if is_part(id) => {
                    match self.split.answered(id, result) {
                        Some(PartEnd::Request(id, result)) => {
                            return Some(Action::Complete { id, result });
                        }
                        Some(answered) => self.moving.moved_on(self.now, answered),
                        None => {}
                    }
                }
                Action::Reply { id: NOTE, result } => self.moving.noted(self.now, result),
                Action::Reply { id: BESIDE, .. } => {}
                Action::Reply { id, result } if STOP.contains(&id) => self.stopped(side, result),
                other => return Some(other),
            }
            self.carry_out_orders();
        }
        None
    }

    /// Takes the next step of the move; returns whether there was one.
    fn drive(&mut self) -> bool {
        let is_stopping = self.stop.is_some();
        let facts =
            MoveFacts { now: self.now, arrays: &self.arrays, split: &self.split, is_stopping };
        let any = self.moving.drive(&facts);
        self.carry_out_orders();
        any
    }

    /// Returns whether a write has to wait for the end of the window.
    fn waits(&self, request: &Request) -> bool {
        let end = request.sector.saturating_add(request.sectors);
        let touches = |window: &std::ops::Range<u64>| {
            request.sector < window.end && window.start < end && !braid_array::broken("move-window")
        };
        request.op.changes_data() && self.moving.window().is_some_and(touches)
    }

    /// Fails writes that have waited for nodes for too long.
    fn fail_late(&mut self) {
        if self.arrays.are_away() {
            for id in self.held.late(self.now) {
                self.fail(id);
            }
        }
    }
}

impl Machine for MovingClient {
    fn handle(&mut self, now: Instant, event: Event) {
        self.now = now;
        match event {
            Event::Command { id, command } => self.command(id, command),
            Event::Tick => {
                self.arrays.handle(now, Event::Tick);
                self.moving.tell_again(now);
                self.carry_out_orders();
                self.fail_late();
            }
            event => self.arrays.handle(now, event),
        }
    }

    fn poll(&mut self) -> Option<Action> {
        loop {
            if let Some(action) = self.actions.pop_front() {
                return Some(action);
            }
            let action = self.poll_array(Side::Old).or_else(|| self.poll_array(Side::New));
            if action.is_some() {
                return action;
            }
            let mut any = self.drive() | self.drive_stop();
            for side in Side::BOTH {
                any |= self.split.feed(side, self.now, &mut self.arrays);
            }
            if !any && self.actions.is_empty() {
                return None;
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let moving = self.moving.deadline(self.stop.is_some());
        let held = self.held.deadline(self.now);
        [self.arrays.deadline(), moving, held].into_iter().flatten().min()
    }

    fn idle(&self) -> bool {
        let step = self.moving.step();
        let rests = matches!(step, Step::Closed | Step::Still | Step::Over(_) | Step::Refused);
        rests
            && self.held.is_empty()
            && self.split.is_empty()
            && self.actions.is_empty()
            && self.moving.sides().iter().all(|&side| self.array(side).idle())
    }

    fn each_unused(&self, found: &mut dyn FnMut(Buf)) {
        self.arrays.each_unused(found);
        found(self.moving.memory());
    }

    fn invariants(&self) -> Result<(), String> {
        if self.moving.window().is_none() && !self.held.is_empty() {
            return Err("writes wait for a window, and none is open".to_owned());
        }
        self.moving.invariants()?;
        self.arrays.invariants()
    }
}

impl BlockMachine for MovingClient {
    fn submit(&mut self, now: Instant, request: Request) -> Result<(), Full> {
        self.now = now;
        match self.moving.step() {
            Step::Over(side) => return self.arrays.submit(*side, now, request),
            Step::Starting | Step::Confirming(_) if !self.arrays.have_waited_long() => {
                return Err(Full);
            }
            Step::Starting | Step::Confirming(_) | Step::Refused => {
                self.fail(request.id);
                return Ok(());
            }
            _ => self.moving.pace().hear_request(),
        }
        if let Err(error) = request.fits(self.array_sectors(), self.block_bytes()) {
            self.actions.push_back(Action::Complete { id: request.id, result: Err(error) });
        } else if self.waits(&request) {
            self.held.hold(now, request);
        } else {
            self.admit(&request);
        }
        Ok(())
    }

    fn expect_writes(&mut self, more: bool) {
        self.arrays.expect_writes(more);
    }

    fn status(&self) -> Status {
        let mut status = self.array(self.main()).status();
        if self.alone().is_some() {
            return status;
        }
        let other = self.array(self.main().other()).status();
        status.array_sectors = self.array_sectors();
        let had = other.superblock.raid_disks;
        status.superblock.reshape.delta_disks =
            status.superblock.raid_disks.cast_signed() - had.cast_signed();
        status.degraded = status.degraded.max(other.degraded);
        status.waiting = status.waiting.or(other.waiting);
        if other.state == ArrayState::Failed || *self.moving.step() == Step::Refused {
            status.state = ArrayState::Failed;
        }
        // What else is done in either array is shown first, as redundancy is missing until then.
        if status.sync.is_idle() {
            status.sync = other.sync;
        }
        if status.sync.is_idle() && *self.moving.step() != Step::Still {
            (status.sync, status.held_up) = self.moving.status(self.now);
        }
        status
    }

    fn figures(&self) -> Vec<MemberFigures> {
        self.array(self.main()).figures()
    }

    fn array_sectors(&self) -> u64 {
        let sectors = self.moving.sides().iter().map(|&side| self.array(side).array_sectors());
        sectors.min().unwrap_or(0)
    }

    fn block_bytes(&self) -> u32 {
        self.array(Side::New).block_bytes()
    }

    fn read_only(&self) -> bool {
        self.moving.sides().iter().any(|&side| self.array(side).read_only())
    }

    fn free_member(&self) -> Option<MemberId> {
        self.alone().and_then(|side| self.array(side).free_member())
    }
}
