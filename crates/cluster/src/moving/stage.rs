//! The move itself, step by step, [`Move`].
//!
//! ```text
//!     ┌── both are read-only ──► Still
//! Starting ── both arrays are granted ──► Marking ──► Closed ─┬► Draining ► Copying ► Flushing
//!     └── data move already ──► Confirming ─────────────▲     │                          │
//!                                                       └─────┼───────── Telling ◄───────┘
//!                                                             ├► Turning ──► Closed
//!                     Over ◄── Leaving ◄── Emptying ◄── Ending ◄── nothing is left
//! ```

use std::collections::VecDeque;
use std::ops::Range;

use braid_array::action::CommandId;
use braid_array::array::Scratch;
use braid_array::events::{ArrayEvent, SyncAction, SyncEnd};
use braid_array::format::MoveNote;
use braid_array::outline::Outline;
use braid_array::status::SyncStatus;
use braid_array::{BlockMachine, Buf, Instant, Op, Refusal, RequestError, SECTOR_BYTES};

use super::Side;
use super::arrays::Arrays;
use super::pace::{MovePace, MoveSize};
use super::pieces::{Pieces, SLOTS};
use super::split::{PartEnd, Split};
use crate::failover::ArrayGrant;

/// A move that does not go on, and a note that was not taken, are tried again after so long.
const RETRY_MS: u64 = 1000;

/// The step that a move has come to. Ranges are windows, in array sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The arrays are taken over. No request is taken.
    Starting,
    /// All members are told anew what the newest superblock of their array says of the move: the
    /// last client may have told that one alone. No request is taken.
    Confirming(Side),
    /// The old array is told that its data move.
    Marking,
    /// No window is open.
    Closed,
    /// Writes there wait for the end of the window; those before them are being answered.
    Draining(Range<u64>),
    /// The content is copied.
    Copying(Range<u64>),
    /// The copied content is made durable.
    Flushing(Range<u64>),
    /// The new array is told that the front is behind it.
    Telling(Range<u64>),
    /// The new array is told that all goes back.
    Turning,
    /// The array that has everything is told that nothing moves any more.
    Ending,
    /// Requests that the other one has are being answered.
    Emptying,
    /// The other one is stopped.
    Leaving,
    /// This one is left.
    Over(Side),
    /// Nothing moves: both arrays are only read.
    Still,
    /// The arrays could not be taken over, or do not belong together.
    Refused,
}

/// A note that superblocks are to have.
#[derive(Clone, Copy, Debug)]
struct Noting {
    side: Side,
    note: MoveNote,
    /// The time to ask again, where it was refused.
    again: Option<Instant>,
}

/// A thing that a move wants done.
#[derive(Debug)]
pub(super) enum MoveOrder {
    /// The superblocks of an array are to say this; [`Move::noted`] takes the answer.
    Tell(Side, MoveNote),
    /// An array is stopped; [`Move::left`] follows.
    Stop(Side),
    /// A piece is read or written; [`Move::moved_on`] takes the answer.
    Piece {
        side: Side,
        slot: usize,
        op: Op,
        sector: u64,
        buf: Buf,
    },
    /// What was written to an array is flushed; [`Move::moved_on`] takes the answer.
    Flush(Side),
    /// Writes that wait for the end of the window go on.
    Release,
    Notify(ArrayEvent),
    Reply(CommandId, Result<(), Refusal>),
}

/// What a move looks at when it takes a step.
pub(super) struct MoveFacts<'a> {
    pub(super) now: Instant,
    pub(super) arrays: &'a Arrays,
    pub(super) split: &'a Split,
    /// The arrays are being stopped: no window is opened.
    pub(super) is_stopping: bool,
}

/// The front of a move, its window, and the memory for pieces. It leaves what is to be done as
/// [`MoveOrder`]s.
#[derive(Debug)]
pub(super) struct Move {
    step: Step,
    /// Array sectors before this one are in the new array.
    front: u64,
    /// Data go back to the old array.
    back: bool,
    size: MoveSize,
    pieces: Pieces,
    /// By slot, whether a piece is being read.
    reading: [bool; SLOTS as usize],
    noting: Option<Noting>,
    pace: MovePace,
    /// The reason why the last window was given up, and the sector from which on it stands there.
    why: Option<(RequestError, u64)>,
    turn: Option<CommandId>,
    orders: VecDeque<MoveOrder>,
}

impl Move {
    pub(super) fn new(scratch: Scratch) -> Self {
        Self {
            step: Step::Starting,
            front: 0,
            back: false,
            size: MoveSize::default(),
            pieces: Pieces::new(scratch),
            reading: [false; SLOTS as usize],
            noting: None,
            pace: MovePace::new(),
            why: None,
            turn: None,
            orders: VecDeque::new(),
        }
    }

