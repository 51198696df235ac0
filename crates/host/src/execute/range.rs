//! Ranges to be zeroed or discarded, step by step.

use std::sync::Arc;

use braid_array::{Instant, IoError, IoId, MemberId, Outcome};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::changed::errno_of;
use super::transfer::{Next, Transfer};
use super::{Executor, IoAnswer, looked_into};
use crate::driver::{Driver, Op};
use crate::lock::LockedFile;
use crate::member::Overlay;
use crate::token::Token;
use braid_array::figures::OperationKind;

/// A range to be zeroed or discarded.
#[derive(Debug)]
pub(super) struct RangeOp {
    pub(super) io: IoId,
    member: MemberId,
    pub(super) file: Arc<LockedFile>,
    begun: Instant,
    /// Bytes on the device: start, next, end.
    start: u64,
    next: u64,
    end: u64,
    /// Durable at the end; `then_sync`: by a flush also after writes.
    pub(super) fua: bool,
    pub(super) then_sync: bool,
    step: RangeStep,
    /// The piece of zeroes being written.
    piece: Transfer,
    /// The machine waits for it no longer.
    pub(super) abandoned: bool,
    /// Sectors of the overlay, if the range is changed there and not on the member.
    pub(super) zeroed: Option<Zeroed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeStep {
    Discard,
    Punch,
    Zero,
    /// Write zeroes from the arena, piece by piece.
    Write,
    Sync,
}

/// Action that follows a step of a range.
enum After {
    Step(RangeStep),
    /// The same step again, after so much time.
    Later {
        millis: u64,
    },
    End(Result<Outcome, IoError>),
}

/// Sectors of an overlay that are to read as zeroes.
#[derive(Debug)]
pub(super) struct Zeroed {
    pub(super) overlay: Arc<Overlay>,
    pub(super) sector: u64,
    pub(super) sectors: u64,
    /// The map that says so is stored, and to be flushed.
    pub(super) is_stored: bool,
}

impl Zeroed {
    /// Returns the file and the offset of a byte of the range.
    fn place(&self, within: u64) -> (Arc<LockedFile>, u64) {
        let (file, offset) = self.overlay.place(self.sector);
        (file, offset + within)
    }

    fn note(&self) {
        self.overlay.note_written(self.sector, self.sectors);
    }

    /// Stores the map once the zeroes are durable. Returns whether a flush of the map is due.
    fn store(&mut self) -> Result<bool, IoError> {
        if std::mem::replace(&mut self.is_stored, true) {
            return Ok(false);
        }
        let stored = self.overlay.store(&self.overlay.dirty());
        stored.map(|()| true).map_err(|error| super::error_of(errno_of(&error)))
    }
}

impl RangeOp {
    pub(super) const fn new(
        io: IoId,
        member: MemberId,
        file: Arc<LockedFile>,
        (start, len): (u64, u64),
        step: RangeStep,
        begun: Instant,
    ) -> Self {
        let next = start;
        let end = start + len;
        let piece = Transfer::new(start, 0, false);
        Self {
            io,
            member,
            file,
            begun,
            start,
            next,
            end,
            fua: false,
            then_sync: false,
            step,
            piece,
            abandoned: false,
            zeroed: None,
        }
    }

    /// A step has ended, maybe one in an overlay.
    fn after(&mut self, result: Result<u32, Errno>) -> After {
        let synced = self.step == RangeStep::Sync;
        let after = self.after_step(result);
        let Some(zeroed) = &mut self.zeroed else { return after };
        let is_zeroed = matches!(after, After::End(Ok(_)) | After::Step(RangeStep::Sync));
        if is_zeroed && !synced {
            zeroed.note();
        }
        match after {
            After::End(Ok(_)) if synced && !self.abandoned => match zeroed.store() {
                Ok(true) => After::Step(RangeStep::Sync),
                Ok(false) => after,
                Err(error) => After::End(Err(error)),
            },
            after => after,
        }
    }

    fn after_step(&mut self, result: Result<u32, Errno>) -> After {
        let done = After::End(Ok(Outcome::Done));
        match (self.step, result) {
            _ if self.abandoned => After::End(Err(IoError::GONE)),
            // Best effort by definition.
            (RangeStep::Discard, _) | (RangeStep::Sync, Ok(_)) => done,
            (RangeStep::Punch | RangeStep::Zero, Ok(_)) if self.fua => After::Step(RangeStep::Sync),
            (RangeStep::Punch | RangeStep::Zero, Ok(_)) => done,
            (RangeStep::Punch, Err(_)) => After::Step(RangeStep::Zero),
            // Writing either works or tells what is wrong.
            (RangeStep::Zero, Err(_)) => After::Step(RangeStep::Write),
            (RangeStep::Write, _) => self.piece_written(result),
            (RangeStep::Sync, Err(errno)) => After::End(Err(super::error_of(errno))),
        }
    }

