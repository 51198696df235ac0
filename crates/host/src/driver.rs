//! The engine's interface to the kernel: one type, backed by an io_uring or, without one, by a few
//! threads. Nothing else in the engine knows the difference.
//!
//! Memory handed to the kernel is either a range of the arena or owned by the operation until it
//! completes; descriptors are kept open by the operation. So a member or a connection may be
//! dropped at any time: its file closes when its last operation has ended.

mod file;
mod patience;
mod socket;
mod threads;
mod uring;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use braid_array::Buf;
use rustix::io::Errno;

use self::threads::Threads;
use self::uring::EngineRing;
use crate::arena::{ArenaPiece, Memory};
use crate::lock::LockedFile;

/// An operation.
#[derive(Debug)]
pub(crate) enum Op {
    /// Fill the buffer from a file.
    Read { file: Arc<LockedFile>, offset: u64, buf: Buf },
    /// Write the buffer to a file; with `dsync`, durably.
    Write { file: Arc<LockedFile>, offset: u64, buf: Buf, dsync: bool },
    /// fdatasync.
    Sync { file: Arc<LockedFile> },
    /// fallocate with these mode flags.
    Allocate { file: Arc<LockedFile>, mode: i32, offset: u64, len: u64 },
    /// Take one connection.
    Accept { socket: Arc<OwnedFd> },
    /// Receive available data, at least a byte: into the first buffer, then into the second.
    Receive { socket: Arc<OwnedFd>, bufs: [Buf; 2] },
    /// Send all of a message that was not sent by now.
    Send { socket: Arc<OwnedFd>, message: Box<OutgoingBytes>, sent: u64 },
    /// Wait until an eventfd or a device can be read.
    Readable { file: Arc<OwnedFd> },
    /// Take a message off a device that has one at a time and does not wait: its beginning into the
    /// first buffer, the rest into the second.
    Take { device: Arc<OwnedFd>, bufs: [Buf; 2] },
    /// Give a device all of a message, at once.
    Give { device: Arc<OwnedFd>, message: Box<OutgoingBytes> },
    /// A command that only the driver of a device understands (`IORING_OP_URING_CMD`). Nothing but
    /// an io_uring can carry it out, and nothing but the device can end it.
    Command { file: Arc<LockedFile>, code: u32, bytes: [u8; 16] },
}

impl Op {
    /// The file of an operation on a file.
    const fn file(&self) -> Option<&Arc<LockedFile>> {
        match self {
            Self::Read { file, .. }
            | Self::Write { file, .. }
            | Self::Sync { file }
            | Self::Allocate { file, .. } => Some(file),
            _ => None,
        }
    }
}

/// Result of an operation. A read or write of a file may have moved less than was asked for; the
/// caller then continues it. Interrupted calls have been made again.
#[derive(Debug)]
pub(crate) struct Completion<T> {
    pub(crate) token: T,
    pub(crate) result: Result<u32, Errno>,
    /// The message of a `Send` or `Give`, for its memory.
    pub(crate) message: Option<Box<OutgoingBytes>>,
    /// The connection of an `Accept`.
    pub(crate) accepted: Option<OwnedFd>,
}

/// Bytes to send, in order: small ones kept here and ranges of the arena.
#[derive(Debug, Default)]
pub(crate) struct OutgoingBytes {
    /// Headers and other small things.
    pub(crate) bytes: Vec<u8>,
    parts: Vec<OutgoingPart>,
    covered: usize,
    total: u64,
}

#[derive(Clone, Copy, Debug)]
enum OutgoingPart {
    /// A range of `bytes`.
    Own { start: usize, len: usize },
    /// A range of the arena.
    Arena(Buf),
}

impl OutgoingBytes {
    /// Appends a range of the arena after the present content of `bytes`.
    pub(crate) fn push(&mut self, buf: Buf) {
        self.cover();
        self.parts.push(OutgoingPart::Arena(buf));
        self.total += u64::from(buf.len);
    }

