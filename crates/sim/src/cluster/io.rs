//! I/O on volumes, computations, and volumes that come and go.

use braid_array::action::{Checked, Event};
use braid_array::fabric::{NoteOp, Volume, VolumeOp};
use braid_array::{Buf, Compute, IoError, IoId, IoOp, MemberId, Outcome, Refusal, SECTOR_BYTES};

use super::claims::{ClaimId, Use};
use super::process::{Process, Stored};
use super::votes;
use super::world::{Due, World};
use crate::compute;
use crate::device_io;
use crate::disk::Disk;
use crate::fault::Mutation;

const SECTOR: u64 = SECTOR_BYTES;

/// Buffers of I/O begin at multiples of this.
const IO_ALIGN_BYTES: u64 = 4096;

/// Something a process waits for.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) process: usize,
    io: IoId,
    claims: Vec<ClaimId>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Io {
        member: MemberId,
        op: IoOp,
        /// The cache's mark when a flush was issued.
        mark: u64,
    },
    Compute(Compute),
    Load(Buf),
    Volume(VolumeOp),
    Note(NoteOp),
    /// After this name, and how many at most.
    Survey(String, usize),
}

impl World {
    fn begin(&mut self, longest: u64, work: Work) {
        let slot = self.free.pop_first().unwrap_or_else(|| {
            self.work.push(None);
            self.work.len() - 1
        });
        self.work[slot] = Some(work);
        let delay = self.delay(longest);
        self.clock.schedule(delay, Due::Work(slot));
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
        let work = Work { process, io, claims, kind: Kind::Io { member, op, mark } };
        self.begin(self.profile.disk_nanos, work);
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
        let work = Work { process, io, claims, kind: Kind::Compute(compute) };
        self.begin(self.profile.compute_nanos, work);
    }

    pub(super) fn store(&mut self, process: usize, buf: Buf, bytes: &[u8]) {
        self.note(&[12, process as u64, buf.offset], || {
            format!("process {process} stores {} bytes at {}", bytes.len(), buf.offset)
        });
        let id = self.claim(process, buf, Use::Write, "a store");
        self.processes[process].claims.release(id);
        self.processes[process].bytes(buf).copy_from_slice(bytes);
    }

    pub(super) fn load(&mut self, process: usize, io: IoId, buf: Buf) {
        self.note(&[15, process as u64, io.0], || format!("process {process} loads {buf:?}"));
        let claims = vec![self.claim(process, buf, Use::Read, "a load")];
        self.begin(self.profile.compute_nanos, Work { process, io, claims, kind: Kind::Load(buf) });
    }

    pub(super) fn volume_op(&mut self, process: usize, io: IoId, op: VolumeOp) {
        self.note(&[13, process as u64, io.0], || format!("process {process} {op:?}"));
        let work = Work { process, io, claims: Vec::new(), kind: Kind::Volume(op) };
        self.begin(self.profile.disk_nanos, work);
    }

    pub(super) fn note_op(&mut self, process: usize, io: IoId, op: NoteOp) {
        self.note(&[16, process as u64, io.0], || match &op {
            NoteOp::Read { name } => format!("process {process} looks {name} up"),
            NoteOp::Write { name, at, .. } => format!("process {process} notes {name} at {at}"),
            NoteOp::Remove { name } => format!("process {process} removes {name}"),
        });
        let work = Work { process, io, claims: Vec::new(), kind: Kind::Note(op) };
        self.begin(self.profile.disk_nanos, work);
    }

    pub(super) fn survey(&mut self, process: usize, io: IoId, after: String, most: usize) {
        self.note(&[17, process as u64, io.0], || format!("process {process} looks around"));
        let work = Work { process, io, claims: Vec::new(), kind: Kind::Survey(after, most) };
        self.begin(self.profile.disk_nanos, work);
    }

