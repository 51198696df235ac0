//! The engine's side of the submission queue: jobs of other threads, administrators' commands,
//! status.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

use braid_array::action::{Command, CommandId, Event, NewMember};
use braid_array::{
    AnyMachine, BlockMachine, Buf, Instant, Machine, MemberId, Op, Refusal, Request, RequestError,
    SECTOR_BYTES,
};

use crate::arena::Holder;
use crate::engine::core::Core;
use crate::engine::exports::Exports;
use crate::execute::Executor;
use crate::fabric::Fabric;
use crate::member::MemberFile;
use crate::submission::{Done, Message};
use crate::token::Owner;
use braid_array::figures::Figures;
use slab::Slab;

type PieceAnswer = Done<Result<(), RequestError>>;
pub(crate) type CommandDone = Done<Result<(), Refusal>>;

/// Jobs and commands received through the submission queue.
pub(crate) struct SubmissionSide {
    receiver: Receiver<Message>,
    /// The memory of its jobs.
    holder: Holder,
    jobs: Slab<SplitRequest>,
    /// Jobs of which some piece has not been requested yet.
    queue: VecDeque<usize>,
    commands: Slab<(CommandDone, Effect)>,
}

/// Work that is left once the machine has answered a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Nothing,
    /// Device added: on failure it leaves the table again.
    Added(MemberId),
    /// Device removed: on success it leaves the table.
    Removed(MemberId),
    /// Stopped: on success the engine ends.
    Stopped,
}

/// A request of any length, done in pieces.
struct SplitRequest {
    kind: JobKind,
    /// Bytes of the array: start, next to be requested, end.
    start: u64,
    next: u64,
    end: u64,
    /// Requests in flight.
    pieces: u32,
    error: Option<RequestError>,
}

enum JobKind {
    Read {
        data: Vec<u8>,
        done: Done<Result<Vec<u8>, RequestError>>,
    },
    Write {
        data: Vec<u8>,
        fua: bool,
        done: PieceAnswer,
    },
    /// A request without data.
    Plain {
        done: PieceAnswer,
    },
}

impl SubmissionSide {
    pub(crate) fn new(receiver: Receiver<Message>, holder: Holder) -> Self {
        let jobs = Slab::default();
        let commands = Slab::default();
        Self { receiver, holder, jobs, queue: VecDeque::new(), commands }
    }

    /// Takes in all messages there are.
    pub(crate) fn drain(
        &mut self,
        core: &mut Core,
        executor: &mut Executor,
        machine: &mut AnyMachine,
        exports: &Exports,
        fabric: Option<&dyn Fabric>,
    ) {
        while let Ok(message) = self.receiver.try_recv() {
            match message {
                Message::Command { command, device, done } => {
                    self.command(executor, machine, core.now, (command, device, done));
                }
                Message::Clients { done } => done(exports.clients()),
                Message::Figures { done } => {
                    let mut members = executor.figures();
                    members.extend(machine.block().map(|it| it.figures()).unwrap_or_default());
                    let clients = exports.client_counts();
                    done(Figures { requests: core.figures(), members, clients });
                }
                // Without a fabric, who asks hears that nobody answers.
                Message::Protection { done } => {
                    if let Some(fabric) = fabric {
                        done(fabric.protection());
                    }
                }
                message => match machine.block() {
                    Some(machine) => self.ask(core, machine, message),
                    // Who asks for blocks where there are none hears that nobody answers.
                    None => drop(message),
                },
            }
        }
    }