    /// Turns bytes that were appended since the last call into a part.
    fn cover(&mut self) {
        let len = self.bytes.len() - self.covered;
        if len > 0 {
            self.parts.push(OutgoingPart::Own { start: self.covered, len });
            self.covered += len;
            self.total += len as u64;
        }
    }

    /// Returns whether there is nothing to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.parts.is_empty()
    }

    /// Number of pieces so far, about.
    pub(crate) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// All bytes so far.
    pub(crate) const fn len_bytes(&self) -> u64 {
        self.total + (self.bytes.len() - self.covered) as u64
    }

    /// The ranges of the arena, to be released.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = Buf> {
        self.parts.iter().filter_map(|part| match part {
            OutgoingPart::Arena(buf) => Some(*buf),
            OutgoingPart::Own { .. } => None,
        })
    }

    /// Makes it empty, keeping the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.parts.clear();
        (self.covered, self.total) = (0, 0);
    }

    /// Fills `list` with the rest after `sent` bytes, at most IOV_MAX pieces. Call it on the
    /// finished message only: the pieces point into `bytes`.
    pub(crate) fn fill(&mut self, memory: &Memory, sent: u64, list: &mut Vec<libc::iovec>) {
        const IOV_MAX: usize = 1024;
        self.cover();
        list.clear();
        let mut skip = sent;
        for part in &self.parts {
            let (address, len) = match *part {
                OutgoingPart::Own { start, len } => {
                    (self.bytes[start..start + len].as_ptr().cast_mut(), len)
                }
                OutgoingPart::Arena(buf) => (memory.address(buf), buf.len as usize),
            };
            let gone = usize::try_from(skip).unwrap_or(usize::MAX).min(len);
            skip -= gone as u64;
            if gone < len && list.len() < IOV_MAX {
                let base = address.wrapping_add(gone).cast();
                list.push(libc::iovec { iov_base: base, iov_len: len - gone });
            }
        }
    }

    /// Shows all bytes of the message, piece by piece. No other thread may write to its buffers
    /// meanwhile.
    pub(crate) fn each(&mut self, memory: &Memory, mut show: impl FnMut(&[u8])) {
        self.cover();
        for part in &self.parts {
            match *part {
                OutgoingPart::Own { start, len } => show(&self.bytes[start..start + len]),
                // SAFETY: what is to be sent has been read, and is written to no more.
                OutgoingPart::Arena(buf) => show(unsafe { memory.bytes(buf) }),
            }
        }
    }

    /// All bytes of the message. Call it after `fill`.
    pub(crate) const fn total_bytes(&self) -> u64 {
        self.total
    }
}

/// Carries operations out.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per engine")]
pub(crate) enum Driver<T> {
    /// io_uring.
    Ring(EngineRing<T>),
    /// Threads.
    Threads(Threads<T>),
}

impl<T: Copy + PartialEq> Driver<T> {
    /// The best driver this system has. To be called on the thread that uses it.
    ///
    /// # Errors
    /// When neither can be set up.
    pub(crate) fn new(memory: &Arc<Memory>) -> io::Result<Self> {
        match EngineRing::new(Arc::clone(memory)) {
            Ok(ring) => Ok(Self::Ring(ring)),
            // Containers forbid io_uring (EPERM) or lack it (ENOSYS); low limits give ENOMEM.
            Err(_) => Self::threads(memory),
        }
    }

