//! Carries a machine's actions out: I/O on members through the driver, computations in place.
//! Holds the table of members. Decides nothing.

mod at_once;
mod mapped;
mod member;
mod range;
mod transfer;

use std::collections::VecDeque;
use std::sync::Arc;

use braid_array::action::Compute;
use braid_array::{
    Buf, Checked, Instant, IoError, IoErrorKind, IoId, IoOp, MemberId, Outcome, SECTOR_BYTES,
};
use crc32c::crc32c_append;
use rustix::io::Errno;

use self::at_once::{Budget, Way, is_long};
use self::mapped::Mapped;
use self::member::{Member, size_bytes};
use self::range::{RangeOp, RangeStep};
use self::transfer::{Next, Transfer};
use crate::arena::Memory;
use crate::driver::{Driver, Op};
use crate::lock::LockedFile;
use crate::member::MemberFile;
use crate::token::Token;
use slab::Slab;

/// How an I/O ended, for the machine.
pub(crate) type Answer = (IoId, Result<Outcome, IoError>);

/// Carries out a machine's I/O: it has the members, and what is under way on them, which may take
/// several steps. The engine [starts](Self::start) operations, hands it the driver's completions,
/// and takes [answers](Self::next_done) for the machine. Computations are functions beside it.
#[derive(Debug)]
pub(crate) struct Executor {
    members: Vec<Option<Member>>,
    flights: Slab<Flight>,
    ranges: Slab<RangeOp>,
    /// What is to be tried again, and when.
    waiting: Vec<(Instant, Token)>,
    /// I/O on members that answer at once, to be begun; how much of it this turn does itself; and
    /// what came of that.
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
}

/// A read, write or flush.
#[derive(Debug)]
struct Flight {
    io: IoId,
    file: Arc<LockedFile>,
    at_once: bool,
    mapped: Option<Arc<Mapped>>,
    /// Its part of the executor's `given_bytes`.
    given_bytes: u32,
    op: IoOp,
    transfer: Transfer,
    /// A flush is under way: the operation itself, or what makes it durable.
    syncing: bool,
    then_sync: bool,
    /// The machine waits for it no longer: nothing more of it is begun.
    abandoned: bool,
}

impl Executor {
    /// For these members. `zeroes` is a range of zeroes in the arena.
    pub(crate) fn new(members: Vec<(MemberId, MemberFile)>, zeroes: Buf) -> Self {
        let flights = Slab::default();
        let ranges = Slab::default();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut executor = Self {
            members: Vec::new(),
            flights,
            ranges,
            waiting: Vec::new(),
            ready: Vec::new(),
            budget: Budget::new(processors),
            more_comes: false,
            given_bytes: 0,
            done: VecDeque::new(),
            zeroes,
            turn: 1,
        };
        for (id, member) in members {
            executor.attach(id, member);
        }
        executor
    }

    /// Puts a device into the table. False when the id is taken.
    pub(crate) fn attach(&mut self, id: MemberId, member: MemberFile) -> bool {
        let index = usize::from(id.0);
        if index >= self.members.len() {
            self.members.resize_with(index + 1, || None);
        }
        let slot = &mut self.members[index];
        if slot.is_some() {
            return false;
        }
        *slot = Some(Member::new(member));
        true
    }

    /// Forgets a member; its file closes when the last I/O on it has ended.
    pub(crate) fn detach(&mut self, id: MemberId) {
        if let Some(slot) = self.members.get_mut(usize::from(id.0)) {
            *slot = None;
        }
    }

    /// Is another write being received? Then the engine's thread has more to do.
    pub(crate) const fn expect_writes(&mut self, more: bool) {
        self.more_comes = more;
    }

    /// A turn of the engine's begins.
    pub(crate) const fn begin_turn(&mut self) {
        self.turn += 1;
        self.budget.renew();
    }