    /// Work is done: its process hears of it.
    pub(super) fn finish(&mut self, slot: usize) {
        let Some(work) = self.work[slot].take() else { return };
        self.free.insert(slot);
        let Work { process, io, claims, kind } = work;
        for id in claims {
            self.processes[process].claims.release(id);
        }
        let event = match kind {
            Kind::Io { member, op, mark } => {
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
            Kind::Compute(compute) => {
                Event::Done { io, result: Ok(self.perform_compute(process, compute)) }
            }
            Kind::Load(buf) => {
                Event::Loaded { io, bytes: self.processes[process].bytes(buf).to_vec() }
            }
            Kind::Volume(op) => {
                let result = self.change_volumes(process, &op);
                Event::Volume { io, result }
            }
            Kind::Survey(after, most) => {
                Event::Survey { io, result: Ok(self.processes[process].survey(&after, most)) }
            }
            Kind::Note(NoteOp::Remove { .. }) if self.processes[process].keeps_notes => {
                Event::Done { io, result: Err(IoError::GONE) }
            }
            Kind::Note(NoteOp::Read { name }) => {
                let bytes = self.processes[process].notes.get(&name).cloned().unwrap_or_default();
                Event::Loaded { io, bytes }
            }
            Kind::Note(NoteOp::Remove { name }) => {
                self.signs.durable += 1;
                self.processes[process].notes.remove(&name);
                Event::Done { io, result: Ok(Outcome::Done) }
            }
            Kind::Note(NoteOp::Write { name, at, bytes }) => {
                self.signs.durable += 1;
                match self.profile.mutation {
                    Some(Mutation::DropNote) => {}
                    Some(Mutation::ForgetViews) => {
                        self.note_without_view(process, &name, at, bytes)
                    }
                    _ => self.processes[process].note(&name, at, &bytes),
                }
                Event::Done { io, result: Ok(Outcome::Done) }
            }
        };
        self.handle(process, event);
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

    /// A witness notes all but the view.
    fn note_without_view(&mut self, process: usize, name: &str, at: u64, bytes: Vec<u8>) {
        let process = &mut self.processes[process];
        let is_witness = process.volumes.is_empty();
        let before = if is_witness { process.notes.get(name) } else { None };
        let less = before.and_then(|before| votes::without_the_view(name, &bytes, before));
        process.note(name, at, &less.unwrap_or(bytes));
    }

    /// Returns whether to commit a deliberate fault now: one chance in `of`.
    pub(super) fn mutates(&mut self, mutation: Mutation, of: u64) -> bool {
        self.profile.mutation == Some(mutation) && self.rng.below(of) == 0
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

    fn change_volumes(&mut self, process: usize, op: &VolumeOp) -> Result<Volume, Refusal> {
        let process = &mut self.processes[process];
        let name = match op {
            VolumeOp::Create { name, bytes } => {
                if process.volumes.contains_key(name) {
                    let why = format!("volume {name} exists");
                    return Err(Refusal::new(why, "choose another name"));
                }
                process.keep(name, Disk::new(bytes / SECTOR));
                name
            }
            VolumeOp::Open { name } => name,
            VolumeOp::Close { member } | VolumeOp::Delete { member } => {
                let absent = || Refusal::plain("this volume is not open");
                let volume = process.volume(*member).ok_or_else(absent)?;
                volume.open = None;
                let name = volume.name.clone();
                let bytes = volume.disk.sectors() * SECTOR;
                if matches!(op, VolumeOp::Delete { .. }) {
                    process.volumes.remove(&name);
                }
                return Ok(Volume { member: *member, bytes });
            }
        };
        let member = MemberId(process.next_member);
        let Some(volume) = process.volumes.get_mut(name) else {
            return Err(Refusal::new(format!("there is no volume {name}"), "create it first"));
        };
        if volume.open.is_some() {
            return Err(Refusal::plain(format!("volume {name} is in use")));
        }
        process.next_member += 1;
        volume.open = Some(member);
        Ok(Volume { member, bytes: volume.disk.sectors() * SECTOR })
    }

    /// Drops the pending work of a process. Any part of its writes is done.
    pub(super) fn abandon_work(&mut self, process: usize) {
        for slot in 0..self.work.len() {
            let Some(work) = self.work[slot].take_if(|work| work.process == process) else {
                continue;
            };
            // The slot stays out of use: something is still due for it.
            if let Kind::Note(NoteOp::Write { name, at, bytes }) = &work.kind {
                let done = self.rng.below(bytes.len() as u64 + 1) as usize;
                let done = if self.rng.percent(30) { bytes.len() } else { done };
                self.processes[process].note(name, *at, &bytes[..done]);
                continue;
            }
            let Kind::Io { member, op, .. } = work.kind else { continue };
            let Process { arena, volumes, .. } = &mut self.processes[process];
            let volume = volumes.values_mut().find(|volume| volume.open == Some(member));
            if let Some(Stored { disk, .. }) = volume {
                device_io::interrupt(disk, op, arena, &mut self.rng);
            }
        }
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
