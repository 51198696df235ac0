//! The driver on io_uring: a slab of operations keyed by `user_data`, one `io_uring_enter` for a
//! whole batch of new operations and the wait for the next completions.

mod pinned;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_array::Buf;
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

use self::pinned::Pinned;
use super::patience::WaitPolicy;
use crate::arena::{ArenaPiece, Memory};
use crate::driver::{Completion, Op};
use slab::Slab;

const ENTRIES: u32 = 512;
/// Flags to move all of a message, without a signal when the receiver is gone.
const WHOLE: u32 = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL).cast_unsigned();
const READABLE: u32 = libc::POLLIN.cast_unsigned() as u32;
/// Name of a cancellation, whose completion is ignored: no index of the slab.
const CANCEL: u64 = u64::MAX;

/// An io_uring, the operations in it, and their memory.
pub(crate) struct EngineRing<T> {
    ring: IoUring<squeue::Entry, cqueue::Entry>,
    memory: Arc<Memory>,
    pinned: Pinned,
    slab: Slab<Pending<T>>,
    /// Slab indices to be put into the submission queue.
    queued: VecDeque<usize>,
    /// Number of operations on files in flight.
    files: usize,
    patience: WaitPolicy,
    /// Operations to be ended, once all others are in the submission queue.
    canceled: Vec<(usize, T)>,
    /// Headers of completed operations, to be reused.
    #[expect(clippy::vec_box, reason = "a header keeps its box from operation to operation")]
    headers: Vec<Box<RingHeader>>,
}

/// An operation in flight.
#[derive(Debug)]
struct Pending<T> {
    token: T,
    op: Op,
    /// Bytes sent so far.
    done: u64,
    /// Header of an operation on several pieces; the kernel reads it when the entry is submitted.
    header: Option<Box<RingHeader>>,
}

#[derive(Debug)]
struct RingHeader {
    message: libc::msghdr,
    list: Vec<libc::iovec>,
}

impl<T> std::fmt::Debug for EngineRing<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("slab", &self.slab.len()).finish_non_exhaustive()
    }
}

impl<T: Copy + PartialEq> EngineRing<T> {
    /// Creates a ring for the calling thread. Used pieces of the arena are registered if the limits
    /// allow it.
    ///
    /// # Errors
    /// When the kernel has no io_uring for us, or one that lacks an operation we need.
    pub(crate) fn new(memory: Arc<Memory>) -> io::Result<Self> {
        let ring = Self::build()?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let pinned = Pinned::new(&ring, &memory);
        let slab = Slab::default();
        let queued = VecDeque::new();
        let canceled = Vec::new();
        let headers = Vec::new();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let patience = WaitPolicy::new(processors);
        Ok(Self { ring, memory, pinned, slab, queued, files: 0, patience, canceled, headers })
    }

