//! I/O on volumes, computations, and volumes that come and go.

use braid_array::action::{Checked, Event};
use braid_array::fabric::NoteOp;
use braid_array::{Buf, Compute, IoError, IoId, IoOp, MemberId, Outcome};

use super::claims::{ClaimId, Use};
use super::due::Due;
use super::process::{Process, Stored};
use super::votes;
use super::work::{Task, Work};
use super::world::ClusterWorld;
use crate::compute;
use crate::device_io;
use crate::fault::Mutation;

/// Buffers of I/O begin at multiples of this.
const IO_ALIGN_BYTES: u64 = 4096;

impl ClusterWorld {
    /// Begins a task, other than I/O and computations.
    pub(super) fn begin(&mut self, process: usize, io: IoId, task: Task) {
        let mut longest = self.profile.disk_nanos;
        let mut claims = Vec::new();
        match &task {
            Task::Load(buf) => {
                let buf = *buf;
                self.note(&[15, process as u64, io.0], || {
                    format!("process {process} loads {buf:?}")
                });
                claims.push(self.claim(process, buf, Use::Read, "a load"));
                longest = self.profile.compute_nanos;
            }
            Task::Note(op) => self.note(&[16, process as u64, io.0], || match op {
                NoteOp::Read { name } => format!("process {process} looks {name} up"),
                NoteOp::Write { name, at, .. } => format!("process {process} notes {name} at {at}"),
                NoteOp::Remove { name } => format!("process {process} removes {name}"),
            }),
            Task::Survey(..) => {
                self.note(&[17, process as u64, io.0], || format!("process {process} looks around"))
            }
            Task::Volume(op) => {
                self.note(&[13, process as u64, io.0], || format!("process {process} {op:?}"));
            }
            Task::Io { .. } | Task::Compute(_) => {}
        }
        self.wait_for(longest, Work { process, io, claims, task });
    }

    fn claim(&mut self, process: usize, buf: Buf, access: Use, what: &'static str) -> ClaimId {
        let (id, conflict) = self.processes[process].claim(buf, access, what);
        if let Some(conflict) = conflict {
            self.fault(process, &conflict);
        }
        id
    }

    pub(super) fn issue(&mut self, process: usize, io: IoId, member: MemberId, op: IoOp) {
        self.note(&[10, process as u64, io.0], || {
            format!("process {process} volume {} {op:?} (io {})", member.0, io.0)
        });
        if let Some(objection) = objection(op, self.profile.block_bytes) {
            self.fault(process, &format!("{objection}: {op:?}"));
        }
        let Some(volume) = self.processes[process].volume(member) else {
            self.fault(process, &format!("I/O on volume {}, which is not open", member.0));
            return;
        };
        let mark = volume.disk.mark();
        let claims = match op {
            IoOp::Read { buf, .. } => vec![self.claim(process, buf, Use::Write, "a read")],
            IoOp::Write { buf, .. } => vec![self.claim(process, buf, Use::Read, "a write")],
            _ => Vec::new(),
        };
        let work = Work { process, io, claims, task: Task::Io { member, op, mark } };
        self.wait_for(self.profile.disk_nanos, work);
    }

    pub(super) fn compute(&mut self, process: usize, io: IoId, compute: Compute) {
        self.note(&[11, process as u64, io.0], || {
            format!("process {process} {} (io {})", compute::describe(&compute), io.0)
        });
        let (read, written) = match &compute {
            Compute::Sum { inputs, outputs, .. } => (inputs.to_vec(), outputs.to_vec()),
            Compute::Check { data, p, q, .. } => {
                (data.iter().copied().chain([*p]).chain(*q).collect(), Vec::new())
            }
            Compute::Compare { a, b } => (vec![*a, *b], Vec::new()),
            Compute::Crc { inputs, .. } => (inputs.clone(), Vec::new()),
        };
        let read = read.into_iter().map(|buf| (buf, Use::Read));
        let all = read.chain(written.into_iter().map(|buf| (buf, Use::Write)));
        let claims =
            all.map(|(buf, access)| self.claim(process, buf, access, "a computation")).collect();
        let work = Work { process, io, claims, task: Task::Compute(compute) };
        self.wait_for(self.profile.compute_nanos, work);
    }

    pub(super) fn store(&mut self, process: usize, buf: Buf, bytes: &[u8]) {
        self.note(&[12, process as u64, buf.offset], || {
            format!("process {process} stores {} bytes at {}", bytes.len(), buf.offset)
        });
        let id = self.claim(process, buf, Use::Write, "a store");
        self.processes[process].claims.release(id);
        self.processes[process].bytes(buf).copy_from_slice(bytes);
    }

