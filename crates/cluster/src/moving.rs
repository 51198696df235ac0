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

mod commands;
mod parts;
mod pieces;
mod split;
mod stage;

use std::collections::VecDeque;

use braid_array::action::{CommandId, Event};
use braid_array::array::Scratch;
use braid_array::fabric::{FabricEvent, FabricOp, PeerId};
use braid_array::figures::MemberFigures;
use braid_array::request::Full;
use braid_array::status::{Status, SyncStatus};
use braid_array::{
    Action, BlockMachine, Buf, Instant, IoId, Machine, MemberId, Refusal, Request, RequestError,
};

use crate::failover::FailoverClient;
use pieces::Pieces;
use split::{PartEnd, Split};
use stage::{Noting, Step};

/// Connections of the new array's client are numbered from here.
pub const NEW_PEERS: u32 = PeerId::FIRST_ACCEPTED / 2;
/// I/O of the old array's client has this in its id.
const OLD_IO: u64 = 1 << 56;
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

/// A stop that was asked for.
#[derive(Debug)]
struct Stop {
    id: CommandId,
    /// The arrays that have not stopped yet, once they were told to.
    left: u32,
    told: bool,
    result: Result<(), Refusal>,
}

/// Serves an array over nodes, all data of which move to another one meanwhile.
///
/// The client of each array is a [`FailoverClient`], so requests wait while nodes are away that
/// either array needs. A request is cut where the arrays meet. Writes to what is being copied wait
/// for the end of its window, some tenths of a second; reads do not. Once one array has everything
/// the other one is stopped, and the first is all that there is.
///
/// Order of calls: [`scratch_bytes`](Self::scratch_bytes), [`new`](Self::new), then the calls of
/// [`Machine`] and [`BlockMachine`].
#[derive(Debug)]
pub struct MovingClient {
    /// The old and the new one.
    arrays: [FailoverClient; 2],
    now: Instant,
    step: Step,
    /// Array sectors before this one are in the new array.
    front: u64,
    /// Data go back to the old array.
    back: bool,
    /// Sectors that there are to be moved.
    total: u64,
    /// Sectors that the old array uses of each member.
    member_sectors: u64,
    split: Split,
    pieces: Pieces,
    /// By slot, whether a piece is being read.
    reading: [bool; pieces::SLOTS as usize],
    noting: Option<Noting>,
    /// Writes that wait for the end of the window, and since when.
    held: VecDeque<(Request, Instant)>,
    fail_timeout_ms: u64,
    limits: SyncStatus,
    window_pieces: u64,
    /// The time at which the window was opened.
    opened: Instant,
    /// Requests came since.
    busy: bool,
    not_before: Instant,
    /// The reason why the last window was given up.
    why: Option<RequestError>,
    /// The speed is measured since then, from that front.
    since: (Instant, u64),
    turn: Option<CommandId>,
    stop: Option<Stop>,
    actions: VecDeque<Action>,
}

impl MovingClient {
    /// Returns the arena bytes needed besides those of the two clients.
    #[must_use]
    pub const fn scratch_bytes() -> u64 {
        pieces::BYTES
    }

    /// Serves the two arrays. The new one's client must number its connections from [`NEW_PEERS`].
    /// Writes that wait for a window fail after this long, where nodes are away.
    #[must_use]
    pub fn new(
        old: FailoverClient,
        new: FailoverClient,
        scratch: Scratch,
        fail_timeout_ms: u64,
    ) -> Self {
        Self {
            arrays: [old, new],
            now: Instant::default(),
            step: Step::Starting,
            front: 0,
            back: false,
            total: 0,
            member_sectors: 0,
            split: Split::default(),
            pieces: Pieces::new(scratch),
            reading: [false; pieces::SLOTS as usize],
            noting: None,
            held: VecDeque::new(),
            fail_timeout_ms,
            limits: SyncStatus {
                min_bytes_per_s: SyncStatus::DEFAULT_MIN_BYTES_PER_S,
                ..SyncStatus::default()
            },
            window_pieces: stage::FIRST_PIECES,
            opened: Instant::default(),
            busy: false,
            not_before: Instant::default(),
            why: None,
            since: (Instant::default(), 0),
            turn: None,
            stop: None,
            actions: VecDeque::new(),
        }
    }

    /// The next action of a client that others are to carry out.
    fn poll_array(&mut self, side: Side) -> Option<Action> {
        let tag = if side == Side::Old { OLD_IO } else { 0 };
        let tagged = |io: IoId| IoId(io.0 | tag);
        while let Some(action) = self.array_mut(side).poll() {
            return Some(match action {
                Action::Complete { id, result } => {
                    match self.split.answered(id, result) {
                        Some(PartEnd::Request(id, result)) => {
                            return Some(Action::Complete { id, result });
                        }
                        Some(answered) => self.moved_on(answered),
                        None => {}
                    }
                    continue;
                }
                Action::Reply { id: NOTE, result } => {
                    self.noted(result);
                    continue;
                }
                Action::Reply { id: BESIDE, .. } => continue,
                Action::Reply { id, result } if STOP.contains(&id) => {
                    self.stopped(result);
                    continue;
                }
                Action::Io { io, member, op } => Action::Io { io: tagged(io), member, op },
                Action::Compute { io, compute } => Action::Compute { io: tagged(io), compute },
                Action::Load { io, buf } => Action::Load { io: tagged(io), buf },
                Action::Abandon { io, buf } => Action::Abandon { io: tagged(io), buf },
                Action::Fabric(FabricOp::Put { io, peer, from, to, imm }) => {
                    Action::Fabric(FabricOp::Put { io: tagged(io), peer, from, to, imm })
                }
                other => other,
            });
        }
        None
    }