    pub(super) const fn step(&self) -> &Step {
        &self.step
    }

    /// Array sectors before this one are in the new array.
    pub(super) const fn front(&self) -> u64 {
        self.front
    }

    /// The memory for pieces, at a moment at which nothing is copied.
    pub(super) const fn memory(&self) -> Buf {
        self.pieces.memory()
    }

    pub(super) const fn pace(&mut self) -> &mut MovePace {
        &mut self.pace
    }

    /// Measures the speed anew, as limits have changed.
    pub(super) const fn restart_speed(&mut self, now: Instant) {
        self.pace.restart(now, self.front);
    }

    /// Returns the next thing to be done.
    pub(super) fn next_order(&mut self) -> Option<MoveOrder> {
        self.orders.pop_front()
    }

    /// The arrays that have data.
    pub(super) const fn sides(&self) -> &'static [Side] {
        match self.step {
            Step::Over(Side::Old) => &[Side::Old],
            Step::Over(Side::New) => &[Side::New],
            Step::Emptying | Step::Leaving if self.back => &[Side::Old],
            Step::Emptying | Step::Leaving => &[Side::New],
            _ => &Side::BOTH,
        }
    }

    /// The window that is open.
    pub(super) const fn window(&self) -> Option<&Range<u64>> {
        match &self.step {
            Step::Draining(window)
            | Step::Copying(window)
            | Step::Flushing(window)
            | Step::Telling(window) => Some(window),
            _ => None,
        }
    }

    /// Returns whether nothing is under way that has to end before the arrays are stopped.
    pub(super) const fn may_stop(&self) -> bool {
        let ends = matches!(self.step, Step::Ending | Step::Emptying | Step::Leaving);
        let busy = ends || matches!(self.step, Step::Turning);
        !busy && self.window().is_none()
    }

    /// The time at which something is due.
    pub(super) fn deadline(&self, is_stopping: bool) -> Option<Instant> {
        let next = self.step == Step::Closed && !self.pace.is_held() && !is_stopping;
        let next = next.then_some(self.pace.not_before());
        let again = self.noting.and_then(|noting| noting.again);
        next.into_iter().chain(again).min()
    }

    /// Returns how far it is, and why it stands still.
    pub(super) fn status(&self, now: Instant) -> (SyncStatus, Option<String>) {
        let sync = self.pace.status(now, self.front, self.back, self.size.total);
        let why = |(why, sector): (RequestError, u64)| {
            format!("what is to be moved from byte {} on: {why}", sector * SECTOR_BYTES)
        };
        (sync, self.why.map(why))
    }

    pub(super) fn invariants(&self) -> Result<(), String> {
        let Some(window) = self.window() else { return Ok(()) };
        let at_front = if self.back { window.end } else { window.start } == self.front;
        if !at_front || window.is_empty() || window.end > self.size.total {
            return Err(format!("the window {window:?} is not at the front {}", self.front));
        }
        Ok(())
    }
}

/// Steps.
impl Move {
    /// Takes the next step that is due; returns whether there was one.
    pub(super) fn drive(&mut self, facts: &MoveFacts<'_>) -> bool {
        match self.step.clone() {
            Step::Starting => self.start(facts),
            Step::Closed => self.open(facts),
            Step::Draining(window) if !facts.split.is_changed(&window) => {
                self.pieces.begin(window.clone());
                self.step = Step::Copying(window);
                true
            }
            Step::Copying(window) => self.copy(facts.now, window),
            // It would fail them if its nodes were lost once it is told to stop.
            Step::Emptying
                if facts.is_stopping
                    || !facts.split.has_parts(self.leaves())
                    || braid_array::broken("move-emptying") =>
            {
                self.step = Step::Leaving;
                self.order(MoveOrder::Stop(self.leaves()));
                true
            }
            _ => false,
        }
    }

    /// Begins, once both arrays are granted: what they say then counts.
    fn start(&mut self, facts: &MoveFacts<'_>) -> bool {
        let granted = Side::BOTH.map(|side| facts.arrays.get(side).granted());
        if granted.contains(&ArrayGrant::NotYet) {
            return false;
        }
        if granted.contains(&ArrayGrant::Never) || facts.is_stopping {
            self.step = Step::Refused;
            return true;
        }
        let [old, new] = Side::BOTH.map(|side| facts.arrays.get(side));
        let old_status = old.status();
        let notes = [&old_status, &new.status()].map(|status| MoveNote::of(&status.superblock));
        let total = old.array_sectors();
        self.size = MoveSize { total, member_sectors: old_status.used_member_sectors };
        let fits = new.array_sectors() >= total;
        self.restart_speed(facts.now);
        if old.read_only() || new.read_only() {
            self.stand_still(notes, fits);
            return true;
        }
        match notes {
            [MoveNote::Source, MoveNote::Apart] => self.leave(Side::New),
            [MoveNote::Apart, MoveNote::Target { front: 0, back: true }] => self.leave(Side::Old),
            [MoveNote::Apart, MoveNote::Target { front: 0, back: false }] if fits => {
                self.step = Step::Marking;
                self.tell(Side::Old, MoveNote::Source);
            }
            // The old one got another size after the new one was made.
            [MoveNote::Apart, MoveNote::Target { front: 0, back: false }] => self.leave(Side::Old),
            [MoveNote::Source, MoveNote::Target { front, back }] if fits && front <= total => {
                (self.front, self.back) = (front, back);
                self.step = Step::Confirming(Side::Old);
                self.tell(Side::Old, MoveNote::Source);
            }
            _ => self.step = Step::Refused,
        }
        true
    }