    fn ask(&mut self, core: &mut Core, machine: &dyn BlockMachine, message: Message) {
        let size = machine.array_sectors() * SECTOR_BYTES;
        let check = |offset: u64, len: u64| {
            let block = u64::from(machine.block_bytes());
            if !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
                return Err(RequestError::Malformed);
            }
            let end = offset.checked_add(len).filter(|&end| end <= size);
            end.map(drop).ok_or(RequestError::OutOfRange)
        };
        match message {
            Message::Read { offset, len, done } => match check(offset, len.into()) {
                Ok(()) => {
                    let data = vec![0; len as usize];
                    self.pieces(JobKind::Read { data, done }, offset, len.into());
                }
                Err(error) => done(Err(error)),
            },
            Message::Write { offset, data, fua, done } => match check(offset, data.len() as u64) {
                Ok(()) => {
                    let len = data.len() as u64;
                    self.pieces(JobKind::Write { data, fua, done }, offset, len);
                }
                Err(error) => done(Err(error)),
            },
            Message::WriteZeroes { offset, len, unmap, done } => match check(offset, len) {
                Ok(()) => {
                    self.plain(core, Op::WriteZeroes { fua: false, unmap }, offset, len, done)
                }
                Err(error) => done(Err(error)),
            },
            Message::Discard { offset, len, done } => match check(offset, len) {
                Ok(()) => self.plain(core, Op::Discard, offset, len, done),
                Err(error) => done(Err(error)),
            },
            Message::Flush { done } => self.plain(core, Op::Flush, 0, 0, done),
            Message::Status { done } => done(machine.status()),
            Message::Command { .. }
            | Message::Clients { .. }
            | Message::Figures { .. }
            | Message::Protection { .. } => {
                unreachable!("not for the array alone")
            }
        }
    }

    fn plain(&mut self, core: &mut Core, op: Op, offset: u64, len: u64, done: PieceAnswer) {
        if len == 0 && op != Op::Flush {
            return done(Ok(()));
        }
        let kind = JobKind::Plain { done };
        let job =
            SplitRequest { kind, start: offset, next: offset, end: offset, pieces: 1, error: None };
        let index = self.jobs.insert(job);
        core.request(op, offset, len, Buf::default(), Owner::SubmissionQueue(index));
    }

    fn pieces(&mut self, kind: JobKind, offset: u64, len: u64) {
        let end = offset + len;
        let job = SplitRequest { kind, start: offset, next: offset, end, pieces: 0, error: None };
        if len == 0 {
            return job.finish();
        }
        let index = self.jobs.insert(job);
        self.queue.push_back(index);
    }

    /// Requests pieces for as long as there is memory.
    pub(crate) fn work(&mut self, core: &mut Core) {
        while let Some(&index) = self.queue.front() {
            let job = &mut self.jobs[index];
            while job.next < job.end {
                let left = u32::try_from(job.end - job.next).unwrap_or(u32::MAX);
                let len = left.min(Request::MAX_BYTES);
                let Some(buf) = core.arena.allocate(&mut self.holder, len) else { return };
                let op = match &job.kind {
                    JobKind::Write { data, fua, .. } => {
                        let at = usize::try_from(job.next - job.start).expect("inside the data");
                        // SAFETY: the buffer was allocated just now.
                        unsafe { core.arena.memory().bytes_mut(buf) }
                            .copy_from_slice(&data[at..at + len as usize]);
                        Op::Write { fua: *fua }
                    }
                    _ => Op::Read,
                };
                core.request(op, job.next, len.into(), buf, Owner::SubmissionQueue(index));
                job.next += u64::from(len);
                job.pieces += 1;
            }
            self.queue.pop_front();
        }
    }

    /// A request of a job is done.
    pub(crate) fn completed(
        &mut self,
        core: &mut Core,
        index: usize,
        request: Request,
        result: Result<(), RequestError>,
    ) {
        let job = &mut self.jobs[index];
        if let (JobKind::Read { data, .. }, Ok(())) = (&mut job.kind, result) {
            let at = request.sector * SECTOR_BYTES - job.start;
            let at = usize::try_from(at).expect("inside the data");
            // SAFETY: the request is complete, so the buffer is the export's again.
            let bytes = unsafe { core.arena.memory().bytes(request.buf) };
            data[at..at + bytes.len()].copy_from_slice(bytes);
        }
        if request.buf.len > 0 {
            core.arena.release(&mut self.holder, request.buf);
        }
        job.error = job.error.or(result.err());
        job.pieces -= 1;
        if job.pieces == 0 && job.next == job.end {
            self.jobs.remove(index).finish();
        }
    }

    fn command(
        &mut self,
        executor: &mut Executor,
        machine: &mut AnyMachine,
        now: Instant,
        (mut command, device, done): (Command, Option<MemberFile>, CommandDone),
    ) {
        let effect = match (&mut command, machine.block()) {
            // A member on a node is no device of this process; nor is an array within.
            (Command::Add(new), _)
                if new.device.starts_with("node://")
                    || device.is_none() && new.member.array_number().is_some() =>
            {
                Effect::Nothing
            }
            (Command::Add(new) | Command::AddJournal(new), Some(machine)) => {
                match attach(executor, machine, new, device) {
                    Ok(id) => Effect::Added(id),
                    Err(error) => return done(Err(error)),
                }
            }
            (Command::Spill(new), Some(machine)) => {
                // Nothing is saved to the last one any more.
                machine.status().spill.iter().for_each(|spill| executor.detach(spill.member));
                match attach(executor, machine, new, device) {
                    Ok(id) => Effect::Added(id),
                    Err(error) => return done(Err(error)),
                }
            }
            (Command::Remove(id), _) => Effect::Removed(*id),
            (Command::Stop, _) => Effect::Stopped,
            _ => Effect::Nothing,
        };
        if let Effect::Added(id) = effect {
            self.leave_place(id);
        }
        let id = CommandId(self.commands.insert((done, effect)) as u64);
        machine.handle(now, Event::Command { id, command });
    }

    /// Takes note that another device has a member's place. The machine gives a place away as soon
    /// as it has let go of who had it, and answers the command that made it do so when superblocks
    /// tell of that.
    fn leave_place(&mut self, id: MemberId) {
        for (_, (_, effect)) in self.commands.iter_mut() {
            if matches!(effect, Effect::Added(had) | Effect::Removed(had) if *had == id) {
                *effect = Effect::Nothing;
            }
        }
    }

    /// Ends a command that the machine has answered. Returns the callback for the end of the
    /// engine, when it shall end.
    pub(crate) fn replied(
        &mut self,
        executor: &mut Executor,
        id: CommandId,
        result: Result<(), Refusal>,
    ) -> Option<CommandDone> {
        let index = usize::try_from(id.0).expect("command ids are slab indices");
        let (done, effect) = self.commands.remove(index);
        match (effect, &result) {
            (Effect::Stopped, Ok(())) => return Some(done),
            (Effect::Added(member), Err(_)) | (Effect::Removed(member), Ok(())) => {
                executor.detach(member);
            }
            _ => {}
        }
        done(result);
        None
    }

    /// Refuses all remaining jobs and commands, as the engine ends.
    pub(crate) fn refuse_rest(&mut self) {
        let error = RequestError::Failed;
        while let Ok(message) = self.receiver.try_recv() {
            match message {
                Message::Read { done, .. } => done(Err(error)),
                Message::Write { done, .. }
                | Message::WriteZeroes { done, .. }
                | Message::Discard { done, .. }
                | Message::Flush { done } => done(Err(error)),
                Message::Command { done, .. } => done(Err(stopping())),
                Message::Status { .. }
                | Message::Clients { .. }
                | Message::Figures { .. }
                | Message::Protection { .. } => {}
            }
        }
        for mut job in self.jobs.drain() {
            job.error = Some(error);
            job.finish();
        }
        for (done, _) in self.commands.drain() {
            done(Err(stopping()));
        }
    }
}

impl SplitRequest {
    fn finish(self) {
        let result = self.error.map_or(Ok(()), Err);
        match self.kind {
            JobKind::Read { data, done } => done(result.map(|()| data)),
            JobKind::Write { done, .. } | JobKind::Plain { done } => done(result),
        }
    }
}

/// Gives a new device an id and a place in the table.
fn attach(
    executor: &mut Executor,
    machine: &dyn BlockMachine,
    new: &mut NewMember,
    device: Option<MemberFile>,
) -> Result<MemberId, Refusal> {
    let refused = |reason: &str, next: &'static str| Refusal::new(reason, next);
    let device = device.ok_or_else(|| refused("no device was opened", "name a device"))?;
    let free = match new.member.array_number() {
        Some(_) => machine.free_member_within(new.member),
        None => machine.free_member(),
    };
    let id = free.ok_or_else(|| {
        refused("the table of members is full", "remove faulty members or spares first")
    })?;
    executor.attach(id, device);
    new.member = id;
    Ok(id)
}

fn stopping() -> Refusal {
    Refusal::new("the array is stopping", "assemble it again")
}
