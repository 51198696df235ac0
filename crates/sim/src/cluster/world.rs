//! The pretend world, [`World`]: processes, their volumes, and the fabric between them.

use std::collections::BTreeSet;

use braid_array::action::{Command, CommandId, Event};
use braid_array::array::Scratch;
use braid_array::{Action, Instant, Machine};
use braid_cluster::client::{Client, ClientConfig};

use super::fabric::{Connection, FabricDue, Put};
use super::io::Work;
use super::kill_point::Signs;
use super::process::Process;
use super::watch::Watch;
use crate::clock::Clock;
use crate::fault::FaultProfile;
use crate::judge::{Draft, Judge};
use crate::oracle::Range;
use crate::report::Failure;
use crate::rng::Rng;
use crate::trace::Trace;
use crate::workload::Kind;

/// More events than any client needs: beyond, it is said to hang.
const MAX_STEPS: u64 = 400_000;

/// Something due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Work(usize),
    Fabric(FabricDue),
    /// The process goes on.
    Thaw(usize),
    /// A wake-up at a given time.
    Wake,
}

/// Processes with their machines, their volumes, the fabric between them, and virtual time. The
/// world executes the actions of machines. Legal differences in the behaviour of executors and
/// networks are drawn from the seed, within the limits of its [`FaultProfile`]. Actions that break
/// a machine's contract are recorded in `faults`.
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
    /// All processes, dead ones too.
    pub processes: Vec<Process>,
    /// `Complete`, `Reply` and `Notify` of any process, for the scenario to see to.
    pub outputs: Vec<(usize, Action)>,
    /// Violations of a machine's contract.
    pub faults: Vec<String>,
    /// Trace of events.
    pub trace: Trace,
    /// Examines messages and puts.
    pub watch: Watch,
    /// Events handled.
    pub steps: u64,
    /// Notifications so far.
    pub(super) signs: Signs,
    pub(super) rng: Rng,
    pub(super) clock: Clock<Due>,
    /// Behaviour of the world; it may change at any moment.
    pub profile: FaultProfile,
    /// Size of journals at the end of volumes.
    pub journal_sectors: u64,
    pub(super) work: Vec<Option<Work>>,
    pub(super) free: BTreeSet<usize>,
    pub(super) connections: Vec<Connection>,
    pub(super) puts: Vec<Put>,
}

impl World {
    /// A world without processes.
    pub fn new(rng: Rng, profile: FaultProfile, trace: Trace) -> Self {
        let mut clock = Clock::default();
        clock.advance(Instant(1));
        Self {
            processes: Vec::new(),
            outputs: Vec::new(),
            faults: Vec::new(),
            trace,
            watch: Watch::default(),
            steps: 0,
            signs: Signs::default(),
            rng,
            clock,
            profile,
            journal_sectors: 0,
            work: Vec::new(),
            free: BTreeSet::new(),
            connections: Vec::new(),
            puts: Vec::new(),
        }
    }