    /// Starts an I/O. Answers at once when there is no such member.
    pub(crate) fn start(
        &mut self,
        driver: &mut Driver<Token>,
        io: IoId,
        id: MemberId,
        op: IoOp,
    ) -> Option<Answer> {
        let Some(Some(member)) = self.members.get_mut(usize::from(id.0)) else {
            return Some((io, Err(IoError::GONE)));
        };
        if member.ends_before(op, self.turn) {
            return Some((io, Err(IoError::SHRUNK)));
        }
        let file = Arc::clone(&member.file);
        let (transfer, then_sync) = match op {
            IoOp::Read { sector, buf } => {
                (Transfer::new(sector * SECTOR_BYTES, buf.len, true), false)
            }
            IoOp::Write { sector, buf, fua } => {
                let then_sync = fua && member.drops_dsync;
                (Transfer::new(sector * SECTOR_BYTES, buf.len, false), then_sync)
            }
            IoOp::Flush => (Transfer::new(0, 0, false), false),
            IoOp::WriteZeroes { sector, sectors, unmap, fua } => {
                let step = match unmap {
                    true if !member.cannot_punch => RangeStep::Punch,
                    _ if !member.cannot_zero => RangeStep::Zero,
                    _ => RangeStep::Write,
                };
                let mut range = RangeOp::new(io, id, file, (sector, sectors), step);
                (range.fua, range.then_sync) = (fua, fua && member.drops_dsync);
                self.start_range(driver, range);
                return None;
            }
            IoOp::Discard { sector, sectors } => {
                let step = RangeStep::Discard;
                self.start_range(driver, RangeOp::new(io, id, file, (sector, sectors), step));
                return None;
            }
        };
        let syncing = op == IoOp::Flush;
        let at_once = member.at_once;
        let mapped = member.mapped.clone();
        let abandoned = false;
        let flight = Flight {
            io,
            file,
            at_once,
            mapped,
            given_bytes: 0,
            op,
            transfer,
            syncing,
            then_sync,
            abandoned,
        };
        let index = self.flights.insert(flight);
        self.continue_flight(driver, index);
        None
    }

    /// Begins what is left of a flight, at the latest in the next `next_done`.
    fn continue_flight(&mut self, driver: &mut Driver<Token>, index: usize) {
        let flight = &self.flights[index];
        if flight.at_once {
            self.ready.push(index);
        } else {
            driver.start(Token::Io(index), flight.next());
        }
    }

    /// Does what is ready to be begun, or hands it to the driver.
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
                Some(_) => Way::Copy { busy, given_bytes: *given_bytes },
                None => Way::Call { long_bytes },
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

    /// Begins what waits for that and takes in what was done at once, until an answer comes of it.
    /// The engine calls it until there is none before it waits.
    pub(crate) fn next_done(&mut self, driver: &mut Driver<Token>, now: Instant) -> Option<Answer> {
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
    ) -> Option<Answer> {
        let flight = &mut self.flights[index];
        self.given_bytes -= u64::from(std::mem::take(&mut flight.given_bytes));
        let next = match result {
            _ if flight.abandoned => Next::Failed(IoError::GONE),
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
            Next::Done => return Some((self.flights.remove(index).io, Ok(Outcome::Done))),
            Next::Failed(error) => {
                let Flight { io, file, transfer, .. } = self.flights.remove(index);
                return Some((io, Err(looked_into(error, &file, transfer.end()))));
            }
        }
        None
    }

    /// The machine waits for this I/O no longer: what the kernel has of it is not continued.
    pub(crate) fn abandon(&mut self, io: IoId) {
        for (_, flight) in &mut self.flights {
            flight.abandoned |= flight.io == io;
        }
        for (_, range) in &mut self.ranges {
            range.abandoned |= range.io == io;
        }
    }

    /// How many operations are in the kernel that nobody waits for.
    pub(crate) fn given_up(&self) -> usize {
        let idle = |token| self.waiting.iter().any(|(_, other)| *other == token);
        let flights = self.flights.iter().filter(|(i, f)| f.abandoned && !idle(Token::Io(*i)));
        let ranges = self.ranges.iter().filter(|(i, r)| r.abandoned && !idle(Token::Range(*i)));
        flights.count() + ranges.count()
    }

    /// When something is to be tried again.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|(at, _)| *at).min()
    }

    /// Tries again what has waited long enough; the next answer that comes of it, if one does.
    pub(crate) fn tick(&mut self, driver: &mut Driver<Token>, now: Instant) -> Option<Answer> {
        while let Some(at) = self.waiting.iter().position(|(at, _)| *at <= now) {
            let (_, token) = self.waiting.swap_remove(at);
            match token {
                Token::Io(index) if self.flights[index].abandoned => {
                    return Some((self.flights.remove(index).io, Err(IoError::GONE)));
                }
                Token::Io(index) => self.continue_flight(driver, index),
                Token::Range(index) if self.ranges[index].abandoned => {
                    return Some(self.finish(index, Err(IoError::GONE)));
                }
                Token::Range(index) => self.continue_range(driver, index),
                _ => {}
            }
        }
        None
    }
}

