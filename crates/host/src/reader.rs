//! Reading an array without serving it: the same machine, read-only, driven on the caller's thread
//! with plain reads. Nothing is ever written to a member.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant as Clock};

use braid_array::action::Event;
use braid_array::array::{Scratch, place_of};
use braid_array::assemble::Config;
use braid_array::stack::Stack;
use braid_array::{
    Action, Array, BlockMachine, Buf, Instant, IoError, IoId, IoOp, MemberId, Op, Outcome, Request,
    RequestError, RequestId, SECTOR_BYTES,
};
use rustix::fs::{Advice, OFlags};
use rustix::io::Errno;

use crate::arena::Arena;
use crate::execute;
use crate::member::MemberFile;

/// Distance ahead of a read up to which the system is asked to fetch from a member.
const AHEAD_BYTES: u64 = 8 << 20;

/// A member.
enum Source {
    Device(ReadDevice),
    /// An array by itself.
    Array(Box<Reader>),
}

impl Source {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        match self {
            Self::Device(device) => device.read(offset, bytes),
            Self::Array(reader) => reader.read_at(offset, bytes).map_err(|_| IoError::MEDIUM),
        }
    }
}

/// A device, read through the page cache, which fetches ahead.
#[derive(Debug)]
struct ReadDevice {
    member: MemberFile,
    /// The system was asked to fetch up to here.
    asked_bytes: u64,
}

impl ReadDevice {
    fn new(mut member: MemberFile) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&member.file)?;
        rustix::fs::fcntl_setfl(&member.file, flags & !OFlags::DIRECT)?;
        // Advice only: what does not know it reads as well.
        let _ = rustix::fs::fadvise(&member.file, 0, None, Advice::Sequential);
        member.direct = false;
        member.block_bytes = 512;
        Ok(Self { member, asked_bytes: 0 })
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        let start = self.member.start_bytes();
        let end = offset + bytes.len() as u64;
        if end > self.member.sectors * SECTOR_BYTES {
            return Err(IoError::SHRUNK);
        }
        if self.member.is_lost(offset, bytes.len()) {
            return Err(IoError::MEDIUM);
        }
        if let Some(backend) = &self.member.backend {
            return backend.read_exact_at(bytes, start + offset).map_err(|error| failed(&error));
        }
        if end > self.asked_bytes || end + 2 * AHEAD_BYTES < self.asked_bytes {
            let length = NonZeroU64::new(AHEAD_BYTES);
            let _ =
                rustix::fs::fadvise(&self.member.file, start + offset, length, Advice::WillNeed);
            self.asked_bytes = offset + AHEAD_BYTES;
        }
        self.member.file.read_exact_at(bytes, start + offset).map_err(|error| failed(&error))
    }
}

fn failed(error: &io::Error) -> IoError {
    match Errno::from_io_error(error) {
        Some(errno) => execute::error_of(errno),
        None if error.kind() == io::ErrorKind::UnexpectedEof => IoError::SHRUNK,
        // The place of it in an image.
        None if error.kind() == io::ErrorKind::InvalidData => IoError::MEDIUM,
        None => IoError::GONE,
    }
}

/// Error of reading content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot be read at byte {offset}: {reason}")]
pub struct ReadError {
    /// Offset in bytes.
    pub offset: u64,
    /// Reason.
    pub reason: RequestError,
}

/// An array that is only read.
pub struct Reader {
    machine: Box<dyn BlockMachine>,
    /// Parts from which the machine was made.
    parts: ReaderParts,
    sources: BTreeMap<MemberId, Source>,
    arena: Arena,
    /// Gets the answer of one request at a time.
    buffer: Buf,
    next_request: u64,
    started: Clock,
}

/// An array, and the arrays that are its members when it has such.
#[derive(Clone, Debug)]
struct ReaderParts {
    config: Config,
    inner: Vec<Config>,
}

impl braid_rescue::Image for Reader {
    fn size_bytes(&self) -> u64 {
        Self::size_bytes(self)
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), String> {
        self.read_at(offset_bytes, into).map_err(|error| error.to_string())
    }
}

impl Reader {
    /// A reader of the array that `config` describes; its members in the order of their ids.
    ///
    /// # Errors
    /// When the configuration cannot be run or there is no memory: the reason, for people.
    pub fn new(config: Config, members: Vec<MemberFile>) -> Result<Self, String> {
        let mut sources = BTreeMap::new();
        for (id, member) in config.member_ids().zip(members) {
            let device = ReadDevice::new(member).map_err(|error| error.to_string())?;
            sources.insert(id, Source::Device(device));
        }
        Self::with_sources(ReaderParts { config, inner: Vec::new() }, sources)
    }