    /// The time.
    pub const fn now(&self) -> Instant {
        self.clock.now()
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
    pub(super) fn ask(
        &mut self,
        judge: &mut Judge,
        client: usize,
        kind: Kind,
        range: Range,
    ) -> Option<Draft> {
        let now = self.now();
        let process = &mut self.processes[client];
        let draft = judge.draft(client, kind, range, &mut process.arena)?;
        process.client().submit(now, draft.request).is_ok().then_some(draft)
    }

    /// Tells a machine to do something.
    pub(super) fn command(&mut self, process: usize, id: CommandId, command: Command) {
        self.handle(process, Event::Command { id, command });
    }

    /// # Errors
    /// Returns the first fault of a machine.
    pub(super) fn faultless(&self) -> Result<(), Failure> {
        self.faults.first().map_or(Ok(()), |fault| Err(Failure(fault.clone())))
    }

    /// Checks that a client with waiting requests makes progress, and ends within a number of
    /// events. `moved`: an event has just been handled; `begun`: number of events before.
    ///
    /// # Errors
    /// Returns the waiting requests of a client that hangs.
    pub(super) fn goes_on(
        &self,
        moved: bool,
        judge: &Judge,
        client: usize,
        begun: u64,
    ) -> Result<(), Failure> {
        let waits = || judge.flights(client).map(|flight| flight.kind).collect::<Vec<_>>();
        if !moved && judge.in_flight(client) > 0 {
            return Err(Failure(format!("hangs: {:?} unanswered", waits())));
        }
        if self.steps - begun > MAX_STEPS {
            return Err(Failure(format!("no end after {MAX_STEPS} events, {:?}", waits())));
        }
        Ok(())
    }

    /// Returns whether nothing is scheduled.
    pub fn quiet(&self) -> bool {
        self.clock.next_due().is_none()
    }

    /// A note for the trace.
    pub fn note(&mut self, numbers: &[u64], words: impl FnOnce() -> String) {
        self.trace.note(self.clock.now(), numbers, words);
    }

    pub(super) fn fault(&mut self, process: usize, what: &str) {
        let fault = format!("{}: {what}", self.processes[process].name);
        self.note(&[99], || format!("FAULT {fault}"));
        self.faults.push(fault);
    }

    /// Hands a machine an event, and carries out the resulting actions.
    pub fn handle(&mut self, process: usize, event: Event) {
        if !self.processes[process].alive {
            return;
        }
        self.steps += 1;
        self.processes[process].machine.handle(self.clock.now(), event);
        self.drain(process);
    }

    /// Carries out the pending actions of a machine.
    pub fn drain(&mut self, process: usize) {
        while let Some(action) = self.processes[process].machine.poll() {
            self.carry_out(process, action);
        }
        if let Err(what) = self.processes[process].machine.invariants() {
            self.fault(process, &what);
        }
    }

    /// Carries out an action of a machine, or of a test in its place.
    pub fn carry_out(&mut self, process: usize, action: Action) {
        match action {
            Action::Io { io, member, op } => self.issue(process, io, member, op),
            Action::Compute { io, compute } => self.compute(process, io, compute),
            Action::Store { buf, bytes } => self.store(process, buf, &bytes),
            Action::Load { io, buf } => self.load(process, io, buf),
            Action::Volume { io, op } => self.volume_op(process, io, op),
            Action::Note { io, op } => self.note_op(process, io, op),
            Action::Survey { io, after, most } => self.survey(process, io, after, most),
            Action::Fabric(op) => self.fabric_op(process, op),
            Action::Use { .. } => {}
            Action::GiveBack { range } => self.give_back(process, &range),
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
                    (Due::Work(slot), _) => self.finish(slot),
                    (Due::Fabric(due), _) => self.fabric_due(due),
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
            Due::Work(slot) => self.work[slot].as_ref().map(|work| work.process),
            Due::Fabric(due) => self.fabric_hears(due),
            Due::Thaw(_) | Due::Wake => None,
        }
    }

    /// Schedules an event, so that time advances to this instant.
    pub fn wake_at(&mut self, at: Instant) {
        self.clock.schedule(at.0 - self.clock.now().0, Due::Wake);
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

    pub(super) fn delay(&mut self, longest: u64) -> u64 {
        self.profile.delay(longest, &mut self.rng)
    }

    /// Kills the process between two events: its device I/O is done in part, its messages are under
    /// way, and the others learn of it in time.
    pub fn kill(&mut self, process: usize) {
        let name = self.processes[process].name.clone();
        self.note(&[2, process as u64], || format!("KILL {name}"));
        self.processes[process].alive = false;
        self.abandon_work(process);
        self.abandon_connections(process);
        let process = &mut self.processes[process];
        for volume in process.volumes.values_mut() {
            volume.open = None;
        }
        // Hundreds of them may have died before a seed is over.
        process.arena = Vec::new();
    }
}
