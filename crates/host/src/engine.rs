//! The loop: one thread, one driver, one machine, one arena. Completions go in, the machine's
//! actions come out, and everything they start goes to the kernel in one call. No policy.

pub(crate) mod array_size;
pub(crate) mod core;
pub(crate) mod export;
pub(crate) mod exports;
mod memory;
pub(crate) mod scattered;
mod submission_side;
#[cfg(test)]
pub(crate) mod tests;

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use braid_array::action::Event;
use braid_array::events::ArrayEvent;
use braid_array::{
    Action, AnyMachine, BlockMachine, Instant, IoError, IoId, Machine, MemberId, Outcome, Refusal,
    RequestError, RequestId, SECTOR_BYTES,
};
use rustix::event::EventfdFlags;

use self::array_size::ArraySize;
use self::core::Core;
use self::export::Export;
use self::exports::{ExportQueue, Exports};
use self::scattered::ScatteredRanges;
use self::submission_side::{CommandDone, SubmissionSide};
use crate::arena::{Arena, Memory};
use crate::driver::{self, Completion, Driver, Op};
use crate::execute::{self, Executor};
use crate::fabric::{self, Fabric, Network};
use crate::member::MemberFile;
use crate::store::{Store, StoreQueue};
use crate::submission::SubmissionQueue;
use crate::token::{ExportId, Owner, Token};

/// Time that clients have to take their last replies when the engine ends.
pub(crate) const FAREWELL: Duration = Duration::from_secs(5);

/// Memory for requests that suits an array served to a handful of clients.
pub const REQUEST_BYTES: u64 = 64 << 20;

/// Called with every event of the array, on the engine's thread; must not block.
pub type EventHook = Box<dyn FnMut(&ArrayEvent) + Send>;

/// The event loop of one process: a machine, its arena, the executor of its actions, exports, and
/// the submission queue for requests of other threads. Made by [`new`](Self::new); exports, fabric
/// and store are added; then [`run`](Self::run) owns it until the machine has stopped.
pub struct Engine {
    machine: AnyMachine,
    arena: Arena,
    executor: Executor,
    exports: Exports,
    export_queue: ExportQueue,
    size: ArraySize,
    scattered: ScatteredRanges,
    submissions: SubmissionQueue,
    submission_side: SubmissionSide,
    wake: Arc<OwnedFd>,
    hook: Option<EventHook>,
    fabric: Option<Box<dyn Fabric>>,
    store: Option<Store>,
}

