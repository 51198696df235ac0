//! The pretend world, [`World`]: processes, the devices they use, and the network between them.
//!
//! A local array is a process with devices and no network; a client and its nodes are processes
//! that know each other by the network alone. The [`executor`] does what processes wait for, the
//! [`network`] carries what they say and put ([`fabric`]); both stand on the [`ground`]. Forbidden
//! acts of machines are detected by [`claims`] and by the messages ([`watch`]).

use std::ops::{Deref, DerefMut};

use braid_array::action::{Command, CommandId, Event};
use braid_array::array::Scratch;
use braid_array::fabric::PeerId;
use braid_array::{Action, Buf, IoOp, Machine};
use braid_cluster::client::{Client, ClientConfig};

use self::claims::Use;
use self::due::{Due, EndId, FabricDue};
use self::executor::Executor;
use self::ground::Ground;
use self::network::Network;
use self::process::{POISON, Process};
use self::work::Task;
use crate::disk::Disk;
use crate::fault::FaultProfile;
use crate::judge::{Draft, Judge};
use crate::oracle::Range;
use crate::report::Failure;
use crate::rng::Rng;
use crate::trace::Trace;
use crate::workload::Kind;

pub mod claims;
pub mod due;
mod executor;
mod fabric;
pub mod ground;
pub mod network;
pub mod process;
mod replay;
pub mod script;
mod signs;
pub(crate) mod votes;
pub mod watch;
mod work;

#[cfg(test)]
mod tests;

/// More events than any client needs: beyond, it is said to hang.
const MAX_STEPS: u64 = 400_000;

/// Processes with their machines, the devices and the network that they use, and virtual time. The
/// world executes the actions of machines. Legal differences in the behaviour of executors and
/// networks are drawn from the seed, within the limits of its [`FaultProfile`]. Actions that break
/// a machine's contract are recorded in `faults`, which lies on the ground, as do `processes`.
///
/// Order of calls: [`new`](Self::new); [`start`](Self::start) for each process, which returns the
/// number that names it from then on; [`step`](Self::step) again and again, each of which handles
/// the next event, I/O, message or deadline, until nothing is due. Between steps the caller hands
/// machines commands by [`handle`](Self::handle); or requests directly, and then calls
/// [`drain`](Self::drain), which carries out what the machine asks for. After each of these the
/// caller takes `outputs` (answers, replies, notifications), and looks at `faults`.
///
/// A process runs, is frozen for a while ([`freeze`](Self::freeze), until it [thaws](Self::thaw)),
/// or is dead for good ([`kill`](Self::kill)): then its I/O is done in part. Times are in
/// nanoseconds.
pub struct World {
    ground: Ground,
    executor: Executor,
    /// Connections, and what is under way on them.
    pub network: Network,
    /// `Complete`, `Reply` and `Notify` of any process, for the scenario to see to.
    pub outputs: Vec<(usize, Action)>,
    /// Events handled.
    pub steps: u64,
    /// And before the client began what it is at.
    begun: u64,
}

impl Deref for World {
    type Target = Ground;

    fn deref(&self) -> &Ground {
        &self.ground
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Ground {
        &mut self.ground
    }
}

impl World {
    /// A world without processes.
    pub fn new(rng: Rng, profile: FaultProfile, trace: Trace) -> Self {
        Self {
            ground: Ground::new(rng, profile, trace),
            executor: Executor::default(),
            network: Network::default(),
            outputs: Vec::new(),
            steps: 0,
            begun: 0,
        }
    }

    /// Starts a process, and carries out the first actions of its machine. Returns its number.
    pub fn start(&mut self, process: Process) -> usize {
        self.processes.push(process);
        let number = self.processes.len() - 1;
        self.drain(number);
        number
    }

    /// Starts a client with this arena: buffers of its requests, and behind them its own memory.
    /// With `limit`, it has the key of that array alone.
    ///
    /// # Errors
    /// Returns an error if the client refuses the array.
    pub fn start_client(
        &mut self,
        name: &str,
        config: ClientConfig,
        buffers_bytes: u64,
        limit: Option<[u8; 16]>,
    ) -> Result<usize, String> {
        let scratch = Scratch { offset: buffers_bytes, bytes: Client::scratch_bytes(&config) };
        let client = Box::new(Client::new(config, scratch)?);
        Ok(self.start(Process::of_client(name, client, scratch, limit)))
    }

