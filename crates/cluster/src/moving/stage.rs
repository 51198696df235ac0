//! The steps of a move, [`Step`].
//!
//! ```text
//!     ┌── both are read-only ──► Still
//! Starting ── both arrays are granted ──► Marking ──► Closed ─┬► Draining ► Copying ► Flushing
//!     └── data move already ──► Confirming ─────────────▲     │                          │
//!                                                       └─────┼───────── Telling ◄───────┘
//!                                                             ├► Turning ──► Closed
//!                                     Over ◄── Leaving ◄── Ending ◄── nothing is left
//! ```

use std::ops::Range;

use braid_array::action::{Command, Event};
use braid_array::events::{ArrayEvent, SyncAction, SyncEnd};
use braid_array::format::MoveNote;
use braid_array::outline::Outline;
use braid_array::{BlockMachine, Instant, Machine, Op, Refusal, RequestError, SECTOR_BYTES};

use super::split::PartEnd;
use super::{MovingClient, NOTE, STOP, Side};
use crate::failover::ArrayGrant;

/// A move that does not go on, and a note that was not taken, are tried again after so long.
const RETRY_MS: u64 = 1000;
/// Windows are as long as takes some tenths of a second: writes wait for that.
const SHORT_MS: u64 = 60;
const LONG_MS: u64 = 250;
const MOST_PIECES: u64 = 32;
/// The longest pause between two windows where requests come and no maximum is set.
const LONGEST_NANOS: u64 = 5_000_000_000;
pub(super) const FIRST_PIECES: u64 = 8;

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
pub(super) struct Noting {
    side: Side,
    note: MoveNote,
    /// The time to ask again, where it was refused.
    again: Option<Instant>,
}

impl Noting {
    pub(super) const fn again(&self) -> Option<Instant> {
        self.again
    }
}

impl MovingClient {
    /// The array that data come from, and the one that they go to.
    const fn source_and_target(&self) -> (Side, Side) {
        if self.back { (Side::New, Side::Old) } else { (Side::Old, Side::New) }
    }

    /// Takes the next step that is due; returns whether there was one.
    pub(super) fn drive(&mut self) -> bool {
        match self.step.clone() {
            Step::Starting => self.start(),
            Step::Closed => self.open(),
            Step::Draining(window) if !self.split.is_changed(&window) => {
                self.pieces.begin(window.clone());
                self.step = Step::Copying(window);
                true
            }
            Step::Copying(window) => self.copy(window),
            _ => false,
        }
    }

    /// Begins, once both arrays are granted: what they say then counts.
    fn start(&mut self) -> bool {
        let granted = Side::BOTH.map(|side| self.array(side).granted());
        if granted.contains(&ArrayGrant::NotYet) {
            return false;
        }
        if granted.contains(&ArrayGrant::Never) || self.is_stopping() {
            self.step = Step::Refused;
            return true;
        }
        let notes = Side::BOTH.map(|side| MoveNote::of(&self.array(side).status().superblock));
        self.total = self.array(Side::Old).array_sectors();
        let fits = self.array(Side::New).array_sectors() >= self.total;
        self.member_sectors = self.array(Side::Old).status().used_member_sectors;
        self.restart_speed();
        if self.read_only() {
            self.step = Step::Still;
            match notes {
                [MoveNote::Source, MoveNote::Target { front, .. }]
                    if fits && front <= self.total =>
                {
                    self.front = front;
                }
                [MoveNote::Apart, MoveNote::Target { front: 0, .. }] => {}
                _ => self.step = Step::Refused,
            }
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
            [MoveNote::Source, MoveNote::Target { front, back }] if fits && front <= self.total => {
                (self.front, self.back) = (front, back);
                self.step = Step::Confirming(Side::Old);
                self.tell(Side::Old, MoveNote::Source);
            }
            _ => self.step = Step::Refused,
        }
        true
    }

