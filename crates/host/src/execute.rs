//! Carries a machine's actions out: I/O on members through the driver, computations in place.
//! Holds the table of members. Decides nothing.

mod at_once;
mod backends;
mod changed;
mod compute;
mod counting;
mod flight;
mod mapped;
mod member;
mod range;
mod transfer;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use braid_array::{
    Buf, Instant, IoError, IoErrorKind, IoId, IoOp, MemberId, Outcome, SECTOR_BYTES,
};
use rustix::io::Errno;

use self::at_once::{AtOnce, Budget, is_long};
use self::backends::{Backends, Brought};
pub(crate) use self::compute::{compute, load, store};
use self::counting::kind;
use self::flight::Flight;
use self::member::{Member, StorageLength, length_of};
use self::range::{RangeOp, RangeStep};
use self::transfer::{Next, Transfer};
use crate::driver::Driver;
use crate::handover::{Handover, What};
use crate::lock::LockedFile;
use crate::member::{MemberFile, identity, identity_at};
use crate::token::Token;
use slab::Slab;

/// Result of an I/O, for the machine.
pub(crate) type IoAnswer = (IoId, Result<Outcome, IoError>);

/// Carries out a machine's I/O: owns the members, and the operations in flight on them, which may
/// take several steps. The engine [starts](Self::start) operations, passes the driver's
/// completions, and takes [answers](Self::next_done) for the machine. Computations are functions
/// beside it.
#[derive(Debug)]
pub(crate) struct Executor {
    members: Vec<Option<Member>>,
    /// Stores beside members.
    stores: BTreeMap<MemberId, Member>,
    flights: Slab<Flight>,
    ranges: Slab<RangeOp>,
    backends: Backends,
    /// Reads that members' own threads have, for which their queue is looked at.
    reading: usize,
    /// Operations to be tried again, each with its time.
    waiting: Vec<(Instant, Token)>,
    /// Operations on members that answer at once, to be begun. `budget` limits those that this turn
    /// does itself, and `done` has their results.
    ready: Vec<usize>,
    budget: Budget,
    /// Another write is being received.
    more_comes: bool,
    /// Long I/O on them that the driver has, in bytes.
    given_bytes: u64,
    done: VecDeque<(usize, Result<u32, Errno>)>,
    zeroes: Buf,
    /// Counts the turns of the engine.
    turn: u64,
    /// Time at which this turn began.
    now: Instant,
}

impl Executor {
    /// Creates an executor for these members. `zeroes` is a range of zeroes in the arena; `wake` is
    /// signalled when [`next_done`](Self::next_done) has something that no completion brings.
    pub(crate) fn new(
        members: Vec<(MemberId, MemberFile)>,
        zeroes: Buf,
        wake: Arc<OwnedFd>,
    ) -> Self {
        let flights = Slab::default();
        let ranges = Slab::default();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut executor = Self {
            members: Vec::new(),
            stores: BTreeMap::new(),
            flights,
            ranges,
            backends: Backends::new(wake),
            reading: 0,
            waiting: Vec::new(),
            ready: Vec::new(),
            budget: Budget::new(processors),
            more_comes: false,
            given_bytes: 0,
            done: VecDeque::new(),
            zeroes,
            turn: 1,
            now: Instant::default(),
        };
        for (id, member) in members {
            executor.attach(id, member);
        }
        executor
    }

    /// Puts a device into the table, in the place of one that is [forgotten](Self::detach), if one
    /// is there.
    pub(crate) fn attach(&mut self, id: MemberId, mut member: MemberFile) {
        self.stores.remove(&id);
        if let Some(store) = member.beside.take() {
            self.stores.insert(id, Member::new(*store, &self.backends));
        }
        let index = usize::from(id.0);
        if index >= self.members.len() {
            self.members.resize_with(index + 1, || None);
        }
        self.members[index] = Some(Member::new(member, &self.backends));
    }

    /// Forgets a member, and its store; a file closes when the last I/O on it has ended.
    pub(crate) fn detach(&mut self, id: MemberId) {
        self.stores.remove(&id);
        if let Some(slot) = self.members.get_mut(usize::from(id.0)) {
            *slot = None;
        }
    }

