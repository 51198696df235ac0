//! A machine simple enough to be trusted: a mirror of all its members, or plain memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use braid_array::action::{Command, Compute, Event};
use braid_array::array::Scratch;
use braid_array::events::{ArrayEvent, Fault};
use braid_array::refusal::{Next, Refusal};
use braid_array::request::Full;
use braid_array::status::Status;
use braid_array::{
    Action, BlockMachine, Buf, Instant, IoError, IoId, IoOp, Machine, MemberId, Op, Request,
    RequestError, RequestId, SECTOR_BYTES,
};

/// Storage of the data.
pub(crate) enum Store {
    /// The same data on each of so many members.
    Members(u16),
    /// Data in the arena.
    Memory(Scratch),
}

/// The machine.
pub(crate) struct Double {
    store: Store,
    /// Its size, which a test may change.
    sectors: Arc<AtomicU64>,
    block_bytes: u32,
    read_only: bool,
    /// Takes so many requests at once.
    most: usize,
    requests: BTreeMap<u64, Running>,
    ios: BTreeMap<IoId, u64>,
    next_io: u64,
    actions: VecDeque<Action>,
    /// Flushes take this long; tests that the deadline is kept.
    flush_millis: u64,
    flushing: VecDeque<(Instant, RequestId)>,
    faulty: Vec<MemberId>,
    /// Places of members that were removed, which it gives away.
    left: Vec<MemberId>,
    stopped: bool,
    /// Receives a copy of each request.
    told: Option<Sender<Request>>,
}

struct Running {
    request: Request,
    left: usize,
    good: bool,
    reading: u16,
}

impl Double {
    pub(crate) fn new(store: Store, sectors: u64) -> Self {
        Self {
            store,
            sectors: Arc::new(AtomicU64::new(sectors)),
            block_bytes: 512,
            read_only: false,
            most: 16,
            requests: BTreeMap::new(),
            ios: BTreeMap::new(),
            next_io: 0,
            actions: VecDeque::new(),
            flush_millis: 0,
            flushing: VecDeque::new(),
            faulty: Vec::new(),
            left: Vec::new(),
            stopped: false,
            told: None,
        }
    }

    /// Has another size, at any time.
    pub(crate) fn of(self, sectors: Arc<AtomicU64>) -> Self {
        Self { sectors, ..self }
    }

    pub(crate) fn block_bytes(self, block_bytes: u32) -> Self {
        Self { block_bytes, ..self }
    }

    pub(crate) fn told(self, sender: Sender<Request>) -> Self {
        Self { told: Some(sender), ..self }
    }

    pub(crate) fn most(self, most: usize) -> Self {
        Self { most, ..self }
    }

    pub(crate) fn flush_millis(self, flush_millis: u64) -> Self {
        Self { flush_millis, ..self }
    }

    fn io(&mut self, id: RequestId) -> IoId {
        let io = IoId(self.next_io);
        self.next_io += 1;
        self.ios.insert(io, id.0);
        self.requests.get_mut(&id.0).unwrap().left += 1;
        io
    }

    fn refused(&self, request: &Request) -> Option<RequestError> {
        let block = u64::from(self.block_bytes) / SECTOR_BYTES;
        if request.op == Op::Flush {
            None
        } else if self.stopped || (self.read_only && request.op != Op::Read) {
            Some(RequestError::ReadOnly)
        } else if request.sectors == 0
            || !request.sector.is_multiple_of(block)
            || !request.sectors.is_multiple_of(block)
            || (matches!(request.op, Op::Read | Op::Write { .. })
                && u64::from(request.buf.len) != request.sectors * SECTOR_BYTES)
        {
            Some(RequestError::Malformed)
        } else if request.sector + request.sectors > self.array_sectors() {
            Some(RequestError::OutOfRange)
        } else {
            None
        }
    }

    fn on_memory(&mut self, scratch: Scratch, request: &Request) {
        let offset = scratch.offset + request.sector * SECTOR_BYTES;
        let len = u32::try_from(request.sectors * SECTOR_BYTES).unwrap();
        let place = Buf { offset, len };
        let (inputs, output) = match request.op {
            Op::Read => (vec![place], request.buf),
            Op::Write { .. } => (vec![request.buf], place),
            // The sum of nothing is zeroes.
            _ => (Vec::new(), place),
        };
        let compute = Compute::Sum {
            coefs: vec![1; inputs.len()].into(),
            inputs: inputs.into(),
            outputs: vec![output].into(),
            accumulate: false,
        };
        let io = self.io(request.id);
        self.actions.push_back(Action::Compute { io, compute });
    }