    fn piece_written(&mut self, result: Result<u32, Errno>) -> After {
        match self.piece.step(result) {
            Next::Failed(error) => return After::End(Err(error)),
            Next::Later { millis } => return After::Later { millis },
            Next::Done => self.next += u64::from(self.piece.len_bytes),
            Next::Rest => self.next += u64::from(self.piece.done_bytes),
        }
        self.piece = Transfer::new(self.next, 0, false);
        if self.next < self.end {
            After::Step(RangeStep::Write)
        } else if self.then_sync {
            After::Step(RangeStep::Sync)
        } else {
            After::End(Ok(Outcome::Done))
        }
    }
}

impl Executor {
    /// Takes the completion of a `Token::Range`; there may be more to do.
    pub(crate) fn range_step_done(
        &mut self,
        driver: &mut Driver<Token>,
        index: usize,
        result: Result<u32, Errno>,
        now: Instant,
    ) -> Option<IoAnswer> {
        self.remember_unsupported(index, result);
        let range = &mut self.ranges[index];
        match range.after(result) {
            After::End(result) => return Some(self.finish(index, result, now)),
            After::Step(step) => {
                range.step = step;
                self.continue_range(driver, index);
            }
            After::Later { millis } => {
                self.waiting.push((now.plus_millis(millis), Token::Range(index)));
            }
        }
        None
    }

    pub(super) fn finish(
        &mut self,
        index: usize,
        result: Result<Outcome, IoError>,
        now: Instant,
    ) -> IoAnswer {
        let RangeOp { io, member, file, begun, start, end, step, .. } = self.ranges.remove(index);
        let kind =
            if step == RangeStep::Discard { OperationKind::Discard } else { OperationKind::Zero };
        if let Some(figures) = self.figures_of(member, &file) {
            figures.note((kind, end - start), begun, now, result.is_ok());
        }
        (io, result.map_err(|error| looked_into(error, &file, end)))
    }

    fn remember_unsupported(&mut self, index: usize, result: Result<u32, Errno>) {
        let range = &self.ranges[index];
        let member = self.members.get_mut(usize::from(range.member.0)).and_then(Option::as_mut);
        if let (Some(member), Err(Errno::OPNOTSUPP | Errno::NOSYS)) = (member, result) {
            match range.step {
                RangeStep::Punch => member.cannot_punch = true,
                RangeStep::Zero => member.cannot_zero = true,
                RangeStep::Discard | RangeStep::Write | RangeStep::Sync => {}
            }
        }
    }

    pub(super) fn start_range(&mut self, driver: &mut Driver<Token>, range: RangeOp) {
        let index = self.ranges.insert(range);
        self.continue_range(driver, index);
    }

    pub(super) fn continue_range(&mut self, driver: &mut Driver<Token>, index: usize) {
        let range = &mut self.ranges[index];
        let (file, offset) = match &range.zeroed {
            Some(zeroed) => zeroed.place(range.next - range.start),
            None => (Arc::clone(&range.file), range.next),
        };
        let left = range.end - range.next;
        let keep = FallocateFlags::KEEP_SIZE;
        let allocate = |file, mode: FallocateFlags| {
            let mode = mode.bits().cast_signed();
            Op::Allocate { file, mode, offset, len: left }
        };
        let op = match range.step {
            RangeStep::Discard | RangeStep::Punch => {
                allocate(file, FallocateFlags::PUNCH_HOLE | keep)
            }
            RangeStep::Zero => allocate(file, FallocateFlags::ZERO_RANGE | keep),
            RangeStep::Write => {
                let len = u32::try_from(left).unwrap_or(u32::MAX).min(self.zeroes.len);
                range.piece.len_bytes = len;
                let dsync = range.fua && !range.then_sync;
                Op::Write { file, offset, buf: self.zeroes.slice(0, len), dsync }
            }
            RangeStep::Sync => Op::Sync { file },
        };
        driver.start(Token::Range(index), op);
    }
}
