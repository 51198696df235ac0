//! The executor of a world: carries out I/O on devices, computations, and what else processes wait
//! for, in virtual time.

use std::collections::BTreeSet;

use braid_array::action::{Checked, Event};
use braid_array::fabric::NoteOp;
use braid_array::{AnyMachine, Buf, Compute, IoError, IoId, IoOp, MemberId, Outcome};

use super::claims::Use;
use super::due::Due;
use super::ground::Ground;
use super::process::{Device, POISON, Process};
use super::votes;
use super::work::{Task, Work};
use crate::compute;
use crate::device_io;
use crate::disk::Disk;
use crate::fault::Mutation;

/// The work that processes wait for, all of it in one table.
///
/// All that executors may legally do differently is drawn from the seed: how long each task takes,
/// and thus the order of answers. The buffers of a task are claimed until it is done.
#[derive(Debug, Default)]
pub(super) struct Executor {
    work: Vec<Option<Work>>,
    free: BTreeSet<usize>,
    /// Tasks due on devices that answer nothing.
    stalled: Vec<usize>,
}

impl Executor {
    /// Begins a task, other than I/O and computations.
    pub(super) fn begin(&mut self, ground: &mut Ground, process: usize, io: IoId, task: Task) {
        let mut longest = ground.profile.disk_nanos;
        let mut claims = Vec::new();
        match &task {
            Task::Load(buf) => {
                let buf = *buf;
                ground.note(&[15, process as u64, io.0], || {
                    format!("process {process} loads {buf:?}")
                });
                claims.push(ground.claim(process, buf, Use::Read, "a load"));
                longest = ground.profile.compute_nanos;
            }
            Task::Note(op) => ground.note(&[16, process as u64, io.0], || match op {
                NoteOp::Read { name } => format!("process {process} looks {name} up"),
                NoteOp::Write { name, at, .. } => format!("process {process} notes {name} at {at}"),
                NoteOp::Remove { name } => format!("process {process} removes {name}"),
            }),
            Task::Survey(..) => ground
                .note(&[17, process as u64, io.0], || format!("process {process} looks around")),
            Task::Volume(op) => {
                ground.note(&[13, process as u64, io.0], || format!("process {process} {op:?}"));
            }
            Task::Io { .. } | Task::Compute { .. } => {}
        }
        self.wait_for(ground, longest, Work { process, io, claims, task });
    }

    pub(super) fn issue(
        &mut self,
        ground: &mut Ground,
        process: usize,
        io: IoId,
        (member, beside): (MemberId, bool),
        op: IoOp,
    ) {
        ground.note(&[10, process as u64, io.0], || {
            let beside = if beside { "beside " } else { "" };
            format!("process {process} {beside}device {} {op:?} (io {})", member.0, io.0)
        });
        let fault = match op {
            IoOp::Read { .. } | IoOp::Flush => None,
            _ => ground.processes[process].read_only.then_some("a read-only array writes"),
        };
        let fault = fault.or_else(|| device_io::objection(op, &ground.profile));
        if let Some(fault) = fault {
            ground.fault(process, &format!("{fault}: {op:?}"));
        }
        let Some(device) = ground.processes[process].device_of(member) else {
            ground.fault(process, &format!("I/O on device {}, which is not open", member.0));
            return;
        };
        let disk = ground.processes[process].disk_mut(device, beside);
        let mark = disk.map_or(0, |disk| disk.mark());
        let claims = match op {
            IoOp::Read { buf, .. } => {
                // A plan of an array may read the same sectors to the same place twice.
                let is_array = matches!(ground.processes[process].machine, AnyMachine::Block(_));
                let access = if is_array { Use::Fill } else { Use::Write };
                vec![ground.claim(process, buf, access, "a read")]
            }
            IoOp::Write { buf, .. } => vec![ground.claim(process, buf, Use::Read, "a write")],
            _ => Vec::new(),
        };
        let task = Task::Io { device, beside, op, mark, abandoned: false };
        let longest = ground.profile.disk_nanos;
        self.wait_for(ground, longest, Work { process, io, claims, task });
    }