    /// Gives the members to the next process, which has them open while this one closes them, so
    /// that they stay claimed.
    ///
    /// # Errors
    /// When a member is not to be found any more where it was, or the system is out of descriptors.
    pub(crate) fn hand_over(&self, to: &mut Handover) -> io::Result<()> {
        for Member { file, path, shared, .. } in self.members.iter().flatten() {
            // What others share with this process is claimed by neither.
            if *shared || !to.needs(path) {
                continue;
            }
            if identity_at(path)? != identity(file)? {
                let reason = format!("{} is another file now", path.display());
                return Err(io::Error::other(reason));
            }
            to.give(What::Member(path.clone()), file.try_clone()?.into());
        }
        Ok(())
    }

    /// Notes whether another write is being received. Then the engine's thread has more to do.
    pub(crate) const fn expect_writes(&mut self, more: bool) {
        self.more_comes = more;
    }

    /// A turn of the engine's begins.
    pub(crate) const fn begin_turn(&mut self, now: Instant) {
        self.turn += 1;
        self.now = now;
        self.budget.renew();
    }

    /// Starts an I/O. Answers at once when there is no such member, or nothing has to be done.
    pub(crate) fn start(
        &mut self,
        driver: &mut Driver<Token>,
        io: IoId,
        id: MemberId,
        op: IoOp,
    ) -> Option<IoAnswer> {
        let member = self.members.get(usize::from(id.0)).and_then(Option::as_ref);
        if let (Some(member), IoOp::Write { sector, buf, fill: true, .. }) = (member, op)
            && compute::is_zero(driver.memory(), buf)
        {
            return match member.without_place(op, sector, buf.len) {
                Some(op) => self.start_op(driver, io, (id, false), op),
                None => Some((io, Ok(Outcome::Done))),
            };
        }
        self.start_op(driver, io, (id, false), op)
    }

    /// Starts an I/O on the store beside a member, as [`start`](Self::start) does on the member.
    pub(crate) fn start_beside(
        &mut self,
        driver: &mut Driver<Token>,
        io: IoId,
        id: MemberId,
        op: IoOp,
    ) -> Option<IoAnswer> {
        self.start_op(driver, io, (id, true), op)
    }

    fn device(&mut self, id: MemberId, beside: bool) -> Option<&mut Member> {
        if beside {
            return self.stores.get_mut(&id);
        }
        self.members.get_mut(usize::from(id.0))?.as_mut()
    }

    fn start_op(
        &mut self,
        driver: &mut Driver<Token>,
        io: IoId,
        (id, beside): (MemberId, bool),
        op: IoOp,
    ) -> Option<IoAnswer> {
        let begun = self.now;
        let turn = self.turn;
        let Some(member) = self.device(id, beside) else {
            return Some((io, Err(IoError::GONE)));
        };
        if let Some(result) = member.answer(op, turn) {
            if result.is_err() {
                member.figures.note((kind(op), 0), begun, begun, false);
            }
            return Some((io, result));
        }
        let file = Arc::clone(&member.file);
        let offset = |sector: u64| member.start + sector * SECTOR_BYTES;
        let (transfer, then_sync) = match op {
            IoOp::Read { sector, buf } => (Transfer::new(offset(sector), buf.len, true), false),
            IoOp::Write { sector, buf, fua, .. } => {
                let then_sync = fua && member.drops_dsync;
                (Transfer::new(offset(sector), buf.len, false), then_sync)
            }
            IoOp::Flush => (Transfer::new(0, 0, false), false),
            IoOp::WriteZeroes { sector, sectors, unmap, fua } => {
                let step = match unmap {
                    true if !member.cannot_punch => RangeStep::Punch,
                    _ if !member.cannot_zero => RangeStep::Zero,
                    _ => RangeStep::Write,
                };
                let bytes = (offset(sector), sectors * SECTOR_BYTES);
                let mut range = RangeOp::new(io, id, file, bytes, step, begun);
                (range.fua, range.then_sync) = (fua, fua && member.drops_dsync);
                range.zeroed = member.zeroed(sector, sectors);
                self.start_range(driver, range);
                return None;
            }
            IoOp::Discard { sector, sectors } => {
                let bytes = (offset(sector), sectors * SECTOR_BYTES);
                let range = RangeOp::new(io, id, file, bytes, RangeStep::Discard, begun);
                self.start_range(driver, range);
                return None;
            }
        };
        let changes = member.changes(op);
        let transfer = if changes.is_some() { transfer.by_sectors() } else { transfer };
        let flight = Flight {
            io,
            member: id,
            begun,
            file,
            at_once: member.at_once,
            mapped: member.mapped.clone(),
            reader: member.reader.clone(),
            changes,
            given_bytes: 0,
            op,
            transfer,
            syncing: op == IoOp::Flush,
            then_sync,
            abandoned: false,
        };
        let index = self.flights.insert(flight);
        self.continue_flight(driver, index);
        None
    }