impl Engine {
    /// An engine for a machine made with `arena.scratch()`. `Instant(0)` is when `run` begins. The
    /// members come with their ids.
    ///
    /// # Errors
    /// When the system is out of descriptors.
    pub fn new(
        mut machine: AnyMachine,
        members: Vec<(MemberId, MemberFile)>,
        mut arena: Arena,
    ) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags)?);
        let (sender, receiver) = mpsc::channel();
        let holder = arena.admit().ok_or(io::ErrorKind::OutOfMemory)?;
        let (exports, export_queue) = Exports::new(Arc::clone(&wake));
        Ok(Self {
            executor: Executor::new(members, arena.zeroes(), Arc::clone(&wake)),
            size: ArraySize::new(machine.block().map_or(0, |machine| size_bytes(machine))),
            machine,
            arena,
            exports,
            export_queue,
            scattered: ScatteredRanges::default(),
            submissions: SubmissionQueue::new(sender, Arc::clone(&wake)),
            submission_side: SubmissionSide::new(receiver, holder),
            wake,
            hook: None,
            fabric: None,
            store: None,
        })
    }

    /// A way in for other threads.
    #[must_use]
    pub fn submissions(&self) -> SubmissionQueue {
        self.submissions.clone()
    }

    /// Returns the queue by which other threads add and remove exports while it runs.
    pub(crate) fn export_queue(&self) -> ExportQueue {
        self.export_queue.clone()
    }

    /// Returns the size of the array, now and later.
    pub(crate) fn size(&self) -> ArraySize {
        self.size.clone()
    }

    /// Returns the map from addresses behind the end of the array to scattered pieces of it.
    pub(crate) fn scattered(&self) -> ScatteredRanges {
        self.scattered.clone()
    }

    /// Sets the receiver of the array's events.
    pub fn on_event(&mut self, hook: EventHook) {
        self.hook = Some(hook);
    }

    /// Gives the machine a fabric; with a listener, others can connect. The arena must have been
    /// made for it.
    ///
    /// # Errors
    /// When there is none of this kind here, or the system is out of descriptors.
    pub fn set_fabric(
        &mut self,
        network: impl Into<Network>,
        listener: Option<TcpListener>,
    ) -> Result<(), Refusal> {
        self.fabric = Some(fabric::new(network.into(), self.arena.place(), listener)?);
        Ok(())
    }

    /// Gives the machine a place where volumes are kept. The members that the engine was made with
    /// must be none then: the store gives out the ids.
    pub fn set_store(&mut self, store: Store) {
        self.store = Some(store);
    }

    /// Adds a way for programs to use the array.
    ///
    /// # Panics
    /// When the machine serves no requests.
    pub(crate) fn add_export(&mut self, export: Box<dyn Export>) -> ExportId {
        assert!(self.machine.block().is_some(), "an export of what serves no requests");
        self.exports.add(export)
    }

    /// Serves until a `Command::Stop` has been carried out. The sender of that command is told
    /// last, when all files are closed.
    ///
    /// # Errors
    /// When the system refuses a resource that the loop cannot do without.
    pub fn run(self) -> io::Result<()> {
        self.run_on(Driver::new)
    }

    /// Runs as `run` does, on a driver of the caller's choice.
    pub(crate) fn run_on(
        self,
        driver: fn(&Arc<Memory>) -> io::Result<Driver<Token>>,
    ) -> io::Result<()> {
        let Self {
            machine,
            arena,
            executor,
            exports,
            export_queue,
            submissions,
            submission_side,
            ..
        } = self;
        let Self { wake, size, scattered, hook, fabric, store, .. } = self;
        // From here on only others hold the submission queue.
        drop((submissions, export_queue));
        let driver = driver(arena.memory())?;
        let core = Core::new(arena, driver, scattered);
        let store = store.map(|store| StoreQueue::start(store, Arc::clone(&wake))).transpose()?;
        let started = std::time::Instant::now();
        let ended = None;
        let mut running = EngineLoop {
            machine,
            core,
            executor,
            exports,
            size,
            submission_side,
            wake,
            hook,
            fabric,
            store,
            started,
            ended,
            cool_at: None,
            used: false,
            leaving: false,
        };
        running.serve()?;
        running.say_farewell()?;
        let EngineLoop { executor, core, exports, store, mut submission_side, ended, .. } = running;
        drop((executor, core, exports, store));
        submission_side.refuse_rest();
        if let Some(done) = ended {
            done(Ok(()));
        }
        Ok(())
    }
}

/// Returns the size of an array.
fn size_bytes(machine: &dyn BlockMachine) -> u64 {
    machine.array_sectors() * SECTOR_BYTES
}

/// A running engine.
struct EngineLoop {
    machine: AnyMachine,
    core: Core,
    executor: Executor,
    exports: Exports,
    /// Size of the array, as the exports know it.
    size: ArraySize,
    submission_side: SubmissionSide,
    wake: Arc<OwnedFd>,
    hook: Option<EventHook>,
    fabric: Option<Box<dyn Fabric>>,
    store: Option<StoreQueue>,
    started: std::time::Instant,
    /// The array has stopped, and this one is to be told.
    ended: Option<CommandDone>,
    /// Time of the next look for unused memory, if any was used.
    cool_at: Option<Instant>,
    /// Set when something was done since the last look.
    used: bool,
    /// The submission queue is closed.
    leaving: bool,
}

impl EngineLoop {
    fn serve(&mut self) -> io::Result<()> {
        self.await_wake();
        self.exports.start(&mut self.core);
        if let Some(fabric) = &mut self.fabric {
            fabric.begin(&mut self.core.driver)?;
        }
        let mut completions = Vec::new();
        loop {
            self.work();
            if self.ended.is_some() && self.core.requests() == 0 {
                return Ok(());
            }
            self.turn(None, &mut completions)?;
        }
    }

    /// Waits for completions, at most `limit`, and takes them in.
    fn turn(
        &mut self,
        limit: Option<Duration>,
        completions: &mut Vec<Completion<Token>>,
    ) -> io::Result<()> {
        let exports = self.exports.deadline();
        let own = [self.machine.deadline(), self.executor.deadline(), self.cool_at, exports];
        let own = own.into_iter().flatten().min();
        let own = own.map(|at| Duration::from_nanos(at.0.saturating_sub(self.clock().0)));
        let timeout = [own, limit].into_iter().flatten().min();
        self.core.driver.wait(timeout, completions)?;
        self.core.now = self.clock();
        self.executor.begin_turn(self.core.now);
        for completion in completions.drain(..) {
            // What is only asked for, like the state, uses no memory to speak of.
            self.used |= completion.token != Token::Wake;
            self.take_in(completion);
        }
        while let Some((io, result)) = self.executor.tick(&mut self.core.driver, self.core.now) {
            self.answered(io, result);
        }
        if self.machine.deadline().is_some_and(|at| at <= self.core.now) {
            self.machine.handle(self.core.now, Event::Tick);
        }
        self.exports.tick(&mut self.core);
        match self.cool_at {
            Some(at) if at <= self.core.now => self.cool(),
            // A fabric has the arena pinned, for others to put data into.
            None if self.used && self.fabric.is_none() => {
                self.cool_at = Some(self.core.now.plus_millis(memory::COOLING_MILLIS));
            }
            _ => {}
        }
        Ok(())
    }

