//! The executor: carries out a machine's actions on simulated disks in virtual time.
//!
//! Everything an executor may legally do differently is drawn from the seed: how long each I/O
//! takes and so the order of answers, whether a write's bytes are taken when it is issued or when
//! it is answered, whether a computation runs at once or later.

use std::collections::BTreeMap;

use braid_array::action::Event;
use braid_array::{Action, Buf, Compute, Instant, IoError, IoId, IoOp, Machine, MemberId, Outcome};

use crate::attached::{self, Attached};
use crate::clock::Clock;
use crate::compute;
use crate::device_io;
use crate::disk::Disk;
use crate::fault::{FaultProfile, Mutation};
use crate::rng::Rng;
use crate::trace::Trace;

/// Content of memory that was given back.
const GIVEN_BACK: u8 = 0xdc;

/// Output of the machine, for the world.
#[derive(Debug)]
pub enum Output {
    /// `Complete`, `Reply` or `Notify`.
    Action(Action),
    /// The machine broke its contract.
    Fault(String),
}

/// A due answer to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DueAnswer {
    Io(usize),
    Compute(usize),
    Load(usize),
}

#[derive(Debug)]
struct PendingIo {
    io: IoId,
    device: usize,
    op: IoOp,
    /// The cache's mark when a flush was issued.
    mark: u64,
    /// The bytes of a write when it was issued.
    bytes: Vec<u8>,
    /// The machine waits for it no longer.
    abandoned: bool,
}

/// One machine on its disks, with the arena and the operations in flight on each device.
///
/// Order of calls: [`new`](Self::new), [`drain`](Self::drain) for the first actions of the machine;
/// then [`step`](Self::step) until nothing is due. Between steps [`handle`](Self::handle) gives the
/// machine a command; a caller that submits to the machine directly calls `drain` then. Output for
/// the world is in `outputs`. After a [`power_cut`](Self::power_cut) only the disks are of use.
#[derive(Debug)]
pub struct Executor<M> {
    /// The machine.
    pub machine: M,
    /// All devices, attached or not.
    pub disks: Vec<Disk>,
    /// The buffers.
    pub arena: Vec<u8>,
    /// Output of the machine.
    pub outputs: Vec<Output>,
    /// Set if the machine must not write.
    pub read_only: bool,
    /// Events handled.
    pub steps: u64,
    /// Device of each member.
    attached: Attached,
    clock: Clock<DueAnswer>,
    /// By slot, of which both kinds of work take the lowest that is free.
    flights: BTreeMap<usize, PendingIo>,
    /// Operations due on hung devices.
    stalled: Vec<usize>,
    computes: BTreeMap<usize, (IoId, Compute)>,
    loads: BTreeMap<usize, (IoId, Buf)>,
    rng: Rng,
    profile: FaultProfile,
    /// Time of giving unused memory back, if the machine has used some.
    cool_at: Option<Instant>,
}

impl<M: Machine> Executor<M> {
    /// A machine just built, on devices in the order of its members.
    pub fn new(
        machine: M,
        disks: Vec<Disk>,
        attached: Attached,
        arena_bytes: usize,
        start: Instant,
        profile: FaultProfile,
        rng: Rng,
    ) -> Self {
        let mut clock = Clock::default();
        clock.advance(start);
        Self {
            machine,
            disks,
            arena: vec![0; arena_bytes],
            outputs: Vec::new(),
            read_only: false,
            steps: 0,
            attached,
            clock,
            flights: BTreeMap::new(),
            stalled: Vec::new(),
            computes: BTreeMap::new(),
            loads: BTreeMap::new(),
            rng,
            profile,
            cool_at: None,
        }
    }

    /// The time.
    pub const fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The device behind a member.
    pub fn device(&self, member: MemberId) -> Option<usize> {
        self.attached.get(usize::from(member.0)).copied().flatten()
    }

    /// Puts a device behind a member id, before the machine is told to add it; `None` takes it
    /// away.
    pub fn attach(&mut self, member: MemberId, device: Option<usize>) {
        attached::attach(&mut self.attached, member, device);
    }

    /// Bytes of the arena.
    pub fn bytes(&mut self, buf: Buf) -> &mut [u8] {
        &mut self.arena[device_io::bytes_of(buf)]
    }

    /// Returns whether the device is a member now.
    pub fn is_attached(&self, device: usize) -> bool {
        self.attached.contains(&Some(device))
    }

    /// Returns whether no operation is in flight, except abandoned ones.
    pub fn quiet(&self) -> bool {
        self.flights.values().all(|flight| flight.abandoned)
            && self.computes.is_empty()
            && self.loads.is_empty()
    }

    /// Returns whether an operation is in flight on a device.
    pub fn busy(&self, device: usize) -> bool {
        self.flights.values().any(|flight| flight.device == device)
    }

    /// Returns whether an abandoned operation may still read or write this buffer.
    pub fn lent(&self, buf: Buf) -> bool {
        self.flights.values().any(|flight| match flight.op {
            IoOp::Read { buf: used, .. } | IoOp::Write { buf: used, .. } => {
                flight.abandoned && used.overlaps(buf)
            }
            _ => false,
        })
    }