    /// Begins the rest of a flight, at the latest in the next `next_done`.
    fn continue_flight(&mut self, driver: &mut Driver<Token>, index: usize) {
        let flight = &self.flights[index];
        if flight.at_once {
            self.ready.push(index);
            return;
        }
        let op = flight.next();
        match flight.have_read(index, &op) {
            Some(Ok(())) => self.reading += 1,
            Some(Err(errno)) => self.done.push_back((index, Err(errno))),
            None => driver.start(Token::Io(index), op),
        }
    }

    /// Takes in the data that a member's own thread has read.
    fn take_brought(&mut self, driver: &Driver<Token>) {
        while self.reading > 0
            && let Some(Brought { index, bytes }) = self.backends.take()
        {
            self.reading -= 1;
            let flight = &self.flights[index];
            let result = bytes.map(|bytes| {
                if let (IoOp::Read { buf, .. }, false) = (flight.op, flight.abandoned) {
                    let part = buf.slice(flight.transfer.done_bytes, bytes.len() as u32);
                    store(driver.memory(), part, &bytes);
                }
                bytes.len() as u32
            });
            self.done.push_back((index, result));
        }
    }

    /// Does the operations that are ready, or hands them to the driver.
    fn begin_ready(&mut self, driver: &mut Driver<Token>) {
        let Self { ready, flights, budget, more_comes, given_bytes, done, .. } = self;
        let long_of = |mapped: bool| -> u64 {
            let all = ready.iter().map(|&index| &flights[index]);
            let of_kind = all.filter(|flight| flight.mapped.is_some() == mapped);
            let long = of_kind.map(Flight::left_bytes).filter(|bytes| is_long(*bytes));
            long.map(u64::from).sum()
        };
        let long_bytes = *given_bytes + long_of(false);
        let busy = *more_comes || budget.is_much(*given_bytes + long_of(true));
        for index in ready.drain(..) {
            let flight = &mut flights[index];
            let left_bytes = flight.left_bytes();
            let way = match flight.mapped {
                Some(_) => AtOnce::Copy { busy, given_bytes: *given_bytes },
                None => AtOnce::Call { long_bytes },
            };
            if flight.abandoned {
                // Its answer is the same whatever the kernel would say.
                done.push_back((index, Ok(0)));
            } else if budget.take(left_bytes, way) {
                done.push_back((index, flight.carry_out(driver)));
            } else {
                flight.note_given();
                flight.given_bytes = if is_long(left_bytes) { left_bytes } else { 0 };
                *given_bytes += u64::from(flight.given_bytes);
                driver.start(Token::Io(index), flight.next());
            }
        }
    }

    /// Begins waiting operations and takes in those done at once, until one gives an answer. The
    /// engine calls this before it waits, until there is no answer.
    pub(crate) fn next_done(
        &mut self,
        driver: &mut Driver<Token>,
        now: Instant,
    ) -> Option<IoAnswer> {
        self.take_brought(driver);
        loop {
            while let Some((index, result)) = self.done.pop_front() {
                let answer = self.flight_step_done(driver, index, result, now);
                if answer.is_some() {
                    return answer;
                }
            }
            if self.ready.is_empty() {
                return None;
            }
            self.begin_ready(driver);
        }
    }

    /// Takes the completion of a `Token::Io`; there may be more to do.
    pub(crate) fn flight_step_done(
        &mut self,
        driver: &mut Driver<Token>,
        index: usize,
        result: Result<u32, Errno>,
        now: Instant,
    ) -> Option<IoAnswer> {
        let flight = &mut self.flights[index];
        self.given_bytes -= u64::from(std::mem::take(&mut flight.given_bytes));
        let result = match &mut flight.changes {
            Some(changes) => changes.note(flight.op, &flight.transfer, flight.syncing, result),
            None => result,
        };
        let next = match result {
            _ if flight.abandoned => Next::Failed(IoError::GONE),
            Ok(_) if flight.syncing && flight.is_half_durable() => Next::Rest,
            Ok(_) if flight.syncing => Next::Done,
            Err(errno) => flight.transfer.failed(errno),
            Ok(_) => flight.transfer.step(result),
        };
        match next {
            Next::Done if flight.then_sync && !flight.syncing => {
                flight.syncing = true;
                self.continue_flight(driver, index);
            }
            Next::Rest => self.continue_flight(driver, index),
            Next::Later { millis } => {
                self.waiting.push((now.plus_millis(millis), Token::Io(index)));
            }
            Next::Done => return Some(self.end_flight(index, Ok(Outcome::Done), now)),
            Next::Failed(error) => return Some(self.end_flight(index, Err(error), now)),
        }
        None
    }

