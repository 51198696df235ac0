//! A machine whose members' data are verified.

use super::area_io::AreaIo;
use super::checks::Checks;
use crate::action::{Command, CommandId, Event};
use crate::array::Scratch;
use crate::events::ArrayEvent;
use crate::figures::MemberFigures;
use crate::grow::has_checksums;
use crate::integrity::FoundArea;
use crate::request::{Full, Request};
use crate::status::Status;
use crate::{Action, BlockMachine, Buf, Instant, Machine, MemberId};

/// An array, or a stack of them, of which some members have integrity areas.
///
/// What the machine within asks of members passes here, and so do the answers. A block that it
/// reads and whose checksum is known fits, or the read fails as one of a bad sector does, and is
/// made up for in the same way. What it writes changes the table. So no level, job or log knows of
/// checksums.
///
/// When it has stopped, it is told so once the tables are on the members.
#[derive(Debug)]
pub struct IntegrityMachine<M> {
    inner: M,
    checks: Checks,
    stop: StopProgress,
    removals: Vec<HeldRemoval>,
}

/// Ids from here on are those of commands that are given here, for the member of that number.
const RENEWALS: u64 = u64::MAX - u16::MAX as u64;

/// Progress of a stop.
#[derive(Debug)]
enum StopProgress {
    Serving,
    /// The machine within has been told to stop.
    Asked(CommandId),
    /// It has: its answer is held back.
    Closing(CommandId),
}

/// A removal of a member, whose answer is held back until nothing is under way for its area.
#[derive(Debug)]
struct HeldRemoval {
    id: CommandId,
    member: MemberId,
    /// The machine within has removed it.
    done: bool,
}

impl<M: BlockMachine> IntegrityMachine<M> {
    /// Bytes of memory that it takes besides that of the machine.
    pub const SCRATCH_BYTES: u64 = AreaIo::SCRATCH_BYTES;

    /// Verifies what a machine reads that has not been polled yet, of members with these areas.
    /// `scratch` has [`SCRATCH_BYTES`](Self::SCRATCH_BYTES).
    #[must_use]
    pub fn new(inner: M, found: Vec<(MemberId, FoundArea)>, scratch: Scratch) -> Self {
        let read_only = inner.read_only();
        Self {
            inner,
            checks: Checks::new(found, read_only, scratch),
            stop: StopProgress::Serving,
            removals: Vec::new(),
        }
    }

    fn take_command(&mut self, now: Instant, id: CommandId, command: Command) {
        match &command {
            Command::Grow(_) | Command::GrowSuspending(_) => {
                let why = has_checksums();
                self.checks.take(Action::Reply { id, result: Err(why) });
                return;
            }
            Command::Stop => self.stop = StopProgress::Asked(id),
            Command::Remove(member) => {
                self.removals.push(HeldRemoval { id, member: *member, done: false });
            }
            // The id is refused where a member still has it.
            Command::Add(new) | Command::AddJournal(new) | Command::Spill(new)
                if self.inner.status().member(new.member).is_none() =>
            {
                self.checks.retire(new.member);
            }
            _ => {}
        }
        self.inner.handle(now, Event::Command { id, command });
    }

    /// Takes members as far as they go, and passes answers in, until none comes.
    fn pass(&mut self) {
        self.checks.advance();
        for member in std::mem::take(&mut self.checks.renewals) {
            let id = CommandId(RENEWALS + u64::from(member.0));
            let command = Command::RenewSuperblocks(member);
            self.inner.handle(self.checks.now, Event::Command { id, command });
        }
        while let Some((io, result)) = self.checks.answers.pop_front() {
            self.inner.handle(self.checks.now, Event::Done { io, result });
            self.checks.advance();
        }
    }