    /// A device that answered nothing answers again.
    pub fn wake(&mut self, device: usize) {
        self.disks[device].set_hung(false);
        for slot in std::mem::take(&mut self.stalled) {
            if self.flights.get(&slot).is_some_and(|flight| flight.device == device) {
                let latency = self.profile.delay(self.profile.disk_nanos, &mut self.rng);
                self.clock.schedule(latency, DueAnswer::Io(slot));
            } else {
                self.stalled.push(slot);
            }
        }
    }

    fn abandon(&mut self, io: IoId) {
        match self.flights.values_mut().find(|flight| flight.io == io) {
            Some(flight) if !flight.abandoned => flight.abandoned = true,
            _ => self.outputs.push(Output::Fault(format!("io {} given up, is none", io.0))),
        }
    }

    /// Carries out the pending actions of the machine.
    pub fn drain(&mut self, trace: &mut Trace) {
        while let Some(action) = self.machine.poll() {
            self.cool_at =
                self.cool_at.or(Some(self.now().plus_millis(self.profile.cooling_millis)));
            match action {
                Action::Io { io, member, op } => self.issue(io, member, op, trace),
                Action::Compute { io, compute } => self.compute(io, compute, trace),
                Action::Store { buf, bytes } => {
                    trace.note(self.now(), &[12, 0, buf.offset], || {
                        format!("store {} bytes", bytes.len())
                    });
                    self.bytes(buf).copy_from_slice(&bytes);
                }
                Action::Load { io, buf } => {
                    trace.note(self.now(), &[15, 0, io.0], || format!("load {} bytes", buf.len));
                    let slot = self.free_slot();
                    self.loads.insert(slot, (io, buf));
                    let latency = self.compute_nanos();
                    self.clock.schedule(latency, DueAnswer::Load(slot));
                }
                Action::Abandon { io, .. } => {
                    trace.note(self.now(), &[6, io.0], || format!("io {} is given up", io.0));
                    self.abandon(io);
                }
                other => self.outputs.push(Output::Action(other)),
            }
        }
    }

    /// Hands the machine an event, and carries out the resulting actions.
    pub fn handle(&mut self, event: Event, trace: &mut Trace) {
        self.steps += 1;
        self.machine.handle(self.clock.now(), event);
        self.drain(trace);
    }

    /// Lets the next thing happen: an answer, or the machine's deadline. False when there is
    /// neither.
    pub fn step(&mut self, trace: &mut Trace) -> bool {
        let deadline = self.machine.deadline();
        let due = self.clock.next_due();
        let next = [due, deadline].into_iter().flatten().min();
        if let Some(at) = self.cool_at.filter(|at| next.is_none_or(|next| *at <= next)) {
            self.clock.advance(at);
            self.cool(trace);
            return true;
        }
        match (due, deadline) {
            (None, None) => false,
            (due, Some(at)) if due.is_none_or(|due| at < due) => {
                self.clock.advance(at);
                trace.note(self.now(), &[1, 0], || "tick");
                self.handle(Event::Tick, trace);
                true
            }
            _ => {
                let (io, result) = match self.clock.pop() {
                    Some(DueAnswer::Load(slot)) => {
                        let (io, buf) = self.loads.remove(&slot).expect("what is due is loaded");
                        let bytes = self.bytes(buf).to_vec();
                        self.handle(Event::Loaded { io, bytes }, trace);
                        return true;
                    }
                    Some(DueAnswer::Io(slot)) if self.stalls(slot) => {
                        self.stalled.push(slot);
                        return true;
                    }
                    Some(DueAnswer::Io(slot)) => self.finish(slot, trace),
                    Some(DueAnswer::Compute(slot)) => self.finish_compute(slot),
                    None => return false,
                };
                self.handle(Event::Done { io, result }, trace);
                true
            }
        }
    }

    /// Gives unused memory of an idle machine back, as an executor may. Zeroes stay zeroes; other
    /// bytes are overwritten, so that a later use of them is detected.
    fn cool(&mut self, trace: &mut Trace) {
        let idle = self.machine.idle()
            && self.flights.is_empty()
            && self.computes.is_empty()
            && self.loads.is_empty();
        let again = self.now().plus_millis(self.profile.cooling_millis);
        self.cool_at = (!idle).then_some(again);
        if !idle {
            return;
        }
        let mut unused = Vec::new();
        self.machine.each_unused(&mut |buf| unused.push(buf));
        unused.sort_by_key(|buf| buf.offset);
        trace.note(self.now(), &[8, unused.len() as u64], || {
            format!("{} parts of memory are given back", unused.len())
        });
        if unused.windows(2).any(|pair| pair[0].overlaps(pair[1])) {
            self.outputs.push(Output::Fault("memory is unused twice".to_owned()));
        }
        for buf in unused {
            let used = self.bytes(buf).iter_mut().filter(|byte| **byte != 0);
            used.for_each(|byte| *byte = GIVEN_BACK);
        }
    }