    fn build() -> io::Result<IoUring<squeue::Entry, cqueue::Entry>> {
        let mut best = IoUring::<squeue::Entry, cqueue::Entry>::builder();
        best.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all();
        // Kernels before 6.1 do not know these flags.
        best.setup_cqsize(4 * ENTRIES).build(ENTRIES).or_else(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => IoUring::builder().setup_cqsize(4 * ENTRIES).build(ENTRIES),
            _ => Err(error),
        })
    }

    /// Lets go of a piece of the arena on which there is no operation.
    pub(crate) fn release(&mut self, piece: ArenaPiece) {
        self.pinned.release(&self.ring, piece);
    }

    /// Permits registering a piece of the arena.
    pub(crate) fn may_keep(&mut self, piece: ArenaPiece) {
        self.pinned.allow(piece);
    }

    /// Lets go of a piece of the arena, which may not be registered any more.
    pub(crate) fn bar(&mut self, piece: ArenaPiece) {
        self.pinned.bar(&self.ring, piece);
    }

    /// The arena.
    pub(crate) const fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The names of operations that have not completed.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &T> {
        self.slab.iter().map(|(_, pending)| &pending.token)
    }

    /// Operations that have not completed.
    pub(crate) fn in_flight(&self) -> usize {
        self.slab.len()
    }

    /// Allows the kernel one more worker for operations that have to wait.
    pub(crate) fn add_worker(&self) {
        // Bounded work (files, disks), then unbounded. Zero tells the limit and keeps it.
        let mut limits = [0; 2];
        let known = self.ring.submitter().register_iowq_max_workers(&mut limits).is_ok();
        if known {
            // Kernels before 5.15 do not know this; then the limit stays.
            let mut more = [limits[0].saturating_add(1), 0];
            let _ = self.ring.submitter().register_iowq_max_workers(&mut more);
        }
    }

    /// Queues an operation for the next `wait`.
    pub(crate) fn start(&mut self, token: T, op: Op) {
        self.files += usize::from(op.file().is_some());
        let done = if let Op::Send { sent, .. } = op { sent } else { 0 };
        let pending = Pending { token, op, done, header: None };
        let index = self.slab.insert(pending);
        self.queued.push_back(index);
    }

    /// Ends operations that wait for a device, in the next `wait`.
    pub(crate) fn cancel(&mut self, token: T) {
        let named = self.slab.iter().filter(|(_, pending)| pending.token == token);
        self.canceled.extend(named.map(|(index, _)| (index, token)));
    }

    /// Submits queued operations, waits, and collects all completions there are.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn wait(
        &mut self,
        timeout: Option<Duration>,
        out: &mut Vec<Completion<T>>,
    ) -> io::Result<()> {
        self.push_queued()?;
        let waited = if self.look(timeout)? { Ok(0) } else { self.sleep(timeout) };
        match waited.as_ref().map_err(io::Error::raw_os_error) {
            // EBUSY: completions have to be taken out before more goes in. Which we do now.
            Ok(_) | Err(Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {}
            Err(_) => waited.map(drop)?,
        }
        let Self { ring, slab, queued, files, headers, .. } = self;
        for entry in ring.completion() {
            if entry.user_data() == CANCEL {
                continue;
            }
            let index = usize::try_from(entry.user_data()).expect("a slab index");
            let result = u32::try_from(entry.result())
                .map_err(|_| Errno::from_raw_os_error(-entry.result()));
            if slab[index].goes_on(result) {
                queued.push_back(index);
            } else {
                let mut pending = slab.remove(index);
                *files -= usize::from(pending.op.file().is_some());
                headers.extend(pending.header.take());
                out.push(pending.finish(result));
            }
        }
        Ok(())
    }

    /// Submits, and looks for a completion for a while if that is worth it. True when there is one.
    /// With files there may be workers of the kernel's under way, which need the processors.
    fn look(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        if self.files > 0 {
            return Ok(false);
        }
        let Some(longest) = self.patience.look() else { return Ok(false) };
        let longest = timeout.map_or(longest, |timeout| timeout.min(longest));
        if !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Ok(_) => {}
                // As in `wait`.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        // What needed no waiting.
        if !self.ring.completion().is_empty() {
            return Ok(true);
        }
        let begun = Instant::now();
        loop {
            let there = !self.ring.completion().is_empty();
            // Or the kernel has one, which it puts there when it is entered.
            let came = there || self.ring.submission().taskrun();
            if came || begun.elapsed() >= longest {
                self.patience.looked(came);
                return Ok(there);
            }
            // What it waits for may come from a process that needs this processor for it.
            rustix::thread::sched_yield();
        }
    }

    /// Submits, and sleeps until there is a completion or the timeout.
    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let begun = Instant::now();
        let waited = match timeout {
            None => self.ring.submit_and_wait(1),
            Some(timeout) => {
                let limit = Timespec::from(timeout);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit))
            }
        };
        // What files bring takes its time whoever waits for it.
        if self.files == 0 {
            self.patience.slept(begun.elapsed());
        }
        waited
    }

    fn push_queued(&mut self) -> io::Result<()> {
        while let Some(&index) = self.queued.front() {
            let entry = self.entry(index).user_data(index as u64);
            if !self.push(&entry)? {
                return Ok(());
            }
            self.queued.pop_front();
        }
        while let Some(&(index, token)) = self.canceled.last() {
            // It may have completed, and another one may have its place.
            if self.slab.get(index).is_some_and(|pending| pending.token == token) {
                let entry = opcode::AsyncCancel::new(index as u64).build().user_data(CANCEL);
                if !self.push(&entry)? {
                    return Ok(());
                }
            }
            self.canceled.pop();
        }
        Ok(())
    }

    /// Puts an entry into the submission queue. False when completions have to be taken first.
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<bool> {
        // SAFETY: memory the entry points to is the arena's or in the slab, whose element stays
        // until the completion; the descriptor is kept open by that element as well.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            match self.ring.submit() {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Returns the submission entry for the rest of an operation. Whether a file on FUSE can be
    /// read or written without waiting the kernel asks the process that serves it, and waits for
    /// the answer (`io_file_supports_nowait`, `fuse_file_poll`). So one of its threads does that.
    fn entry(&mut self, index: usize) -> squeue::Entry {
        let waits = match &self.slab[index].op {
            Op::Read { file, .. } | Op::Write { file, .. } => file.is_on_fuse(),
            _ => false,
        };
        let entry = self.plain_entry(index);
        if waits { entry.flags(squeue::Flags::ASYNC) } else { entry }
    }

    fn plain_entry(&mut self, index: usize) -> squeue::Entry {
        let Self { ring, slab, memory, pinned, headers, .. } = self;
        let pending = &mut slab[index];
        let done = pending.done;
        match &mut pending.op {
            Op::Read { file, offset, buf } => {
                let rest = *buf;
                let at = *offset;
                let fd = Fd(file.as_raw_fd());
                let address = memory.address(rest);
                match pinned.index_of(ring, memory, rest) {
                    Some(i) => opcode::ReadFixed::new(fd, address, rest.len, i).offset(at).build(),
                    None => opcode::Read::new(fd, address, rest.len).offset(at).build(),
                }
            }
            Op::Write { file, offset, buf, dsync } => {
                let rest = *buf;
                let flags = if *dsync { libc::RWF_DSYNC } else { 0 };
                let fd = Fd(file.as_raw_fd());
                let address = memory.address(rest);
                match pinned.index_of(ring, memory, rest) {
                    Some(i) => opcode::WriteFixed::new(fd, address, rest.len, i)
                        .offset(*offset)
                        .rw_flags(flags)
                        .build(),
                    None => opcode::Write::new(fd, address, rest.len)
                        .offset(*offset)
                        .rw_flags(flags)
                        .build(),
                }
            }
            Op::Accept { socket } => {
                let fd = Fd(socket.as_raw_fd());
                opcode::Accept::new(fd, null_mut(), null_mut()).flags(libc::SOCK_CLOEXEC).build()
            }
            Op::Receive { socket, bufs: [first, second] } if second.len == 0 => {
                opcode::Recv::new(Fd(socket.as_raw_fd()), memory.address(*first), first.len).build()
            }
            Op::Take { device, bufs } => {
                let header = RingHeader::of(&mut pending.header, headers);
                header.set(memory, bufs);
                opcode::Readv::new(Fd(device.as_raw_fd()), header.list.as_ptr(), 2).build()
            }
            Op::Give { device, message } => {
                let header = RingHeader::of(&mut pending.header, headers);
                message.fill(memory, 0, &mut header.list);
                header.write_to(device)
            }
            Op::Receive { socket, bufs } => {
                let header = RingHeader::of(&mut pending.header, headers);
                header.set(memory, bufs);
                opcode::RecvMsg::new(Fd(socket.as_raw_fd()), header.point()).build()
            }
            Op::Send { socket, message, .. } => {
                let header = RingHeader::of(&mut pending.header, headers);
                message.fill(memory, done, &mut header.list);
                opcode::SendMsg::new(Fd(socket.as_raw_fd()), header.point()).flags(WHOLE).build()
            }
            op => without_memory(op),
        }
    }
}