    /// Opens the next window, turns round, or ends.
    fn open(&mut self) -> bool {
        if self.is_stopping() {
            return false;
        }
        let left = if self.back { 0..self.front } else { self.front..self.total };
        if left.is_empty() {
            if let Some(id) = self.turn.take() {
                self.reply(
                    id,
                    Err(Refusal::new("all data have moved", "the array is as it was told to be")),
                );
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
        if self.is_held() || self.now < self.not_before {
            return false;
        }
        let piece = self.pieces.piece_sectors();
        let most = self.window_pieces * piece;
        // Pieces are whole but for the last.
        let window = if self.back {
            left.end.saturating_sub(most).next_multiple_of(piece)..left.end
        } else {
            left.start..((left.start + most) / piece * piece).min(left.end)
        };
        (self.opened, self.busy) = (self.now, false);
        self.step = Step::Draining(window);
        true
    }

    /// Reads and writes pieces.
    fn copy(&mut self, window: Range<u64>) -> bool {
        let (from, to) = self.source_and_target();
        let mut any = false;
        while let Some((slot, sector, buf)) = self.pieces.next() {
            self.split.piece(from, slot, Op::Read, sector, buf);
            self.reading[slot] = true;
            any = true;
        }
        match self.pieces.result() {
            None => any,
            Some(Ok(())) => {
                if !braid_array::broken("move-flush") {
                    self.split.flush_moved(to);
                    self.step = Step::Flushing(window);
                } else {
                    self.tell_front(window);
                }
                true
            }
            Some(Err(error)) => {
                self.give_window_up(error);
                true
            }
        }
    }

    /// Takes the answer to a part of the copy.
    pub(super) fn moved_on(&mut self, answered: PartEnd) {
        match answered {
            PartEnd::Piece(slot, Ok(())) if self.reading[slot] => {
                self.reading[slot] = false;
                let (_, to) = self.source_and_target();
                if let Some((sector, buf)) = self.pieces.piece(slot) {
                    self.split.piece(to, slot, Op::Write { fua: false }, sector, buf);
                }
            }
            PartEnd::Piece(slot, result) => {
                self.reading[slot] = false;
                self.pieces.done(slot, result);
            }
            PartEnd::Flush(result) => {
                let Step::Flushing(window) = self.step.clone() else { return };
                match result {
                    Ok(()) => self.tell_front(window),
                    Err(error) => self.give_window_up(error),
                }
            }
            PartEnd::Request(..) => {}
        }
    }

    fn tell_front(&mut self, window: Range<u64>) {
        let front = if self.back { window.start } else { window.end };
        self.step = Step::Telling(window);
        self.tell(Side::New, MoveNote::Target { front, back: self.back });
        if braid_array::broken("move-position") {
            self.noting = None;
            self.told();
        }
    }

    /// Closes the window: nothing has moved. It is tried again later.
    fn give_window_up(&mut self, error: RequestError) {
        self.why = Some(error);
        self.not_before = self.now.plus_millis(RETRY_MS);
        self.step = Step::Closed;
        self.release();
    }

    /// Has the superblocks of an array say this.
    fn tell(&mut self, side: Side, note: MoveNote) {
        self.noting = Some(Noting { side, note, again: None });
        let command = Command::NoteMove(note);
        let now = self.now;
        self.array_mut(side).handle(now, Event::Command { id: NOTE, command });
    }

    /// Asks again for what was refused, when it is time.
    pub(super) fn tell_again(&mut self) {
        if let Some(Noting { side, note, again: Some(at) }) = self.noting
            && at <= self.now
        {
            self.tell(side, note);
        }
    }

    /// Takes the answer to a note. One that was refused may stand on some members: it is asked for
    /// until it stands on all.
    pub(super) fn noted(&mut self, result: Result<(), Refusal>) {
        let Some(noting) = &mut self.noting else { return };
        if result.is_err() {
            noting.again = Some(self.now.plus_millis(RETRY_MS));
            return;
        }
        self.noting = None;
        self.told();
    }

    fn told(&mut self) {
        match self.step.clone() {
            Step::Confirming(Side::Old) => {
                self.step = Step::Confirming(Side::New);
                self.tell(Side::New, MoveNote::Target { front: self.front, back: self.back });
            }
            Step::Marking | Step::Confirming(Side::New) => {
                self.step = Step::Closed;
                self.notify(ArrayEvent::SyncStarted(SyncAction::Reshape));
            }
            Step::Telling(window) => {
                self.front = if self.back { window.start } else { window.end };
                self.step = Step::Closed;
                self.why = None;
                self.charge(window.end - window.start);
                self.release();
            }
            Step::Turning => {
                self.back = true;
                self.step = Step::Closed;
                self.restart_speed();
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
        self.step = Step::Leaving;
        self.stop_array(stays.other());
    }

    pub(super) fn stop_array(&mut self, side: Side) {
        let now = self.now;
        let event = Event::Command { id: STOP[side as usize], command: Command::Stop };
        self.array_mut(side).handle(now, event);
    }

    /// An array has been stopped.
    pub(super) fn stopped(&mut self, result: Result<(), Refusal>) {
        if self.step == Step::Leaving {
            // It is not needed, however it ended.
            let stays = if self.back { Side::Old } else { Side::New };
            self.step = Step::Over(stays);
            let outline = |side| {
                let status = self.array(side).status();
                Outline::of(&status.superblock, status.array_sectors)
            };
            let from = outline(Side::Old);
            let to = outline(stays);
            if from != to {
                self.notify(ArrayEvent::ShapeChanged { from, to });
            }
            self.notify(ArrayEvent::SyncFinished {
                action: SyncAction::Reshape,
                mismatch_sectors: 0,
                end: SyncEnd::Complete,
            });
            return;
        }
        if let Some(stop) = &mut self.stop {
            stop.left = stop.left.saturating_sub(1);
            if let Err(why) = result {
                stop.result = Err(why);
            }
            if stop.left == 0 {
                let id = stop.id;
                let result = stop.result.clone();
                self.reply(id, result);
            }
        }
    }

    /// Holds the next window back as the limits ask, and makes it as long as suits.
    fn charge(&mut self, sectors: u64) {
        let took_ms = (self.now.0 - self.opened.0) / 1_000_000;
        if took_ms < SHORT_MS {
            self.window_pieces = (self.window_pieces * 2).min(MOST_PIECES);
        } else if took_ms > LONG_MS {
            self.window_pieces = (self.window_pieces / 2).max(1);
        }
        let bytes = u128::from(sectors * SECTOR_BYTES);
        let of_member = bytes * u128::from(self.member_sectors) / u128::from(self.total.max(1));
        let takes = |bytes_per_s: u64| {
            let nanos = of_member * 1_000_000_000 / u128::from(bytes_per_s.max(1));
            u64::try_from(nanos).unwrap_or(u64::MAX)
        };
        let max = self.limits.max_bytes_per_s.map_or(0, takes);
        let min = if self.busy { takes(self.limits.min_bytes_per_s).min(LONGEST_NANOS) } else { 0 };
        self.not_before = Instant(self.opened.0.saturating_add(max.max(min)));
    }
}