    /// Asks a client for a request, if it may have one more. Returns the draft of the judge, if the
    /// client takes it: the caller submits the draft to the judge, and calls
    /// [`drain`](Self::drain).
    pub(crate) fn ask(
        &mut self,
        judge: &mut Judge,
        client: usize,
        kind: Kind,
        range: Range,
    ) -> Option<Draft> {
        let now = self.now();
        let Self { ground, executor, .. } = self;
        let process = &mut ground.processes[client];
        let lent = |buf| executor.lent(client, buf);
        let draft = judge.draft(client, kind, range, &mut process.arena, lent)?;
        process.client().submit(now, draft.request).is_ok().then_some(draft)
    }

    /// A client begins something that ends within a number of events.
    pub(crate) const fn begin(&mut self) {
        self.begun = self.steps;
    }

    /// Checks that no machine broke its contract, and that a client with waiting requests makes
    /// progress. `moved`: an event has just been handled.
    ///
    /// # Errors
    /// Returns the fault of a machine, or the waiting requests of a client that hangs.
    pub(crate) fn goes_on(&self, moved: bool, judge: &Judge, client: usize) -> Result<(), Failure> {
        self.faultless()?;
        let waits = || judge.flights(client).map(|flight| flight.kind).collect::<Vec<_>>();
        if !moved && judge.in_flight(client) > 0 {
            return Err(Failure(format!("hangs: {:?} unanswered", waits())));
        }
        if self.steps - self.begun > MAX_STEPS {
            return Err(Failure(format!("no end after {MAX_STEPS} events, {:?}", waits())));
        }
        Ok(())
    }

    /// Tells a machine to do something.
    pub(crate) fn command(&mut self, process: usize, id: CommandId, command: Command) {
        self.handle(process, Event::Command { id, command });
    }

    /// Hands a machine an event, and carries out the resulting actions.
    pub fn handle(&mut self, process: usize, event: Event) {
        if !self.processes[process].alive {
            return;
        }
        self.steps += 1;
        let now = self.now();
        self.processes[process].machine.handle(now, event);
        self.drain(process);
    }

    /// Carries out the pending actions of a machine.
    pub fn drain(&mut self, process: usize) {
        while let Some(action) = self.processes[process].machine.poll() {
            self.cool_later(process);
            self.carry_out(process, action);
        }
        if let Err(what) = self.processes[process].machine.invariants() {
            self.fault(process, &what);
        }
    }

    /// Carries out an action of a machine, or of a test in its place.
    pub fn carry_out(&mut self, process: usize, action: Action) {
        let Self { ground, executor, network, .. } = self;
        match action {
            Action::Io { io, member, op } => {
                executor.issue(ground, process, io, (member, false), op);
            }
            Action::IoBeside { io, member, op } => {
                executor.issue(ground, process, io, (member, true), op);
            }
            Action::Abandon { io, .. } => executor.abandon(ground, process, io),
            Action::Compute { io, compute } => executor.compute(ground, process, io, compute),
            Action::Store { buf, bytes } => ground.store(process, buf, &bytes),
            Action::Load { io, buf } => executor.begin(ground, process, io, Task::Load(buf)),
            Action::Volume { io, op } => executor.begin(ground, process, io, Task::Volume(op)),
            Action::Note { io, op } => executor.begin(ground, process, io, Task::Note(op)),
            Action::Survey { io, after, most } => {
                executor.begin(ground, process, io, Task::Survey(after, most));
            }
            Action::Fabric(op) => network.fabric_op(ground, process, op),
            Action::Use { .. } => {}
            Action::GiveBack { range } => ground.give_back(process, &range),
            other => self.outputs.push((process, other)),
        }
    }