    /// The driver without io_uring.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn threads(memory: &Arc<Memory>) -> io::Result<Self> {
        Threads::new(Arc::clone(memory)).map(Self::Threads)
    }

    /// Starts an operation, at the latest in the next `wait`; its completion brings `token` back.
    pub(crate) fn start(&mut self, token: T, op: Op) {
        match self {
            Self::Ring(ring) => ring.start(token, op),
            Self::Threads(threads) => threads.start(token, op),
        }
    }

    /// Carries an operation on a file out, in this call. Only for files that never wait.
    pub(crate) fn carry_out(&self, op: &Op) -> Result<u32, Errno> {
        file::carry_out(self.memory(), op)
    }

    /// The arena, in which the buffers of operations lie.
    pub(crate) fn memory(&self) -> &Memory {
        match self {
            Self::Ring(ring) => ring.memory(),
            Self::Threads(threads) => threads.memory(),
        }
    }

    /// Sends a message on a socket. Returns the completion if sending needs no waiting; otherwise
    /// starts the rest as a `Send`.
    pub(crate) fn send(
        &mut self,
        token: T,
        socket: Arc<OwnedFd>,
        mut message: Box<OutgoingBytes>,
    ) -> Option<Completion<T>> {
        let result = match socket::send(self.memory(), &socket, &mut message, 0) {
            Ok(sent) if u64::from(sent) < message.total_bytes() => {
                self.start(token, Op::Send { socket, message, sent: sent.into() });
                return None;
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                self.start(token, Op::Send { socket, message, sent: 0 });
                return None;
            }
            result => result,
        };
        Some(Completion { token, result, message: Some(message), accepted: None })
    }

    /// Ends those operations of this name that wait for a device or socket: they complete with
    /// `CANCELED`, unless they have completed already.
    pub(crate) fn cancel(&mut self, token: T) {
        match self {
            Self::Ring(ring) => ring.cancel(token),
            Self::Threads(threads) => threads.cancel(token),
        }
    }

    /// Starts queued operations, waits for a completion or the timeout, and appends all completions
    /// there are. Returns without any in some cases, such as a timeout.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub(crate) fn wait(
        &mut self,
        timeout: Option<Duration>,
        out: &mut Vec<Completion<T>>,
    ) -> io::Result<()> {
        match self {
            Self::Ring(ring) => ring.wait(timeout, out),
            Self::Threads(threads) => threads.wait(timeout, out),
        }
    }

    /// Lets go of a piece of the arena on which there is no operation: it will be given back.
    pub(crate) fn release(&mut self, piece: ArenaPiece) {
        if let Self::Ring(ring) = self {
            ring.release(piece);
        }
    }

    /// Permits keeping a piece at hand for operations, in an arena where that is not the rule.
    pub(crate) fn may_keep(&mut self, piece: ArenaPiece) {
        if let Self::Ring(ring) = self {
            ring.may_keep(piece);
        }
    }

    /// Lets go of a piece, which may not be kept any more.
    pub(crate) fn bar(&mut self, piece: ArenaPiece) {
        if let Self::Ring(ring) = self {
            ring.bar(piece);
        }
    }

    /// A file operation will perhaps never end: one more may proceed beside it.
    pub(crate) fn make_room(&mut self) {
        match self {
            Self::Ring(ring) => ring.add_worker(),
            // Without the thread, the others have to do.
            Self::Threads(threads) => drop(threads.add_worker()),
        }
    }

    /// Returns whether an operation with a matching name has not completed.
    pub(crate) fn is_under_way(&self, name: impl Fn(&T) -> bool) -> bool {
        match self {
            Self::Ring(ring) => ring.tokens().any(name),
            Self::Threads(threads) => threads.tokens().any(name),
        }
    }

    /// Operations of such a name that have not completed.
    pub(crate) fn count(&self, name: impl Fn(&&T) -> bool) -> usize {
        match self {
            Self::Ring(ring) => ring.tokens().filter(name).count(),
            Self::Threads(threads) => threads.tokens().filter(name).count(),
        }
    }

    /// Operations that have not completed.
    pub(crate) fn in_flight(&self) -> usize {
        match self {
            Self::Ring(ring) => ring.in_flight(),
            Self::Threads(threads) => threads.in_flight(),
        }
    }
}

/// Makes an eventfd readable.
pub(crate) fn signal(eventfd: &OwnedFd) {
    #[expect(clippy::host_endian_bytes, reason = "an eventfd counts in the host's byte order")]
    let one = 1u64.to_ne_bytes();
    // Fails only when the counter is full, and then it is readable anyway.
    let _ = rustix::io::write(eventfd, &one);
}