    /// Work is done. Returns what is said of it, and to whom.
    pub(super) fn finish(&mut self, slot: usize) -> Option<(usize, Event)> {
        let work = self.work[slot].take()?;
        self.free.insert(slot);
        let Work { process, io, claims, task } = work;
        for id in claims {
            self.processes[process].claims.release(id);
        }
        let event = match task {
            Task::Io { member, op, mark } => {
                let result = self.perform(process, member, op, mark).map(|()| Outcome::Done);
                self.signs.durable += u64::from(matches!(
                    op,
                    IoOp::Flush
                        | IoOp::Write { fua: true, .. }
                        | IoOp::WriteZeroes { fua: true, .. }
                ));
                if let Err(error) = result {
                    self.note(&[14, io.0], || format!("process {process} {op:?} FAILS: {error:?}"));
                }
                Event::Done { io, result }
            }
            Task::Compute(compute) => {
                Event::Done { io, result: Ok(self.perform_compute(process, compute)) }
            }
            Task::Load(buf) => {
                Event::Loaded { io, bytes: self.processes[process].bytes(buf).to_vec() }
            }
            Task::Volume(op) => {
                let result = self.processes[process].change_volumes(&op);
                Event::Volume { io, result }
            }
            Task::Survey(after, most) => {
                Event::Survey { io, result: Ok(self.processes[process].survey(&after, most)) }
            }
            Task::Note(NoteOp::Remove { .. }) if self.processes[process].keeps_notes => {
                Event::Done { io, result: Err(IoError::GONE) }
            }
            Task::Note(NoteOp::Read { name }) => {
                let bytes = self.processes[process].notes.get(&name).cloned().unwrap_or_default();
                Event::Loaded { io, bytes }
            }
            Task::Note(NoteOp::Remove { name }) => {
                self.signs.durable += 1;
                self.processes[process].notes.remove(&name);
                Event::Done { io, result: Ok(Outcome::Done) }
            }
            Task::Note(NoteOp::Write { name, at, bytes }) => {
                self.signs.durable += 1;
                match self.profile.mutation {
                    Some(Mutation::DropNote) => {}
                    Some(Mutation::ForgetViews) => {
                        note_without_view(&mut self.processes[process], &name, at, bytes)
                    }
                    _ => self.processes[process].note(&name, at, &bytes),
                }
                Event::Done { io, result: Ok(Outcome::Done) }
            }
        };
        Some((process, event))
    }

    /// Carries a computation out, or not quite.
    fn perform_compute(&mut self, process: usize, mut compute: Compute) -> Outcome {
        let mut skip = self.mutates(Mutation::SkipCompute, 50);
        // Nothing else adds to two sums at once.
        let digests = matches!(
            &compute,
            Compute::Sum { outputs, accumulate: true, .. } if outputs.len() == 2
        );
        if let Compute::Sum { inputs, coefs, accumulate: true, .. } = &mut compute
            && !digests
            && self.mutates(Mutation::ShortSum, 5)
        {
            coefs.pop();
            skip = inputs.pop().is_none() || inputs.is_empty();
        }
        let mutation = self.profile.mutation;
        let process = &mut self.processes[process];
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
        &mut self,
        process: usize,
        member: MemberId,
        op: IoOp,
        mark: u64,
    ) -> Result<(), IoError> {
        let profile = self.profile;
        let journal_sectors = self.journal_sectors;
        let process = &mut self.processes[process];
        let volume = process
            .volumes
            .values_mut()
            .find(|volume| volume.open == Some(member))
            .ok_or(IoError::GONE)?;
        let disk = &mut volume.disk;
        let journal = disk.sectors() - journal_sectors.min(disk.sectors());
        let stores = volume.replay.stores(op, journal);
        if stores && profile.mutation == Some(Mutation::LoseReplay) {
            return Ok(());
        }
        volume.counts.note(op);
        match (op, profile.mutation) {
            (IoOp::Flush, Some(Mutation::LateRecords)) => disk.flush_only(mark, 0..journal),
            (IoOp::Flush, Some(Mutation::EarlyTrim)) if journal_sectors > 0 => {
                disk.flush_only(mark, journal..u64::MAX);
            }
            _ => {
                let Process { arena, .. } = process;
                return device_io::perform(disk, op, mark, arena, &profile, &mut self.rng);
            }
        }
        Ok(())
    }

    /// Drops the pending work of a process. Any part of its writes is done.
    pub(super) fn abandon_work(&mut self, process: usize) {
        for slot in 0..self.work.len() {
            let Some(work) = self.work[slot].take_if(|work| work.process == process) else {
                continue;
            };
            // The slot stays out of use: something is still due for it.
            if let Task::Note(NoteOp::Write { name, at, bytes }) = &work.task {
                let done = self.rng.below(bytes.len() as u64 + 1) as usize;
                let done = if self.rng.percent(30) { bytes.len() } else { done };
                self.processes[process].note(name, *at, &bytes[..done]);
                continue;
            }
            let Task::Io { member, op, .. } = work.task else { continue };
            let Process { arena, volumes, .. } = &mut self.processes[process];
            let volume = volumes.values_mut().find(|volume| volume.open == Some(member));
            if let Some(Stored { disk, .. }) = volume {
                device_io::interrupt(disk, op, arena, &mut self.rng);
            }
        }
    }

    fn wait_for(&mut self, longest: u64, work: Work) {
        let slot = self.free.pop_first().unwrap_or_else(|| {
            self.work.push(None);
            self.work.len() - 1
        });
        self.work[slot] = Some(work);
        let delay = self.delay(longest);
        self.clock.schedule(delay, Due::Work(slot));
    }
}

/// Returns the reason why an I/O is invalid.
fn objection(op: IoOp, block_bytes: u32) -> Option<&'static str> {
    let aligned = match op {
        IoOp::Read { buf, .. } | IoOp::Write { buf, .. } => {
            buf.offset.is_multiple_of(IO_ALIGN_BYTES)
        }
        _ => true,
    };
    let unaligned = (!aligned).then_some("a buffer that is not aligned");
    device_io::objection(op, block_bytes).or(unaligned)
}

/// A witness notes all but the view.
fn note_without_view(process: &mut Process, name: &str, at: u64, bytes: Vec<u8>) {
    let is_witness = process.volumes.is_empty();
    let before = if is_witness { process.notes.get(name) } else { None };
    let less = before.and_then(|before| votes::without_the_view(name, &bytes, before));
    process.note(name, at, &less.unwrap_or(bytes));
}