    /// Lets the next thing happen. False when nothing is due.
    pub fn step(&mut self) -> bool {
        let deadline = |(number, process): (usize, &Process)| {
            process.machine.deadline().map(|at| (at, number))
        };
        let goes_on = |(_, process): &(usize, &Process)| process.alive && !process.frozen;
        let alive = self.processes.iter().enumerate().filter(goes_on);
        let tick = alive.filter_map(deadline).min();
        let due = self.clock.next_due();
        match (due, tick) {
            (None, None) => false,
            (due, Some((at, process))) if due.is_none_or(|due| at < due) => {
                self.clock.advance(at);
                self.note(&[1, process as u64], || format!("tick of process {process}"));
                self.handle(process, Event::Tick);
                true
            }
            _ => {
                let Some(due) = self.clock.pop() else { return false };
                let hears = self.hears(due).filter(|&hears| self.processes[hears].frozen);
                match (due, hears) {
                    (due, Some(process)) => self.processes[process].held.push(due),
                    (Due::Work(slot), _) => {
                        let told = self.executor.finish(&mut self.ground, slot);
                        self.tell(told);
                    }
                    (Due::Fabric(due), _) => self.fabric_due(due),
                    (Due::Cool(process), _) => self.cool(process),
                    (Due::Thaw(process), _) => self.thaw(process),
                    (Due::Wake, _) => {}
                }
                true
            }
        }
    }

    /// The process that would be told of this.
    fn hears(&self, due: Due) -> Option<usize> {
        match due {
            Due::Work(slot) => self.executor.waits(slot),
            Due::Fabric(due) => self.network.hears(due),
            Due::Cool(_) | Due::Thaw(_) | Due::Wake => None,
        }
    }

    /// Tells a process of something that is done.
    fn tell(&mut self, told: Option<(usize, Event)>) {
        if let Some((process, event)) = told {
            self.handle(process, event);
        }
    }

    /// Something on the network goes on.
    fn fabric_due(&mut self, due: FabricDue) {
        match due {
            FabricDue::Closing(id) if self.network.is_drained(id) => self.cut(id.other()),
            FabricDue::Closing(_) => self.later(due),
            FabricDue::Cut(id) => self.cut(id),
            _ => {
                let told = self.network.arrive(&mut self.ground, due);
                self.tell(told);
            }
        }
    }

    /// An end is told that the connection is over, and before of its puts.
    fn cut(&mut self, id: EndId) {
        let Some(state) = self.network.begin_cut(&mut self.ground, id) else { return };
        while let Some((process, event)) = self.network.end_put_of(&mut self.ground, id) {
            self.handle(process, event);
        }
        let told = self.network.end_cut(&mut self.ground, id, state);
        self.tell(told);
    }

    /// Where unused memory is taken back, it is some time after it was used.
    fn cool_later(&mut self, process: usize) {
        let Some(millis) = self.profile.cooling_millis else { return };
        if !std::mem::replace(&mut self.processes[process].cools, true) {
            self.clock.schedule(millis * 1_000_000, Due::Cool(process));
        }
    }

    /// Takes unused memory of an idle machine back, as an executor may. Zeroes stay zeroes; other
    /// bytes are overwritten, so that a later use of them is detected.
    fn cool(&mut self, number: usize) {
        let rests = self.executor.of(number).next().is_none();
        let process = &mut self.processes[number];
        process.cools = false;
        if !process.alive {
            return;
        }
        if !rests || !process.machine.idle() {
            return self.cool_later(number);
        }
        let mut unused = Vec::new();
        process.machine.each_unused(&mut |buf| unused.push(buf));
        unused.sort_by_key(|buf| buf.offset);
        self.note(&[8, unused.len() as u64], || {
            format!("{} parts of memory are taken back", unused.len())
        });
        if unused.windows(2).any(|pair| pair[0].overlaps(pair[1])) {
            self.fault(number, "memory is unused twice");
        }
        for buf in unused {
            let used = self.processes[number].bytes(buf).iter_mut().filter(|byte| **byte != 0);
            used.for_each(|byte| *byte = POISON);
        }
    }

    /// The process stands still for so long: its memory and its devices do not, but it hears of
    /// nothing.
    pub fn freeze(&mut self, process: usize, nanos: u64) {
        self.note(&[3, process as u64], || format!("FREEZE {process} for {nanos} ns"));
        self.processes[process].frozen = true;
        self.clock.schedule(nanos, Due::Thaw(process));
    }