/// The submission entry of an operation that moves no data.
fn without_memory(op: &Op) -> squeue::Entry {
    match op {
        Op::Sync { file } => {
            opcode::Fsync::new(Fd(file.as_raw_fd())).flags(FsyncFlags::DATASYNC).build()
        }
        Op::Allocate { file, mode, offset, len } => {
            opcode::Fallocate::new(Fd(file.as_raw_fd()), *len).offset(*offset).mode(*mode).build()
        }
        Op::Command { file, code, bytes } => {
            opcode::UringCmd16::new(Fd(file.as_raw_fd()), *code).cmd(*bytes).build()
        }
        Op::Readable { file } => opcode::PollAdd::new(Fd(file.as_raw_fd()), READABLE).build(),
        _ => unreachable!("it moves data"),
    }
}

impl<T> Pending<T> {
    /// Counts transferred bytes; returns true when the rest has to be asked for again.
    fn goes_on(&mut self, result: Result<u32, Errno>) -> bool {
        let file = matches!(self.op, Op::Read { .. } | Op::Write { .. } | Op::Sync { .. });
        let moved = match result {
            Ok(moved) => u64::from(moved),
            Err(Errno::INTR) => return true,
            Err(Errno::AGAIN) => return !file,
            Err(_) => return false,
        };
        let Op::Send { message, .. } = &self.op else { return false };
        let total = message.total_bytes();
        self.done += moved;
        moved > 0 && self.done < total
    }

