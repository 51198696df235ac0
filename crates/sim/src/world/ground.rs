//! The ground on which executor and network of a world meet: processes, time, chance and trace.

use std::ops::Range;

use braid_array::{Buf, Instant};

use super::claims::{ClaimId, Use};
use super::due::{Due, FabricDue};
use super::process::{POISON, Process};
use super::signs::Signs;
use crate::clock::Clock;
use crate::fault::{FaultProfile, Mutation};
use crate::report::Failure;
use crate::rng::Rng;
use crate::trace::Trace;

/// When a world begins.
pub const START: Instant = Instant(1);

/// The processes of a world and all that happens to them at a time, for the machines that carry
/// out their actions: these have a state of their own, and do not know each other.
pub struct Ground {
    /// All processes, dead ones too.
    pub processes: Vec<Process>,
    /// Violations of a machine's contract.
    pub faults: Vec<String>,
    /// Trace of events.
    pub trace: Trace,
    /// Behaviour of the world; it may change at any moment.
    pub profile: FaultProfile,
    /// Size of journals at the end of volumes.
    pub journal_sectors: u64,
    /// Notifications so far.
    pub(crate) signs: Signs,
    pub(super) rng: Rng,
    pub(super) clock: Clock<Due>,
}

impl Ground {
    /// A ground without processes.
    pub(super) fn new(rng: Rng, profile: FaultProfile, trace: Trace) -> Self {
        let mut clock = Clock::default();
        clock.advance(START);
        Self {
            processes: Vec::new(),
            faults: Vec::new(),
            trace,
            profile,
            journal_sectors: 0,
            signs: Signs::default(),
            rng,
            clock,
        }
    }

    /// The time.
    pub const fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns whether nothing is scheduled.
    pub fn quiet(&self) -> bool {
        self.clock.next_due().is_none()
    }

    /// A note for the trace.
    pub fn note(&mut self, numbers: &[u64], words: impl FnOnce() -> String) {
        self.trace.note(self.clock.now(), numbers, words);
    }

    /// A machine, or a test in its place, broke its contract.
    pub(super) fn fault(&mut self, process: usize, what: &str) {
        let fault = format!("{}: {what}", self.processes[process].name);
        self.note(&[99], || format!("FAULT {fault}"));
        self.faults.push(fault);
    }

    /// # Errors
    /// Returns the first fault of a machine.
    pub(crate) fn faultless(&self) -> Result<(), Failure> {
        self.faults.first().map_or(Ok(()), |fault| Err(Failure(fault.clone())))
    }

    /// Schedules an event, so that time advances to this instant.
    pub fn wake_at(&mut self, at: Instant) {
        self.clock.schedule(at.0 - self.clock.now().0, Due::Wake);
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

    pub(super) fn claim(
        &mut self,
        process: usize,
        buf: Buf,
        access: Use,
        what: &'static str,
    ) -> ClaimId {
        let (id, conflict) = self.processes[process].claim(buf, access, what);
        if let Some(conflict) = conflict {
            self.fault(process, &conflict);
        }
        id
    }

    /// Bytes are copied into an arena.
    pub(super) fn store(&mut self, process: usize, buf: Buf, bytes: &[u8]) {
        self.note(&[12, process as u64, buf.offset], || {
            format!("process {process} stores {} bytes at {}", bytes.len(), buf.offset)
        });
        let id = self.claim(process, buf, Use::Write, "a store");
        self.processes[process].claims.release(id);
        self.processes[process].bytes(buf).copy_from_slice(bytes);
    }

    /// A process has no use for a part of its arena: all of it goes.
    pub(super) fn give_back(&mut self, process: usize, range: &Range<u64>) {
        let len = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
        self.note(&[60, process as u64, range.start, len.into()], || {
            format!("process {process} gives back {}+{len}", range.start)
        });
        self.poison(process, Buf { offset: range.start, len });
    }

    /// Poisons a part of an arena that is no longer needed.
    pub(super) fn poison(&mut self, process: usize, buf: Buf) {
        let own = &mut self.processes[process];
        let conflict = own.claims.conflict(buf, Use::Write, "an end");
        own.bytes(buf).fill(POISON);
        if let Some(conflict) = conflict {
            self.fault(process, &conflict);
        }
    }
}