    fn end_flight(
        &mut self,
        index: usize,
        result: Result<Outcome, IoError>,
        now: Instant,
    ) -> IoAnswer {
        let Flight { io, member, begun, file, op, transfer, .. } = self.flights.remove(index);
        if let Some(figures) = self.figures_of(member, &file) {
            figures.note((kind(op), transfer.len_bytes.into()), begun, now, result.is_ok());
        }
        (io, result.map_err(|error| looked_into(error, &file, transfer.end())))
    }

    /// Abandons an I/O: its operations in the kernel are not continued.
    pub(crate) fn abandon(&mut self, io: IoId) {
        for (_, flight) in &mut self.flights {
            flight.abandoned |= flight.io == io;
        }
        for (_, range) in &mut self.ranges {
            range.abandoned |= range.io == io;
        }
    }

    /// Returns the number of abandoned operations that are still in the kernel.
    pub(crate) fn given_up(&self) -> usize {
        let idle = |token| self.waiting.iter().any(|(_, other)| *other == token);
        let flights = self.flights.iter().filter(|(i, f)| f.abandoned && !idle(Token::Io(*i)));
        let ranges = self.ranges.iter().filter(|(i, r)| r.abandoned && !idle(Token::Range(*i)));
        flights.count() + ranges.count()
    }

    /// Returns the time of the next repetition.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|(at, _)| *at).min()
    }

    /// Tries operations again whose pause is over. Returns the first answer, if any.
    pub(crate) fn tick(&mut self, driver: &mut Driver<Token>, now: Instant) -> Option<IoAnswer> {
        while let Some(at) = self.waiting.iter().position(|(at, _)| *at <= now) {
            let (_, token) = self.waiting.swap_remove(at);
            match token {
                Token::Io(index) if self.flights[index].abandoned => {
                    return Some(self.end_flight(index, Err(IoError::GONE), now));
                }
                Token::Io(index) => self.continue_flight(driver, index),
                Token::Range(index) if self.ranges[index].abandoned => {
                    return Some(self.finish(index, Err(IoError::GONE), now));
                }
                Token::Range(index) => self.continue_range(driver, index),
                _ => {}
            }
        }
        None
    }
}

/// Corrects an error by the size of the storage.
fn looked_into(error: IoError, file: &LockedFile, end: u64) -> IoError {
    let ended = matches!(error.kind, IoErrorKind::Full | IoErrorKind::Shrunk);
    let length = if ended { length_of(file) } else { None };
    length.map_or(error, |length| corrected(error, length, end))
}

/// Returns the error for an operation that ends there. A write behind the end of a device that has
/// shrunk is refused as on a full file system, and of a disk that was pulled nothing is left but a
/// device without sectors.
fn corrected(error: IoError, length: StorageLength, end: u64) -> IoError {
    match length {
        StorageLength { block_device: true, bytes: 0 } => {
            let errno = Some(Errno::NODEV.raw_os_error());
            IoError { kind: IoErrorKind::Gone, errno }
        }
        StorageLength { bytes, .. } if bytes < end => {
            IoError { kind: IoErrorKind::Shrunk, ..error }
        }
        _ => error,
    }
}

/// Maps an errno to the kind of error: of single sectors, or of the whole device.
pub(crate) fn error_of(errno: Errno) -> IoError {
    let kind = match errno {
        // EREMOTEIO and EBADE are what the block layer makes of target errors.
        Errno::IO | Errno::NODATA | Errno::ILSEQ | Errno::REMOTEIO => IoErrorKind::Medium,
        // A sparse file that cannot grow still serves what it has.
        Errno::NOSPC | Errno::DQUOT => IoErrorKind::Full,
        _ => IoErrorKind::Gone,
    };
    IoError { kind, errno: Some(errno.raw_os_error()) }
}

#[cfg(test)]
mod tests;