    fn take_action(&mut self, action: Action) {
        match &action {
            Action::Reply { id, result } if id.0 >= RENEWALS => {
                if result.is_err() {
                    self.checks.superblocks_over(MemberId((id.0 - RENEWALS) as u16));
                }
                return;
            }
            Action::Reply { id, result } => {
                let id = *id;
                if result.is_ok() && matches!(self.stop, StopProgress::Asked(asked) if asked == id)
                {
                    self.checks.close();
                    self.stop = StopProgress::Closing(id);
                    return;
                }
                let removal = self.removals.iter().position(|removal| removal.id == id);
                match removal {
                    Some(at) if result.is_ok() => {
                        self.removals[at].done = true;
                        return self.checks.retire(self.removals[at].member);
                    }
                    Some(at) => drop(self.removals.remove(at)),
                    None => {}
                }
            }
            Action::Notify(event) => {
                if let Some(member) = lost(event) {
                    self.checks.lose(member);
                }
                if has_failed(event) {
                    self.checks.ask_again();
                }
            }
            _ => {}
        }
        self.checks.take(action);
    }

    /// Returns an answer that was held back, and need not be any longer.
    fn next_reply(&mut self) -> Option<Action> {
        let reply = |id| Some(Action::Reply { id, result: Ok(()) });
        let is_over = |removal: &HeldRemoval| removal.done && self.checks.rests(removal.member);
        if let Some(at) = self.removals.iter().position(is_over) {
            return reply(self.removals.remove(at).id);
        }
        match self.stop {
            StopProgress::Closing(id) if self.checks.is_closed() => {
                self.stop = StopProgress::Serving;
                reply(id)
            }
            _ => None,
        }
    }
}

/// The member that fails by this event.
fn lost(event: &ArrayEvent) -> Option<MemberId> {
    match event {
        ArrayEvent::MemberFailed { member, .. } => Some(*member),
        ArrayEvent::Within { event, .. } => lost(event),
        _ => None,
    }
}

/// Returns whether an array has failed by this event.
fn has_failed(event: &ArrayEvent) -> bool {
    match event {
        ArrayEvent::ArrayFailed => true,
        ArrayEvent::Within { event, .. } => has_failed(event),
        _ => false,
    }
}

impl<M: BlockMachine> Machine for IntegrityMachine<M> {
    fn handle(&mut self, now: Instant, event: Event) {
        self.checks.at(now);
        match event {
            Event::Done { io, result } if AreaIo::is_own(io) => self.checks.done(io, result),
            Event::Loaded { io, bytes } if AreaIo::is_own(io) => self.checks.loaded(io, &bytes),
            Event::Done { io, result } => {
                if let Some(result) = self.checks.compared(io, result) {
                    self.inner.handle(now, Event::Done { io, result });
                }
            }
            Event::Command { id, command } => self.take_command(now, id, command),
            Event::Tick => {
                self.checks.tick();
                self.inner.handle(now, Event::Tick);
            }
            event => self.inner.handle(now, event),
        }
    }

    fn poll(&mut self) -> Option<Action> {
        loop {
            self.pass();
            if let Some(action) = self.checks.io.actions.pop_front() {
                return Some(action);
            }
            if let Some(action) = self.inner.poll() {
                self.take_action(action);
                continue;
            }
            return self.next_reply();
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.inner.deadline().into_iter().chain(self.checks.deadline()).min()
    }

    fn idle(&self) -> bool {
        let waits = matches!(self.stop, StopProgress::Closing(_))
            || self.removals.iter().any(|removal| removal.done);
        self.inner.idle() && self.checks.is_idle() && !waits
    }

    fn each_unused(&self, found: &mut dyn FnMut(Buf)) {
        self.inner.each_unused(found);
        self.checks.io.each_unused(found);
    }

    fn invariants(&self) -> Result<(), String> {
        self.inner.invariants()?;
        self.checks.check()
    }
}

impl<M: BlockMachine> BlockMachine for IntegrityMachine<M> {
    fn submit(&mut self, now: Instant, request: Request) -> Result<(), Full> {
        self.checks.at(now);
        self.inner.submit(now, request)
    }

    fn expect_writes(&mut self, more: bool) {
        self.inner.expect_writes(more);
    }

    fn status(&self) -> Status {
        let mut status = self.inner.status();
        status.integrity = Some(self.checks.status());
        status
    }

    fn figures(&self) -> Vec<MemberFigures> {
        self.inner.figures()
    }

    fn array_sectors(&self) -> u64 {
        self.inner.array_sectors()
    }

    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn free_member(&self) -> Option<MemberId> {
        self.inner.free_member()
    }

    fn free_member_within(&self, array: MemberId) -> Option<MemberId> {
        self.inner.free_member_within(array)
    }
}
