//! Carries a machine's actions out: I/O on members through the driver, computations in place.
//! Holds the table of members. Decides nothing.

use std::sync::Arc;

use braid_array::action::Compute;
use braid_array::{
    Buf, Checked, IoError, IoErrorKind, IoId, IoOp, MemberId, Outcome, SECTOR_BYTES,
};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::arena::Memory;
use crate::driver::{Driver, Op};
use crate::member::{LockedFile, MemberFile};
use crate::token::Token;
use slab::Slab;

/// How an I/O ended, for the machine.
pub(crate) type Answer = (IoId, Result<Outcome, IoError>);

/// The members and the operations on them that take several steps.
#[derive(Debug)]
pub(crate) struct Executor {
    members: Vec<Option<Member>>,
    ranges: Slab<Range>,
    zeroes: Buf,
}

#[derive(Debug)]
struct Member {
    file: Arc<LockedFile>,
    /// A regular file, which can be truncated while it is in use.
    can_shrink: bool,
    /// fallocate said that it cannot punch holes here.
    cannot_punch: bool,
    /// fallocate said that it cannot zero ranges here.
    cannot_zero: bool,
    /// For the locks on what the member lies on.
    _below: Vec<LockedFile>,
}

/// A range to be zeroed or discarded.
#[derive(Debug)]
struct Range {
    io: IoId,
    member: MemberId,
    file: Arc<LockedFile>,
    /// Bytes on the device.
    next: u64,
    end: u64,
    /// Durable at the end.
    fua: bool,
    step: RangeStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeStep {
    Discard,
    Punch,
    Zero,
    /// Write zeroes from the arena, piece by piece.
    Write,
    Sync,
}

impl Executor {
    /// For these members. `zeroes` is a range of zeroes in the arena.
    pub(crate) fn new(members: Vec<(MemberId, MemberFile)>, zeroes: Buf) -> Self {
        let mut executor = Self { members: Vec::new(), ranges: Slab::default(), zeroes };
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

    /// Starts an I/O. Answers at once when there is no such member.
    pub(crate) fn start(
        &mut self,
        driver: &mut Driver<Token>,
        io: IoId,
        id: MemberId,
        op: IoOp,
    ) -> Option<Answer> {
        let Some(Some(member)) = self.members.get(usize::from(id.0)) else {
            return Some((io, Err(IoError::GONE)));
        };
        if member.ends_before(op) {
            return Some((io, Err(IoError::MEDIUM)));
        }
        let file = Arc::clone(&member.file);
        match op {
            IoOp::Read { sector, buf } => {
                let op = Op::Read { file, offset: sector * SECTOR_BYTES, buf };
                driver.start(Token::Io { io, len: buf.len }, op);
            }
            IoOp::Write { sector, buf, fua } => {
                let op = Op::Write { file, offset: sector * SECTOR_BYTES, buf, dsync: fua };
                driver.start(Token::Io { io, len: buf.len }, op);
            }
            IoOp::Flush => driver.start(Token::Io { io, len: 0 }, Op::Sync { file }),
            IoOp::WriteZeroes { sector, sectors, unmap, fua } => {
                let step = match unmap {
                    true if !member.cannot_punch => RangeStep::Punch,
                    _ if !member.cannot_zero => RangeStep::Zero,
                    _ => RangeStep::Write,
                };
                self.start_range(driver, Range::new(io, id, file, (sector, sectors), fua, step));
            }
            IoOp::Discard { sector, sectors } => {
                let step = RangeStep::Discard;
                self.start_range(driver, Range::new(io, id, file, (sector, sectors), false, step));
            }
        }
        None
    }

    /// Takes the completion of a `Token::Io`.
    pub(crate) fn answer(io: IoId, len: u32, result: Result<u32, Errno>) -> Answer {
        let result = match result {
            Ok(moved) if moved == len => Ok(Outcome::Done),
            // The file ends before the range does.
            Ok(_) => Err(IoError::MEDIUM),
            Err(errno) => Err(error_of(errno)),
        };
        (io, result)
    }

    /// Takes the completion of a `Token::Range`; there may be more to do.
    pub(crate) fn range_step_done(
        &mut self,
        driver: &mut Driver<Token>,
        index: usize,
        result: Result<u32, Errno>,
    ) -> Option<Answer> {
        let range = &mut self.ranges[index];
        let next_step = match (range.step, result) {
            // Best effort by definition.
            (RangeStep::Discard, _) | (RangeStep::Sync, Ok(_)) => None,
            (RangeStep::Punch | RangeStep::Zero, Ok(_)) => range.fua.then_some(RangeStep::Sync),
            (RangeStep::Punch, Err(errno)) => {
                self.remember_unsupported(index, errno);
                Some(RangeStep::Zero)
            }
            // Writing either works or tells what is wrong.
            (RangeStep::Zero, Err(errno)) => {
                self.remember_unsupported(index, errno);
                Some(RangeStep::Write)
            }
            (RangeStep::Write, Ok(0)) => return Some(self.finish(index, Err(IoError::MEDIUM))),
            (RangeStep::Write, Ok(moved)) => {
                range.next += u64::from(moved);
                (range.next < range.end).then_some(RangeStep::Write)
            }
            (RangeStep::Write | RangeStep::Sync, Err(errno)) => {
                return Some(self.finish(index, Err(error_of(errno))));
            }
        };
        let Some(step) = next_step else { return Some(self.finish(index, Ok(Outcome::Done))) };
        self.ranges[index].step = step;
        self.continue_range(driver, index);
        None
    }

    fn finish(&mut self, index: usize, result: Result<Outcome, IoError>) -> Answer {
        (self.ranges.remove(index).io, result)
    }

    fn remember_unsupported(&mut self, index: usize, errno: Errno) {
        let range = &self.ranges[index];
        let member = self.members.get_mut(usize::from(range.member.0)).and_then(Option::as_mut);
        if let (Some(member), Errno::OPNOTSUPP | Errno::NOSYS) = (member, errno) {
            match range.step {
                RangeStep::Punch => member.cannot_punch = true,
                _ => member.cannot_zero = true,
            }
        }
    }

    fn start_range(&mut self, driver: &mut Driver<Token>, range: Range) {
        let index = self.ranges.insert(range);
        self.continue_range(driver, index);
    }

    fn continue_range(&self, driver: &mut Driver<Token>, index: usize) {
        let range = &self.ranges[index];
        let (file, offset, left) = (Arc::clone(&range.file), range.next, range.end - range.next);
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
                Op::Write { file, offset, buf: self.zeroes.slice(0, len), dsync: range.fua }
            }
            RangeStep::Sync => Op::Sync { file },
        };
        driver.start(Token::Range(index), op);
    }
}