    /// Thaws a process, and delivers the events held meanwhile, in order.
    pub fn thaw(&mut self, process: usize) {
        if !std::mem::take(&mut self.processes[process].frozen) {
            return;
        }
        self.note(&[4, process as u64], || format!("THAW {process}"));
        for due in std::mem::take(&mut self.processes[process].held) {
            self.clock.schedule(1, due);
        }
    }

    /// A device that answered nothing answers again.
    pub fn wake(&mut self, process: usize, device: usize) {
        self.executor.wake(&mut self.ground, process, (device, false));
    }

    /// The same, of the store beside a device.
    pub fn wake_beside(&mut self, process: usize, device: usize) {
        self.executor.wake(&mut self.ground, process, (device, true));
    }

    /// Returns whether the process waits for nothing, except for what it has given up.
    pub fn rests(&self, process: usize) -> bool {
        self.executor.of(process).all(|task| matches!(task, Task::Io { abandoned: true, .. }))
    }

    /// I/O of a process in flight, given up or not: the device of each.
    pub fn io_of(&self, process: usize) -> impl Iterator<Item = (usize, IoOp)> {
        self.executor.of(process).filter_map(|task| match task {
            Task::Io { device, beside: false, op, .. } => Some((*device, *op)),
            _ => None,
        })
    }

    /// Returns whether I/O that was given up may still read or write this buffer.
    pub(crate) fn lent(&self, process: usize, buf: Buf) -> bool {
        self.executor.lent(process, buf)
    }

    /// # Errors
    /// Returns the use of a buffer that an answered request had, and which nobody has given up.
    pub(crate) fn is_free(&self, process: usize, buf: Buf) -> Result<(), Failure> {
        match self.processes[process].claims.conflict(buf, Use::Write, "a completion") {
            Some(conflict) if !self.lent(process, buf) => Err(Failure(conflict)),
            _ => Ok(()),
        }
    }

    /// The connections between two processes break.
    pub fn disconnect(&mut self, a: usize, b: usize) {
        for connection in self.network.between(a, b) {
            self.network.break_connection(&mut self.ground, connection);
        }
    }

    /// Breaks the connections between two processes that the second one knows by such a number.
    pub fn disconnect_peers(&mut self, a: usize, b: usize, is_meant: &dyn Fn(PeerId) -> bool) {
        for connection in self.network.between(a, b) {
            if self.network.peer_of(connection, b).is_some_and(is_meant) {
                self.network.break_connection(&mut self.ground, connection);
            }
        }
    }

    /// Drops all messages and puts under way from the process to these processes.
    pub fn lose_what_is_under_way(&mut self, process: usize, to: impl Fn(usize) -> bool) {
        self.network.lose_what_is_under_way(&mut self.ground, process, to);
    }

    /// Kills the process between two events: its device I/O is done in part, its messages are under
    /// way, and the others learn of it in time.
    pub fn kill(&mut self, process: usize) {
        let name = self.processes[process].name.clone();
        self.note(&[2, process as u64], || format!("KILL {name}"));
        self.processes[process].alive = false;
        self.executor.end_all(&mut self.ground, process);
        self.network.abandon_connections(&mut self.ground, process);
        let process = &mut self.processes[process];
        for device in &mut process.devices {
            device.open = None;
        }
        // Hundreds of them may have died before a seed is over.
        process.arena = Vec::new();
    }

    /// Cuts the power of a process and its devices: caches lose a part, and of I/O in flight some
    /// is done. Returns the disks.
    pub fn power_cut(&mut self, process: usize) -> Vec<Disk> {
        let Ground { processes, rng, .. } = &mut self.ground;
        for device in &mut processes[process].devices {
            device.disk.power_cut(rng);
        }
        self.kill(process);
        let mut disks = self.processes[process].take_disks();
        for disk in &mut disks {
            disk.flush(disk.mark());
            disk.set_hung(false);
            if let Some(store) = disk.beside_mut() {
                store.flush(store.mark());
                store.set_hung(false);
            }
        }
        disks
    }
}