    /// Has both arrays read as they are.
    fn stand_still(&mut self, notes: [MoveNote; 2], fits: bool) {
        self.step = Step::Still;
        match notes {
            [MoveNote::Source, MoveNote::Target { front, .. }]
                if fits && front <= self.size.total =>
            {
                self.front = front;
            }
            [MoveNote::Apart, MoveNote::Target { front: 0, .. }] => {}
            _ => self.step = Step::Refused,
        }
    }

    /// Opens the next window, turns round, or ends.
    fn open(&mut self, facts: &MoveFacts<'_>) -> bool {
        if facts.is_stopping {
            return false;
        }
        let left = if self.back { 0..self.front } else { self.front..self.size.total };
        if left.is_empty() {
            if let Some(id) = self.turn.take() {
                let next = "the array is as it was told to be";
                self.reply(id, Err(Refusal::new("all data have moved", next)));
            }
            let (_, to) = self.source_and_target();
            self.step = Step::Ending;
            self.tell(to, MoveNote::Apart);
            return true;
        }
        if self.turn.is_some() {
            self.step = Step::Turning;
            self.tell(Side::New, MoveNote::Target { front: self.front, back: true });
            return true;
        }
        if self.pace.is_held() || facts.now < self.pace.not_before() {
            return false;
        }
        let piece = self.pieces.piece_sectors();
        let most = self.pace.window_pieces(piece, self.size) * piece;
        // Pieces are whole but for the last.
        let window = if self.back {
            left.end.saturating_sub(most).next_multiple_of(piece)..left.end
        } else {
            left.start..((left.start + most) / piece * piece).min(left.end)
        };
        self.pace.open(facts.now);
        self.step = Step::Draining(window);
        true
    }

    /// Reads and writes pieces.
    fn copy(&mut self, now: Instant, window: Range<u64>) -> bool {
        let (from, to) = self.source_and_target();
        let mut any = false;
        while let Some((slot, sector, buf)) = self.pieces.next() {
            self.order(MoveOrder::Piece { side: from, slot, op: Op::Read, sector, buf });
            self.reading[slot] = true;
            any = true;
        }
        match self.pieces.result() {
            None => any,
            Some(Ok(())) => {
                if !braid_array::broken("move-flush") {
                    self.order(MoveOrder::Flush(to));
                    self.step = Step::Flushing(window);
                } else {
                    self.tell_front(now, window);
                }
                true
            }
            Some(Err((error, sector))) => {
                self.give_window_up(now, error, sector);
                true
            }
        }
    }

    /// Takes the answer to a part of the copy.
    pub(super) fn moved_on(&mut self, now: Instant, answered: PartEnd) {
        match answered {
            PartEnd::Piece(slot, Ok(())) if self.reading[slot] => {
                self.reading[slot] = false;
                let (_, side) = self.source_and_target();
                if let Some((sector, buf)) = self.pieces.piece(slot) {
                    let op = Op::Write { fua: false };
                    self.order(MoveOrder::Piece { side, slot, op, sector, buf });
                }
            }
            PartEnd::Piece(slot, result) => {
                self.reading[slot] = false;
                self.pieces.done(slot, result);
            }
            PartEnd::Flush(result) => {
                let Step::Flushing(window) = self.step.clone() else { return };
                match result {
                    Ok(()) => self.tell_front(now, window),
                    Err(error) => self.give_window_up(now, error, window.start),
                }
            }
            PartEnd::Request(..) => {}
        }
    }

    fn tell_front(&mut self, now: Instant, window: Range<u64>) {
        let front = if self.back { window.start } else { window.end };
        self.step = Step::Telling(window);
        self.tell(Side::New, MoveNote::Target { front, back: self.back });
        if braid_array::broken("move-position") {
            self.noting = None;
            self.told(now);
        }
    }

    /// Closes the window: nothing has moved. It is tried again later.
    fn give_window_up(&mut self, now: Instant, error: RequestError, sector: u64) {
        self.why = Some((error, sector));
        self.pace.wait(now, RETRY_MS);
        self.step = Step::Closed;
        self.order(MoveOrder::Release);
    }