    pub(super) fn compute(
        &mut self,
        ground: &mut Ground,
        process: usize,
        io: IoId,
        compute: Compute,
    ) {
        ground.note(&[11, process as u64, io.0], || {
            format!("process {process} {} (io {})", compute::describe(&compute), io.0)
        });
        let (read, written) = buffers(&compute);
        let read = read.into_iter().map(|buf| (buf, Use::Read));
        let all = read.chain(written.into_iter().map(|buf| (buf, Use::Write)));
        let claims =
            all.map(|(buf, access)| ground.claim(process, buf, access, "a computation")).collect();
        let work = Work { process, io, claims, task: Task::Compute { compute, abandoned: false } };
        let longest = ground.profile.compute_nanos;
        self.wait_for(ground, longest, work);
    }

    /// Work is done. Returns what is said of it, and to whom.
    pub(super) fn finish(&mut self, ground: &mut Ground, slot: usize) -> Option<(usize, Event)> {
        if self.stalls(ground, slot) {
            self.stalled.push(slot);
            return None;
        }
        let work = self.work[slot].take()?;
        self.free.insert(slot);
        let Work { process, io, claims, task } = work;
        for id in claims {
            ground.processes[process].claims.release(id);
        }
        let event = match task {
            Task::Io { device, beside, op, mark, abandoned } => {
                if let IoOp::Read { buf, .. } = op
                    && abandoned
                {
                    // Nobody may see what it brings.
                    ground.processes[process].bytes(buf).fill(POISON);
                }
                let result = perform(ground, process, (device, beside), op, mark);
                ground.signs.durable += u64::from(matches!(
                    op,
                    IoOp::Flush
                        | IoOp::Write { fua: true, .. }
                        | IoOp::WriteZeroes { fua: true, .. }
                ));
                if let Err(error) = result {
                    ground
                        .note(&[14, io.0], || format!("process {process} {op:?} FAILS: {error:?}"));
                }
                Event::Done { io, result }
            }
            Task::Compute { compute, .. } => {
                Event::Done { io, result: Ok(perform_compute(ground, process, compute)) }
            }
            Task::Load(buf) => {
                Event::Loaded { io, bytes: ground.processes[process].bytes(buf).to_vec() }
            }
            Task::Volume(op) => {
                let result = ground.processes[process].change_volumes(&op);
                Event::Volume { io, result }
            }
            Task::Survey(after, most) => {
                Event::Survey { io, result: Ok(ground.processes[process].survey(&after, most)) }
            }
            Task::Note(NoteOp::Remove { .. }) if ground.processes[process].keeps_notes => {
                Event::Done { io, result: Err(IoError::GONE) }
            }
            Task::Note(NoteOp::Read { name }) => {
                let bytes = ground.processes[process].notes.get(&name).cloned().unwrap_or_default();
                Event::Loaded { io, bytes }
            }
            Task::Note(NoteOp::Remove { name }) => {
                ground.signs.durable += 1;
                ground.processes[process].notes.remove(&name);
                Event::Done { io, result: Ok(Outcome::Done) }
            }
            Task::Note(NoteOp::Write { name, at, bytes }) => {
                ground.signs.durable += 1;
                match ground.profile.mutation {
                    Some(Mutation::DropNote) => {}
                    Some(Mutation::ForgetViews) => {
                        note_without_view(&mut ground.processes[process], &name, at, bytes)
                    }
                    _ => ground.processes[process].note(&name, at, &bytes),
                }
                Event::Done { io, result: Ok(Outcome::Done) }
            }
        };
        Some((process, event))
    }