    /// Creates a reader of an array whose members are the content of `inner`, in the order of their
    /// ids.
    ///
    /// # Errors
    /// As for [`Reader::new`]; also when an inner array has arrays for members itself.
    pub fn stacked(config: Config, inner: Vec<Self>) -> Result<Self, String> {
        let mut parts = ReaderParts { config, inner: Vec::new() };
        let mut sources = BTreeMap::new();
        for (index, reader) in inner.into_iter().enumerate() {
            if !reader.parts.inner.is_empty() {
                return Err("arrays nested more than once are not read".into());
            }
            parts.inner.push(reader.parts.config);
            let index = u16::try_from(index).map_err(|_| "too many inner arrays")?;
            for (id, source) in reader.sources {
                sources.insert(Stack::leaf(index, id), source);
            }
        }
        Self::with_sources(parts, sources)
    }

    /// A reader of pieces of these arrays, one behind the other, as `whole` puts them together.
    ///
    /// # Errors
    /// As for [`Reader::new`].
    pub fn of_pieces(
        whole: Config,
        arrays: Vec<(Config, Vec<MemberFile>)>,
    ) -> Result<Self, String> {
        let mut sources = BTreeMap::new();
        for (id, (config, members)) in whole.member_ids().zip(arrays) {
            sources.insert(id, Source::Array(Box::new(Self::new(config, members)?)));
        }
        Self::with_sources(ReaderParts { config: whole, inner: Vec::new() }, sources)
    }

    fn with_sources(
        mut parts: ReaderParts,
        sources: BTreeMap<MemberId, Source>,
    ) -> Result<Self, String> {
        let mut scratch_bytes = 0;
        let mut scratches = Vec::new();
        for config in std::iter::once(&mut parts.config).chain(&mut parts.inner) {
            config.read_only = true;
            config.block_bytes = 512;
            let bytes = Array::scratch_bytes(config);
            scratches.push(Scratch { offset: scratch_bytes, bytes });
            scratch_bytes += bytes.next_multiple_of(4096);
        }
        let mut arena = Arena::new(scratch_bytes, u64::from(Request::MAX_BYTES))
            .map_err(|error| error.to_string())?;
        let mut arrays = std::iter::once(&parts.config)
            .chain(&parts.inner)
            .zip(scratches)
            .map(|(config, scratch)| Array::new(Instant::default(), config.clone(), scratch));
        let outer = arrays.next().ok_or("no array")??;
        let inner = arrays.collect::<Result<Vec<_>, _>>()?;
        let machine: Box<dyn BlockMachine> =
            if inner.is_empty() { Box::new(outer) } else { Box::new(Stack::new(outer, inner)?) };
        let mut holder = arena.admit().ok_or("no memory for requests")?;
        let buffer = arena.allocate(&mut holder, Request::MAX_BYTES);
        let buffer = buffer.ok_or("no memory for requests")?;
        Ok(Self { machine, parts, sources, arena, buffer, next_request: 0, started: Clock::now() })
    }