impl Member {
    fn new(member: MemberFile) -> Self {
        let can_shrink = !member.block_device;
        let (file, _below) = (Arc::new(member.file), member.below);
        Self { file, can_shrink, cannot_punch: false, cannot_zero: false, _below }
    }

    /// Was the file truncated to before the end of this write? Writing would make it grow again,
    /// and what was cut off in between would then read as zeroes, without an error.
    fn ends_before(&self, op: IoOp) -> bool {
        let (sector, bytes) = match op {
            IoOp::Write { sector, buf, .. } => (sector, u64::from(buf.len)),
            IoOp::WriteZeroes { sector, sectors, .. } => (sector, sectors * SECTOR_BYTES),
            _ => return false,
        };
        self.can_shrink
            && rustix::fs::fstat(&self.file)
                .is_ok_and(|stat| stat.st_size.cast_unsigned() < sector * SECTOR_BYTES + bytes)
    }
}

impl Range {
    fn new(
        io: IoId,
        member: MemberId,
        file: Arc<LockedFile>,
        (sector, sectors): (u64, u64),
        fua: bool,
        step: RangeStep,
    ) -> Self {
        let next = sector * SECTOR_BYTES;
        Self { io, member, file, next, end: next + sectors * SECTOR_BYTES, fua, step }
    }
}

/// What an error says of the device: is it these sectors, or all of it?
pub(crate) fn error_of(errno: Errno) -> IoError {
    let kind = match errno {
        // EREMOTEIO and EBADE are what the block layer makes of target errors; a sparse file that
        // cannot grow still serves what it has.
        Errno::IO | Errno::NODATA | Errno::ILSEQ | Errno::REMOTEIO | Errno::NOSPC => {
            IoErrorKind::Medium
        }
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