    /// The array whose client has asked for this I/O.
    const fn asked(io: IoId) -> (Side, IoId) {
        if io.0 & OLD_IO == 0 { (Side::New, io) } else { (Side::Old, IoId(io.0 & !OLD_IO)) }
    }
}

/// The connection that the fabric tells of.
const fn peer_of(event: &FabricEvent) -> PeerId {
    match event {
        FabricEvent::Accepted { peer, .. }
        | FabricEvent::Connected { peer }
        | FabricEvent::Lost { peer, .. }
        | FabricEvent::Placed { peer, .. }
        | FabricEvent::Message { peer, .. } => *peer,
    }
}

impl Machine for MovingClient {
    fn handle(&mut self, now: Instant, event: Event) {
        self.now = now;
        match event {
            Event::Done { io, result } => {
                let (side, io) = Self::asked(io);
                self.array_mut(side).handle(now, Event::Done { io, result });
            }
            Event::Fabric(event) => {
                let new = peer_of(&event).0 >= NEW_PEERS;
                let side = if new { Side::New } else { Side::Old };
                self.array_mut(side).handle(now, Event::Fabric(event));
            }
            Event::Tick => {
                for array in &mut self.arrays {
                    array.handle(now, Event::Tick);
                }
                self.tell_again();
                self.fail_held(false);
            }
            Event::Command { id, command } => self.command(id, command),
            // Clients load nothing and have no volumes.
            Event::Loaded { .. } | Event::Survey { .. } | Event::Volume { .. } => {}
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
            let any = self.drive() | self.drive_stop() | self.feed();
            if !any && self.actions.is_empty() {
                return None;
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let next = self.step == Step::Closed && !self.is_held() && !self.is_stopping();
        let held = self.held.front().map(|(_, since)| since.plus_millis(self.fail_timeout_ms));
        let own = [
            next.then_some(self.not_before),
            self.noting.as_ref().and_then(Noting::again),
            held.filter(|at| *at > self.now),
        ];
        let arrays = self.arrays.iter().map(Machine::deadline);
        arrays.chain(own).flatten().min()
    }

    fn idle(&self) -> bool {
        let rests = matches!(self.step, Step::Closed | Step::Still | Step::Over(_) | Step::Refused);
        rests
            && self.held.is_empty()
            && self.split.is_empty()
            && self.actions.is_empty()
            && self.sides().iter().all(|&side| self.array(side).idle())
    }

    fn each_unused(&self, found: &mut dyn FnMut(Buf)) {
        self.arrays.iter().for_each(|array| array.each_unused(found));
        found(self.pieces.memory());
    }

    fn invariants(&self) -> Result<(), String> {
        if let Some(window) = self.window() {
            let at_front = if self.back { window.end } else { window.start } == self.front;
            if !at_front || window.is_empty() || window.end > self.total {
                return Err(format!("the window {window:?} is not at the front {}", self.front));
            }
        } else if !self.held.is_empty() {
            return Err("writes wait for a window, and none is open".to_owned());
        }
        self.arrays.iter().try_for_each(Machine::invariants)
    }
}

impl BlockMachine for MovingClient {
    fn submit(&mut self, now: Instant, request: Request) -> Result<(), Full> {
        self.now = now;
        match self.step {
            Step::Starting | Step::Confirming(_) => return Err(Full),
            Step::Refused => {
                let result = Err(RequestError::Failed);
                self.actions.push_back(Action::Complete { id: request.id, result });
                return Ok(());
            }
            _ => self.busy = true,
        }
        if let Err(error) = request.fits(self.array_sectors(), self.block_bytes()) {
            self.actions.push_back(Action::Complete { id: request.id, result: Err(error) });
        } else if self.waits(&request) {
            self.held.push_back((request, now));
        } else {
            self.admit(&request);
        }
        Ok(())
    }

    fn expect_writes(&mut self, more: bool) {
        self.arrays.iter_mut().for_each(|array| array.expect_writes(more));
    }

    fn status(&self) -> Status {
        let mut status = self.array(self.main()).status();
        if self.is_over() {
            return status;
        }
        let other = self.array(self.main().other()).status();
        status.array_sectors = self.array_sectors();
        let had = other.superblock.raid_disks;
        status.superblock.reshape.delta_disks =
            status.superblock.raid_disks.cast_signed() - had.cast_signed();
        status.degraded = status.degraded.max(other.degraded);
        status.waiting = status.waiting.or(other.waiting);
        if other.state == braid_array::status::ArrayState::Failed || self.step == Step::Refused {
            status.state = braid_array::status::ArrayState::Failed;
        }
        // What else is done in either array is shown first, as redundancy is missing until then.
        if status.sync.is_idle() {
            status.sync = other.sync;
        }
        if status.sync.is_idle() && self.step != Step::Still {
            status.sync = self.sync_status();
            status.held_up = self.why.map(|why| format!("what is to be moved: {why}"));
        }
        status
    }

    fn figures(&self) -> Vec<MemberFigures> {
        self.array(self.main()).figures()
    }

    fn array_sectors(&self) -> u64 {
        let sectors = self.sides().iter().map(|&side| self.array(side).array_sectors());
        sectors.min().unwrap_or(0)
    }

    fn block_bytes(&self) -> u32 {
        self.array(Side::New).block_bytes()
    }

    fn read_only(&self) -> bool {
        self.sides().iter().any(|&side| self.array(side).read_only())
    }

    fn free_member(&self) -> Option<MemberId> {
        if self.is_over() { self.array(self.main()).free_member() } else { None }
    }
}
