//! The pretend world, [`ClusterWorld`]: processes, their volumes, and the fabric between them.

use std::collections::BTreeSet;

use braid_array::{Action, Instant};

use super::due::{Due, FabricDue};
use super::network::Network;
use super::process::Process;
use super::signs::Signs;
use super::watch::Watch;
use super::work::Work;
use crate::clock::Clock;
use crate::fault::{FaultProfile, Mutation};
use crate::judge::{Draft, Judge};
use crate::oracle::Range;
use crate::report::Failure;
use crate::rng::Rng;
use crate::trace::Trace;
use crate::workload::Kind;

/// More events than any client needs: beyond, it is said to hang.
const MAX_STEPS: u64 = 400_000;

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
pub struct ClusterWorld {
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
    /// Connections, and what is under way on them.
    pub network: Network,
}

impl ClusterWorld {
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
            network: Network::default(),
        }
    }

    /// The time.
    pub const fn now(&self) -> Instant {
        self.clock.now()
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

    /// The process that would be told of this.
    pub(super) fn hears(&self, due: Due) -> Option<usize> {
        match due {
            Due::Work(slot) => self.work[slot].as_ref().map(|work| work.process),
            Due::Fabric(due) => self.network.hears(due),
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

    /// Returns whether to commit a deliberate fault now: one chance in `of`.
    pub(super) fn mutates(&mut self, mutation: Mutation, of: u64) -> bool {
        self.profile.mutation == Some(mutation) && self.rng.below(of) == 0
    }

    pub(super) fn later(&mut self, due: FabricDue) {
        let delay = self.delay(self.profile.net_nanos);
        self.clock.schedule(delay, Due::Fabric(due));
    }
}