    /// Drops the pending work of a process. Any part of its writes is done.
    pub(super) fn end_all(&mut self, ground: &mut Ground, process: usize) {
        for slot in 0..self.work.len() {
            let Some(work) = self.work[slot].take_if(|work| work.process == process) else {
                continue;
            };
            // The slot stays out of use: something is still due for it.
            if let Task::Note(NoteOp::Write { name, at, bytes }) = &work.task {
                let done = ground.rng.below(bytes.len() as u64 + 1) as usize;
                let done = if ground.rng.percent(30) { bytes.len() } else { done };
                ground.processes[process].note(name, *at, &bytes[..done]);
                continue;
            }
            let Task::Io { device, beside, op, .. } = work.task else { continue };
            let arena = std::mem::take(&mut ground.processes[process].arena);
            if let Some(disk) = ground.processes[process].disk_mut(device, beside) {
                device_io::interrupt(disk, op, &arena, &mut ground.rng);
            }
            ground.processes[process].arena = arena;
        }
    }

    /// The process waits no longer for this I/O.
    pub(super) fn abandon(&mut self, ground: &mut Ground, process: usize, io: IoId) {
        ground.note(&[6, io.0], || format!("process {process} gives io {} up", io.0));
        let is = |work: &&mut Work| work.process == process && work.io == io;
        match self.work.iter_mut().flatten().find(is).map(|work| &mut work.task) {
            Some(Task::Io { abandoned, .. } | Task::Compute { abandoned, .. }) if !*abandoned => {
                *abandoned = true;
            }
            _ => ground.fault(process, &format!("io {} given up, is none", io.0)),
        }
    }

    /// A device that answered nothing answers again.
    pub(super) fn wake(
        &mut self,
        ground: &mut Ground,
        process: usize,
        (device, beside): (usize, bool),
    ) {
        if let Some(disk) = ground.processes[process].disk_mut(device, beside) {
            disk.set_hung(false);
        }
        for slot in std::mem::take(&mut self.stalled) {
            if self.stalls(ground, slot) {
                self.stalled.push(slot);
            } else {
                let delay = ground.delay(ground.profile.disk_nanos);
                ground.clock.schedule(delay, Due::Work(slot));
            }
        }
    }

    fn stalls(&self, ground: &Ground, slot: usize) -> bool {
        let Some(Work { process, task: Task::Io { device, beside, .. }, .. }) = &self.work[slot]
        else {
            return false;
        };
        let disk = &ground.processes[*process].devices[*device].disk;
        if *beside { disk.beside().is_some_and(Disk::hung) } else { disk.hung() }
    }

    /// The process that waits for this.
    pub(super) fn waits(&self, slot: usize) -> Option<usize> {
        self.work[slot].as_ref().map(|work| work.process)
    }

    /// The work that a process waits for, or has given up.
    pub(super) fn of(&self, process: usize) -> impl Iterator<Item = &Task> {
        let own = self.work.iter().flatten().filter(move |work| work.process == process);
        own.map(|work| &work.task)
    }

    /// Returns whether something that was given up may still read or write this buffer.
    pub(super) fn lent(&self, process: usize, buf: Buf) -> bool {
        self.of(process).any(|task| match task {
            Task::Io { op: IoOp::Read { buf: used, .. }, abandoned: true, .. }
            | Task::Io { op: IoOp::Write { buf: used, .. }, abandoned: true, .. } => {
                used.overlaps(buf)
            }
            Task::Compute { compute, abandoned: true } => {
                let (read, written) = buffers(compute);
                read.into_iter().chain(written).any(|used| used.overlaps(buf))
            }
            _ => false,
        })
    }

    fn wait_for(&mut self, ground: &mut Ground, longest: u64, work: Work) {
        let slot = self.free.pop_first().unwrap_or_else(|| {
            self.work.push(None);
            self.work.len() - 1
        });
        self.work[slot] = Some(work);
        let delay = if longest > 0 { ground.delay(longest) } else { 0 };
        ground.clock.schedule(delay, Due::Work(slot));
    }
}