    fn clock(&self) -> Instant {
        Instant(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn take_in(&mut self, completion: Completion<Token>) {
        let Completion { token, result, message, accepted } = completion;
        let answer = match token {
            Token::Io(index) => {
                let Core { driver, now, .. } = &mut self.core;
                self.executor.flight_step_done(driver, index, result, *now)
            }
            Token::Range(index) => {
                let Core { driver, now, .. } = &mut self.core;
                self.executor.range_step_done(driver, index, result, *now)
            }
            Token::Export(id, token) => {
                let completion = Completion { token, result, message, accepted };
                self.exports.get(id).take_in(&mut self.core, completion);
                None
            }
            Token::Fabric(token) => {
                if let Some(fabric) = &mut self.fabric {
                    fabric.completed(&mut self.core.driver, token, result, message);
                }
                None
            }
            Token::Wake => {
                if self.leaving {
                    return;
                }
                let _ = rustix::io::read(self.wake.as_fd(), &mut [0; 8]);
                self.await_wake();
                let Self { core, executor, machine, exports, fabric, .. } = self;
                exports.drain(core, executor);
                self.submission_side.drain(core, executor, machine, exports, fabric.as_deref());
                None
            }
        };
        if let Some((io, result)) = answer {
            self.answered(io, result);
        }
    }

    fn answered(&mut self, io: IoId, result: Result<Outcome, IoError>) {
        self.core.arena.unlend(io);
        self.machine.handle(self.core.now, Event::Done { io, result });
    }

    fn await_wake(&mut self) {
        self.core.driver.start(Token::Wake, Op::Readable { file: Arc::clone(&self.wake) });
    }

    /// Does all work that needs no waiting.
    fn work(&mut self) {
        loop {
            self.exports.iter_mut().for_each(|export| export.work(&mut self.core));
            self.submission_side.work(&mut self.core);
            if self.core.arena.was_short() {
                self.drop_client_that_waits();
            }
            let Self { core, machine, executor, exports, .. } = self;
            let mut more = machine.block().is_some_and(|machine| {
                let expected = exports.iter().any(|export| export.receives_write());
                executor.expect_writes(expected);
                machine.expect_writes(expected);
                core.submit(machine)
            });
            while let Some(event) = self.fabric.as_mut().and_then(|fabric| fabric.poll()) {
                self.machine.handle(self.core.now, event);
                more = true;
            }
            while self.carry_out_all() {
                more = true;
            }
            self.notice_size();
            // Replies go out when nothing else is to be done, so that many share one message.
            if !more {
                self.exports.iter_mut().for_each(|export| export.flush(&mut self.core));
                self.exports.part(&mut self.core);
                self.exports.tell_if_held(&self.core, &self.executor);
                let fabric = self.fabric.as_mut();
                if !fabric.is_some_and(|fabric| fabric.flush(&mut self.core.driver)) {
                    break;
                }
            }
        }
    }

    /// Carries out the machine's actions, then reports to it those done at once. Returns true when
    /// there was any.
    fn carry_out_all(&mut self) -> bool {
        let mut any = false;
        while let Some(action) = self.machine.poll() {
            self.carry_out(action);
            any = true;
        }
        let Self { executor, core, machine, store, .. } = self;
        while let Some((io, result)) = executor.next_done(&mut core.driver, core.now) {
            core.arena.unlend(io);
            machine.handle(core.now, Event::Done { io, result });
            any = true;
        }
        while let Some(event) = store.as_mut().and_then(|store| store.take(executor)) {
            machine.handle(core.now, event);
            any = true;
        }
        any
    }

    /// Tells the exports if the array has another size than before.
    fn notice_size(&mut self) {
        let Self { core, machine, exports, size, .. } = self;
        let Some(machine) = machine.block() else { return };
        let bytes = size_bytes(machine);
        if size.set(bytes) {
            exports.iter_mut().for_each(|export| export.resized(core, bytes));
        }
    }

    fn store(&mut self) -> &mut StoreQueue {
        self.store.as_mut().expect("a store for a machine that asks")
    }

    /// Disconnects a client, as memory is short: of the first export that has such a client, the
    /// one that holds most memory and takes nothing.
    fn drop_client_that_waits(&mut self) {
        let Self { core, exports, .. } = self;
        let client = exports.iter_mut().find_map(|export| export.relieve(core));
        let Some(client) = client else { return };
        if let Some(hook) = &mut self.hook {
            hook(&ArrayEvent::ClientDropped { client: client.to_string().into() });
        }
    }

    fn carry_out(&mut self, action: Action) {
        let memory = self.core.arena.memory();
        match action {
            Action::Io { io, member, op } => {
                let answer = self.executor.start(&mut self.core.driver, io, member, op);
                if let Some((io, result)) = answer {
                    self.answered(io, result);
                }
            }
            Action::IoBeside { io, member, op } => {
                let answer = self.executor.start_beside(&mut self.core.driver, io, member, op);
                if let Some((io, result)) = answer {
                    self.answered(io, result);
                }
            }
            Action::Abandon { io, buf } => {
                self.executor.abandon(io);
                self.core.driver.make_room();
                if let Some(buf) = buf {
                    self.core.arena.lend(io, buf);
                }
            }
            Action::Compute { io, compute } => {
                let result = Ok(execute::compute(memory, &compute));
                self.machine.handle(self.core.now, Event::Done { io, result });
            }
            Action::Store { buf, bytes } => execute::store(memory, buf, &bytes),
            Action::Load { io, buf } => {
                let bytes = execute::load(memory, buf);
                self.machine.handle(self.core.now, Event::Loaded { io, bytes });
            }
            Action::Complete { id, result: Err(RequestError::BufferHeld) }
                if self.core.ask_again(id) => {}
            Action::Complete { id, result } => self.completed(id, result),
            Action::Reply { id, result } => {
                // Whoever asked for a larger array finds it everywhere.
                self.notice_size();
                let ended = self.submission_side.replied(&mut self.executor, id, result);
                self.ended = ended.or(self.ended.take());
            }
            Action::Notify(event) => {
                if let Some(hook) = &mut self.hook {
                    hook(&event);
                }
            }
            Action::Use { range } => self.memory_used(range),
            Action::GiveBack { range } => self.memory_given_back(range),
            Action::Fabric(op) => {
                let fabric = self.fabric.as_mut().expect("a fabric for a machine that asks");
                fabric.start(&mut self.core.driver, op);
            }
            Action::Survey { io, after, most } => self.store().survey(io, after, most),
            Action::Note { io, op } => self.store().note(io, op),
            Action::Volume { io, op } => {
                let Self { store, executor, .. } = self;
                let store = store.as_mut().expect("a store for a machine that asks");
                store.volume(executor, io, op);
            }
        }
    }

    /// Gives the result of a request to its owner.
    fn completed(&mut self, id: RequestId, result: Result<(), RequestError>) {
        let completed = self.core.completed(id, result);
        let Some((request, owner, result)) = completed else { return };
        match owner {
            Owner::Export(id, job) => {
                self.exports.get(id).completed(&mut self.core, job, request, result);
            }
            Owner::SubmissionQueue(job) => {
                self.submission_side.completed(&mut self.core, job, request, result);
            }
            Owner::Spread(_) => unreachable!("only whole requests are told of"),
        }
    }

    /// Takes leave of the clients and waits until nothing is in flight.
    fn say_farewell(&mut self) -> io::Result<()> {
        self.leaving = true;
        driver::signal(&self.wake);
        // What is handed over is not hung up on; devices of the kernel's wait for what follows.
        if !self.exports.are_handed_over() {
            self.exports.close(&mut self.core);
        }
        if let Some(fabric) = &mut self.fabric {
            fabric.close(&mut self.core.driver);
        }
        let mut completions = Vec::new();
        let begun = std::time::Instant::now();
        let mut patient = true;
        while self.is_waited_for() {
            let left = (FAREWELL * if patient { 1 } else { 2 }).saturating_sub(begun.elapsed());
            if left.is_zero() {
                if !patient {
                    break;
                }
                patient = false;
                self.exports.disconnect(&mut self.core);
                if let Some(fabric) = &mut self.fabric {
                    fabric.disconnect();
                }
            }
            self.turn(Some(left), &mut completions)?;
            self.work();
        }
        Ok(())
    }

    /// Returns whether an operation is in flight that the end must wait for.
    fn is_waited_for(&self) -> bool {
        let handed_over = self.exports.are_handed_over();
        let lasts = |token: &&Token| handed_over && matches!(token, Token::Export(..));
        let Core { driver, .. } = &self.core;
        driver.in_flight() > self.executor.given_up() + driver.count(lasts)
    }
}