    fn free_slot(&self) -> usize {
        let taken = |slot: &usize| {
            self.flights.contains_key(slot)
                || self.computes.contains_key(slot)
                || self.loads.contains_key(slot)
        };
        (0..).find(|slot| !taken(slot)).unwrap_or_default()
    }

    fn stalls(&self, slot: usize) -> bool {
        self.disks[self.flights[&slot].device].hung()
    }

    fn issue(&mut self, io: IoId, member: MemberId, op: IoOp, trace: &mut Trace) {
        trace.note(self.now(), &[10, 0, io.0], || {
            format!("member {} {} (io {})", member.0, device_io::describe(op), io.0)
        });
        let fault = match op {
            IoOp::Read { .. } | IoOp::Flush => None,
            _ => self.read_only.then_some("a read-only array writes"),
        };
        let fault = fault.or_else(|| device_io::objection(op, self.profile.block_bytes));
        if let Some(fault) = fault {
            let what = device_io::describe(op);
            self.outputs.push(Output::Fault(format!("{fault}: {what}")));
        }
        let Some(device) = self.device(member) else {
            self.outputs.push(Output::Fault(format!("I/O on member {}, not attached", member.0)));
            return;
        };
        let bytes = match op {
            IoOp::Write { buf, .. } => self.bytes(buf).to_vec(),
            _ => Vec::new(),
        };
        let flight =
            PendingIo { io, device, op, mark: self.disks[device].mark(), bytes, abandoned: false };
        let slot = self.free_slot();
        self.flights.insert(slot, flight);
        let latency = self.profile.delay(self.profile.disk_nanos, &mut self.rng);
        self.clock.schedule(latency, DueAnswer::Io(slot));
    }

    fn finish(&mut self, slot: usize, trace: &mut Trace) -> (IoId, Result<Outcome, IoError>) {
        let flight = self.flights.remove(&slot).expect("what is due is in flight");
        let result = self.perform(&flight).map(|()| Outcome::Done);
        if let Err(error) = result {
            trace.note(self.now(), &[14, flight.io.0], || {
                format!(
                    "device {} {} FAILS: {error:?}",
                    flight.device,
                    device_io::describe(flight.op)
                )
            });
        }
        (flight.io, result)
    }

    fn perform(&mut self, flight: &PendingIo) -> Result<(), IoError> {
        let disk = &mut self.disks[flight.device];
        match flight.op {
            // Nobody may see what it brings.
            IoOp::Read { buf, .. } if flight.abandoned => {
                self.arena[device_io::bytes_of(buf)].fill(0xdb);
            }
            IoOp::Write { buf, .. } if self.arena[device_io::bytes_of(buf)] != flight.bytes => {
                let what = device_io::describe(flight.op);
                self.outputs.push(Output::Fault(format!("the buffer of {what} changed")));
            }
            _ => {}
        }
        let Self { arena, profile, rng, .. } = self;
        device_io::perform(disk, flight.op, flight.mark, arena, profile, rng)
    }

    fn compute(&mut self, io: IoId, compute: Compute, trace: &mut Trace) {
        trace.note(self.now(), &[11, 0, io.0], || {
            format!("compute {} (io {})", compute::describe(&compute), io.0)
        });
        let slot = self.free_slot();
        self.computes.insert(slot, (io, compute));
        let latency = self.compute_nanos();
        self.clock.schedule(latency, DueAnswer::Compute(slot));
    }

    fn compute_nanos(&mut self) -> u64 {
        let longest = self.profile.compute_nanos;
        if longest > 0 { self.profile.delay(longest, &mut self.rng) } else { 0 }
    }

    fn finish_compute(&mut self, slot: usize) -> (IoId, Result<Outcome, IoError>) {
        let (io, compute) = self.computes.remove(&slot).expect("what is due is computed");
        let skip = self.profile.mutation == Some(Mutation::SkipCompute) && self.rng.below(20) == 0;
        let outcome = if skip { Outcome::Done } else { compute::run(&mut self.arena, &compute) };
        (io, Ok(outcome))
    }

    /// Cuts the power: writes in flight arrive in part, caches lose a part. Returns for each device
    /// the ranges whose content was undecided.
    pub fn power_cut(&mut self) -> Vec<Vec<(u64, u64)>> {
        let mut pending: Vec<Vec<_>> = self.disks.iter().map(|d| d.pending().collect()).collect();
        for disk in &mut self.disks {
            disk.power_cut(&mut self.rng);
        }
        for flight in self.flights.values() {
            let disk = &mut self.disks[flight.device];
            let range = device_io::interrupt(disk, flight.op, &self.arena, &mut self.rng);
            pending[flight.device].extend(range);
        }
        for disk in &mut self.disks {
            disk.flush(disk.mark());
            disk.set_hung(false);
        }
        self.clock.clear();
        pending
    }
}

#[cfg(test)]
mod tests;