/// The buffers that a computation reads, and those that it writes.
fn buffers(compute: &Compute) -> (Vec<Buf>, Vec<Buf>) {
    match compute {
        Compute::Sum { inputs, outputs, .. } => (inputs.to_vec(), outputs.to_vec()),
        Compute::Check { data, p, q, .. } => {
            (data.iter().copied().chain([*p]).chain(*q).collect(), Vec::new())
        }
        Compute::Compare { a, b } => (vec![*a, *b], Vec::new()),
        Compute::Crc { inputs, .. } => (inputs.clone(), Vec::new()),
        Compute::SumBlocks { buf } => (vec![*buf], Vec::new()),
    }
}

/// Carries a computation out, or not quite.
fn perform_compute(ground: &mut Ground, process: usize, mut compute: Compute) -> Outcome {
    let mut skip = ground.mutates(Mutation::SkipCompute, 50);
    // Nothing else adds to two sums at once.
    let digests = matches!(
        &compute,
        Compute::Sum { outputs, accumulate: true, .. } if outputs.len() == 2
    );
    if let Compute::Sum { inputs, coefs, accumulate: true, .. } = &mut compute
        && !digests
        && ground.mutates(Mutation::ShortSum, 5)
    {
        coefs.pop();
        skip = inputs.pop().is_none() || inputs.is_empty();
    }
    let mutation = ground.profile.mutation;
    let process = &mut ground.processes[process];
    let believe = mutation == Some(Mutation::BelieveRecords);
    let outcome = match &compute {
        Compute::Crc { .. } if skip || believe => Outcome::Crc(0),
        Compute::Sum { outputs, .. } if digests && mutation == Some(Mutation::ZeroDigests) => {
            outputs.iter().for_each(|&buf| process.bytes(buf).fill(0));
            Outcome::Done
        }
        _ if skip => Outcome::Done,
        _ => compute::run(&mut process.arena, &compute),
    };
    match outcome {
        Outcome::Checked(_) if mutation == Some(Mutation::SeeNoDifference) => {
            Outcome::Checked(Checked::default())
        }
        outcome => outcome,
    }
}

fn perform(
    ground: &mut Ground,
    process: usize,
    (device, beside): (usize, bool),
    op: IoOp,
    mark: u64,
) -> Result<Outcome, IoError> {
    let Ground { processes, profile, journal_sectors, rng, .. } = ground;
    let Process { devices, arena, .. } = &mut processes[process];
    let Device { disk, counts, replay, .. } = &mut devices[device];
    if beside {
        let Some(store) = disk.beside_mut() else { return Err(IoError::GONE) };
        device_io::perform(store, op, mark, arena, profile, rng)?;
        return Ok(Outcome::Done);
    }
    let journal = disk.sectors().saturating_sub(*journal_sectors);
    let stores = replay.stores(op, journal);
    if stores && profile.mutation == Some(Mutation::LoseReplay) {
        return Ok(Outcome::Done);
    }
    counts.note(op);
    match (op, profile.mutation) {
        (IoOp::Flush, Some(Mutation::LateRecords)) => disk.flush_only(mark, 0..journal),
        (IoOp::Flush, Some(Mutation::EarlyTrim)) if *journal_sectors > 0 => {
            disk.flush_only(mark, journal..u64::MAX);
        }
        _ => device_io::perform(disk, op, mark, arena, profile, rng)?,
    }
    Ok(Outcome::Done)
}

/// A witness notes all but the view.
fn note_without_view(process: &mut Process, name: &str, at: u64, bytes: Vec<u8>) {
    let is_witness = process.volumes.is_empty();
    let before = if is_witness { process.notes.get(name) } else { None };
    let less = before.and_then(|before| votes::without_the_view(name, &bytes, before));
    process.note(name, at, &less.unwrap_or(bytes));
}