    /// Size of the array.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.machine.array_sectors() * SECTOR_BYTES
    }

    /// Returns the place of the byte at `offset`: the member and the byte there. `None` when arrays
    /// are members.
    #[must_use]
    pub fn place(&self, offset: u64) -> Option<(&str, u64)> {
        let ReaderParts { config, inner } = &self.parts;
        let is_array = |source: &Source| matches!(source, Source::Array(_));
        if !inner.is_empty() || self.sources.values().any(is_array) {
            return None;
        }
        let (device, sector) = place_of(config, offset / SECTOR_BYTES)?;
        Some((device, sector * SECTOR_BYTES + offset % SECTOR_BYTES))
    }

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// Where and why it cannot be read; `OutOfRange` beyond the end.
    pub fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), ReadError> {
        let mut done = 0;
        self.read_with(offset, bytes.len() as u64, |part| {
            bytes[done..done + part.len()].copy_from_slice(part);
            done += part.len();
            Ok(())
        })
        .map_err(|error| match error {
            CopyError::Read(error) => error,
            CopyError::Sink(_) => unreachable!("memory takes everything"),
        })
    }

    /// Hands `length` bytes from `offset` on to `sink`, in order and in parts of up to 1 MiB.
    ///
    /// # Errors
    /// When the array cannot be read, or the first error of `sink`.
    pub fn read_with(
        &mut self,
        offset: u64,
        length: u64,
        mut sink: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), CopyError> {
        let end = offset.checked_add(length).filter(|&end| end <= self.size_bytes());
        let end = end.ok_or(ReadError { offset, reason: RequestError::OutOfRange })?;
        let mut at = offset;
        while at < end {
            let first = at / SECTOR_BYTES;
            let head = at % SECTOR_BYTES;
            let sectors = (head + (end - at)).div_ceil(SECTOR_BYTES);
            let sectors = sectors.min(u64::from(self.buffer.len) / SECTOR_BYTES);
            let buf = self.buffer.slice(0, u32::try_from(sectors * SECTOR_BYTES).unwrap_or(0));
            self.request(first, sectors, buf)
                .map_err(|reason| ReadError { offset: first * SECTOR_BYTES, reason })?;
            let part = (sectors * SECTOR_BYTES - head).min(end - at);
            // SAFETY: the request is complete, and so the buffer is this reader's again.
            let bytes = unsafe { self.arena.memory().bytes(buf) };
            let from = usize::try_from(head).unwrap_or(0);
            let len = usize::try_from(part).unwrap_or(0);
            sink(&bytes[from..from + len]).map_err(CopyError::Sink)?;
            at += part;
        }
        Ok(())
    }

    /// Makes the machine answer one read.
    fn request(&mut self, sector: u64, sectors: u64, buf: Buf) -> Result<(), RequestError> {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let request = Request { id, op: Op::Read, sector, sectors, buf };
        let taken = self.machine.submit(self.now(), request);
        assert!(taken.is_ok(), "a machine without requests takes one");
        loop {
            while let Some(action) = self.machine.poll() {
                if let Action::Complete { result, .. } = action {
                    return result;
                }
                self.carry_out(action);
            }
            self.wait();
        }
    }

    fn carry_out(&mut self, action: Action) {
        let (io, result) = match action {
            Action::Io { io, member, op } => (io, self.io(member, op)),
            Action::Compute { io, compute } => {
                (io, Ok(execute::compute(self.arena.memory(), &compute)))
            }
            Action::Store { buf, bytes } => {
                return execute::store(self.arena.memory(), buf, &bytes);
            }
            Action::Load { io, buf } => {
                // SAFETY: the machine holds the buffer, and nothing is in flight on it.
                let bytes = unsafe { self.arena.memory().bytes(buf) }.to_vec();
                let now = self.now();
                return self.machine.handle(now, Event::Loaded { io, bytes });
            }
            Action::IoBeside { io, .. } => (io, Err(IoError::GONE)),
            // I/O is answered at once here, so nothing is given up.
            Action::Abandon { .. }
            | Action::Complete { .. }
            | Action::Reply { .. }
            | Action::Notify(_)
            | Action::Use { .. }
            | Action::GiveBack { .. }
            | Action::Fabric(_)
            | Action::Volume { .. }
            | Action::Survey { .. }
            | Action::Note { .. } => return,
        };
        self.done(io, result);
    }

    fn done(&mut self, io: IoId, result: Result<Outcome, IoError>) {
        let now = self.now();
        self.machine.handle(now, Event::Done { io, result });
    }

    fn io(&mut self, member: MemberId, op: IoOp) -> Result<Outcome, IoError> {
        let IoOp::Read { sector, buf } = op else {
            unreachable!("a read-only machine asks for {op:?}");
        };
        let source = self.sources.get_mut(&member).ok_or(IoError::GONE)?;
        // SAFETY: the machine holds the buffer and waits for this read alone to fill it.
        let bytes = unsafe { self.arena.memory().bytes_mut(buf) };
        source.read(sector * SECTOR_BYTES, bytes).map(|()| Outcome::Done)
    }

    /// Sleeps until the machine's deadline.
    fn wait(&mut self) {
        let now = self.now();
        let deadline = self.machine.deadline().expect("a machine with a request waits for a time");
        std::thread::sleep(Duration::from_nanos(deadline.0.saturating_sub(now.0)));
        self.machine.handle(self.now(), Event::Tick);
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Reason for which content was not handed on.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The taker refused it.
    #[error(transparent)]
    Sink(io::Error),
}