    fn on_members(&mut self, members: u16, request: &Request, reading: u16) {
        let Request { sector, sectors, buf, .. } = *request;
        let op = match request.op {
            Op::Read => IoOp::Read { sector, buf },
            Op::Write { fua } => IoOp::Write { sector, buf, fua, fill: false },
            Op::WriteZeroes { fua, unmap } => IoOp::WriteZeroes { sector, sectors, unmap, fua },
            Op::Discard => IoOp::Discard { sector, sectors },
            Op::Flush => IoOp::Flush,
        };
        let range = if request.op == Op::Read { reading..reading + 1 } else { 0..members };
        for member in range.map(MemberId) {
            let io = self.io(request.id);
            self.actions.push_back(Action::Io { io, member, op });
        }
    }

    fn done(&mut self, io: IoId, result: Result<(), IoError>) {
        let Store::Members(members) = self.store else {
            return self.complete(io, result.is_ok());
        };
        let index = self.ios[&io];
        let running = &self.requests[&index];
        if result.is_err() && running.request.op == Op::Read && running.reading + 1 < members {
            let request = running.request;
            let next = running.reading + 1;
            self.requests.get_mut(&index).unwrap().reading = next;
            self.on_members(members, &request, next);
            self.complete(io, false);
            return;
        }
        self.complete(io, result.is_ok());
    }

    fn complete(&mut self, io: IoId, good: bool) {
        let index = self.ios.remove(&io).unwrap();
        let running = self.requests.get_mut(&index).unwrap();
        running.left -= 1;
        running.good |= good;
        if running.left == 0 {
            let running = self.requests.remove(&index).unwrap();
            let result = if running.good { Ok(()) } else { Err(RequestError::Failed) };
            self.actions.push_back(Action::Complete { id: running.request.id, result });
        }
    }

    fn command(&mut self, command: Command) -> Result<(), Refusal> {
        match command {
            Command::Fail(member) => {
                self.faulty.push(member);
                let reason = "asked for";
                self.actions.push_back(Action::Notify(ArrayEvent::MemberFailed {
                    member,
                    reason: reason.into(),
                    fault: Fault::default(),
                    next: Next::default(),
                }));
            }
            Command::Remove(member) if self.faulty.contains(&member) => self.left.push(member),
            Command::Add(new) => {
                assert_eq!(Some(new.member), self.free_member(), "the id that was free");
                let Store::Members(members) = &mut self.store else { panic!("no members") };
                if self.left.pop().is_none() {
                    *members += 1;
                }
            }
            Command::Stop => self.stopped = true,
            _ => {
                return Err(Refusal::new("refused", "do not"));
            }
        }
        Ok(())
    }
}

impl Machine for Double {
    fn handle(&mut self, now: Instant, event: Event) {
        match event {
            Event::Done { io, result } => self.done(io, result.map(drop)),
            Event::Command { id, command } => {
                let result = self.command(command);
                self.actions.push_back(Action::Reply { id, result });
            }
            Event::Tick => {
                while let Some(&(_, id)) = self.flushing.front().filter(|(at, _)| *at <= now) {
                    self.flushing.pop_front();
                    self.actions.push_back(Action::Complete { id, result: Ok(()) });
                }
            }
            Event::Loaded { .. }
            | Event::Fabric(_)
            | Event::Survey { .. }
            | Event::Volume { .. } => {
                unreachable!("it asks for nothing of the kind")
            }
        }
    }

    fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.flushing.front().map(|(at, _)| *at)
    }

    fn idle(&self) -> bool {
        // What it keeps in memory is in its scratch.
        self.memory().is_none() && self.requests.is_empty() && self.flushing.is_empty()
    }
}

impl BlockMachine for Double {
    fn submit(&mut self, now: Instant, request: Request) -> Result<(), Full> {
        if self.requests.len() >= self.most {
            return Err(Full);
        }
        if let Some(told) = &self.told {
            // Who wanted to hear may be gone.
            let _ = told.send(request);
        }
        if let Some(error) = self.refused(&request) {
            self.actions.push_back(Action::Complete { id: request.id, result: Err(error) });
            return Ok(());
        }
        if request.op == Op::Flush && (self.flush_millis > 0 || self.memory().is_some()) {
            self.flushing.push_back((now.plus_millis(self.flush_millis), request.id));
            if self.flush_millis == 0 {
                self.handle(now, Event::Tick);
            }
            return Ok(());
        }
        let running = Running { request, left: 0, good: false, reading: 0 };
        assert!(self.requests.insert(request.id.0, running).is_none(), "ids are unique");
        match self.store {
            Store::Members(members) => self.on_members(members, &request, 0),
            Store::Memory(scratch) => self.on_memory(scratch, &request),
        }
        Ok(())
    }

    fn status(&self) -> Status {
        panic!("nobody asks the double")
    }

    fn array_sectors(&self) -> u64 {
        self.sectors.load(Ordering::Relaxed)
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn free_member(&self) -> Option<MemberId> {
        match self.store {
            Store::Members(members) => Some(self.left.last().copied().unwrap_or(MemberId(members))),
            Store::Memory(_) => None,
        }
    }
}

impl Double {
    const fn memory(&self) -> Option<Scratch> {
        match self.store {
            Store::Memory(scratch) => Some(scratch),
            Store::Members(_) => None,
        }
    }
}