impl Flight {
    /// The bytes it has not moved.
    const fn left_bytes(&self) -> u32 {
        self.transfer.len_bytes - self.transfer.done_bytes
    }

    /// Does what is left.
    fn carry_out(&self, driver: &Driver<Token>) -> Result<u32, Errno> {
        let op = self.next();
        let copied = self.mapped.as_ref().and_then(|mapped| mapped.carry_out(driver.memory(), &op));
        copied.map_or_else(|| driver.carry_out(&op), Ok)
    }

    /// The driver does what is left.
    fn note_given(&self) {
        if let (Some(mapped), IoOp::Write { .. }) = (&self.mapped, self.op) {
            mapped.note_written(self.transfer.offset, self.transfer.len_bytes as usize);
        }
    }

    /// What is to be asked of the kernel for what is left.
    fn next(&self) -> Op {
        let Self { file, op, transfer, syncing, then_sync, .. } = self;
        let file = Arc::clone(file);
        let rest = |buf: Buf| buf.slice(transfer.done_bytes, buf.len - transfer.done_bytes);
        let offset = transfer.offset + u64::from(transfer.done_bytes);
        match *op {
            IoOp::Read { buf, .. } => Op::Read { file, offset, buf: rest(buf) },
            IoOp::Write { buf, fua, .. } if !syncing => {
                Op::Write { file, offset, buf: rest(buf), dsync: fua && !then_sync }
            }
            _ => Op::Sync { file },
        }
    }
}

/// What an error says of the device once its size is known: writes behind the end of a device that
/// has become smaller are refused as those on a full file system are.
fn looked_into(error: IoError, file: &LockedFile, end: u64) -> IoError {
    match error.kind {
        IoErrorKind::Full if size_bytes(file).is_some_and(|size| size < end) => {
            IoError { kind: IoErrorKind::Shrunk, ..error }
        }
        _ => error,
    }
}

/// What an error says of the device: is it these sectors, or all of it?
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

/// Does a computation, now.
pub(crate) fn compute(memory: &Memory, compute: &Compute) -> Outcome {
    // The machine names only buffers it holds, with no I/O on them, and its contract keeps
    // destinations apart from sources and from one another.
    let get = |buf: &Buf| {
        // SAFETY: as said above.
        unsafe { memory.bytes(*buf) }
    };
    let get_mut = |buf: &Buf| {
        // SAFETY: as said above.
        unsafe { memory.bytes_mut(*buf) }
    };
    match compute {
        Compute::Sum { inputs, coefs, outputs, accumulate } => {
            let inputs: Vec<&[u8]> = inputs.iter().map(get).collect();
            let mut outputs: Vec<&mut [u8]> = outputs.iter().map(get_mut).collect();
            braid_parity::combine(&mut outputs, coefs, &inputs, *accumulate);
        }
        Compute::Check { data, q_coefs, p, q } => {
            let data: Vec<&[u8]> = data.iter().map(get).collect();
            let found = braid_parity::check(&data, q_coefs, get(p), q.as_ref().map(get));
            return Outcome::Checked(Checked {
                p_differs: found.p_differs,
                q_differs: found.q_differs,
                data_located: found.data_located,
            });
        }
        Compute::Compare { a, b } => {
            let p_differs = braid_parity::equal_blocks(get(a), get(b));
            return Outcome::Checked(Checked { p_differs, ..Checked::default() });
        }
        Compute::Crc { before, inputs } => {
            return Outcome::Crc(inputs.iter().map(get).fold(*before, crc32c_append));
        }
    }
    Outcome::Done
}

/// Copies metadata out of the arena.
pub(crate) fn load(memory: &Memory, buf: Buf) -> Vec<u8> {
    // SAFETY: the machine names a buffer it holds, with no I/O on it.
    unsafe { memory.bytes(buf) }.to_vec()
}

/// Copies metadata into the arena.
pub(crate) fn store(memory: &Memory, buf: Buf, bytes: &[u8]) {
    // SAFETY: the machine names a buffer it holds, with no I/O on it.
    unsafe { memory.bytes_mut(buf) }.copy_from_slice(bytes);
}

#[cfg(test)]
mod tests;