    fn finish(self, result: Result<u32, Errno>) -> Completion<T> {
        let Self { token, op, .. } = self;
        let mut message = None;
        let mut accepted = None;
        let result = match op {
            Op::Send { message: sent, .. } | Op::Give { message: sent, .. } => {
                message = Some(sent);
                result
            }
            Op::Accept { .. } => {
                // SAFETY: the result of an accept is a descriptor nobody else knows.
                accepted = result.ok().map(|fd| unsafe { OwnedFd::from_raw_fd(fd.cast_signed()) });
                result
            }
            _ => result,
        };
        Completion { token, result, message, accepted }
    }
}

impl RingHeader {
    fn new() -> Box<Self> {
        // SAFETY: a msghdr is integers and pointers, for which zeroes are valid.
        let message = unsafe { std::mem::zeroed() };
        Box::new(Self { message, list: Vec::new() })
    }

    /// The header of an operation, which gets one of these if it has none.
    #[expect(clippy::vec_box, reason = "a header keeps its box from operation to operation")]
    fn of<'a>(slot: &'a mut Option<Box<Self>>, unused: &mut Vec<Box<Self>>) -> &'a mut Self {
        slot.get_or_insert_with(|| unused.pop().unwrap_or_else(Self::new))
    }

    /// Writes all of the list to a device.
    fn write_to(&self, device: &OwnedFd) -> squeue::Entry {
        let count = u32::try_from(self.list.len()).expect("at most IOV_MAX");
        opcode::Writev::new(Fd(device.as_raw_fd()), self.list.as_ptr(), count).build()
    }

    /// Makes the list these ranges of the arena.
    fn set(&mut self, memory: &Memory, bufs: &[Buf]) {
        self.list.clear();
        self.list.extend(bufs.iter().map(|&buf| libc::iovec {
            iov_base: memory.address(buf).cast(),
            iov_len: buf.len as usize,
        }));
    }

    /// Lets the header point to the list, and returns where the header is.
    fn point(&mut self) -> *mut libc::msghdr {
        self.message.msg_iov = self.list.as_mut_ptr();
        self.message.msg_iovlen = self.list.len() as _;
        &raw mut self.message
    }
}

impl<T> Drop for EngineRing<T> {
    fn drop(&mut self) {
        if !self.slab.is_empty() {
            // Closing the ring does not wait for what is in it: the kernel may still write into
            // the arena and read the messages, so these stay for good.
            std::mem::forget(Arc::clone(&self.memory));
            std::mem::forget(std::mem::take(&mut self.slab));
        }
    }
}