    /// Turns round as soon as no window is open.
    pub(super) fn turn(&mut self, id: CommandId) {
        let why = match self.step {
            _ if self.back || self.turn.is_some() => {
                Refusal::new("its data go back already", "wait for the end")
            }
            Step::Starting | Step::Refused | Step::Confirming(_) | Step::Marking => {
                Refusal::new("its nodes are not connected yet", "try again when they are")
            }
            Step::Still => Refusal::new("it is read-only", "assemble it without --readonly"),
            Step::Ending | Step::Emptying | Step::Leaving | Step::Over(_) => {
                Refusal::new("all data have moved", "it is too late to go back")
            }
            _ => {
                self.turn = Some(id);
                return;
            }
        };
        self.reply(id, Err(why));
    }

    /// Answers whoever has asked for a turn that does not come: the arrays are stopped before.
    pub(super) fn refuse_turn(&mut self) {
        if self.step != Step::Turning
            && let Some(id) = self.turn.take()
        {
            let next = "assemble it again, and type it then";
            self.reply(id, Err(Refusal::new("it is being stopped", next)));
        }
    }
}

/// Notes in superblocks, and the end.
impl Move {
    /// Has the superblocks of an array say this.
    fn tell(&mut self, side: Side, note: MoveNote) {
        self.noting = Some(Noting { side, note, again: None });
        self.order(MoveOrder::Tell(side, note));
    }

    /// Asks again for what was refused, when it is time.
    pub(super) fn tell_again(&mut self, now: Instant) {
        if let Some(Noting { side, note, again: Some(at) }) = self.noting
            && at <= now
        {
            self.tell(side, note);
        }
    }

    /// Takes the answer to a note. One that was refused may stand on some members: it is asked for
    /// until it stands on all.
    pub(super) fn noted(&mut self, now: Instant, result: Result<(), Refusal>) {
        let Some(noting) = &mut self.noting else { return };
        if result.is_err() {
            noting.again = Some(now.plus_millis(RETRY_MS));
            return;
        }
        self.noting = None;
        self.told(now);
    }

    fn told(&mut self, now: Instant) {
        match self.step.clone() {
            Step::Confirming(Side::Old) => {
                self.step = Step::Confirming(Side::New);
                self.tell(Side::New, MoveNote::Target { front: self.front, back: self.back });
            }
            Step::Marking | Step::Confirming(Side::New) => {
                self.step = Step::Closed;
                self.order(MoveOrder::Notify(ArrayEvent::SyncStarted(SyncAction::Reshape)));
            }
            Step::Telling(window) => {
                self.front = if self.back { window.start } else { window.end };
                self.step = Step::Closed;
                self.why = None;
                self.pace.charge(now, window.end - window.start, self.size);
                self.order(MoveOrder::Release);
            }
            Step::Turning => {
                self.back = true;
                self.step = Step::Closed;
                self.restart_speed(now);
                if let Some(id) = self.turn.take() {
                    self.reply(id, Ok(()));
                }
            }
            Step::Ending => {
                let (_, to) = self.source_and_target();
                self.leave(to);
            }
            _ => {}
        }
    }

    /// Stops the array that has nothing any more.
    fn leave(&mut self, stays: Side) {
        self.front = if stays == Side::New { u64::MAX } else { 0 };
        self.back = stays == Side::Old;
        self.step = Step::Emptying;
    }

    /// The array that is left at the end.
    const fn leaves(&self) -> Side {
        if self.back { Side::New } else { Side::Old }
    }

    /// The array that has nothing is stopped. It is not needed, however it ended.
    pub(super) fn left(&mut self, arrays: &Arrays) {
        let stays = self.leaves().other();
        self.step = Step::Over(stays);
        let outline = |side| {
            let status = arrays.get(side).status();
            Outline::of(&status.superblock, status.array_sectors)
        };
        let from = outline(Side::Old);
        let to = outline(stays);
        if from != to {
            self.order(MoveOrder::Notify(ArrayEvent::ShapeChanged { from, to }));
        }
        self.order(MoveOrder::Notify(ArrayEvent::SyncFinished {
            action: SyncAction::Reshape,
            mismatch_sectors: 0,
            end: SyncEnd::Complete,
        }));
    }

    /// The array that data come from, and the one that they go to.
    const fn source_and_target(&self) -> (Side, Side) {
        if self.back { (Side::New, Side::Old) } else { (Side::Old, Side::New) }
    }

    fn reply(&mut self, id: CommandId, result: Result<(), Refusal>) {
        self.order(MoveOrder::Reply(id, result));
    }

    fn order(&mut self, order: MoveOrder) {
        self.orders.push_back(order);
    }
}
